// The specification of dequantize, one element at a time. It is never optimized.
#include "kernels/dequantize/dequantize.h"
#include "kernels/grid_stretches.h"

namespace zeropoint {
namespace {

int32_t get(const void* q, IntType type, int64_t i) {
    switch (type) {
        case IntType::u8: return static_cast<const uint8_t*>(q)[i];
        case IntType::s8: return static_cast<const int8_t*>(q)[i];
        case IntType::s16: return static_cast<const int16_t*>(q)[i];
        case IntType::s32: return static_cast<const int32_t*>(q)[i];
    }
    return 0;
}

template <class T>
T parameter(const void* values, int64_t p) {
    return static_cast<const T*>(values)[p];
}

}  // namespace

void dequantize_reference(const DequantizeArgs& a, int64_t begin, int64_t end) {
    const auto one = [&](int64_t i, int64_t p) {
        const int32_t q = get(a.q, a.src, i);
        double difference;
        if (a.exact)
            difference = static_cast<double>(q) - parameter<double>(a.zero_point, p);
        else
            difference = static_cast<float>(q) - parameter<float>(a.zero_point, p);
        a.y[i] = a.wide ? static_cast<float>(difference * parameter<double>(a.scale, p))
                        : static_cast<float>(difference) * parameter<float>(a.scale, p);
    };
    for_each(a.grid, begin, end, one);
}

}  // namespace zeropoint
