// Norms, softmax and means for Python.
#include "operators/norms.h"

#include "bindings/bindings.h"

#include <nanobind/stl/tuple.h>

namespace zeropoint {
namespace {

// (x, integer type, scale, zero point, y, its scale, its zero point, its lowest and highest integer)
using NormTuple = std::tuple<Address, int, double, int32_t, Address, double, int32_t, int32_t, int32_t>;
// (images, channels, places, whether the channels are innermost in memory)
using ShapeTuple = std::tuple<int64_t, int64_t, int64_t, bool>;

NormTensor tensor_of(const NormTuple& t) {
    NormTensor n;
    n.x = at<const void>(std::get<0>(t));
    n.type = static_cast<IntType>(std::get<1>(t));
    n.scale = static_cast<float>(std::get<2>(t));
    n.zero_point = std::get<3>(t);
    n.y = at<void>(std::get<4>(t));
    n.y_scale = static_cast<float>(std::get<5>(t));
    n.y_zero_point = std::get<6>(t);
    n.lo = std::get<7>(t);
    n.hi = std::get<8>(t);
    return n;
}

NormShape shape_of(const ShapeTuple& s) { return {std::get<0>(s), std::get<1>(s), std::get<2>(s), std::get<3>(s)}; }

ChannelParams params_of(Address weight, Address bias) { return {at<const float>(weight), at<const float>(bias)}; }

}  // namespace

void bind_norms(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "batch_norm",
        [](const NormTuple& t, const ShapeTuple& shape, Address weight, Address bias, Address mean, Address var,
           float eps) {
            batch_norm(tensor_of(t), shape_of(shape), params_of(weight, bias), at<const float>(mean),
                       at<const float>(var), eps);
        },
        release());
    m.def(
        "layer_norm",
        [](const NormTuple& t, int64_t rows, int64_t length, Address weight, Address bias, float eps) {
            layer_norm(tensor_of(t), rows, length, params_of(weight, bias), eps);
        },
        release());
    m.def(
        "group_norm",
        [](const NormTuple& t, const ShapeTuple& shape, int64_t groups, Address weight, Address bias, float eps) {
            group_norm(tensor_of(t), shape_of(shape), groups, params_of(weight, bias), eps);
        },
        release());
    m.def(
        "softmax",
        [](const NormTuple& t, int64_t outer, int64_t length, int64_t inner) {
            softmax(tensor_of(t), outer, length, inner);
        },
        release());
    m.def(
        "mean_of_rows",
        [](const NormTuple& t, int64_t rows, int64_t length) { mean_of_rows(tensor_of(t), rows, length); }, release());
    m.def(
        "mean_of_columns",
        [](const NormTuple& t, int64_t images, int64_t rows, int64_t length) {
            mean_of_columns(tensor_of(t), images, rows, length);
        },
        release());
}

}  // namespace zeropoint
