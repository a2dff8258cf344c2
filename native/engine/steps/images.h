// Images as pooling and resampling see them, spatial axes last; how PyTorch chooses its code by their layout.
#pragma once

#include "engine/step_table.h"

#include <array>

namespace zeropoint {

constexpr int64_t kVector = 8;  // channels that PyTorch's vector loops take at once

using Three = std::array<int64_t, 3>;

// A batch, or one image, as pooling sees it.
struct Images {
    Tensor x;
    bool channels_last = false;  // what PyTorch chooses its code by
    bool contiguous = true;      // one place, or one channel, is both
    int64_t spatial = 0;
    Three in{1, 1, 1};

    int64_t channels() const { return x.size(x.rank() - spatial - 1); }

    Images(Planner& p, const Tensor& given, int64_t axes) : spatial(axes) {
        if (given.rank() != axes + 1 && given.rank() != axes + 2)
            throw PlanError("an input of shape " + text_of(given.sizes) + " must have " + std::to_string(axes + 1) +
                            " or " + std::to_string(axes + 2) + " axes");
        channels_last = given.rank() == axes + 2 && given.is_channels_last();
        x = channels_last ? given : p.contiguous(given);
        contiguous = x.is_contiguous();
        for (int64_t i = 0; i < axes; ++i) {
            in[static_cast<size_t>(3 - axes + i)] = x.size(x.rank() - axes + i);
            if (x.size(x.rank() - axes + i) < 1) throw PlanError("an input of shape " + text_of(x.sizes) + " is empty");
        }
    }

    // A result with other spatial sizes, laid out alike.
    Tensor make(Planner& p, const Three& out) const {
        Sizes sizes(x.sizes.begin(), x.sizes.end() - spatial);
        sizes.insert(sizes.end(), out.end() - spatial, out.end());
        return contiguous ? p.make(x.type, sizes) : p.make(x.type, sizes, channels_inside_strides(sizes));
    }

    // Where channels are not innermost in memory, each is an image of its own, with one channel.
    int64_t count() const { return contiguous ? count_of({x.sizes.begin(), x.sizes.end() - spatial}) : x.size(0); }
    int64_t pixel() const { return contiguous ? 1 : channels(); }
};

}  // namespace zeropoint
