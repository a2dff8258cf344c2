#include "operators/weight_only.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "kernels/weight_only/blocks.h"
#include "operators/scratch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

struct BlockMemory;
struct InputMemory;
struct SumMemory;

WeightFormat format_of(WeightStorage storage) {
    switch (storage) {
        case WeightStorage::u4: return WeightFormat::u4;
        case WeightStorage::f16: return WeightFormat::f16;
        default: return WeightFormat::u8;
    }
}

// What is added to signed integers, which are stored unsigned.
int shift_of(WeightStorage storage) { return storage == WeightStorage::s8 ? 128 : 0; }

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("weight_only: " + what); }

void require_count(const char* name, const WeightParameters& p, int64_t outputs, int64_t groups) {
    if (p.count == 1 || p.count == outputs || p.count == outputs * groups) return;
    refuse(std::string(name) + " has " + std::to_string(p.count) + " elements, but there are " +
           std::to_string(outputs) + " outputs of " + std::to_string(groups) +
           " groups: give one, one for each output, or one for each group of each output");
}

void require_valid(const WeightOnlyTensor& w, int64_t outputs, int64_t inputs) {
    if (outputs < 0 || inputs < 0) refuse("sizes must not be negative");
    if (w.storage == WeightStorage::f16) return;
    const int64_t least = w.storage == WeightStorage::s8 ? -128 : 0;
    const int64_t most = w.storage == WeightStorage::s8 ? 127 : w.storage == WeightStorage::u8 ? 255 : 15;
    if (w.group_size <= 0 || (w.group_size < inputs && w.group_size % 8 != 0))
        refuse("group_size must be a multiple of 8, or all inputs, got " + std::to_string(w.group_size));
    const int64_t groups = (inputs + w.group_size - 1) / w.group_size;
    require_count("scale", w.scale, outputs, groups);
    for (int64_t i = 0; i < w.scale.count; ++i)
        if (!std::isfinite(w.scale.data[i]))
            refuse("every scale must be finite, got " + std::to_string(w.scale.data[i]));
    require_count("zero_point", w.zero_point, outputs, groups);
    for (int64_t i = 0; i < w.zero_point.count; ++i) {
        const float z = w.zero_point.data[i];
        if (!(z >= static_cast<float>(least) && z <= static_cast<float>(most)) || z != std::nearbyint(z))
            refuse("zero_point must be an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                   ", got " + std::to_string(z));
    }
    if (w.shift.count == 0) return;
    require_count("zero_point", w.shift, outputs, groups);
    for (int64_t i = 0; i < w.shift.count; ++i)
        if (!std::isfinite(w.shift.data[i]))
            refuse("every zero point must be finite, got " + std::to_string(w.shift.data[i]));
}

}  // namespace

WeightOnlyLayer::WeightOnlyLayer(const WeightOnlyTensor& w, int64_t outputs, int64_t inputs, const float* bias)
    : WeightOnlyLayer(w, outputs, inputs, bias, kernels().weight_only()) {}

WeightOnlyLayer::WeightOnlyLayer(const WeightOnlyTensor& w, int64_t outputs, int64_t inputs, const float* bias,
                                 const WeightOnlyKernel& kernel)
    : kernel_(kernel),
      outputs_(outputs),
      inputs_(inputs),
      group_size_(std::max<int64_t>(1, w.storage == WeightStorage::f16 ? inputs : std::min(w.group_size, inputs))),
      groups_((inputs + group_size_ - 1) / group_size_),
      format_(format_of(w.storage)) {
    require_valid(w, outputs, inputs);
    if (format_ != WeightFormat::f16) {
        scale_ = spread(w.scale, 0);
        zero_point_ = spread(w.zero_point, static_cast<float>(shift_of(w.storage)));
        if (w.shift.count != 0) shift_ = spread(w.shift, 0);
    }
    if (bias != nullptr) {
        bias_.assign(static_cast<size_t>(panels() * kWeightPanel), 0.0f);
        std::copy_n(bias, outputs, bias_.begin());
    }
    pack(w);
}

