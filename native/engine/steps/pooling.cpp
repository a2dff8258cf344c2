// The largest and the mean of windows, and means over axes, of 8-bit tensors.
//
// How a mean is rounded depends on the layout, as in PyTorch: see src/zeropoint/ops/pooling.py for the table.
#include "operators/pooling.h"

#include "engine/steps/byte_tensors.h"
#include "engine/steps/pooling_windows.h"
#include "engine/step_table.h"
#include "operators/affine.h"
#include "operators/norms.h"

#include <algorithm>
#include <numeric>

namespace zeropoint {
namespace {

constexpr int64_t kMostSummed = 1 << 23;  // bytes whose sum fits in 32 bits

PoolTensor native(const Pooled& pooled) {
    PoolTensor t = pooled.described<PoolTensor>();
    t.type = int_type(pooled.images.x.type);
    return t;
}

PoolTensor at_places(PoolTensor t, void* const* at) {
    t.x = at[0];
    t.y = at[1];
    return t;
}

// A mean of uint8 as QNNPACK takes it, if attributes 'rounding' and 'scale' say so.
class QnnpackMean {
public:
    explicit QnnpackMean(StepReader& r) {
        if (rounds_as_qnnpack(r, "rounding")) scale_ = read_scale(r, "").scale;
    }
    bool takes(ElementType type) const { return scale_ > 0 && type == ElementType::u8; }
    void put(AverageRule& rule, int64_t zero_point) const {
        rule.averaging = Averaging::split;
        rule.zero_point = static_cast<int32_t>(zero_point);
        rule.scale = scale_;
    }

private:
    float scale_ = 0;
};

class MaxPool : public Sliding {
public:
    explicit MaxPool(StepReader& r) : Sliding(r, true) {}

    void plan(Planner& p) const override {
        p.runs("max_pool");
        const Pooled pooled = begin(p, p.byte_input(0));
        if (pooled.y.count() == 0) return;
        pooled.emit(p, native(pooled),
                    [this](const PoolTensor& t, void* const* at) { max_pool(at_places(t, at), windows_); });
    }
};

class AveragePool : public Sliding {
public:
    explicit AveragePool(StepReader& r)
        : Sliding(r, false),
          count_padding_(r.flag("count_include_pad")),
          divisor_(r.integer("divisor", -kMostSummed, kMostSummed)),
          zero_point_(r.integer("zero_point", -128, 255)),
          qnnpack_(r) {
        if (windows_.kernel[0] * windows_.kernel[1] * windows_.kernel[2] >= kMostSummed)
            r.fail("the window is too large");
    }

    void plan(Planner& p) const override {
        p.runs("average_pool");
        require_zero_point(p.byte_input(0), zero_point_);
        const Pooled pooled = begin(p, p.byte_input(0));
        const Images& images = pooled.images;
        if (pooled.y.count() == 0) return;
        const bool by_vector = (images.channels_last || spatial_ == 3) && images.channels() >= kVector;
        AverageRule rule;
        rule.averaging = by_vector ? Averaging::split : Averaging::joined;
        rule.count_include_pad = count_padding_;
        rule.divisor = divisor_;
        rule.zero_point = static_cast<int32_t>(zero_point_);
        const auto [low, high] = range_of(images.x.type);
        rule.qmin = static_cast<float>(low);
        rule.qmax = static_cast<float>(high);
        if (qnnpack_.takes(images.x.type)) qnnpack_.put(rule, zero_point_);
        pooled.emit(p, native(pooled), [this, rule](const PoolTensor& t, void* const* at) {
            average_pool(at_places(t, at), windows_, rule);
        });
    }

private:
    bool count_padding_;
    int64_t divisor_, zero_point_;
    QnnpackMean qnnpack_;
};

class AdaptiveAveragePool : public Adaptive {
public:
    explicit AdaptiveAveragePool(StepReader& r)
        : Adaptive(r),
          zero_point_(r.integer("zero_point", -128, 255)),
          qnnpack_(r) {}

    void plan(Planner& p) const override {
        p.runs("average_pool");
        require_zero_point(p.byte_input(0), zero_point_);
        const Pooled pooled = begin(p, p.byte_input(0));
        const Images& images = pooled.images;
        if (count_of({images.in.begin(), images.in.end()}) >= kMostSummed) throw PlanError("the input is too large");
        if (pooled.y.count() == 0) return;
        AverageRule rule;
        const auto [low, high] = range_of(images.x.type);
        rule.qmin = static_cast<float>(low);
        rule.qmax = static_cast<float>(high);
        rule.zero_point = images.channels_last ? static_cast<int32_t>(zero_point_) : 0;
        rule.averaging = !images.channels_last          ? Averaging::chained
                         : images.channels() >= kVector ? Averaging::fused
                                                        : Averaging::joined;
        bool even = images.in != pooled.out;  // QNNPACK has windows of one size only
        for (size_t d = 0; d < images.in.size(); ++d) even = even && images.in[d] % pooled.out[d] == 0;
        if (even && qnnpack_.takes(images.x.type)) qnnpack_.put(rule, zero_point_);
        pooled.emit(p, native(pooled),
                    [rule](const PoolTensor& t, void* const* at) { adaptive_average_pool(at_places(t, at), rule); });
    }

private:
    int64_t zero_point_;
    QnnpackMean qnnpack_;
};

// The mean over some axes.
class Mean : public OneInput {
public:
    explicit Mean(StepReader& r)
        : OneInput(r),
          axes_(r.sizes("axes")),
          keep_(r.flag("keepdim")),
          scale_(read_scale(r, "")) {}

