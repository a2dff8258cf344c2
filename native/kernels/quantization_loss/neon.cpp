#include "kernels/quantization_loss/template.h"
#include "kernels/simd/neon.h"

namespace zeropoint {

void quantization_loss_neon(QuantizationLossArgs& a) { quantization_loss_with<Neon>(a); }

}  // namespace zeropoint
