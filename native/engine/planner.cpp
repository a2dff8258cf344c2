#include "engine/planner.h"

#include "cpu/machine.h"
#include "cpu/threads.h"
#include "engine/arena.h"
#include "engine/copy.h"
#include "engine/depth_first.h"

#include <algorithm>
#include <cstdio>

namespace zeropoint {
namespace {

// Placing them takes a time that grows with the square of their number.
constexpr size_t kMostBuffers = 1 << 15;

}  // namespace

const Tensor& Planner::input(size_t i) const {
    if (!has_input(i)) throw PlanError("input " + std::to_string(i) + " is missing");
    const Tensor* tensor = std::get_if<Tensor>(&values_[static_cast<size_t>((*in_)[i])]);
    if (tensor == nullptr) throw PlanError("input " + std::to_string(i) + " is no tensor");
    return *tensor;
}

const Tensor& Planner::byte_input(size_t i) const {
    const Tensor& x = input(i);
    if (x.type != ElementType::u8 && x.type != ElementType::s8)
        throw PlanError("input " + std::to_string(i) + " must be uint8 or int8, it is " + name_of(x.type));
    return x;
}

const Tensor& Planner::typed_input(size_t i, ElementType type) const {
    const Tensor& x = input(i);
    if (x.type != type)
        throw PlanError("input " + std::to_string(i) + " must be " + name_of(type) + ", it is " + name_of(x.type));
    return x;
}

int64_t Planner::integer(const Integer& n) const {
    if (n.value < 0) return n.literal;
    const int64_t* found = std::get_if<int64_t>(&values_[static_cast<size_t>(n.value)]);
    if (found == nullptr) throw PlanError("a size that is needed is no whole number");
    return *found;
}

std::variant<int64_t, double> Planner::number(const Number& n) const {
    if (n.value < 0) return n.literal;
    const Value& found = values_[static_cast<size_t>(n.value)];
    if (const int64_t* whole = std::get_if<int64_t>(&found)) return *whole;
    if (const double* real = std::get_if<double>(&found)) return *real;
    throw PlanError("a number that is needed is a tensor");
}

std::vector<int64_t> Planner::integers(const std::vector<Integer>& list) const {
    std::vector<int64_t> out;
    for (const Integer& n : list) out.push_back(integer(n));
    return out;
}

void Planner::give(size_t output, Tensor tensor) {
    plan_.shown.back().written += tensor.bytes();
    if (output == 0) {
        plan_.shown.back().to = tensor.type;
        plan_.shown.back().sizes = tensor.sizes;
    }
    set((*out_)[output], std::move(tensor));
}

void Planner::give(size_t output, int64_t integer) { set((*out_)[output], integer); }
void Planner::give(size_t output, double real) { set((*out_)[output], real); }

Place Planner::add_buffer(Buffer buffer) {
    plan_.buffers.push_back(buffer);
    return {static_cast<int32_t>(plan_.buffers.size()) - 1, 0};
}

Tensor Planner::make(ElementType type, const Sizes& sizes, const Sizes& strides) {
    Tensor y{type, sizes, strides, {}};
    Buffer buffer;
    buffer.bytes = y.bytes();
    if (buffer.bytes > limit_)
        throw PlanError("a tensor of " + text_of(sizes) + " would have " + std::to_string(buffer.bytes) +
                        " bytes, more than the memory limit of " + std::to_string(limit_));
    if (++made_ > kMostBuffers)
        throw PlanError("more than " + std::to_string(kMostBuffers) + " values would be needed");
    y.place = add_buffer(buffer);
    return y;
}

Tensor Planner::make_like(const Tensor& x, ElementType type, bool over) {
    Sizes strides(x.sizes.size());
    int64_t step = 1;
    const std::vector<int64_t> order = x.memory_order();
    for (size_t i = order.size(); i-- > 0;) {
        strides[static_cast<size_t>(order[i])] = step;
        step *= std::max<int64_t>(x.sizes[static_cast<size_t>(order[i])], 1);
    }
    Tensor y = make(type, x.sizes, strides);
    if (over) take_over(y, x);
    return y;
}

void Planner::take_over(const Tensor& y, const Tensor& x) {
    if (x.place.offset == 0 && bytes_of(y.type) == bytes_of(x.type))
        plan_.buffers[static_cast<size_t>(y.place.buffer)].over = x.place.buffer;
}

Place Planner::scratch(int64_t bytes) { return make(ElementType::u8, {std::max<int64_t>(bytes, 1)}).place; }

void Planner::needs_memory(double bytes, double each_thread) {
    outside_ = std::max(outside_, bytes + each_thread * num_threads());
}

void Planner::copy(const Tensor& x, const Tensor& y) {
    if (x.count() == 0) return;
    emit({x.place, y.place}, [copy = StridedCopy(x, y)](void* const* at) { copy.run(at[0], at[1]); });
}

Tensor Planner::laid_out(const Tensor& x, const Sizes& strides) {
    Tensor y = make(x.type, x.sizes, strides);
    copy(x, y);
    return y;
}

Tensor Planner::contiguous(const Tensor& x) { return x.is_contiguous() ? x : laid_out(x, contiguous_strides(x.sizes)); }

Tensor Planner::channels_inside(const Tensor& x) {
    Tensor wanted = x;
    wanted.strides = channels_inside_strides(x.sizes);
    for (size_t axis = 0; axis < x.sizes.size(); ++axis)
        if (x.sizes[axis] != 1 && x.strides[axis] != wanted.strides[axis]) return laid_out(x, wanted.strides);
    return x;
}

Tensor Planner::dense(const Tensor& x) {
    if (x.is_dense()) return x;
    Tensor y = make_like(x, x.type);
    copy(x, y);
    return y;
}

Tensor Planner::to_be_written(const Tensor& x) {
    Tensor y = make(x.type, x.sizes, contiguous_strides(x.sizes));
    if (x.is_contiguous() && x.place.offset == 0) {
        Buffer& buffer = plan_.buffers[static_cast<size_t>(y.place.buffer)];
        buffer.over = x.place.buffer;
        buffer.updates = true;
    }
    if (x.count() == 0) return y;
    emit({x.place, y.place}, [copy = StridedCopy(x, y)](void* const* at) {
        if (at[0] != at[1]) copy.run(at[0], at[1]);
    });
    return y;
}

void Planner::keep_old(const Tensor& y, Place old, const std::vector<Place>& more, Work save, Work restore) {
    std::vector<Place> places{y.place, old};
    places.insert(places.end(), more.begin(), more.end());
    plan_.undos.push_back({static_cast<int32_t>(plan_.instructions.size()), places, std::move(restore)});
    emit(std::move(places), std::move(save));
}

// What is kept for an undo stays to the end of the run. Of what is no state nothing is kept.
void Planner::finish_undos() {
    const int32_t last = static_cast<int32_t>(plan_.instructions.size()) - 1;
    std::vector<Undo> needed;
    for (Undo& undo : plan_.undos) {
        const auto buffer = [&](size_t i) -> Buffer& {
            return plan_.buffers[static_cast<size_t>(undo.places[i].buffer)];
        };
        if (buffer(0).kind == BufferKind::state) {
            for (size_t i = 1; i < undo.places.size(); ++i) buffer(i).last = last;
            needed.push_back(std::move(undo));
        } else {
            buffer(1).first = -1;
            Instruction& save = plan_.instructions[static_cast<size_t>(undo.instruction)];
            save.places.clear();
            save.work = [](void* const*) {};
        }
    }
    plan_.undos = std::move(needed);
}

void Planner::emit(std::vector<Place> places, Work work, double macs) {
    const int32_t now = static_cast<int32_t>(plan_.instructions.size());
    for (const Place& place : places) {
        Buffer& buffer = plan_.buffers[static_cast<size_t>(place.buffer)];
        if (buffer.first < 0) buffer.first = now;
        buffer.last = now;
    }
    plan_.most_places = std::max(plan_.most_places, places.size());
    plan_.instructions.push_back({std::move(places), std::move(work), step_, macs, {}});
}

void Planner::emit_images(const std::vector<Tensor>& tensors, int64_t images, ImagesWork work, double macs,
                          int64_t weights) {
    std::vector<Place> places;
    std::vector<int64_t> strides;
    for (const Tensor& tensor : tensors) {
        places.push_back(tensor.place);
        strides.push_back(tensor.bytes() / images);
    }
    emit_images(std::move(places), std::move(strides), images, std::move(work), macs, weights);
}

void Planner::emit_images(std::vector<Place> places, std::vector<int64_t> strides, int64_t images, ImagesWork work,
                          double macs, int64_t weights) {
    emit(std::move(places), nullptr, macs);
    plan_.instructions.back().per_image = {images, std::move(strides), weights, std::move(work)};
}

void Planner::begin(int32_t step, const std::vector<int32_t>& in, const std::vector<int32_t>& out) {
    step_ = step;
    in_ = &in;
    out_ = &out;
    plan_.shown.emplace_back();
    const Tensor* first = has_input(0) ? std::get_if<Tensor>(&values_[static_cast<size_t>(in[0])]) : nullptr;
    if (first != nullptr) plan_.shown.back().from = first->type;
    for (const int32_t value : in) {
        const Tensor* x = value < 0 ? nullptr : std::get_if<Tensor>(&get(value));
        if (x == nullptr || x->place.buffer < 0) continue;
        const bool is_stored = plan_.buffers[static_cast<size_t>(x->place.buffer)].kind == BufferKind::constant;
        (is_stored ? plan_.shown.back().stored : plan_.shown.back().read) += x->bytes();
    }
}

// Whether what replaces a tensor of the state was made by writing to copies of it that nothing else needs: then no copy
// is made, and the writes go to the state itself.
bool Planner::is_updated_in_place(const Tensor& next, const Tensor& before) const {
    if (next.place.offset != 0 || !next.is_contiguous()) return false;
    int32_t at = next.place.buffer;
    while (at != before.place.buffer) {
        const Buffer& buffer = plan_.buffers[static_cast<size_t>(at)];
        if (buffer.kind != BufferKind::arena || !buffer.updates || buffer.bytes != before.bytes()) return false;
        if (plan_.buffers[static_cast<size_t>(buffer.over)].last != buffer.first) return false;
        at = buffer.over;
    }
    return true;
}

void Planner::finish_state(const std::vector<StateTensor>& state) {
    std::vector<Tensor> next;
    for (const StateTensor& tensor : state) {
        const Tensor* found = std::get_if<Tensor>(&get(tensor.next));
        if (found == nullptr || found->type != tensor.type || found->sizes != tensor.sizes)
            throw PlanError("what replaces the state '" + tensor.name + "' must be a tensor of " +
                            name_of(tensor.type) + " and " + text_of(tensor.sizes) +
                            (found == nullptr
                                 ? ""
                                 : std::string(", it is ") + name_of(found->type) + " and " + text_of(found->sizes)));
        next.push_back(*found);
    }
    const auto before = [&](size_t i) { return std::get<Tensor>(get(state[i].value)); };
    // What lies in the state now may be overwritten below.
    for (size_t i = 0; i < state.size(); ++i)
        if (next[i].place.buffer != before(i).place.buffer &&
            plan_.buffers[static_cast<size_t>(next[i].place.buffer)].kind == BufferKind::state)
            next[i] = laid_out(next[i], contiguous_strides(next[i].sizes));
    // A copy at the end reads what another update may have to leave alone: then that is copied, too.
    std::vector<bool> in_place(state.size(), true);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < state.size(); ++i)
            if (in_place[i] && !is_updated_in_place(next[i], before(i))) {
                copy(contiguous(next[i]), before(i));
                in_place[i] = false;
                changed = true;
            }
    }
    for (size_t i = 0; i < state.size(); ++i) {
        if (!in_place[i]) continue;
        for (int32_t at = next[i].place.buffer; at != before(i).place.buffer;) {
            Buffer& buffer = plan_.buffers[static_cast<size_t>(at)];
            buffer.kind = BufferKind::state;
            buffer.index = static_cast<int32_t>(i);
            at = buffer.over;
        }
    }
}