    void plan(Planner& p) const override {
        const Tensor given = p.byte_input(0);
        require_zero_point(given, scale_.zero_point);
        std::vector<bool> dropped(given.sizes.size(), false);
        for (const int64_t axis : p.integers(axes_))
            dropped[static_cast<size_t>(wrapped_axis(axis, given.rank()))] = true;
        const bool inside = !given.is_contiguous() && given.is_channels_last();
        const bool in_rows = given.is_contiguous() && std::is_sorted(dropped.begin(), dropped.end());
        const Tensor x = inside ? given : p.contiguous(given);
        std::vector<size_t> order(x.sizes.size());  // outermost in memory first
        std::iota(order.begin(), order.end(), 0);
        if (inside) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
        int64_t outer = 1, rows = 1, inner = 1;
        bool begun = false, ended = false, together = true;
        for (const size_t axis : order) {
            together = together && !(dropped[axis] && ended);
            begun = begun || dropped[axis];
            ended = begun && !dropped[axis];
            (dropped[axis] ? rows : begun ? inner : outer) *= x.sizes[axis];
        }
        if (rows == 0) throw PlanError("there are no values to average");
        if (rows >= kMostSummed) throw PlanError("there are too many values to average");
        if (!in_rows && (!together || inner == 1)) return plan_exact(p, x, dropped, rows);
        Sizes sizes, strides;
        for (size_t axis = 0; axis < x.sizes.size(); ++axis)
            if (!dropped[axis] || keep_) {
                sizes.push_back(dropped[axis] ? 1 : x.sizes[axis]);
                int64_t stride = 1;  // the axes that are left keep their order in memory
                for (size_t i = order.size(); i-- > 0 && order[i] != axis;)
                    if (!dropped[order[i]]) stride *= std::max<int64_t>(x.sizes[order[i]], 1);
                strides.push_back(stride);
            }
        const Tensor y = p.make(x.type, sizes, strides);
        if (y.count() == 0) return p.give(0, y);
        NormTensor t;
        t.type = int_type(x.type);
        t.scale = scale_.scale;
        t.zero_point = scale_.zero_point;
        const auto [low, high] = range_of(x.type);
        t.lo = static_cast<int32_t>(low);
        t.hi = static_cast<int32_t>(high);
        p.emit({x.place, y.place}, [t, outer, rows, inner, in_rows](void* const* at) {
            NormTensor now = t;
            now.x = at[0];
            now.y = at[1];
            in_rows ? mean_of_rows(now, outer, rows) : mean_of_columns(now, outer, rows, inner);
        });
        p.give(0, p.contiguous(y));
    }

private:
    // Over axes that lie anywhere: from the exact sum, as a float that is quantized.
    void plan_exact(Planner& p, const Tensor& x, const std::vector<bool>& dropped, int64_t rows) const {
        Tensor turned = x;
        turned.sizes.clear();
        turned.strides.clear();
        Sizes sizes;
        for (const bool last : {false, true})
            for (size_t i = 0; i < dropped.size(); ++i)
                if (dropped[i] == last) {
                    turned.sizes.push_back(x.sizes[i]);
                    turned.strides.push_back(x.strides[i]);
                }
        for (size_t i = 0; i < dropped.size(); ++i)
            if (!dropped[i] || keep_) sizes.push_back(dropped[i] ? 1 : x.sizes[i]);
        const Tensor values = p.contiguous(turned), y = p.make(x.type, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        const Place floats = p.make(ElementType::f32, sizes).place;
        const auto [low, high] = range_of(x.type);
        p.emit({values.place, y.place, floats}, [=, low = low, high = high, n = y.count(),
                                                 is_signed = x.type == ElementType::s8, s = scale_](void* const* at) {
            float* means = static_cast<float*>(at[2]);
            for (int64_t i = 0; i < n; ++i) {
                const uint8_t* bytes = static_cast<const uint8_t*>(at[0]) + i * rows;
                int64_t sum = 0;
                for (int64_t k = 0; k < rows; ++k) sum += is_signed ? static_cast<int8_t>(bytes[k]) : bytes[k];
                const double exact = static_cast<double>(sum - rows * s.zero_point) * static_cast<double>(s.scale);
                means[i] = static_cast<float>(exact / static_cast<double>(rows));
            }
            quantize_tensor(means, at[1], is_signed ? IntType::s8 : IntType::u8, n, static_cast<double>(s.scale),
                            static_cast<double>(s.zero_point), RoundingVariant::fused, static_cast<double>(low),
                            static_cast<double>(high));
        });
    }

    std::vector<Integer> axes_;
    bool keep_;
    ByteScale scale_;
};

}  // namespace

void add_pooling_steps(StepTable& table) {
    table.add({{"max_pool", made<MaxPool>},
               {"average_pool", made<AveragePool>},
               {"adaptive_average_pool", made<AdaptiveAveragePool>},
               {"mean", made<Mean>}});
}

}  // namespace zeropoint
