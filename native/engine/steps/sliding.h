// Windows that slide over images, as pools of bytes and of floats have them.
#pragma once

#include "engine/steps/images.h"
#include "operators/pooling.h"

namespace zeropoint {

constexpr int64_t kMostWindow = 1 << 12;

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

    int64_t spatial_;
    bool ceil_;
    PoolWindows windows_;
};

}  // namespace zeropoint
