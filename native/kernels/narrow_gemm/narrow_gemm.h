// narrow_gemm: gemm for activations of seven bits: as they are prepared, none is above 128. See kernels/gemm/gemm.h for
// everything else. With AVX2 alone it is about a quarter faster; where one instruction multiplies bytes and adds them
// up in 32 bits, it is the ordinary kernel.
#pragma once

#include "kernels/gemm/gemm.h"

namespace zeropoint {

// The most that an activation may be: a range that is cut into 127 steps can end half a step higher, where the zero
// point was rounded.
constexpr int32_t kNarrowMost = 128;

}  // namespace zeropoint
