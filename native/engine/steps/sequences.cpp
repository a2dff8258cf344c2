// Sequences of several lengths in one padded tensor: how many reach each step, and what is padding. The same as
// src/zeropoint/ops/sequences.py computes.
#include "engine/step_table.h"

#include <stdexcept>

namespace zeropoint {
namespace {

constexpr int64_t kMostSteps = 1 << 24;

// Input: lengths (batch), int64, that do not grow. Output: (steps), int64: how many sequences reach each step.
class BatchSizes : public OneInput {
public:
    explicit BatchSizes(StepReader& r) : OneInput(r), steps_(r.size("steps")) {}
    void plan(Planner& p) const override {
        const Tensor lengths = p.contiguous(p.typed_input(0, ElementType::s64));
        const int64_t steps = p.integer(steps_);
        if (lengths.rank() != 1) throw PlanError("lengths must have one axis");
        if (steps < 1 || steps > kMostSteps) throw PlanError("there are " + std::to_string(steps) + " steps");
        const Tensor sizes = p.make(ElementType::s64, {steps});
        p.give(0, sizes);
        p.emit({lengths.place, sizes.place}, [steps, batch = lengths.size(0)](void* const* at) {
            const int64_t* length = static_cast<const int64_t*>(at[0]);
            int64_t* size = static_cast<int64_t*>(at[1]);
            int64_t left = batch;
            for (int64_t i = 0; i < batch; ++i) {
                if (length[i] < 1 || length[i] > steps)
                    throw std::invalid_argument("lengths must be from 1 to " + std::to_string(steps) +
                                                ", the steps of the sequence");
                if (i > 0 && length[i] > length[i - 1])
                    throw std::invalid_argument(
                        "lengths must not grow: sort the sequences, or pass enforce_sorted=False");
            }
            for (int64_t t = 0; t < steps; ++t) {
                while (left > 0 && length[left - 1] <= t) --left;
                size[t] = left;
            }
        });
    }

private:
    Integer steps_;
};

// Input: batch sizes (steps), int64. Output: (steps, batch), bool: what belongs to a sequence. `whole`: the longest one
// must reach the last step.
class PaddingMask : public OneInput {
public:
    explicit PaddingMask(StepReader& r) : OneInput(r), batch_(r.size("batch")), whole_(r.flag("whole")) {}
    void plan(Planner& p) const override {
        const Tensor sizes = p.contiguous(p.typed_input(0, ElementType::s64));
        const int64_t batch = p.integer(batch_);
        if (sizes.rank() != 1 || sizes.size(0) < 1) throw PlanError("batch sizes must have one axis, not empty");
        if (batch < 0) throw PlanError("a batch of " + std::to_string(batch));
        const Tensor mask = p.make(ElementType::boolean, {sizes.size(0), batch});
        p.give(0, mask);
        p.emit({sizes.place, mask.place}, [steps = sizes.size(0), batch, whole = whole_](void* const* at) {
            const int64_t* size = static_cast<const int64_t*>(at[0]);
            uint8_t* kept = static_cast<uint8_t*>(at[1]);
            if (whole && size[steps - 1] == 0)
                throw std::invalid_argument("the longest sequence is shorter than the input of " +
                                            std::to_string(steps) +
                                            " steps: cut the input to the longest, or pass total_length to "
                                            "pad_packed_sequence");
            for (int64_t t = 0; t < steps; ++t)
                for (int64_t i = 0; i < batch; ++i) kept[t * batch + i] = i < size[t];
        });
    }

private:
    Integer batch_;
    bool whole_;
};

}  // namespace

void add_sequence_steps(StepTable& table) {
    table.add({{"batch_sizes", made<BatchSizes>}, {"padding_mask", made<PaddingMask>}});
}

}  // namespace zeropoint
