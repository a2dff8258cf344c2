#include "check/fuzz/trial.h"

#include "check/fuzz/arrays.h"
#include "check/fuzz/json_text.h"
#include "cpu/isa.h"

#include <ctime>
#include <vector>

namespace zeropoint::check {
namespace {

constexpr int64_t kMostInput = int64_t{1} << 20;   // bytes
constexpr int64_t kMostPlaces = int64_t{1} << 22;  // elements of the values of a run
constexpr int kShapes = 3;

// Of this process, on its CPU: files are tried where others work, too.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

bool is_small(const Program& program, const std::vector<InputLayout>& layouts, const Plan& plan, double most_macs) {
    double macs = 0;
    int64_t bytes = plan.value_bytes;
    for (const Instruction& instruction : plan.instructions) macs += instruction.macs;
    for (const Tensor& y : plan.outputs) bytes += y.bytes();
    for (size_t i = 0; i < layouts.size(); ++i)
        if (count_of(layouts[i].sizes) * bytes_of(program.inputs()[i].type) > kMostInput) return false;
    return macs <= most_macs && bytes <= kMostPlaces;
}

// Takes what was allocated since the last reset into the trial, which goes wrong if that is more than `bound`.
void measure(Trial& trial, int64_t file, int64_t before, int64_t& peak, int64_t bound, const char* what) {
    const Allocations seen = allocations();
    const int64_t taken = std::max(seen.peak - before, seen.largest);
    peak = std::max(peak, seen.peak - before);
    trial.largest = std::max(trial.largest, seen.largest);
    if (taken > bound && trial.wrong.empty())
        trial.wrong = std::string(what) + " a file of " + std::to_string(file) + " bytes takes " +
                      std::to_string(taken) + " bytes of memory, more than " + std::to_string(bound);
}

std::string text_of(const Json& json) {
    std::string text;
    write_json(json, text);
    return text;
}

}  // namespace

Trial try_container(std::string_view file, const Bounds& bounds) {
    Trial trial;
    const int64_t size = static_cast<int64_t>(file.size());
    fill_allocations(0x5A);
    reset_allocations();
    const int64_t at_start = allocations().live;
    const double begin = now();
    Json program;
    try {
        const Container container(file);
        trial.stage = Stage::program;
        const auto found = container.metadata().find("zeropoint.program");
        if (found != container.metadata().end()) program = parse_json(found->second);
        trial.stage = Stage::loaded;
    } catch (const FormatError& error) {
        trial.refusal = error.what();
    } catch (const std::exception& error) {
        trial.wrong = std::string("reading raised another error than FormatError: ") + error.what();
    }
    trial.load_seconds = now() - begin;
    measure(trial, size, at_start, trial.load_peak, bounds.load(size), "reading");
    if (trial.stage == Stage::loaded && trial.wrong.empty()) {
        const std::string once = text_of(program);
        if (text_of(parse_json(once)) != once) trial.wrong = "the JSON changes when it is written and read again";
    }
    return trial;
}

Trial try_file(std::string_view file, uint64_t number, const Bounds& bounds, void (*on_stage)(int stage)) {
    Trial trial;
    const int64_t size = static_cast<int64_t>(file.size());
    Random random(number, 1);
    const auto enter = [&](Stage stage) {
        trial.stage = stage;
        on_stage(static_cast<int>(stage));
    };
    fill_allocations(0x5A);
    reset_allocations();
    const int64_t at_start = allocations().live;
    double begin = now();
    std::unique_ptr<Program> program;
    enter(Stage::container);
    try {
        Container container(file);
        enter(Stage::program);
        program = Program::of_stranger(std::move(container), bounds.memory_limit);
        enter(Stage::loaded);
    } catch (const FormatError& error) {
        trial.refusal = error.what();
    } catch (const std::exception& error) {
        trial.wrong = std::string("loading raised another error than FormatError: ") + error.what();
    }
    trial.load_seconds = now() - begin;
    measure(trial, size, at_start, trial.load_peak, bounds.load(size), "loading");
    if (!program || !trial.wrong.empty()) return trial;

    for (int shape = 0; shape < kShapes && trial.wrong.empty(); ++shape) {
        const std::vector<InputLayout> layouts = some_layouts(*program, random, shape == 0);
        std::shared_ptr<const Plan> plan;
        begin = now();
        reset_allocations();
        const int64_t loaded = allocations().live;
        try {
            plan = program->plan(layouts);
        } catch (const PlanError& error) {
            trial.refusal = error.what();
        } catch (const std::exception& error) {
            trial.wrong = std::string("planning raised another error than PlanError: ") + error.what();
        }
        trial.load_seconds = std::max(trial.load_seconds, now() - begin);
        measure(trial, size, loaded, trial.load_peak, bounds.load(size), "planning");
        if (!plan) continue;
        enter(std::max(trial.stage, Stage::planned));
        int64_t results = plan->arena_bytes;
        for (const Tensor& y : plan->outputs) results += y.bytes();
        if (results > bounds.memory_limit)
            trial.wrong = "a plan needs " + std::to_string(results) + " bytes, more than the limit";
        if (!trial.wrong.empty() || !is_small(*program, layouts, *plan, bounds.macs)) continue;
        const Arrays arrays(*program, layouts, random, true);
        enter(Stage::ran);
        begin = now();
        try {
            reset_allocations();
            const int64_t planned = allocations().live;
            const std::vector<Bytes> first = outputs_of(*program, *plan, arrays, 0x11);
            trial.run_seconds = std::max(trial.run_seconds, now() - begin);
            measure(trial, size, planned, trial.run_peak, bounds.run(size), "running");
            // Once more, over what the first run has left behind.
            if (outputs_of(*program, *plan, arrays, 0xEE) != first) trial.wrong = "two runs differ";
            const Isa best = active_isa();
            if (shape == 0 && number % 4 == 0 && trial.wrong.empty()) {
                set_active_isa(Isa::portable);
                const auto other = program->plan(layouts);
                if (!are_same(plan->outputs, outputs_of(*program, *other, arrays, 0x77), first))
                    trial.wrong = std::string("portable and ") + isa_name(best) + " kernels differ";
                set_active_isa(best);
            }
        } catch (const std::invalid_argument& error) {  // of values that cannot be: an infinite range, a missing row
            trial.refusal = error.what();
        } catch (const std::exception& error) {
            trial.wrong = std::string("running raised: ") + error.what();
        }
    }
    return trial;
}

}  // namespace zeropoint::check
