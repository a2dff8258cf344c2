// The specification of gemm and of its epilogue, one element at a time. It is never optimized.
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/reference_epilogue.h"
#include "kernels/conversions.h"

namespace zeropoint {
namespace {

void convert(const uint8_t* x, int64_t n, const Activation& a, void* to) {
    int16_t* y = static_cast<int16_t*>(to);
    for (int64_t i = 0; i < n; ++i) {
        const int32_t value = a.is_signed && x[i] >= 128 ? x[i] - 256 : x[i];
        y[i] = static_cast<int16_t>(value - a.zero_point);
    }
}

void multiply(const GemmArgs& a, int64_t begin, int64_t end) {
    const int16_t* x = static_cast<const int16_t*>(a.x);
    for (int64_t n = begin * kPanel; n < end * kPanel && n < a.n; ++n) {
        const int8_t* panel = a.panels + n / kPanel * a.tap_count * a.channels * kPanel;
        const int32_t w_zero_point = a.w_zero_point != nullptr ? a.w_zero_point[n] : 0;
        for (int64_t m = 0; m < a.m; ++m) {
            int64_t acc = 0;
            for (int64_t t = 0; t < a.tap_count; ++t)
                for (int64_t c = 0; c < a.channels; ++c)
                    acc += int64_t{x[a.rows[m] + a.taps[t] + c]} *
                           (panel[(t * a.channels + c) * kPanel + n % kPanel] - w_zero_point);
            reference_epilogue(a.epilogue, low32(acc), n, a.y, a.y_rows[m] + n);
        }
    }
}

}  // namespace

const GemmKernel& gemm_reference() {
    static const GemmKernel kernel = {{1, 1}, Operand::centered, convert, multiply};
    return kernel;
}

}  // namespace zeropoint
