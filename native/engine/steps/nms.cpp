// Non-maximum suppression. The same as src/zeropoint/ops/nms.py computes.
#include "engine/step_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zeropoint {
namespace {

struct Box {
    float left, top, right, bottom;
};

float area(const Box& b) { return (b.right - b.left) * (b.bottom - b.top); }

// As torch.minimum and torch.maximum: NaN if either is.
float least(float a, float b) { return a != a || a < b ? a : b; }
float greatest(float a, float b) { return a != a || a > b ? a : b; }
float positive(float a) { return a < 0 ? 0 : a; }

bool overlaps(const Box& a, const Box& b, double threshold) {
    const float width = positive(least(b.right, a.right) - greatest(b.left, a.left));
    const float height = positive(least(b.bottom, a.bottom) - greatest(b.top, a.top));
    const float shared = width * height;
    return static_cast<double>(shared / (area(a) + area(b) - shared)) > threshold;
}

// Inputs: boxes (n, 4) and scores (n), float32, and labels (n), int64, or null: only boxes of one label drop each
// other. Outputs: (max_output), int64, the numbers of those that are kept, the best first, then -1; and how many they
// are.
class Nms : public StepOf<3, 2> {
public:
    explicit Nms(StepReader& r) : StepOf(r), threshold_(r.number("iou_threshold")), most_(r.size("max_output")) {}
    void plan(Planner& p) const override {
        const Tensor boxes = p.contiguous(p.typed_input(0, ElementType::f32));
        const Tensor scores = p.contiguous(p.typed_input(1, ElementType::f32));
        const int64_t most = p.integer(most_);
        if (boxes.rank() != 2 || boxes.size(1) != 4)
            throw PlanError("boxes of shape " + text_of(boxes.sizes) + " must be (boxes, 4)");
        const Sizes each{boxes.size(0)};
        if (scores.sizes != each) throw PlanError("there must be one score for each box");
        if (most < 0) throw PlanError("'max_output' is negative");
        const Tensor kept = p.make(ElementType::s64, {most}), count = p.make(ElementType::s64, {});
        p.give(0, kept);
        p.give(1, count);
        std::vector<Place> places{boxes.place, scores.place, kept.place, count.place};
        const int64_t n = boxes.size(0);
        places.push_back(p.scratch(std::max<int64_t>(n, 1) * static_cast<int64_t>(sizeof(int64_t))));
        places.push_back(p.scratch(std::max<int64_t>(n, 1)));
        const bool labelled = p.has_input(2);
        if (labelled) {
            const Tensor labels = p.contiguous(p.typed_input(2, ElementType::s64));
            if (labels.sizes != each) throw PlanError("there must be one label for each box");
            places.push_back(labels.place);
        }
        p.emit(std::move(places), [n, most, labelled, threshold = threshold_](void* const* at) {
            const Box* box = static_cast<const Box*>(at[0]);
            const float* score = static_cast<const float*>(at[1]);
            int64_t *kept = static_cast<int64_t*>(at[2]), *order = static_cast<int64_t*>(at[4]), found = 0;
            uint8_t* dropped = static_cast<uint8_t*>(at[5]);
            const int64_t* label = labelled ? static_cast<const int64_t*>(at[6]) : nullptr;
            std::iota(order, order + n, int64_t{0});
            std::fill_n(dropped, n, uint8_t{0});
            // NaN is above all, as in torch.sort.
            std::stable_sort(order, order + n, [&](int64_t a, int64_t b) {
                return std::isnan(score[a]) ? !std::isnan(score[b]) : score[a] > score[b];
            });
            for (int64_t i = 0; i < n && found < most; ++i) {
                const int64_t best = order[i];
                if (dropped[best]) continue;
                kept[found++] = best;
                for (int64_t j = i + 1; j < n; ++j) {
                    const int64_t other = order[j];
                    if (label != nullptr && label[other] != label[best]) continue;
                    if (!dropped[other] && overlaps(box[best], box[other], threshold)) dropped[other] = 1;
                }
            }
            std::fill(kept + found, kept + most, int64_t{-1});
            *static_cast<int64_t*>(at[3]) = found;
        });
    }

private:
    double threshold_;
    Integer most_;
};

}  // namespace

void add_box_steps(StepTable& table) { table.add({{"nms", made<Nms>}}); }

}  // namespace zeropoint
