// What kernel_check prints: one line per check with its number of cases, the first mismatches, and the closing line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace zeropoint::check {

class Report;

// One line of the report.
class Check {
public:
    Check(std::string subject, std::string aspect) : subject_(std::move(subject)), aspect_(std::move(aspect)) {}

    // `describe` is called only on failure, and only for the first few.
    template <class Describe>
    void expect(bool ok, const Describe& describe) {
        ++cases_;
        if (ok) return;
        constexpr int64_t kShown = 3;
        if (failures_++ < kShown) shown_ += "        " + std::string(describe()) + "\n";
    }
    void expect(bool ok, const char* what) {
        expect(ok, [what] { return what; });
    }

private:
    friend class Report;
    std::string subject_, aspect_, shown_;
    int64_t cases_ = 0, failures_ = 0;
};

class Report {
public:
    void add(const Check& c) {
        const bool ok = c.failures_ == 0 && c.cases_ > 0;
        (ok ? passed_ : failed_) += 1;
        std::printf("%-5s %-18s %-28s %9lld cases", ok ? "ok" : "FAIL", c.subject_.c_str(), c.aspect_.c_str(),
                    static_cast<long long>(c.cases_));
        if (!ok) std::printf(", %lld wrong", static_cast<long long>(c.failures_));
        std::printf("\n%s", c.shown_.c_str());
        std::fflush(stdout);
    }
    void skip(const std::string& subject, const std::string& aspect, const std::string& reason) {
        ++skipped_;
        std::printf("skip  %-18s %-28s %s\n", subject.c_str(), aspect.c_str(), reason.c_str());
    }
    // The closing line; returns the exit code.
    int close() const {
        std::printf("%d passed, %d failed, %d skipped\n", passed_, failed_, skipped_);
        return failed_ == 0 && passed_ > 0 ? 0 : 1;
    }

private:
    int passed_ = 0, failed_ = 0, skipped_ = 0;
};

}  // namespace zeropoint::check
