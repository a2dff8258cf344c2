#include "engine/depth_first.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace zeropoint {
namespace {

// Where the images of a buffer lie.
struct Images {
    int64_t offset, stride;

    bool operator==(const Images& other) const { return offset == other.offset && stride == other.stride; }
};
using Touched = std::map<int32_t, Images>;

// Adds the buffers of an instruction. False if its images are not those that earlier instructions have there: then one
// image would read what belongs to another.
bool touch(const Instruction& instruction, Touched& touched) {
    for (size_t p = 0; p < instruction.places.size(); ++p) {
        const Images images{instruction.places[p].offset, instruction.per_image.strides[p]};
        if (!(touched.emplace(instruction.places[p].buffer, images).first->second == images)) return false;
    }
    return true;
}

// What calling an instruction once more costs, in bytes: about a microsecond of reading from L3.
constexpr int64_t kCall = 16 << 10;

double gain(const PerImage& per_image, const DepthFirstCosts& costs) {
    const int64_t bytes = std::accumulate(per_image.strides.begin(), per_image.strides.end(), int64_t{0});
    // Several threads read what others have written.
    const bool leaves = costs.threads > 1 || bytes * per_image.images > costs.l2_bytes;
    return static_cast<double>(leaves ? bytes : 0) - static_cast<double>(per_image.weights + kCall);
}

// The threads end together, or nearly: a tenth is what depth first gains where it gains little.
bool divides(int64_t images, int threads) {
    const int64_t rounds = (images + threads - 1) / threads;
    return rounds * threads * 10 <= images * 11;
}

// The part of [first, last] with the greatest gain; empty if there is none.
std::pair<int32_t, int32_t> best_part(const Plan& plan, int32_t first, int32_t last, const DepthFirstCosts& costs) {
    double best = 0, sum = 0;
    std::pair<int32_t, int32_t> part{first, first - 1};
    for (int32_t i = first, begin = first; i <= last; ++i) {
        sum += gain(plan.instructions[static_cast<size_t>(i)].per_image, costs);
        if (sum <= 0) {
            sum = 0;
            begin = i + 1;
        } else if (sum > best && i > begin) {
            best = sum;
            part = {begin, i};
        }
    }
    return part;
}

void add_run(Plan& plan, int32_t first, int32_t last, const DepthFirstCosts& costs) {
    DepthFirst run;
    run.first = first;
    run.last = last;
    run.images = plan.instructions[static_cast<size_t>(first)].per_image.images;
    run.slots = static_cast<int>(std::min<int64_t>(costs.threads, run.images));
    Touched touched;
    for (int32_t i = first; i <= last; ++i) {
        const Instruction& instruction = plan.instructions[static_cast<size_t>(i)];
        touch(instruction, touched);
        run.places = std::max(run.places, instruction.places.size());
    }
    const int32_t number = static_cast<int32_t>(plan.runs.size());
    const auto is_inside = [&](const Buffer& b, const Images& images) {
        return b.kind == BufferKind::arena && b.first >= first && b.last <= last && images.offset == 0 &&
               images.stride * run.images == b.bytes;
    };
    for (const auto& [index, images] : touched) {
        Buffer& b = plan.buffers[static_cast<size_t>(index)];
        if (is_inside(b, images)) {
            b.run = number;
            b.bytes = images.stride;
        } else {
            // In use as long as the run: its last image is read, or its first written, by any of the instructions.
            b.first = std::min(b.first, first);
            b.last = std::max(b.last, last);
        }
    }
    plan.most_places = std::max(plan.most_places, run.places * static_cast<size_t>(run.slots));
    plan.runs.push_back(run);
}

}  // namespace

void find_runs(Plan& plan, const DepthFirstCosts& costs) {
    const int32_t count = static_cast<int32_t>(plan.instructions.size());
    for (int32_t first = 0; first < count; ++first) {
        const int64_t images = plan.instructions[static_cast<size_t>(first)].per_image.images;
        if (images < 2 || !divides(images, costs.threads)) continue;
        Touched touched;
        int32_t last = first - 1;
        while (last + 1 < count) {
            const Instruction& next = plan.instructions[static_cast<size_t>(last + 1)];
            if (next.per_image.images != images || !touch(next, touched)) break;
            ++last;
        }
        const auto [begin, end] = best_part(plan, first, last, costs);
        if (begin <= end) add_run(plan, begin, end, costs);
        first = std::max(first, std::max(last, end));
    }
}

}  // namespace zeropoint
