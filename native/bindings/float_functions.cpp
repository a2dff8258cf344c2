// Functions and layers of float32 tensors for Python.
#include "operators/float_layers.h"
#include "operators/float_resampling.h"
#include "operators/float_functions.h"
#include "operators/map.h"
#include "operators/matrices.h"

#include "bindings/bindings.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace zeropoint {
namespace {

using Steps = std::vector<int64_t>;
// (x, y, images, channels, sizes of the input, of the output)
using FloatPoolTuple = std::tuple<Address, Address, int64_t, int64_t, Size3, Size3>;
// (rows, depth, columns, steps: from row to row of a, from row to row of b, from column to column of b)
using MatrixTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

FloatPoolTensor float_pool_of(const FloatPoolTuple& t) {
    return {at<const float>(std::get<0>(t)),
            at<float>(std::get<1>(t)),
            std::get<2>(t),
            std::get<3>(t),
            std::get<4>(t),
            std::get<5>(t)};
}

}  // namespace

void bind_floats(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    define<float_function>(m, "float_function");
    m.def(
        "float_map",
        [](const std::string& name, Address a, Address b, Address y, int64_t count) {
            const std::optional<MapOperation> operation = map_operation(name);
            if (!operation) throw std::invalid_argument("float_map: there is no function '" + name + "'");
            float_map(*operation, at<const float>(a), at<const float>(b), at<float>(y), count);
        },
        release());
    m.def(
        "float_layer_norm",
        [](Address x, Address y, int64_t rows, int64_t length, Address weight, Address bias, double eps) {
            float_layer_norm(at<const float>(x), at<float>(y), rows, length, at<const float>(weight),
                             at<const float>(bias), eps);
        },
        release());
    define<float_log_softmax>(m, "float_log_softmax");
    define<float_softmax>(m, "float_softmax");
    m.def("matrix_traits", [](const std::string& function) {
        const MatrixTraits traits = matrix_traits(function);
        return std::tuple<bool, bool>(traits.takes_b, traits.square);
    });
    m.def(
        "matrices",
        [](const std::string& function, Address a, Address b, Address y, int64_t batch, const Size3& sizes) {
            matrix_function(function, at<const float>(a), at<const float>(b), at<float>(y), batch,
                            {sizes[0], sizes[1], sizes[2]});
        },
        release());
    m.def(
        "float_matmul",
        [](Address a, Address b, Address y, const Steps& batch, const Steps& a_batch, const Steps& b_batch,
           const MatrixTuple& t) {
            float_matmul(at<const float>(a), at<const float>(b), at<float>(y),
                         {batch, a_batch, b_batch, std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t),
                          std::get<4>(t), std::get<5>(t)});
        },
        release());
    m.def(
        "float_average_pool",
        [](const FloatPoolTuple& t, const Size3& kernel, const Size3& stride, const Size3& padding, bool count_padding,
           int64_t divisor) {
            float_average_pool(float_pool_of(t), {kernel, stride, padding, {1, 1, 1}}, count_padding, divisor);
        },
        release());
    m.def(
        "float_adaptive_average_pool", [](const FloatPoolTuple& t) { float_adaptive_average_pool(float_pool_of(t)); },
        release());
    m.def(
        "float_bilinear",
        [](const FloatPoolTuple& t, bool align_corners, double scale_height, double scale_width) {
            float_bilinear(float_pool_of(t), {align_corners, scale_height, scale_width});
        },
        release());
    define<float_mean>(m, "float_mean");
    define<float_sum>(m, "float_sum");
    define<float_product>(m, "float_product");
    define<float_variance>(m, "float_variance");
    define<float_norm>(m, "float_norm");
    nb::class_<FloatConvLayer>(m, "FloatConvLayer", "Float32 weights of a layer, packed.")
        .def("__init__",
             [](FloatConvLayer* self, Address weight, const std::array<int64_t, 3>& channels, const Size3& kernel,
                const Size3& stride, const Size3& padding, const Size3& dilation, bool transposed,
                const Size3& output_padding, Address bias) {
                 const ConvShape shape{channels[0], channels[1], channels[2], kernel,        stride,
                                       padding,     dilation,    transposed,  output_padding};
                 new (self) FloatConvLayer(at<const float>(weight), shape, at<const float>(bias));
             })
        .def(
            "run",
            [](const FloatConvLayer& self, Address x, int64_t images, const Size3& in, Address y) {
                self.run(at<const float>(x), images, in, at<float>(y));
            },
            release());
}

}  // namespace zeropoint
