// Windows of images: their columns added up again, and the greatest value of each with its place.
#include "engine/step_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

constexpr int64_t kMostWindow = 1 << 20;
constexpr int64_t kMostSide = int64_t{1} << 30;  // of what is folded

// Kernel, stride, padding and dilation along both axes.
struct Windows {
    explicit Windows(StepReader& r)
        : kernel(r.integers("kernel", 2, 1, kMostWindow)),
          stride(r.integers("stride", 2, 1, kMostWindow)),
          padding(r.integers("padding", 2, 0, kMostWindow)),
          dilation(r.integers("dilation", 2, 1, kMostWindow)) {}

    int64_t reach(size_t axis) const { return dilation[axis] * (kernel[axis] - 1) + 1; }
    // Where the window at `place` begins.
    int64_t begin(size_t axis, int64_t place) const { return place * stride[axis] - padding[axis]; }

    std::vector<int64_t> kernel, stride, padding, dilation;
};

// Input: (n, channels * kernel, places), float32. Output: (n, channels, height, width), sums of what falls on each
// place, in the order of the kernel.
class Fold : public OneInput {
public:
    explicit Fold(StepReader& r) : OneInput(r), windows_(r), shape_(r.sizes("shape")) {
        if (shape_.size() != 2) r.fail("attribute 'shape' must have two sizes");
    }
    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const std::vector<int64_t> shape = p.integers(shape_);
        const Windows w = windows_;
        int64_t counts[2];
        for (size_t i = 0; i < 2; ++i) {
            // So that neither sums nor products below overflow.
            if (shape[i] < 1 || shape[i] > kMostSide) throw PlanError("an output size of " + std::to_string(shape[i]));
            const int64_t room = shape[i] + 2 * w.padding[i] - w.reach(i);
            if (room < 0) throw PlanError("the windows do not fit " + text_of(shape));
            counts[i] = room / w.stride[i] + 1;
        }
        const int64_t each = w.kernel[0] * w.kernel[1];
        if (x.rank() != 3 || x.size(1) % each != 0 || x.size(2) != counts[0] * counts[1])
            throw PlanError("columns of shape " + text_of(x.sizes) + " do not fit windows of " + std::to_string(each) +
                            " at " + std::to_string(counts[0] * counts[1]) + " places");
        const Tensor y = p.make(ElementType::f32, {x.size(0), x.size(1) / each, shape[0], shape[1]});
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({x.place, y.place},
               [=, planes = x.size(0) * x.size(1) / each, rows = counts[0], columns = counts[1]](void* const* at) {
                   const float* from = static_cast<const float*>(at[0]);
                   float* to = static_cast<float*>(at[1]);
                   std::fill_n(to, planes * shape[0] * shape[1], 0.0f);
                   for (int64_t plane = 0; plane < planes; ++plane, to += shape[0] * shape[1])
                       for (int64_t k = 0; k < each; ++k)
                           for (int64_t row = 0; row < rows; ++row) {
                               const int64_t y = w.begin(0, row) + k / w.kernel[1] * w.dilation[0];
                               for (int64_t column = 0; column < columns; ++column, ++from) {
                                   const int64_t x = w.begin(1, column) + k % w.kernel[1] * w.dilation[1];
                                   if (y >= 0 && y < shape[0] && x >= 0 && x < shape[1]) to[y * shape[1] + x] += *from;
                               }
                           }
               });
    }

private:
    Windows windows_;
    std::vector<Integer> shape_;
};

// Input: (n, channels, height, width), float32. Outputs: the greatest of each window, NaN if one is, and where it is in
// its image (int64).
class MaxPoolPlaces : public StepOf<1, 2> {
public:
    explicit MaxPoolPlaces(StepReader& r) : StepOf(r), windows_(r), ceil_(r.flag("ceil_mode")) {}
    void plan(Planner& p) const override {
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        if (x.rank() != 4) throw PlanError("an input of shape " + text_of(x.sizes) + " must have four axes");
        const Windows w = windows_;
        const int64_t sizes[2] = {x.size(2), x.size(3)};
        int64_t counts[2];
        for (size_t i = 0; i < 2; ++i) {
            const int64_t room = sizes[i] + 2 * w.padding[i] - w.reach(i);
            if (room < 0 || 2 * w.padding[i] > w.kernel[i]) throw PlanError("the windows do not fit the image");
            counts[i] = (room + (ceil_ ? w.stride[i] - 1 : 0)) / w.stride[i] + 1;
            if (ceil_ && (counts[i] - 1) * w.stride[i] >= sizes[i] + w.padding[i]) --counts[i];
        }
        const Sizes shape{x.size(0), x.size(1), counts[0], counts[1]};
        const Tensor y = p.make(ElementType::f32, shape), where = p.make(ElementType::s64, shape);
        p.give(0, y);
        p.give(1, where);
        if (y.count() == 0) return;
        p.emit({x.place, y.place, where.place}, [w, planes = x.size(0) * x.size(1), height = sizes[0], width = sizes[1],
                                                 rows = counts[0], columns = counts[1]](void* const* at) {
            const float* from = static_cast<const float*>(at[0]);
            float* to = static_cast<float*>(at[1]);
            int64_t* places = static_cast<int64_t*>(at[2]);
            for (int64_t plane = 0; plane < planes; ++plane, from += height * width)
                for (int64_t i = 0; i < rows * columns; ++i) {
                    const int64_t top = w.begin(0, i / columns), left = w.begin(1, i % columns);
                    float best = -std::numeric_limits<float>::infinity();
                    int64_t place = -1;
                    for (int64_t k = 0; k < w.kernel[0] * w.kernel[1]; ++k) {
                        const int64_t y = top + k / w.kernel[1] * w.dilation[0];
                        const int64_t x = left + k % w.kernel[1] * w.dilation[1];
                        if (y < 0 || y >= height || x < 0 || x >= width) continue;
                        const float value = from[y * width + x];
                        if (place < 0 || value > best || std::isnan(value)) {
                            best = value;
                            place = y * width + x;
                        }
                    }
                    *to++ = best;
                    *places++ = place;
                }
        });
    }

private:
    Windows windows_;
    bool ceil_;
};

}  // namespace

void add_folding_steps(StepTable& table) {
    table.add({{"fold", made<Fold>}, {"max_pool_places", made<MaxPoolPlaces>}});
}

}  // namespace zeropoint