// For each panel, each group, each output; 0 where there is none.
std::vector<float> WeightOnlyLayer::spread(const WeightParameters& p, float added) const {
    std::vector<float> r(static_cast<size_t>(panels() * groups_ * kWeightPanel), 0.0f);
    for (int64_t n = 0; n < outputs_; ++n)
        for (int64_t g = 0; g < groups_; ++g) {
            const int64_t from = p.count == outputs_ * groups_ ? n * groups_ + g : p.count == outputs_ ? n : 0;
            r[static_cast<size_t>((n / kWeightPanel * groups_ + g) * kWeightPanel + n % kWeightPanel)] =
                p.data[from] + added;
        }
    return r;
}

void WeightOnlyLayer::pack(const WeightOnlyTensor& w) {
    constexpr size_t kLine = 64;
    const int64_t steps = weight_steps(format_, inputs_), step = weight_step_bytes(format_);
    const size_t bytes = static_cast<size_t>(panels() * steps * step);
    // Not cleared: the pages are asked for as huge ones before they are first written.
    memory_.reset(new uint8_t[bytes + kLine]);
    const uintptr_t at = reinterpret_cast<uintptr_t>(memory_.get());
    packed_ = memory_.get() + ((at + kLine - 1) / kLine * kLine - at);
    prepare_output(memory_.get(), bytes + kLine);
    const int64_t element = step / kWeightPanel, row_bytes = steps * element;
    const uint8_t* from = static_cast<const uint8_t*>(w.data);
    const uint8_t flip = static_cast<uint8_t>(shift_of(w.storage));
    parallel_for(panels(), std::max<int64_t>(1, kWorthBytes / std::max<int64_t>(1, steps * step)),
                 [&](int64_t begin, int64_t end) {
                     for (int64_t panel = begin; panel < end; ++panel) {
                         uint8_t* to = packed_ + panel * steps * step;
                         const int64_t count = std::min<int64_t>(kWeightPanel, outputs_ - panel * kWeightPanel);
                         if (count < kWeightPanel) std::memset(to, 0, static_cast<size_t>(steps * step));
                         for (int n = 0; n < count; ++n) {
                             const uint8_t* row = from + (panel * kWeightPanel + n) * row_bytes;
                             if (format_ == WeightFormat::f16) {
                                 for (int64_t k = 0; k < steps; ++k) std::memcpy(to + k * step + n * 2, row + k * 2, 2);
                             } else {
                                 const int place = kernel_.place(n);
                                 for (int64_t k = 0; k < steps; ++k) to[k * step + place] = row[k] ^ flip;
                             }
                         }
                     }
                 });
}

void WeightOnlyLayer::run(const void* x, FloatType x_type, int64_t rows, void* y, FloatType y_type, bool relu) const {
    if (rows <= 0 || outputs_ == 0) return;
    constexpr int64_t kKept = int64_t{4} << 20;  // floats of x that a thread may keep a copy of
    const int64_t x_size = x_type == FloatType::bf16 ? 2 : 4, y_size = y_type == FloatType::bf16 ? 2 : 4;
    prepare_output(y, static_cast<size_t>(rows * outputs_ * y_size));
    const int64_t most = std::max<int64_t>(96, kKept / std::max<int64_t>(1, inputs_));
    for (int64_t row = 0; row < rows; row += most)
        run_rows(static_cast<const uint8_t*>(x) + row * inputs_ * x_size, x_type, std::min(most, rows - row),
                 static_cast<uint8_t*>(y) + row * outputs_ * y_size, y_type, relu);
}

