// The checks of all operations, found through the kernel lists.
#pragma once

#include "check/attention.h"
#include "check/binary.h"
#include "check/embedding.h"
#include "check/float_functions.h"
#include "check/generation.h"
#include "check/kernels.h"
#include "check/map.h"
#include "check/recurrent.h"
#include "check/norms.h"
#include "check/spatial.h"
#include "check/weight_only.h"
#include "check/winograd.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace zeropoint::check {

// Runs the check of every listed operation; one that is listed but has no check here fails.
inline void check_kernels(Report& report, bool quick) {
    using CheckFn = void (*)(Report&, bool);
    const std::pair<const char*, CheckFn> checks[] = {
        {"attention", check_attention},
        {"quantize", check_quantize},
        {"dequantize", check_dequantize},
        {"fake_quantize", check_fake_quantize},
        {"histogram", check_histogram},
        {"binary", check_binary},
        {"interleave", check_interleave},
        {"lookup", check_lookup},
        {"map", check_map},
        {"mask_gradient", check_mask_gradient},
        {"minmax", check_minmax},
        {"pack", check_pack},
        {"unpack", check_unpack},
        {"quantization_loss", check_quantization_loss},
        {"max_pool", check_max_pool},
        {"average_pool", check_average_pool},
        {"bilinear", check_bilinear},
        {"gemm", check_all_gemm},
        {"depthwise", check_depthwise},
        {"embedding", check_embedding},
        {"quantize_range", check_quantize_range},
        {"cell", check_cell},
        {"half_gemm", check_half_gemm},
        {"narrow_gemm", check_narrow_gemm},
        {"moments", check_moments},
        {"normalize", check_normalize},
        {"softmax", check_softmax},
        {"weight_only", check_weight_only},
        {"group_gemm", check_group_gemm},
        {"cache_attention", check_cache_attention},
        {"float_function", check_float_function},
        {"quantized_function", check_quantized_function},
        {"float_softmax", check_float_softmax},
        {"float_layer_norm", check_float_layer_norm},
        {"float_gemm", check_float_gemm},
        {"float_depthwise", check_float_depthwise},
    };
    Check covered("kernel lists", "every operation is checked");
    for (const Listed& k : listed()) {
        const bool found =
            std::any_of(std::begin(checks), std::end(checks), [&](const auto& c) { return c.first == k.operation; });
        covered.expect(found, [&] {
            return "no check for operation '" + k.operation + "': add one to native/check/all_kernels.h";
        });
    }
    report.add(covered);
    for (const auto& [operation, check] : checks) check(report, quick);
}

}  // namespace zeropoint::check
