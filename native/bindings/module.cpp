// The Python module zeropoint._native. Tensors cross as addresses and sizes; the Python side has checked them, and
// whatever only the data can tell (a zero scale, say) is checked here and becomes a ValueError.
#include "bindings/bindings.h"
#include "cpu/features.h"
#include "cpu/isa.h"
#include "cpu/machine.h"
#include "cpu/peaks.h"
#include "cpu/threads.h"
#include "kernels/registry.h"
#include "operators/affine.h"
#include "operators/histogram.h"
#include "operators/lookup.h"
#include "operators/moving_average.h"
#include "operators/packing.h"
#include "operators/pooling.h"
#include "operators/qparams.h"
#include "operators/ranges.h"
#include "operators/resampling.h"
#include "operators/shuffling.h"

#include <algorithm>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zeropoint {
namespace {

// (rows, segments, length, row_stride, address of row_base or 0)
using GridTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, Address>;
// (address, scalar type, count)
using ParameterTuple = std::tuple<Address, int, int64_t>;

Grid grid_of(const GridTuple& g) {
    return {std::get<0>(g), std::get<1>(g), std::get<2>(g), std::get<3>(g), at<const int64_t>(std::get<4>(g))};
}

ParameterView view_of(const ParameterTuple& p) {
    return {at<const void>(std::get<0>(p)), static_cast<ScalarType>(std::get<1>(p)), std::get<2>(p)};
}

nb::dict features_dict() {
    const CpuFeatures& f = cpu_features();
    nb::dict d;
    d["architecture"] = f.architecture;
    d["vendor"] = f.vendor;
    d["brand"] = f.brand;
    nb::dict notes;
    std::vector<std::string> features;
    for (const NamedFeature& known : feature_list()) {
        if (f.architecture != known.architecture) continue;
        if (f.has(known.bit)) features.emplace_back(known.name);
        notes[known.name] = f.notes[static_cast<size_t>(__builtin_ctz(known.bit))];
    }
    d["features"] = features;
    d["notes"] = notes;
    return d;
}

nb::dict machine_dict(const Machine& m) {
    nb::dict d;
    d["l1_bytes"] = m.l1_bytes;
    d["l2_bytes"] = m.l2_bytes;
    d["l3_bytes"] = m.l3_bytes;
    d["l3_cpus"] = m.l3_cpus;
    d["cpus"] = m.cpus;
    d["cores"] = m.cores;
    d["useful_threads"] = m.useful_threads();
    d["source"] = m.source;
    return d;
}

nb::dict peaks_dict() {
    const Peaks p = [] {
        Unlocked release;
        return peaks();
    }();
    nb::dict d, macs;
    for (const auto& [isa, rate] : p.products) macs[isa_name(isa)] = rate;
    d["macs"] = macs;
    d["float_macs"] = p.float_macs;
    d["l1"] = p.l1_bytes;
    d["l2"] = p.l2_bytes;
    d["l3"] = p.l3_bytes;
    d["memory"] = p.memory_bytes;
    d["all_memory"] = p.all_memory_bytes;
    d["hand_over"] = p.hand_over_seconds;
    d["wake"] = p.wake_seconds;
    return d;
}

void bind_cpu(nb::module_& m) {
    m.def("machine", [] { return machine_dict(machine()); }, "Caches and cores.");
    m.def(
        "read_machine",
        [](const std::string& root, const std::vector<int>& allowed) {
            return machine_dict(read_machine(root, allowed));
        },
        nb::arg("root"), nb::arg("allowed"), "The same from files laid out like sysfs, for tests.");
    m.def("peaks", &peaks_dict, "What one thread can do a second at most: measured on the first call.");
    m.def("cpu_features", &features_dict,
          "What the CPU and the operating system allow, with the reasons for what they do not.");
    m.def(
        "levels",
        [] {
            std::vector<std::pair<std::string, std::vector<std::string>>> levels;
            for (const Isa isa : kIsas) {
                std::vector<std::string> needs;
                for (const NamedFeature& known : feature_list())
                    if ((needs_of(isa) & known.bit) != 0) needs.emplace_back(known.name);
                levels.emplace_back(isa_name(isa), needs);
            }
            return levels;
        },
        "Every instruction set that kernels are written for, best last, with the features that it needs.");
    m.def(
        "best_isa",
        [](const std::vector<std::string>& features) {
            FeatureSet offered = 0;
            for (const NamedFeature& known : feature_list())
                if (std::find(features.begin(), features.end(), known.name) != features.end()) offered |= known.bit;
            return std::string(isa_name(best_isa(offered)));
        },
        nb::arg("features"), "The level that these features allow: the choice itself, for tests on any host.");
    m.def("isa", [] { return std::string(isa_name(active_isa())); }, "The level kernels are selected for.");
    m.def("set_isa", [](const std::string& name) { set_active_isa(isa_from_name(name)); }, nb::arg("name"));
    m.def(
        "kernel_list",
        [] {
            std::vector<std::pair<std::string, std::string>> list;
            for (const KernelListing& k : kernel_list()) list.emplace_back(k.operation, isa_name(k.isa));
            return list;
        },
        "(operation, isa) of every kernel in this build.");
    m.def(
        "selected_isa",
        [](const std::string& operation, const std::string& level) {
            return std::string(isa_name(selected_isa(operation.c_str(), isa_from_name(level))));
        },
        nb::arg("operation"), nb::arg("level"));
    m.def("num_threads", &num_threads);
    m.def("adopt_openmp", &adopt_openmp,
          "Run on the threads of the OpenMP runtime that torch loaded, if there is one.");
    m.def("set_num_threads", &set_num_threads, nb::arg("n"));
}

void bind_affine(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "quantize",
        [](Address x, Address y, int dst, const GridTuple& grid, const ParameterTuple& scale,
           const ParameterTuple& zero_point, int variant, double qmin, double qmax) {
            quantize(at<const float>(x), at<void>(y), static_cast<IntType>(dst), grid_of(grid), view_of(scale),
                     view_of(zero_point), static_cast<RoundingVariant>(variant), qmin, qmax);
        },
        release());
    define<quantize_tensor>(m, "quantize_tensor");
    m.def(
        "dequantize",
        [](Address q, int src, Address y, const GridTuple& grid, const ParameterTuple& scale,
           const ParameterTuple& zero_point, bool exact, bool wide) {
            dequantize(at<const void>(q), static_cast<IntType>(src), at<float>(y), grid_of(grid), view_of(scale),
                       view_of(zero_point), exact, wide);
        },
        release());
    m.def(
        "dequantize_tensor",
        [](Address q, int src, Address y, int64_t n, double scale, double zero_point, bool exact) {
            dequantize(at<const void>(q), static_cast<IntType>(src), at<float>(y), {1, 1, n, 0, nullptr},
                       {&scale, ScalarType::f64, 1}, {&zero_point, ScalarType::f64, 1}, exact, false);
        },
        release());
    m.def(
        "fake_quantize",
        [](Address x, Address y, Address mask, const GridTuple& grid, const ParameterTuple& scale,
           const ParameterTuple& zero_point, int beyond, int way_back, double qmin, double qmax) {
            fake_quantize(at<const float>(x), at<float>(y), at<uint8_t>(mask), grid_of(grid), view_of(scale),
                          view_of(zero_point), static_cast<Beyond>(beyond), static_cast<WayBack>(way_back), qmin, qmax);
        },
        release());
    define<mask_gradient>(m, "mask_gradient");
}

