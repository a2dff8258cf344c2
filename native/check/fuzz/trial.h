// One file, tried: loaded, planned for several shapes, run. What must hold is checked on the way.
#pragma once

#include "check/fuzz/allocations.h"
#include "engine/program.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeropoint::check {

// What the bounds on memory are, see docs/reliability.md.
struct Bounds {
    int64_t memory_limit = int64_t{4} << 20;  // given to the program
    double macs = 2e7;                        // larger runs are planned, not run; none if it is below 0

    // The JSON, and weights packed for this CPU: of a small file, and of a large one.
    int64_t load(int64_t file) const { return std::min((int64_t{2} << 20) + 1024 * file, 64'000'000 + 64 * file); }
    int64_t run(int64_t file) const { return load(file) + memory_limit; }
};

// How far it came. The order is that of the stages.
enum class Stage : int { container, program, loaded, planned, ran };

struct Trial {
    Stage stage = Stage::container;
    std::string refusal;  // why it came no further
    std::string wrong;    // empty, or what must not be
    int64_t load_peak = 0, run_peak = 0, largest = 0;
    double load_seconds = 0, run_seconds = 0;
};

// The container and the JSON of its program alone: read within the bounds, refused in words, and what was read is the
// same when it is written and read again. Ends at Stage::loaded.
Trial try_container(std::string_view file, const Bounds& bounds);

// `on_stage` is called when a stage begins. `number` chooses shapes and values of the inputs.
Trial try_file(std::string_view file, uint64_t number, const Bounds& bounds, void (*on_stage)(int stage));

}  // namespace zeropoint::check