Plan Planner::finish(const std::vector<int32_t>& outputs, const std::vector<StateTensor>& state) {
    step_ = -1;
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Tensor* found = std::get_if<Tensor>(&get(outputs[i]));
        if (found == nullptr) throw PlanError("output " + std::to_string(i) + " is no tensor");
        Tensor y = *found;
        const auto is_whole = [&](const Buffer& b) {
            return b.kind == BufferKind::arena && y.place.offset == 0 && y.is_dense() && y.bytes() == b.bytes;
        };
        if (!is_whole(plan_.buffers[static_cast<size_t>(y.place.buffer)])) {
            Tensor own = make_like(y, y.type);
            copy(y, own);
            y = own;
        }
        Buffer& buffer = plan_.buffers[static_cast<size_t>(y.place.buffer)];
        buffer.kind = BufferKind::output;
        buffer.index = static_cast<int32_t>(i);
        plan_.outputs.push_back(y);
    }
    finish_state(state);
    finish_undos();
    plan_.threads = num_threads();
    find_runs(plan_, {plan_.threads, machine().l2_share()});
    place_buffers(plan_);
    double needed = static_cast<double>(plan_.arena_bytes) + outside_;
    for (const Tensor& y : plan_.outputs) needed += static_cast<double>(y.bytes());
    for (const StateTensor& tensor : state) needed += static_cast<double>(tensor.bytes());
    if (needed > static_cast<double>(limit_)) {
        char bytes[32];
        std::snprintf(bytes, sizeof bytes, "%.0f", needed);
        throw PlanError(std::string("these inputs need ") + bytes + " bytes of memory, more than the limit of " +
                        std::to_string(limit_));
    }
    return std::move(plan_);
}

}  // namespace zeropoint