void WeightOnlyLayer::run_rows(const void* x, FloatType x_type, int64_t rows, void* y, FloatType y_type,
                               bool relu) const {
    constexpr int64_t kStrip = 96;  // rows whose sums stay in L1 beside a block of weights
    const int64_t y_size = y_type == FloatType::bf16 ? 2 : 4;

    WeightOnlyArgs shared;
    shared.x = static_cast<const float*>(x);
    shared.x_stride = inputs_;
    shared.inputs = inputs_;
    shared.outputs = outputs_;
    shared.format = format_;
    shared.panels = packed_;
    shared.group_size = group_size_;
    shared.groups = groups_;
    shared.scale = scale_.empty() ? nullptr : scale_.data();
    shared.zero_point = zero_point_.empty() ? nullptr : zero_point_.data();
    shared.shift = shift_.empty() ? nullptr : shift_.data();
    shared.bias = bias_.empty() ? nullptr : bias_.data();
    shared.relu = relu;
    shared.y_bfloat16 = y_type == FloatType::bf16;

    const int64_t row_grain = std::max<int64_t>(1, kWorthFloatMacs / std::max<int64_t>(1, inputs_));
    // The rows of a tile are read side by side: a distance of a multiple of 1 kB would put them all into the same few
    // places of the L1 cache.
    constexpr int64_t kTogether = 4, kPage = 256, kAway = 16;
    const bool apart = rows >= kTogether && inputs_ % kPage == 0;
    if (x_type == FloatType::bf16 || apart) {
        const int64_t stride = apart ? inputs_ + kAway : inputs_;
        float* own =
            reinterpret_cast<float*>(scratch_of<InputMemory>(static_cast<size_t>(rows * stride) * sizeof(float)));
        parallel_for(rows, row_grain, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                if (x_type == FloatType::f32) {
                    std::copy_n(static_cast<const float*>(x) + row * inputs_, inputs_, own + row * stride);
                } else {
                    const uint16_t* from = static_cast<const uint16_t*>(x) + row * inputs_;
                    for (int64_t k = 0; k < inputs_; ++k) own[row * stride + k] = from_bfloat16(from[k]);
                }
            }
        });
        shared.x = own;
        shared.x_stride = stride;
    }
    if (shared.shift != nullptr) {
        int64_t blocks = 0;
        for_each_block(inputs_, group_size_, [&](int64_t, int64_t, int64_t, int64_t) { ++blocks; });
        float* sums =
            reinterpret_cast<float*>(scratch_of<SumMemory>(static_cast<size_t>(rows * blocks) * sizeof(float)));
        parallel_for(rows, row_grain, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                for_each_block(inputs_, group_size_, [&](int64_t block, int64_t, int64_t from, int64_t to) {
                    float sum = 0;
                    for (int64_t k = from; k < to; ++k) sum += shared.x[row * shared.x_stride + k];
                    sums[row * blocks + block] = sum;
                });
        });
        shared.sums = sums;
        shared.sums_stride = blocks;
    }

    // Strips of rows times pairs of panels, which few rows read side by side.
    const int64_t strips = (rows + kStrip - 1) / kStrip, strip = (rows + strips - 1) / strips;
    const int64_t pairs = (panels() + 1) / 2;
    const int64_t work = std::max<int64_t>(1, 2 * kWeightPanel * inputs_ * strip);
    // A thread takes neighbouring pairs: what it reads is one stretch of memory.
    const int64_t grain = std::max<int64_t>(1, kWorthFloatMacs / work);
    parallel_for(strips * pairs, grain, [&](int64_t begin, int64_t end) {
        float* memory =
            reinterpret_cast<float*>(scratch_of<BlockMemory>(static_cast<size_t>(weight_only_scratch(strip))));
        WeightOnlyArgs a = shared;
        for (int64_t task = begin; task < end; ++task) {
            const int64_t first = task % strips * strip, pair = task / strips;
            a.rows = std::min(strip, rows - first);
            a.x = shared.x + first * shared.x_stride;
            a.y = static_cast<uint8_t*>(y) + first * outputs_ * y_size;
            if (a.sums != nullptr) a.sums = shared.sums + first * shared.sums_stride;
            kernel_.multiply(a, 2 * pair, std::min(2 * pair + 2, panels()), memory);
        }
    });
}

}  // namespace zeropoint
