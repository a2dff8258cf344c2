#include "kernels/quantization_loss/template.h"
#include "kernels/simd/portable.h"

namespace zeropoint {

void quantization_loss_portable(QuantizationLossArgs& a) { quantization_loss_with<Portable>(a); }

}  // namespace zeropoint
