#include "engine/json.h"

#include "cpu/decimal.h"

#include "engine/tensor.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace zeropoint {
namespace {

constexpr int kDeepest = 32;

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    Json document() {
        Json json = value(0);
        space();
        if (at_ != text_.size()) fail("nothing may follow");
        return json;
    }

private:
    [[noreturn]] void fail(const char* what) const {
        throw FormatError("JSON at byte " + std::to_string(at_) + ": " + what);
    }
    bool more() const { return at_ < text_.size(); }
    char peek() const { return more() ? text_[at_] : '\0'; }
    void space() {
        while (more() && (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r')) ++at_;
    }
    void expect(char c, const char* what) {
        if (!more() || peek() != c) fail(what);
        ++at_;
    }
    bool take(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Json value(int depth) {
        if (depth > kDeepest) fail("nested too deep");
        space();
        switch (peek()) {
            case '{': return record(depth);
            case '[': return list(depth);
            case '"': return {string()};
            case 't':
                if (take("true")) return {true};
                break;
            case 'f':
                if (take("false")) return {false};
                break;
            case 'n':
                if (take("null")) return {nullptr};
                break;
            default: return number();
        }
        fail("expected a value");
    }

    // Of few keys each is compared with each; many are sorted. A hash is no help here: a file can have keys that all
    // have the same, and then takes a time that grows with the square of their number.
    static bool repeats_a_key(const Json::Record& record) {
        constexpr size_t kFew = 16;
        if (record.size() < kFew) {
            for (size_t i = 1; i < record.size(); ++i)
                for (size_t k = 0; k < i; ++k)
                    if (record[i].first == record[k].first) return true;
            return false;
        }
        std::vector<std::string_view> keys;
        keys.reserve(record.size());
        for (const auto& field : record) keys.emplace_back(field.first);
        std::sort(keys.begin(), keys.end());
        return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
    }

    Json record(int depth) {
        Json::Record record;
        ++at_;
        space();
        if (peek() == '}') {
            ++at_;
            return {std::move(record)};
        }
        for (;;) {
            space();
            if (peek() != '"') fail("expected a key");
            std::string key = string();
            space();
            expect(':', "expected ':'");
            record.emplace_back(std::move(key), value(depth + 1));
            space();
            if (peek() != ',') break;
            ++at_;
        }
        expect('}', "expected ',' or '}'");
        if (repeats_a_key(record)) fail("a key is repeated");
        return {std::move(record)};
    }

    Json list(int depth) {
        Json::List list;
        ++at_;
        space();
        if (peek() == ']') {
            ++at_;
            return {std::move(list)};
        }
        for (;;) {
            list.push_back(value(depth + 1));
            space();
            if (peek() != ',') break;
            ++at_;
        }
        expect(']', "expected ',' or ']'");
        return {std::move(list)};
    }

    uint32_t four_digits() {
        uint32_t code = 0;
        const char* first = text_.data() + at_;
        if (text_.size() - at_ < 4) fail("a \\u needs four digits");
        const auto read = std::from_chars(first, first + 4, code, 16);
        if (read.ec != std::errc() || read.ptr != first + 4) fail("a \\u needs four digits");
        at_ += 4;
        return code;
    }

    void append(std::string& out, uint32_t code) {
        const auto byte = [&](uint32_t b) { out.push_back(static_cast<char>(b)); };
        if (code < 0x80) {
            byte(code);
        } else if (code < 0x800) {
            byte(0xC0 | code >> 6);
            byte(0x80 | (code & 63));
        } else if (code < 0x10000) {
            byte(0xE0 | code >> 12);
            byte(0x80 | (code >> 6 & 63));
            byte(0x80 | (code & 63));
        } else {
            byte(0xF0 | code >> 18);
            byte(0x80 | (code >> 12 & 63));
            byte(0x80 | (code >> 6 & 63));
            byte(0x80 | (code & 63));
        }
    }

    void escape(std::string& out) {
        const char c = peek();
        if (!more()) fail("a string does not end");
        ++at_;
        switch (c) {
            case '"':
            case '\\':
            case '/': out.push_back(c); return;
            case 'b': out.push_back('\b'); return;
            case 'f': out.push_back('\f'); return;
            case 'n': out.push_back('\n'); return;
            case 'r': out.push_back('\r'); return;
            case 't': out.push_back('\t'); return;
            case 'u': break;
            default: fail("an unknown escape");
        }
        uint32_t code = four_digits();
        if (code >= 0xD800 && code < 0xDC00) {
            if (!take("\\u")) fail("half of a surrogate pair");
            const uint32_t low = four_digits();
            if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else if (code >= 0xDC00 && code <= 0xDFFF) {
            fail("half of a surrogate pair");
        }
        append(out, code);
    }

    // One character of UTF-8: not overlong, no surrogate, within Unicode.
    void character(std::string& out) {
        const auto byte = [&](size_t i) {
            return at_ + i < text_.size() ? static_cast<uint8_t>(text_[at_ + i]) : uint8_t{0};
        };
        const uint8_t first = byte(0);
        const size_t length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        if (length == 0 || first > 0xF4) fail("not UTF-8");
        for (size_t i = 1; i < length; ++i)
            if ((byte(i) & 0xC0) != 0x80) fail("not UTF-8");
        const uint8_t second = byte(1);
        if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
            (first == 0xF4 && second > 0x8F))
            fail("not UTF-8");
        out.append(text_.substr(at_, length));
        at_ += length;
    }

    // ASCII that stands for itself in a string.
    static bool is_plain(char c) { return c >= 0x20 && c != '"' && c != '\\' && static_cast<uint8_t>(c) < 0x80; }

    std::string string() {
        std::string out;
        ++at_;
        for (;;) {
            const size_t begin = at_;
            while (more() && is_plain(text_[at_])) ++at_;
            out.append(text_.substr(begin, at_ - begin));
            if (!more()) fail("a string does not end");
            const char c = peek();
            if (c == '"') break;
            if (static_cast<uint8_t>(c) < 0x20) fail("a control character in a string");
            if (c == '\\') {
                ++at_;
                escape(out);
            } else {
                character(out);
            }
        }
        ++at_;
        return out;
    }

    void digits() {
        if (!(peek() >= '0' && peek() <= '9')) fail("expected a value");
        while (peek() >= '0' && peek() <= '9') ++at_;
    }

    Json number() {
        const size_t begin = at_;
        bool whole = true;
        if (peek() == '-') ++at_;
        if (peek() == '0')
            ++at_;
        else
            digits();
        if (peek() == '.') {
            whole = false;
            ++at_;
            digits();
        }
        if (peek() == 'e' || peek() == 'E') {
            whole = false;
            ++at_;
            if (peek() == '+' || peek() == '-') ++at_;
            digits();
        }
        const char *first = text_.data() + begin, *last = text_.data() + at_;
        if (whole) {
            int64_t integer = 0;
            if (std::from_chars(first, last, integer).ec != std::errc()) fail("an integer does not fit in 64 bits");
            return {integer};
        }
        double real = 0;
        if (!read_decimal(first, last, real)) fail("a number is out of range");
        return {real};
    }

    std::string_view text_;
    size_t at_ = 0;
};

}  // namespace

bool Json::number(double& out) const {
    if (const int64_t* i = integer())
        out = static_cast<double>(*i);
    else if (const double* d = std::get_if<double>(&value))
        out = *d;
    else
        return false;
    return true;
}

const Json* Json::find(std::string_view key) const {
    if (const Record* fields = record())
        for (const auto& field : *fields)
            if (field.first == key) return &field.second;
    return nullptr;
}

Json parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace zeropoint
