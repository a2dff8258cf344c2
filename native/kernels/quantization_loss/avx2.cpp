#include "kernels/quantization_loss/template.h"
#include "kernels/simd/avx2.h"

namespace zeropoint {

void quantization_loss_avx2(QuantizationLossArgs& a) { quantization_loss_with<Avx2>(a); }

}  // namespace zeropoint