void bind_lookup(nb::module_& m) {
    define<lookup>(m, "lookup");
    define<lookup_rows>(m, "lookup_rows");
}

void bind_ranges(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "minmax",
        [](Address x, const GridTuple& grid, int64_t parts, Address min, Address max) {
            minmax(at<const float>(x), grid_of(grid), parts, at<float>(min), at<float>(max));
        },
        release());
    m.def(
        "least_loss_range",
        [](Address x, int64_t n, int bins, float ratio, int bits) {
            const Range r = least_loss_range(at<const float>(x), n, bins, ratio, bits);
            return std::make_pair(r.low, r.high);
        },
        release());
    m.def(
        "histogram",
        [](Address x, int64_t n, float low, float high, int64_t bins, Address counts) {
            const HistogramPass p = histogram(at<const float>(x), n, low, high, bins, at<float>(counts));
            return std::make_tuple(p.min, p.max, p.nans, p.infinities);
        },
        release());
    m.def(
        "narrowing_ranges",
        [](Address cumulative, double total, const std::tuple<double, double, int64_t, int64_t>& at_range, int64_t most,
           Address starts, Address ends) {
            Narrowing n{std::get<0>(at_range), std::get<1>(at_range), std::get<2>(at_range), std::get<3>(at_range)};
            const int64_t count =
                narrowing_ranges(at<const float>(cumulative), total, n, most, at<int64_t>(starts), at<int64_t>(ends));
            return std::make_pair(count, std::make_tuple(n.below, n.above, n.start, n.end));
        },
        release());
    define<bin_errors>(m, "bin_errors");
    m.def("qparams_of_range", [](float low, float high, int64_t qmin, int64_t qmax, bool symmetric, bool rounded) {
        const QParams q = qparams_of_range(low, high, qmin, qmax, symmetric, rounded);
        return std::make_pair(q.scale, q.zero_point);
    });
    m.def(
        "observe_range",
        [](Address x, const GridTuple& grid, int64_t parts, Address min, Address max, bool average, float rate) {
            observe_range(at<const float>(x), grid_of(grid), parts, at<float>(min), at<float>(max), average, rate);
        },
        release());
    m.def(
        "observe_and_fake_quantize",
        [](Address x, const GridTuple& grid, bool per_channel, bool observe, int64_t parts,
           const std::array<Address, 4>& state, float rate, Address y, Address mask, int64_t qmin, int64_t qmax,
           bool symmetric) {
            return observe_and_fake_quantize(
                at<const float>(x), grid_of(grid), per_channel, observe,
                {parts, at<float>(state[0]), at<float>(state[1]), at<float>(state[2]), at<int32_t>(state[3]), rate},
                {at<float>(y), at<uint8_t>(mask), qmin, qmax, symmetric});
        },
        release());
    define<pack_rows>(m, "pack");
    define<unpack_rows>(m, "unpack");
}

