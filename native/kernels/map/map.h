// map: one operation of the list operations.inc on a block of elements. Integers wrap; those that are divided round
// down (floor_divide, remainder) or toward zero (trunc_divide, fmod). NaN is the result of minimum and maximum if it is
// one of the two. Functions of float32 are those of functions.h, the rest is rounded once. Bools are bytes of 0 or 1.
#pragma once

#include "kernels/types.h"

namespace zeropoint {

enum class MapOperation : int {
#define OPERATION(name, operands, types, result) name,
#include "kernels/map/operations.inc"
#undef OPERATION
};

enum class MapType : int { boolean = 0, u8 = 1, s8 = 2, s32 = 3, s64 = 4, f32 = 5 };
constexpr int kMapTypes = 6;

// Of n elements; the first operand of `where` is bool. y may be one of the operands. False if an integer was divided by
// zero, whose results are zeros.
using MapLoop = bool (*)(const void* a, const void* b, const void* c, void* y, int64_t n);

// What computes an operation, or a conversion; null if there is none of that type.
struct MapLoops {
    MapLoop (*operation)(MapOperation operation, MapType type) = nullptr;
    MapLoop (*conversion)(MapType from, MapType to) = nullptr;
};
using MapFn = MapLoops (*)();

}  // namespace zeropoint
