// Recurrent layers for Python: objects that hold packed weights, and a call that runs a sequence.
#include "operators/recurrent.h"

#include "bindings/bindings.h"
#include "operators/integer_lstm.h"

#include <nanobind/stl/array.h>
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

// (scale, zero point)
using RoundedTuple = std::tuple<double, int32_t>;
// (address, scale, zero point)
using StateTuple = std::tuple<Address, double, int32_t>;

Rounded rounded(const RoundedTuple& t) { return {static_cast<float>(std::get<0>(t)), std::get<1>(t)}; }

// `parts`: of the linear layer, the sums, the four gates, the two products, the cell state, its squashed form, the
// result.
void integer_lstm(const LinearLayer& layer, int type, const std::array<int64_t, 3>& sizes, const StateTuple& given,
                  const StateTuple& h, const StateTuple& c, const std::array<RoundedTuple, 11>& parts, Address tables,
                  Address y, Address last_c) {
    const auto as = [](const StateTuple& t) { return Rounded{static_cast<float>(std::get<1>(t)), std::get<2>(t)}; };
    IntegerLstm r;
    r.type = static_cast<IntType>(type);
    r.steps = sizes[0];
    r.batch = sizes[1];
    r.hidden = sizes[2];
    r.layer = &layer;
    r.given = at<const uint8_t>(std::get<0>(given));
    r.h = at<const uint8_t>(std::get<0>(h));
    r.c = at<const uint8_t>(std::get<0>(c));
    r.given_as = as(given);
    r.h_as = as(h);
    r.c_as = as(c);
    r.linear = rounded(parts[0]);
    r.sums = rounded(parts[1]);
    for (size_t gate = 0; gate < 4; ++gate) r.gates[gate] = rounded(parts[2 + gate]);
    r.kept = rounded(parts[6]);
    r.fresh = rounded(parts[7]);
    r.cell = rounded(parts[8]);
    r.squashed = rounded(parts[9]);
    r.y_as = rounded(parts[10]);
    r.tables = at<const uint8_t>(tables);
    r.y = at<uint8_t>(y);
    r.last_c = at<uint8_t>(last_c);
    run_integer_lstm(r);
}

}  // namespace

void bind_recurrent(nb::module_& m) {
    nb::class_<RecurrentLayer>(m, "RecurrentLayer", "One direction of a recurrent layer, packed for this CPU.")
        .def("__init__",
             [](RecurrentLayer* self, int cell, int64_t hidden, int64_t inputs, bool reduce_range, bool per_row,
                const CellWeightTuple& input, const CellWeightTuple& recurrent) {
                 new (self) RecurrentLayer(static_cast<Cell>(cell), hidden, inputs, {reduce_range, per_row},
                                           weight_of(input), weight_of(recurrent));
             })
        .def_prop_ro("hidden", &RecurrentLayer::hidden)
        .def_prop_ro("inputs", &RecurrentLayer::inputs)
        .def_prop_ro("reduce_range", [](const RecurrentLayer& self) { return self.ranges().reduce_range; });
    m.def(
        "run_recurrent",
        [](const std::vector<const RecurrentLayer*>& layers, Address x, Address batch_sizes, int64_t steps, Address y,
           const std::tuple<Address, Address>& first, const std::tuple<Address, Address>& last) {
            run_recurrent(layers, {at<const float>(x), at<const int64_t>(batch_sizes), steps, at<float>(y),
                                   at<const float>(std::get<0>(first)), at<const float>(std::get<1>(first)),
                                   at<float>(std::get<0>(last)), at<float>(std::get<1>(last))});
        },
        nb::call_guard<Unlocked>());
    m.def("integer_lstm", integer_lstm, nb::call_guard<Unlocked>());
}

}  // namespace zeropoint
