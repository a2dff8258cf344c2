// Attention on whole tensors of bytes: see kernels/attention/attention.h.
#pragma once

#include "kernels/attention/attention.h"

namespace zeropoint {

void attention(const AttentionArgs& a);

}  // namespace zeropoint
