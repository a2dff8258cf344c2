#include "operators/integer_lstm.h"

#include "kernels/registry.h"
#include "operators/binary.h"
#include "operators/scratch.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace zeropoint {
namespace {

Quantized operand(const uint8_t* data, const Rounded& as) { return {data, as.scale, as.zero_point}; }

}  // namespace

void run_integer_lstm(const IntegerLstm& r) {
    if (r.layer->inputs() != r.hidden || r.layer->outputs() != 4 * r.hidden)
        throw std::invalid_argument("integer_lstm: a linear layer of " + std::to_string(r.layer->inputs()) +
                                    " inputs and " + std::to_string(r.layer->outputs()) +
                                    " outputs does not fit a state of " + std::to_string(r.hidden));
    const int64_t state = r.batch * r.hidden;
    const LookupFn lookup = kernels().lookup;
    struct Tag {};
    // The linear layer's results become the sums; four gates; two products, of which the first is later squash(c).
    uint8_t* const sums = scratch_of<Tag>(static_cast<size_t>(10 * state));
    uint8_t* const gates = sums + 4 * state;
    uint8_t* const kept = gates + 4 * state;
    uint8_t* const fresh = kept + state;

    LayerOutput linear;
    linear.y = sums;
    linear.type = r.type == IntType::u8 ? OutputType::u8 : OutputType::s8;
    linear.scale = r.linear.scale;
    linear.zero_point = r.linear.zero_point;
    linear.lo = r.type == IntType::u8 ? 0 : -128;
    linear.hi = linear.lo + 255;

    const auto combine = [&](BinaryOperation operation, const Quantized& a, const Quantized& b, uint8_t* y,
                             const Rounded& as, int64_t n) {
        BinaryTensors t;
        t.operation = operation;
        t.type = r.type;
        t.a = a;
        t.b = b;
        t.y = y;
        t.scale = as.scale;
        t.zero_point = as.zero_point;
        t.length = n;
        binary(t);
    };
    const uint8_t *h = r.h, *c = r.c;
    Rounded h_as = r.h_as, c_as = r.c_as;
    for (int64_t step = 0; step < r.steps; ++step) {
        r.layer->run({h, r.type, h_as.scale, h_as.zero_point}, r.batch, linear);
        combine(BinaryOperation::add, operand(r.given + 4 * state * step, r.given_as), operand(sums, r.linear), sums,
                r.sums, 4 * state);
        for (int64_t row = 0; row < r.batch; ++row)
            for (int64_t gate = 0; gate < 4; ++gate)
                lookup(
                    {sums + (4 * row + gate) * r.hidden, r.tables + 256 * gate, gates + gate * state + row * r.hidden},
                    0, r.hidden);
        const auto gate = [&](int which) {
            return operand(gates + which * state, r.gates[static_cast<size_t>(which)]);
        };
        combine(BinaryOperation::multiply, gate(1), operand(c, c_as), kept, r.kept, state);
        combine(BinaryOperation::multiply, gate(0), gate(2), fresh, r.fresh, state);
        combine(BinaryOperation::add, operand(kept, r.kept), operand(fresh, r.fresh), r.last_c, r.cell, state);
        lookup({r.last_c, r.tables + 4 * 256, kept}, 0, state);
        uint8_t* const y = r.y + state * step;
        combine(BinaryOperation::multiply, gate(3), operand(kept, r.squashed), y, r.y_as, state);
        h = y;
        h_as = r.y_as;
        c = r.last_c;
        c_as = r.cell;
    }
    if (r.steps == 0) std::memcpy(r.last_c, r.c, static_cast<size_t>(state));
}

}  // namespace zeropoint
