// Sums, products and joined tensors for Python.
#include "bindings/bindings.h"
#include "operators/binary.h"
#include "operators/concatenation.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

namespace zeropoint {
namespace {

// (address, scale, zero point)
using OperandTuple = std::tuple<Address, double, int32_t>;
// (sizes, strides of a, strides of b, length, whether b is one value along it)
using PlacesTuple = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>, int64_t, bool>;
// (address, address of a table or 0, bytes in a row)
using PieceTuple = std::tuple<Address, Address, int64_t>;

Quantized operand_of(const OperandTuple& t) {
    return {at<const void>(std::get<0>(t)), static_cast<float>(std::get<1>(t)), std::get<2>(t)};
}

}  // namespace

void bind_elementwise(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "binary",
        [](int operation, int type, const OperandTuple& a, const OperandTuple& b, const OperandTuple& y, bool relu,
           const PlacesTuple& places) {
            const auto& [sizes, a_strides, b_strides, length, b_is_one] = places;
            binary({static_cast<BinaryOperation>(operation), static_cast<IntType>(type), operand_of(a), operand_of(b),
                    at<void>(std::get<0>(y)), static_cast<float>(std::get<1>(y)), std::get<2>(y), relu, sizes,
                    a_strides, b_strides, length, b_is_one});
        },
        release());
    m.def("fits_fixed_add", [](double a_scale, double b_scale, double scale) {
        return fits_fixed_add(static_cast<float>(a_scale), static_cast<float>(b_scale), static_cast<float>(scale));
    });
    m.def(
        "join",
        [](const std::vector<PieceTuple>& pieces, int64_t rows, Address y) {
            std::vector<JoinedPiece> every;
            for (const auto& [x, table, length] : pieces)
                every.push_back({at<const uint8_t>(x), at<const uint8_t>(table), length});
            join(every, rows, at<uint8_t>(y));
        },
        release());
}

}  // namespace zeropoint
