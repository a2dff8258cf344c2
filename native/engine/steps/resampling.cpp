// Images of other sizes. See operators/resampling.h for the formulas.
#include "operators/float_resampling.h"
#include "operators/resampling.h"

#include "engine/step_table.h"
#include "engine/steps/byte_tensors.h"
#include "engine/steps/images.h"
#include "kernels/bilinear/bilinear.h"

#include <algorithm>
#include <cmath>

namespace zeropoint {
namespace {

class Resample : public Step {
protected:
    Resample(StepReader& r, size_t spatial) : spatial_(static_cast<int64_t>(spatial)), size_(r.sizes("output_size")) {
        r.require_inputs(1);
        r.require_outputs(1);
        if (size_.size() != spatial) r.fail("attribute 'output_size' must have a size for each spatial axis");
    }

    Images images(Planner& p, const Tensor& x) const {
        if (x.rank() != spatial_ + 2)
            throw PlanError("an input of shape " + text_of(x.sizes) + " must have " + std::to_string(spatial_ + 2) +
                            " axes");
        if (x.size(1) < 1) throw PlanError("there are no channels");
        return Images(p, x, spatial_);
    }
    Three output_size(const Planner& p) const {
        Three out{1, 1, 1};
        for (size_t i = 0; i < size_.size(); ++i) {
            const int64_t n = p.integer(size_[i]);
            if (n < 1 || n > kMostElements) throw PlanError("an output size of " + std::to_string(n));
            out[3 - size_.size() + i] = n;
        }
        return out;
    }
    // Output / input, where it is not the quotient of the sizes: positive, or 0.
    static double read_factor(StepReader& r, const char* name) {
        const double factor = r.number(name);
        if (!(factor == 0 || (factor > 1e-6 && factor < 1e6))) r.fail("a factor is out of range");
        return factor;
    }

    int64_t spatial_;
    std::vector<Integer> size_;
};

// Of any type. The attributes depth_factor, height_factor, width_factor are 0 where the sizes say it.
class Nearest : public Resample {
public:
    explicit Nearest(StepReader& r) : Resample(r, static_cast<size_t>(r.integer("spatial", 1, 3))) {
        rule_.scale = {read_factor(r, "depth_factor"), read_factor(r, "height_factor"), read_factor(r, "width_factor")};
        rule_.exact = r.flag("exact");
    }

    void plan(Planner& p) const override {
        const Images x = images(p, p.input(0));
        const Three out = output_size(p);
        if (out == x.in) return p.give(0, x.x);
        const Tensor y = x.make(p, out);
        p.give(0, y);
        if (y.count() == 0) return;
        p.needs_memory(8.0 * static_cast<double>(out[0] + out[1] + out[2]));
        NearestTensor t;
        t.images = x.count();
        t.bytes = x.pixel() * bytes_of(x.x.type);
        t.in = x.in;
        t.out = out;
        p.emit({x.x.place, y.place}, [this, t](void* const* at) {
            NearestTensor now = t;
            now.x = at[0];
            now.y = at[1];
            nearest(now, rule_);
        });
    }

private:
    NearestRule rule_;
};

class Bilinear : public Resample {
public:
    explicit Bilinear(StepReader& r)
        : Resample(r, 2),
          corners_(r.flag("align_corners")),
          height_(read_factor(r, "height_factor")),
          width_(read_factor(r, "width_factor")),
          zero_point_(r.integer("zero_point", -128, 255)) {}

    void plan(Planner& p) const override {
        p.runs("bilinear");
        const Images x = images(p, p.byte_input(0));
        require_zero_point(x.x, zero_point_);
        const Three out = output_size(p);
        if (out == x.in && !x.channels_last) return p.give(0, x.x);
        const Tensor y = x.make(p, out);
        p.give(0, y);
        if (y.count() == 0) return;
        const int64_t floats = 2 * out[2] * x.pixel() + x.in[2] + 256;
        p.needs_memory(static_cast<double>(sizeof(Tap)) * static_cast<double>(out[1] + out[2]) +
                       4.0 * static_cast<double>(floats));
        BilinearRule rule;
        rule.align_corners = corners_;
        rule.scale_height = height_;
        rule.scale_width = width_;
        rule.fused = x.channels_last;
        rule.fuse_first = !(x.channels_last && x.channels() >= kVector);
        rule.zero_point = static_cast<int32_t>(zero_point_);
        const auto [low, high] = range_of(x.x.type);
        rule.qmin = static_cast<float>(low);
        rule.qmax = static_cast<float>(high);
        ResampleTensor t;
        t.type = int_type(x.x.type);
        t.images = x.count();
        t.channels = x.pixel();
        t.in_height = x.in[1];
        t.in_width = x.in[2];
        t.out_height = out[1];
        t.out_width = out[2];
        p.emit({x.x.place, y.place}, [t, rule](void* const* at) {
            ResampleTensor now = t;
            now.x = at[0];
            now.y = at[1];
            bilinear(now, rule);
        });
    }

private:
    bool corners_;
    double height_, width_;
    int64_t zero_point_;
};

// Of float32. See operators/float_resampling.h: graphs compute it there, too.
class FloatBilinear : public Resample {
public:
    explicit FloatBilinear(StepReader& r) : Resample(r, 2) {
        rule_.align_corners = r.flag("align_corners");
        rule_.scale_height = read_factor(r, "height_factor");
        rule_.scale_width = read_factor(r, "width_factor");
    }

    void plan(Planner& p) const override {
        const Images x = images(p, p.typed_input(0, ElementType::f32));
        const Three out = output_size(p);
        const Tensor y = x.make(p, out);
        p.give(0, y);
        if (y.count() == 0) return;
        FloatPoolTensor t;
        t.images = x.count();
        t.channels = x.pixel();
        t.in = x.in;
        t.out = out;
        p.emit({x.x.place, y.place}, [t, rule = rule_](void* const* at) {
            FloatPoolTensor now = t;
            now.x = static_cast<const float*>(at[0]);
            now.y = static_cast<float*>(at[1]);
            float_bilinear(now, rule);
        });
    }

private:
    FloatBilinearRule rule_;
};

}  // namespace

void add_resampling_steps(StepTable& table) {
    table.add({{"nearest", made<Nearest>}, {"bilinear", made<Bilinear>}, {"float_bilinear", made<FloatBilinear>}});
}

}  // namespace zeropoint
