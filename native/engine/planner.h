// Plans a program step by step. A step asks for its inputs, makes its outputs, and says what is to be done.
#pragma once

#include "engine/plan.h"
#include "engine/state.h"

#include <algorithm>
#include <initializer_list>
#include <variant>

namespace zeropoint {

// A number of a program: written there, or a value that is known once the sizes of the inputs are.
struct Integer {
    int64_t literal = 0;
    int32_t value = -1;
};

// One that need not be whole.
struct Number {
    std::variant<int64_t, double> literal;
    int32_t value = -1;
};

class Planner {
public:
    using Value = std::variant<std::monostate, Tensor, int64_t, double>;

    // `values`: one for each value of the program, `limit`: the most bytes a tensor may have.
    Planner(size_t values, int64_t limit) : values_(values), limit_(limit) {}

    // ------------------------------------------------------------------------------------------------ for steps
    size_t inputs() const { return in_->size(); }
    bool has_input(size_t i) const { return i < in_->size() && (*in_)[i] >= 0; }
    const Tensor& input(size_t i) const;
    // An 8-bit input.
    const Tensor& byte_input(size_t i) const;
    // An input of that type.
    const Tensor& typed_input(size_t i, ElementType type) const;
    int64_t integer(const Integer& n) const;
    std::vector<int64_t> integers(const std::vector<Integer>& list) const;
    std::variant<int64_t, double> number(const Number& n) const;
    void give(size_t output, Tensor tensor);
    void give(size_t output, int64_t integer);
    void give(size_t output, double real);

    Tensor make(ElementType type, const Sizes& sizes, const Sizes& strides);
    Tensor make(ElementType type, const Sizes& sizes) { return make(type, sizes, contiguous_strides(sizes)); }
    // Sizes and order of the axes in memory of x. `over`: the instruction that writes it reads x element by element,
    // each just before it is written, so that it may be in the same memory.
    Tensor make_like(const Tensor& x, ElementType type, bool over = false);
    // Lets y be in the memory of x, on the same condition.
    void take_over(const Tensor& y, const Tensor& x);
    // Memory for one instruction.
    Place scratch(int64_t bytes);
    // What an instruction takes for itself while it runs, outside the plan, and each of its threads. It counts: see
    // finish.
    void needs_memory(double bytes, double each_thread = 0);
    // x itself where it lies so already, else a copy.
    Tensor contiguous(const Tensor& x);
    Tensor channels_inside(const Tensor& x);
    Tensor laid_out(const Tensor& x, const Sizes& strides);
    Tensor dense(const Tensor& x);
    // A contiguous copy of x to write to. It is x itself, if nothing reads x later: a state is updated where it is.
    Tensor to_be_written(const Tensor& x);
    // Before a write to y, which is to_be_written: `save` keeps in `old`, memory of its own, what will be overwritten,
    // and `restore` puts it back if the run fails later. Both get the addresses of y, old and `more`. Without effect
    // where y is not the state itself.
    void keep_old(const Tensor& y, Place old, const std::vector<Place>& more, Work save, Work restore);
    // From one to the other, of the same sizes and type; y may be a part of something larger.
    void copy(const Tensor& x, const Tensor& y);
    // Which kernel does the work of the step.
    void runs(const char* kernel) { plan_.shown.back().kernel = kernel; }
    // `work` gets the addresses of these places.
    void emit(std::vector<Place> places, Work work, double macs = 0);
    // The same for n images of a batch of `images`, each computed by itself: work(addresses of the first, n). In each
    // of these tensors the images lie one behind the other. `weights`: bytes that are read for every image.
    void emit_images(const std::vector<Tensor>& tensors, int64_t images, ImagesWork work, double macs = 0,
                     int64_t weights = 0);
    // The same where images lie anywhere: `strides` are the bytes from one to the next, 0 in what all of them share.
    void emit_images(std::vector<Place> places, std::vector<int64_t> strides, int64_t images, ImagesWork work,
                     double macs = 0, int64_t weights = 0);

    // ------------------------------------------------------------------------------------------- for the program
    void begin(int32_t step, const std::vector<int32_t>& in, const std::vector<int32_t>& out);
    void set(int32_t value, Value what) { values_[static_cast<size_t>(value)] = std::move(what); }
    const Value& get(int32_t value) const { return values_[static_cast<size_t>(value)]; }
    Place add_buffer(Buffer buffer);
    // With these values as outputs, each in memory of its own, and the `next` values of the state in its memory. Throws
    // PlanError if all that is needed for a run is more than the limit.
    Plan finish(const std::vector<int32_t>& outputs, const std::vector<StateTensor>& state = {});

private:
    void finish_undos();
    void finish_state(const std::vector<StateTensor>& state);
    bool is_updated_in_place(const Tensor& next, const Tensor& before) const;

    Plan plan_;
    std::vector<Value> values_;
    int64_t limit_;
    double outside_ = 0;
    size_t made_ = 0;
    int32_t step_ = -1;
    const std::vector<int32_t>* in_ = nullptr;
    const std::vector<int32_t>* out_ = nullptr;
};

}  // namespace zeropoint
