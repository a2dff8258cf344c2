// The specification of depthwise, one element at a time. It is never optimized.
#include "kernels/depthwise/depthwise.h"
#include "kernels/gemm/centered.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/conversions.h"

namespace zeropoint {
namespace {

void multiply(const DepthwiseArgs& a, int64_t begin, int64_t end) {
    const int64_t pairs = (a.tap_count + 1) / 2;
    for (int64_t c = begin * kPanel; c < end * kPanel && c < a.channels; ++c)
        for (int64_t m = 0; m < a.m; ++m) {
            int64_t acc = 0;
            for (int64_t t = 0; t < a.tap_count; ++t)
                acc += int64_t{a.x[a.rows[m] + a.taps[t] + c]} *
                       a.w[((c / kPanel * pairs + t / 2) * kPanel + c % kPanel) * 2 + t % 2];
            reference_epilogue(a.epilogue, low32(acc), c, a.y, a.y_rows[m] + c);
        }
}

}  // namespace

const DepthwiseKernel& depthwise_reference() {
    static const DepthwiseKernel kernel = {convert_centered, multiply};
    return kernel;
}

}  // namespace zeropoint
