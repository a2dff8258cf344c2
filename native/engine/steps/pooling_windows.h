// Windows over images, as pools of bytes and of floats have them.
#pragma once

#include "engine/steps/images.h"
#include "operators/pooling.h"

namespace zeropoint {

constexpr int64_t kMostWindow = 1 << 12;

// The input of a pool, and its output, which has been given.
struct Pooled {
    Pooled(Planner& p, const Images& from, const Three& to) : images(from), out(to), y(from.make(p, to)) {
        p.give(0, y);
    }
    // Its sizes, as operators take them.
    template <class PoolSizes>
    PoolSizes described() const {
        PoolSizes t;
        t.images = images.count();
        t.channels = images.pixel();
        t.in = images.in;
        t.out = out;
        return t;
    }

    // Emits run(sizes, addresses): sizes, as described, of a batch or of some of its images.
    template <class PoolSizes, class Run>
    void emit(Planner& p, const PoolSizes& sizes, const Run& run) const {
        const int64_t batch = images.x.rank() == images.spatial + 2 ? images.x.size(0) : 1;
        p.emit_images({images.x, y}, batch, [sizes, run, each = sizes.images / batch](void* const* at, int64_t n) {
            PoolSizes some = sizes;
            some.images = n * each;
            run(some, at);
        });
    }

    Images images;
    Three out;
    Tensor y;
};

// What the kinds of sliding windows share.
class Sliding : public Step {
protected:
    explicit Sliding(StepReader& r, bool dilated) : spatial_(r.integer("spatial", 1, 3)), ceil_(r.flag("ceil_mode")) {
        r.require_inputs(1);
        r.require_outputs(1);
        const size_t n = static_cast<size_t>(spatial_);
        windows_.kernel = windows_.stride = windows_.dilation = {1, 1, 1};
        windows_.padding = {0, 0, 0};
        const auto kernel = r.integers("kernel", n, 1, kMostWindow), stride = r.integers("stride", n, 1, kMostWindow),
                   padding = r.integers("padding", n, 0, kMostWindow);
        const auto dilation = dilated ? r.integers("dilation", n, 1, kMostWindow) : std::vector<int64_t>(n, 1);
        for (size_t i = 0; i < n; ++i) {
            const size_t axis = 3 - n + i;
            if (padding[i] > kernel[i] / 2) r.fail("padding must not be more than half of the kernel");
            windows_.kernel[axis] = kernel[i];
            windows_.stride[axis] = stride[i];
            windows_.padding[axis] = padding[i];
            windows_.dilation[axis] = dilation[i];
        }
    }

    Pooled begin(Planner& p, const Tensor& x) const {
        const Images images(p, x, spatial_);
        return {p, images, output_size(images)};
    }

    int64_t spatial_;
    PoolWindows windows_;

private:
    Three output_size(const Images& images) const {
        Three out{1, 1, 1};
        for (size_t axis = 3 - static_cast<size_t>(spatial_); axis < 3; ++axis) {
            const int64_t size = images.in[axis], stride = windows_.stride[axis], padding = windows_.padding[axis];
            const int64_t room = size + 2 * padding - windows_.dilation[axis] * (windows_.kernel[axis] - 1) - 1;
            if (room + (ceil_ ? stride - 1 : 0) < 0)
                throw PlanError("an input of shape " + text_of(images.x.sizes) + " is too small for the windows");
            out[axis] = (room + (ceil_ ? stride - 1 : 0)) / stride + 1;
            // The last window must begin inside the input or its left padding.
            if (ceil_ && (out[axis] - 1) * stride >= size + padding) --out[axis];
        }
        return out;
    }

    bool ceil_;
};

// Windows that divide the input evenly among the outputs.
class Adaptive : public Step {
protected:
    explicit Adaptive(StepReader& r) : spatial_(r.integer("spatial", 1, 3)), size_(r.sizes("output_size")) {
        r.require_inputs(1);
        r.require_outputs(1);
        if (static_cast<int64_t>(size_.size()) != spatial_)
            r.fail("attribute 'output_size' must have a size for each axis");
    }

    Pooled begin(Planner& p, const Tensor& x) const {
        Three out{1, 1, 1};
        for (size_t i = 0; i < size_.size(); ++i) {
            const int64_t n = p.integer(size_[i]);
            if (n < 1 || n > (1 << 20)) throw PlanError("an output size of " + std::to_string(n));
            out[3 - size_.size() + i] = n;
        }
        return {p, Images(p, x, spatial_), out};
    }

    int64_t spatial_;

private:
    std::vector<Integer> size_;
};

}  // namespace zeropoint
