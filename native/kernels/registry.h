// Every kernel, found by operation and instruction set. The lists are the kernels.inc files beside the kernels.
#pragma once

#include "cpu/isa.h"
#include "kernels/attention/attention.h"
#include "kernels/average_pool/average_pool.h"
#include "kernels/bilinear/bilinear.h"
#include "kernels/binary/binary.h"
#include "kernels/cache_attention/cache_attention.h"
#include "kernels/cell/cell.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fake_quantize/fake_quantize.h"
#include "kernels/float_depthwise/float_depthwise.h"
#include "kernels/float_function/float_function.h"
#include "kernels/float_gemm/float_gemm.h"
#include "kernels/float_layer_norm/float_layer_norm.h"
#include "kernels/float_softmax/float_softmax.h"
#include "kernels/gemm/gemm.h"
#include "kernels/group_gemm/group_gemm.h"
#include "kernels/half_gemm/half_gemm.h"
#include "kernels/histogram/histogram.h"
#include "kernels/interleave/interleave.h"
#include "kernels/lookup/lookup.h"
#include "kernels/map/map.h"
#include "kernels/mask_gradient/mask_gradient.h"
#include "kernels/max_pool/max_pool.h"
#include "kernels/minmax/minmax.h"
#include "kernels/moments/moments.h"
#include "kernels/narrow_gemm/narrow_gemm.h"
#include "kernels/normalize/normalize.h"
#include "kernels/pack/pack.h"
#include "kernels/quantization_loss/quantization_loss.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize_range/quantize_range.h"
#include "kernels/quantized_function/quantized_function.h"
#include "kernels/softmax/softmax.h"
#include "kernels/weight_only/weight_only.h"

#include <vector>

namespace zeropoint {

// One chosen kernel per operation.
struct Kernels {
    AttentionFn attention = nullptr;
    QuantizeFn quantize = nullptr;
    DequantizeFn dequantize = nullptr;
    FakeQuantizeFn fake_quantize = nullptr;
    HistogramFn histogram = nullptr;
    BinaryFn binary = nullptr;
    InterleaveFn interleave = nullptr;
    LookupFn lookup = nullptr;
    MapFn map = nullptr;
    MaskGradientFn mask_gradient = nullptr;
    MinMaxFn minmax = nullptr;
    PackFn pack = nullptr;
    UnpackFn unpack = nullptr;
    QuantizationLossFn quantization_loss = nullptr;
    MaxPoolFn max_pool = nullptr;
    AveragePoolFn average_pool = nullptr;
    BilinearFn bilinear = nullptr;
    GemmFn gemm = nullptr;
    GemmFn narrow_gemm = nullptr;
    DepthwiseFn depthwise = nullptr;
    EmbeddingFn embedding = nullptr;
    QuantizedFunctionFn quantized_function = nullptr;
    QuantizeRangeFn quantize_range = nullptr;
    HalfGemmFn half_gemm = nullptr;
    CellFn cell = nullptr;
    MomentsFn moments = nullptr;
    NormalizeFn normalize = nullptr;
    SoftmaxFn softmax = nullptr;
    WeightOnlyFn weight_only = nullptr;
    GroupGemmFn group_gemm = nullptr;
    CacheAttentionFn cache_attention = nullptr;
    FloatDepthwiseFn float_depthwise = nullptr;
    FloatFunctionFn float_function = nullptr;
    FloatGemmFn float_gemm = nullptr;
    FloatLayerNormFn float_layer_norm = nullptr;
    FloatSoftmaxFn float_softmax = nullptr;
};

struct KernelListing {
    const char* operation;
    Isa isa;
};

// All kernels in this build, in order of preference within an operation.
const std::vector<KernelListing>& kernel_list();

// The kernels for a level: of each operation the first whose instruction set is not above it. Pure.
Kernels select_kernels(Isa level);

// Which instruction set select_kernels(level) takes for an operation. Throws std::invalid_argument if there is none.
Isa selected_isa(const char* operation, Isa level);

// The kernels for active_isa(), selected once per level.
const Kernels& kernels();

}  // namespace zeropoint
