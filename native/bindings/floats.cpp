// Functions of float32 tensors for Python.
#include "operators/floats.h"

#include "bindings/bindings.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace zeropoint {
namespace {

using Steps = std::vector<int64_t>;
// (rows, depth, columns, steps: from row to row of a, from row to row of b, from column to column of b)
using MatrixTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

}  // namespace

void bind_floats(nb::module_& m) {
    using release = nb::call_guard<nb::gil_scoped_release>;
    m.def(
        "float_function",
        [](int function, Address x, Address y, int64_t count) {
            float_function(static_cast<FloatFunction>(function), at<const float>(x), at<float>(y), count);
        },
        release());
    m.def(
        "float_layer_norm",
        [](Address x, Address y, int64_t rows, int64_t length, Address weight, Address bias, double eps) {
            float_layer_norm(at<const float>(x), at<float>(y), rows, length, at<const float>(weight),
                             at<const float>(bias), eps);
        },
        release());
    m.def(
        "float_softmax",
        [](Address x, Address y, int64_t outer, int64_t length, int64_t inner, bool safe) {
            float_softmax(at<const float>(x), at<float>(y), outer, length, inner, safe);
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
}

}  // namespace zeropoint