using Three = std::array<int64_t, 3>;
// (x, y, integer type, images, channels, sizes of the input, sizes of the output)
using PoolTuple = std::tuple<Address, Address, int, int64_t, int64_t, Three, Three>;

PoolTensor pool_of(const PoolTuple& t) {
    return {at<const void>(std::get<0>(t)),
            at<void>(std::get<1>(t)),
            static_cast<IntType>(std::get<2>(t)),
            std::get<3>(t),
            std::get<4>(t),
            std::get<5>(t),
            std::get<6>(t)};
}

void bind_spatial(nb::module_& m) {
    using release = nb::call_guard<Unlocked>;
    m.def(
        "max_pool",
        [](const PoolTuple& tensor, const Three& kernel, const Three& stride, const Three& padding,
           const Three& dilation) { max_pool(pool_of(tensor), {kernel, stride, padding, dilation}); },
        release());
    m.def(
        "average_pool",
        [](const PoolTuple& tensor, const Three& kernel, const Three& stride, const Three& padding, int averaging,
           bool count_include_pad, int64_t divisor, int32_t zero_point, float qmin, float qmax, float scale) {
            average_pool(
                pool_of(tensor), {kernel, stride, padding, {1, 1, 1}},
                {static_cast<Averaging>(averaging), count_include_pad, divisor, zero_point, qmin, qmax, scale});
        },
        release());
    m.def(
        "adaptive_average_pool",
        [](const PoolTuple& tensor, int averaging, int32_t zero_point, float qmin, float qmax, float scale) {
            adaptive_average_pool(pool_of(tensor),
                                  {static_cast<Averaging>(averaging), true, 0, zero_point, qmin, qmax, scale});
        },
        release());
    m.def(
        "nearest",
        [](const PoolTuple& tensor, const std::array<double, 3>& scale, bool exact) {
            const PoolTensor t = pool_of(tensor);
            const int64_t bytes = t.channels * (t.type == IntType::s32 ? 4 : t.type == IntType::s16 ? 2 : 1);
            nearest({t.x, t.y, t.images, bytes, t.in, t.out}, {scale, exact});
        },
        release());
    m.def(
        "interleave",
        [](Address x, Address y, int64_t bytes, const Three& counts, const Three& strides, int64_t groups,
           int64_t group_stride, int64_t length) {
            interleave({at<const void>(x), at<void>(y), bytes, counts, strides, groups, group_stride, length});
        },
        release());
    m.def(
        "bilinear",
        [](const PoolTuple& tensor, bool align_corners, double scale_height, double scale_width, bool fused,
           bool fuse_first, int32_t zero_point, float qmin, float qmax) {
            const PoolTensor t = pool_of(tensor);
            bilinear({t.x, t.y, t.type, t.images, t.channels, t.in[1], t.in[2], t.out[1], t.out[2]},
                     {align_corners, scale_height, scale_width, fused, fuse_first, zero_point, qmin, qmax});
        },
        release());
}

}  // namespace
}  // namespace zeropoint

NB_MODULE(_native, m) {
    // Packed weights that still live when Python ends are no leak to tell users about.
    nanobind::set_leak_warnings(false);
    m.doc() = "zeropoint's native core: CPU features, kernels, threads. Internal; use the zeropoint package.";
    zeropoint::bind_cpu(m);
    zeropoint::bind_affine(m);
    zeropoint::bind_lookup(m);
    zeropoint::bind_ranges(m);
    zeropoint::bind_spatial(m);
    zeropoint::bind_layers(m);
    zeropoint::bind_embedding(m);
    zeropoint::bind_recurrent(m);
    zeropoint::bind_norms(m);
    zeropoint::bind_floats(m);
    zeropoint::bind_elementwise(m);
    zeropoint::bind_engine(m);
    zeropoint::bind_weight_only(m);
}
