// Linear layers and convolutions for Python: objects that hold packed weights.
#include "operators/layers.h"

#include "bindings/bindings.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <limits>

namespace zeropoint {
namespace {

// (address, integer type)
using WeightTuple = std::tuple<Address, int>;
// (address, count)
using ArrayTuple = std::tuple<Address, int64_t>;
// (address, integer type, scale, zero point)
using TensorTuple = std::tuple<Address, int, double, int64_t>;
// (address, output type, scale, zero point, lowest and highest integer, lowest float, slope of negative values)
using OutputTuple = std::tuple<Address, int, double, int64_t, int64_t, int64_t, double, double>;

// Zero points and bounds that are out of range stay so, and are refused.
int32_t saturated(int64_t value) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

WeightTensor weights_of(const WeightTuple& w, const ArrayTuple& zero_point) {
    return {at<const void>(std::get<0>(w)), static_cast<IntType>(std::get<1>(w)),
            at<const int32_t>(std::get<0>(zero_point)), std::get<1>(zero_point)};
}

LayerInput input_of(const TensorTuple& t) {
    return {at<const void>(std::get<0>(t)), static_cast<IntType>(std::get<1>(t)), static_cast<float>(std::get<2>(t)),
            saturated(std::get<3>(t))};
}

Rounding rounding_of(int64_t code) {
    if (!is_rounding(code)) throw std::invalid_argument("layer: there is no rounding " + std::to_string(code));
    return static_cast<Rounding>(code);
}

LayerOutput output_of(const OutputTuple& t, const TensorTuple& residual) {
    LayerOutput y;
    y.y = at<void>(std::get<0>(t));
    y.type = static_cast<OutputType>(std::get<1>(t));
    y.scale = static_cast<float>(std::get<2>(t));
    y.zero_point = saturated(std::get<3>(t));
    y.lo = saturated(std::get<4>(t));
    y.hi = saturated(std::get<5>(t));
    y.low = static_cast<float>(std::get<6>(t));
    y.slope = static_cast<float>(std::get<7>(t));
    const LayerInput z = input_of(residual);
    y.z = z.x;
    y.z_type = z.type;
    y.z_scale = z.scale;
    y.z_zero_point = z.zero_point;
    return y;
}

}  // namespace

void bind_layers(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    nb::class_<LinearLayer>(m, "LinearLayer", "The weights of a linear layer, packed for this CPU.")
        .def("__init__",
             [](LinearLayer* self, const WeightTuple& w, const ArrayTuple& zero_point, int64_t outputs, int64_t inputs,
                const ArrayTuple& scale, Address bias, int64_t rounding) {
                 new (self) LinearLayer(weights_of(w, zero_point), outputs, inputs, at<const float>(std::get<0>(scale)),
                                        std::get<1>(scale), at<const float>(bias), rounding_of(rounding));
             })
        .def_prop_ro("outputs", &LinearLayer::outputs)
        .def_prop_ro("inputs", &LinearLayer::inputs)
        .def(
            "run",
            [](const LinearLayer& self, const TensorTuple& x, int64_t rows, const OutputTuple& y,
               const TensorTuple& residual) { self.run(input_of(x), rows, output_of(y, residual)); },
            release())
        .def(
            "run_dynamic",
            [](const LinearLayer& self, Address x, int64_t rows, Address y, bool reduce_range, bool per_row,
               bool relu) { self.run_dynamic(at<const float>(x), rows, at<float>(y), reduce_range, per_row, relu); },
            release());
    nb::class_<ConvLayer>(m, "ConvLayer", "The weights of a convolution, packed for this CPU.")
        .def("__init__",
             [](ConvLayer* self, const WeightTuple& w, const ArrayTuple& zero_point,
                const std::array<int64_t, 3>& channels, const Size3& kernel, const Size3& stride, const Size3& padding,
                const Size3& dilation, bool transposed, const Size3& output_padding, const ArrayTuple& scale,
                Address bias, int64_t rounding) {
                 const ConvShape shape{channels[0], channels[1], channels[2], kernel,        stride,
                                       padding,     dilation,    transposed,  output_padding};
                 new (self) ConvLayer(weights_of(w, zero_point), shape, at<const float>(std::get<0>(scale)),
                                      std::get<1>(scale), at<const float>(bias), rounding_of(rounding));
             })
        .def(
            "run",
            [](const ConvLayer& self, const TensorTuple& x, int64_t images, const Size3& in, bool channels_first,
               const OutputTuple& y, const TensorTuple& residual) {
                self.run(input_of(x), images, in, channels_first, output_of(y, residual));
            },
            release());
    m.def(
        "matmul",
        [](const TensorTuple& a, const TensorTuple& w, const std::array<int64_t, 4>& sizes, const OutputTuple& y) {
            batched_matmul(input_of(a), input_of(w), sizes[0], sizes[1], sizes[2], sizes[3], output_of(y, {}));
        },
        release());
    m.def(
        "matmul_dynamic",
        [](Address a, Address w, const std::array<int64_t, 4>& sizes, Address y) {
            batched_matmul_dynamic(at<const float>(a), at<const float>(w), sizes[0], sizes[1], sizes[2], sizes[3],
                                   at<float>(y));
        },
        release());
}

}  // namespace zeropoint
