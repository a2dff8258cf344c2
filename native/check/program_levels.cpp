// program_levels FILE...: programs on every instruction set: the same bytes from all, and those that were kept with the
// program. For each file, inputs of several sizes, chosen by chance, run at every level that this CPU has, with one
// thread and with two; what the reference kernels give is right. Where a file of the same name that ends in
// .safetensors lies beside it, its arrays input_00, ... must give its output_00, ... as well.
#include "check/fuzz/arrays.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

#include <cstdio>
#include <filesystem>
#include <map>

namespace zeropoint::check {
namespace {

constexpr int kRounds = 8;
constexpr int kThreads[] = {1, 2};

std::vector<Isa> levels() {
    std::vector<Isa> r;
    for (Isa isa : kIsas)
        if (cpu_features().has(needs_of(isa))) r.push_back(isa);
    return r;
}

// What a run gave: results, or why there are none.
struct Outcome {
    std::vector<Tensor> outputs;
    std::vector<Bytes> bytes;
    std::string refusal;

    bool operator==(const Outcome& other) const {
        return refusal == other.refusal && outputs.size() == other.outputs.size() &&
               are_same(outputs, bytes, other.bytes);
    }
};

Outcome outcome_of(Program& program, const std::vector<InputLayout>& layouts, const Arrays& arrays, uint8_t before) {
    Outcome r;
    try {
        const auto plan = program.plan(layouts);
        r.bytes = outputs_of(program, *plan, arrays, before);
        r.outputs = plan->outputs;
    } catch (const std::exception& error) {
        r.refusal = error.what();
    }
    return r;
}

// The elements of an output in the order of its axes.
Bytes in_order(const Tensor& y, const Bytes& bytes) {
    Bytes r(bytes.size());
    const size_t width = static_cast<size_t>(bytes_of(y.type));
    Sizes at(y.sizes.size(), 0);
    for (size_t to = 0; to < r.size(); to += width) {
        int64_t from = 0;
        for (size_t axis = 0; axis < at.size(); ++axis) from += at[axis] * y.strides[axis];
        std::memcpy(r.data() + to, bytes.data() + static_cast<size_t>(from) * width, width);
        for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == y.sizes[axis];) at[axis] = 0;
    }
    return r;
}

class LevelCheck {
public:
    explicit LevelCheck(const std::string& path) : path_(path), program_(Container::read(path, tensors_in_place)) {}

    // Whether nothing differs.
    bool run() {
        Random random(1, 2);
        for (int round = 0; round < kRounds; ++round) {
            const std::vector<InputLayout> layouts = some_layouts(program_, random, round < 2);
            const Arrays arrays(program_, layouts, random, round % 2 == 1);
            set_active_isa(Isa::reference);
            set_num_threads(1);
            const Outcome want = outcome_of(program_, layouts, arrays, 0x11);
            each_level([&](const std::string& where) {
                if (!(outcome_of(program_, layouts, arrays, 0xEE) == want))
                    complain(where + ": round " + std::to_string(round) + " differs from the reference kernels");
            });
        }
        check_kept();
        std::printf("%-5s %s, %d runs\n", right_ ? "ok" : "WRONG", path_.c_str(), runs_);
        return right_;
    }

private:
    template <class Body>
    void each_level(const Body& body) {
        for (Isa isa : levels())
            for (int threads : kThreads) {
                set_active_isa(isa);
                set_num_threads(threads);
                ++runs_;
                body(std::string(isa_name(isa)) + ", " + std::to_string(threads) + " threads");
            }
    }

    void check_kept() {
        const std::string beside = std::filesystem::path(path_).replace_extension(".safetensors").string();
        if (!std::filesystem::exists(beside)) return;
        const Container kept = Container::read(beside);
        std::vector<InputLayout> layouts;
        std::vector<Bytes> values, want;
        for (const auto& [name, tensor] : kept.tensors()) {  // by name, so in their order
            const bool input = name.rfind("input_", 0) == 0;
            (input ? values : want).emplace_back(tensor.data, tensor.data + tensor.bytes());
            if (input) layouts.push_back({tensor.sizes, false});
        }
        const Arrays arrays(std::move(values));
        each_level([&](const std::string& where) {
            const Outcome got = outcome_of(program_, layouts, arrays, 0x77);
            bool same = got.refusal.empty() && got.bytes.size() == want.size();
            for (size_t i = 0; i < want.size() && same; ++i) same = in_order(got.outputs[i], got.bytes[i]) == want[i];
            if (!same) complain(where + ": not the results that were kept " + got.refusal);
        });
    }

    void complain(const std::string& what) {
        right_ = false;
        std::printf("%s, %s\n", path_.c_str(), what.c_str());
    }

    const std::string path_;
    Program program_;
    bool right_ = true;
    int runs_ = 0;
};

int check_levels(const std::vector<std::string>& paths) {
    int wrong = 0;
    for (const std::string& path : paths) wrong += LevelCheck(path).run() ? 0 : 1;
    std::string names;
    for (Isa isa : levels()) names += std::string(" ") + isa_name(isa);
    std::printf("%zu programs at%s\n%d wrong\n", paths.size(), names.c_str(), wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace zeropoint::check

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: program_levels FILE...\n");
        return 2;
    }
    try {
        return zeropoint::check::check_levels({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "program_levels: %s\n", error.what());
        return 2;
    }
}
