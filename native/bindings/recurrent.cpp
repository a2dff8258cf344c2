// Recurrent layers for Python: objects that hold packed weights, and a call that runs a sequence.
#include "operators/recurrent.h"

#include "bindings/bindings.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace zeropoint {
namespace {

constexpr int kHalf = -1, kFloat = -2;

// (address, integer type or -1 for float16 or -2 for float32, zero points, how many, scales, how many, bias or 0)
using CellWeightTuple = std::tuple<Address, int, Address, int64_t, Address, int64_t, Address>;

RecurrentWeight weight_of(const CellWeightTuple& t) {
    RecurrentWeight w;
    w.data = at<const void>(std::get<0>(t));
    const int type = std::get<1>(t);
    w.numbers = type == kHalf    ? RecurrentNumbers::halves
                : type == kFloat ? RecurrentNumbers::floats
                                 : RecurrentNumbers::bytes;
    if (w.numbers == RecurrentNumbers::bytes) w.type = static_cast<IntType>(type);
    w.zero_point = at<const int32_t>(std::get<2>(t));
    w.zero_points = std::get<3>(t);
    w.scale = at<const float>(std::get<4>(t));
    w.scales = std::get<5>(t);
    w.bias = at<const float>(std::get<6>(t));
    return w;
}

}  // namespace

void bind_recurrent(nb::module_& m) {
    nb::class_<RecurrentLayer>(m, "RecurrentLayer", "One direction of a recurrent layer, packed for this CPU.")
        .def("__init__",
             [](RecurrentLayer* self, int cell, int64_t hidden, int64_t inputs, bool reduce_range,
                const CellWeightTuple& input, const CellWeightTuple& recurrent) {
                 new (self) RecurrentLayer(static_cast<Cell>(cell), hidden, inputs, reduce_range, weight_of(input),
                                           weight_of(recurrent));
             })
        .def_prop_ro("hidden", &RecurrentLayer::hidden)
        .def_prop_ro("inputs", &RecurrentLayer::inputs)
        .def_prop_ro("reduce_range", &RecurrentLayer::reduce_range);
    m.def(
        "run_recurrent",
        [](const std::vector<const RecurrentLayer*>& layers, Address x, Address batch_sizes, int64_t steps, Address y,
           const std::tuple<Address, Address>& first, const std::tuple<Address, Address>& last) {
            run_recurrent(layers, {at<const float>(x), at<const int64_t>(batch_sizes), steps, at<float>(y),
                                   at<const float>(std::get<0>(first)), at<const float>(std::get<1>(first)),
                                   at<float>(std::get<0>(last)), at<float>(std::get<1>(last))});
        },
        nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace zeropoint
