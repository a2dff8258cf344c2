// Linear layers with small weights and float activations, for Python.
#include "operators/weight_only.h"

#include "bindings/bindings.h"

#include <nanobind/stl/tuple.h>

namespace zeropoint {
namespace {

// (address, storage, group size)
using GroupWeightTuple = std::tuple<Address, int, int64_t>;
// (address, count)
using ArrayTuple = std::tuple<Address, int64_t>;
// (address, float type)
using FloatTuple = std::tuple<Address, int>;

WeightParameters parameters_of(const ArrayTuple& a) { return {at<const float>(std::get<0>(a)), std::get<1>(a)}; }

}  // namespace

void bind_weight_only(nb::module_& m) {
    nb::class_<WeightOnlyLayer>(m, "WeightOnlyLayer", "Weights for float activations, packed for this CPU.")
        .def("__init__",
             [](WeightOnlyLayer* self, const GroupWeightTuple& w, int64_t outputs, int64_t inputs,
                const ArrayTuple& scale, const ArrayTuple& zero_point, const ArrayTuple& shift, Address bias) {
                 const WeightOnlyTensor tensor{at<const void>(std::get<0>(w)),
                                               static_cast<WeightStorage>(std::get<1>(w)),
                                               std::get<2>(w),
                                               parameters_of(scale),
                                               parameters_of(zero_point),
                                               parameters_of(shift)};
                 new (self) WeightOnlyLayer(tensor, outputs, inputs, at<const float>(bias));
             })
        .def_prop_ro("outputs", &WeightOnlyLayer::outputs)
        .def_prop_ro("inputs", &WeightOnlyLayer::inputs)
        .def(
            "run",
            [](const WeightOnlyLayer& self, const FloatTuple& x, int64_t rows, const FloatTuple& y, bool relu) {
                self.run(at<const void>(std::get<0>(x)), static_cast<FloatType>(std::get<1>(x)), rows,
                         at<void>(std::get<0>(y)), static_cast<FloatType>(std::get<1>(y)), relu);
            },
            nb::call_guard<Unlocked>());
}

}  // namespace zeropoint
