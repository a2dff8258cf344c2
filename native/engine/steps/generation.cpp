// Steps of decoders: layers of weights with 16-bit scales for groups, and attention over a cache of keys and values.
// See operators/group_linear.h and operators/cache_attention.h.
#include "operators/cache_attention.h"
#include "operators/group_linear.h"

#include "engine/steps/stored_layer.h"

#include <cmath>

namespace zeropoint {
namespace {

const uint16_t* halves_of(const StoredTensor* t) {
    return t == nullptr ? nullptr : reinterpret_cast<const uint16_t*>(t->data);
}
const float* floats_of(const StoredTensor* t) {
    return t == nullptr ? nullptr : reinterpret_cast<const float*>(t->data);
}

// Three inputs from `first` on: the packed weight (panels, units of 32 inputs, bytes of a unit), its scales (panels,
// groups, 16), and its minima, of that shape, or null. Attributes: bits (4 or 8), outputs, group.
GroupWeight read_group_weight(StepReader& r, size_t first) {
    const StoredTensor& data = r.constant(first, ElementType::u8, 3);
    const StoredTensor& scale = r.constant(first + 1, ElementType::f16, 3);
    const StoredTensor* minimum = r.optional_constant(first + 2, ElementType::f16, 3);
    GroupWeight w;
    w.bits = static_cast<int>(r.integer("bits", 4, 8));
    if (w.bits != 4 && w.bits != 8) r.fail("attribute 'bits' must be 4 or 8");
    w.outputs = r.integer("outputs", 1, kMostElements);
    w.group = r.integer("group", kGroupUnit, kMostGroup);
    if (w.group % kGroupUnit != 0) r.fail("attribute 'group' must be a multiple of " + std::to_string(kGroupUnit));
    w.inputs = data.sizes[1] * kGroupUnit;
    if (w.inputs < 1 || w.inputs % w.group != 0)
        r.fail(std::to_string(w.inputs) + " inputs are no groups of " + std::to_string(w.group));
    const Sizes wanted{w.panels(), data.sizes[1], group_unit_bytes(w.bits)};
    if (data.sizes != wanted)
        r.fail("a weight of shape " + text_of(data.sizes) + ", where " + text_of(wanted) + " is needed for " +
               std::to_string(w.outputs) + " outputs of " + std::to_string(w.bits) + " bits");
    const Sizes parameters{w.panels(), w.groups(), kGroupPanel};
    for (const StoredTensor* t : {&scale, minimum})
        if (t != nullptr && t->sizes != parameters)
            r.fail("scales or minima of shape " + text_of(t->sizes) + ", where " + text_of(parameters) + " is needed");
    w.data = data.data;
    w.scale = halves_of(&scale);
    w.minimum = halves_of(minimum);
    return w;
}

// Inputs: x, the three of a weight, bias or null, what is added to the result or null. `function`: "", or that of the
// result; if it is `gated`, of its first half, which the second half is multiplied with.
class GroupLinear : public StepOf<6, 1> {
public:
    explicit GroupLinear(StepReader& r)
        : StepOf(r),
          weight_(read_group_weight(r, 1)),
          bias_(r.optional_constant(4, ElementType::f32, 1)) {
        if (bias_ != nullptr && bias_->count() != weight_.outputs)
            r.fail("a bias of " + std::to_string(bias_->count()) + " for " + std::to_string(weight_.outputs) +
                   " outputs");
        end_.bias = floats_of(bias_);
        read_function(r, r.text("function"));
        end_.gated = r.flag("gated");
        if (end_.gated && (!end_.has_function || weight_.outputs % 2 != 0 || r.inputs()[5] >= 0))
            r.fail("gated outputs have a function, two halves, and nothing that is added");
    }

    void plan(Planner& p) const override {
        p.runs("group_gemm");
        const Tensor x = p.contiguous(p.typed_input(0, ElementType::f32));
        const Sizes all = product_sizes(x, weight_.outputs, weight_.inputs);
        Sizes sizes = all;
        if (end_.gated) sizes.back() /= 2;
        const Tensor y = p.make(ElementType::f32, sizes);
        const int64_t rows = count_of(all) / weight_.outputs;
        std::vector<Place> places{x.place, y.place};
        const bool adds = p.has_input(5);
        if (adds) {
            const Tensor residual = p.contiguous(p.typed_input(5, ElementType::f32));
            if (residual.sizes != sizes)
                throw PlanError("a tensor of shape " + text_of(residual.sizes) + " cannot be added to one of " +
                                text_of(sizes));
            if (!end_.has_function) p.take_over(y, residual);
            places.push_back(residual.place);
        }
        p.give(0, y);
        if (rows == 0) return;
        if (end_.gated) places.push_back(p.scratch(rows * weight_.outputs * static_cast<int64_t>(sizeof(float))));
        p.needs_memory(static_cast<double>(x.count()) +
                       8.0 * static_cast<double>(rows) * static_cast<double>(weight_.groups()));
        p.emit(
            std::move(places),
            [this, rows, adds](void* const* at) {
                GroupEnd end = end_;
                if (adds) end.residual = static_cast<const float*>(at[2]);
                float* wide = end.gated ? static_cast<float*>(at[2]) : nullptr;
                group_linear(weight_, static_cast<const float*>(at[0]), rows, end, wide, static_cast<float*>(at[1]));
            },
            static_cast<double>(rows) * static_cast<double>(weight_.outputs) * static_cast<double>(weight_.inputs));
    }

private:
    void read_function(const StepReader& r, const std::string& name) {
        end_.has_function = !name.empty();
        if (name == "silu")
            end_.function = FloatFunction::silu;
        else if (name == "gelu")
            end_.function = FloatFunction::gelu;
        else if (name == "gelu_tanh")
            end_.function = FloatFunction::gelu_tanh;
        else if (!name.empty())
            r.fail("attribute 'function' must be empty, silu, gelu or gelu_tanh");
    }

    GroupWeight weight_;
    const StoredTensor* bias_;
    GroupEnd end_;
};

// y[...] = rows of a weight, times `factor`. Inputs: the three of a weight, int64 indices.
class GroupEmbedding : public StepOf<4, 1> {
public:
    explicit GroupEmbedding(StepReader& r)
        : StepOf(r),
          weight_(read_group_weight(r, 0)),
          factor_(static_cast<float>(r.number("factor"))) {}

    void plan(Planner& p) const override {
        const Tensor indices = p.contiguous(p.typed_input(3, ElementType::s64));
        Sizes sizes = indices.sizes;
        sizes.push_back(weight_.inputs);
        const Tensor y = p.make(ElementType::f32, sizes);
        p.give(0, y);
        if (y.count() == 0) return;
        p.emit({indices.place, y.place}, [this, count = indices.count()](void* const* at) {
            group_embedding(weight_, static_cast<const int64_t*>(at[0]), count, factor_, static_cast<float*>(at[1]));
        });
    }

private:
    GroupWeight weight_;
    float factor_;
};

// Inputs: queries, keys and values of new tokens (tokens, numbers), cosines and sines of their angles (tokens, pairs),
// their positions and sequences (int64), keys and values of the cache (sequences, heads, positions, numbers) and, of
// 8-bit ones, their scales, or null twice; weights of the norms of queries and keys, or null. Outputs: the result, keys
// and values of the cache, their scales if there are some.
class CacheAttentionStep : public Step {
public:
    explicit CacheAttentionStep(StepReader& r)
        : q_norm_(r.optional_constant(9, ElementType::f32, 1)),
          k_norm_(r.optional_constant(10, ElementType::f32, 1)) {
        r.require_inputs(11);
        form_.heads = r.integer("heads", 1, 1 << 16);
        form_.shared_heads = r.integer("shared_heads", 1, form_.heads);
        if (form_.heads % form_.shared_heads != 0)
            r.fail(std::to_string(form_.shared_heads) + " heads of keys do not divide " + std::to_string(form_.heads));
        form_.interleaved = r.flag("interleaved");
        form_.window = r.integer("window", 0, kMostElements);
        form_.scale = static_cast<float>(r.scale("scale"));
        const double cap = r.number("cap");
        if (cap != 0) form_.cap = static_cast<float>(r.scale("cap"));
        form_.eps = r.number("eps");
        if (!(form_.eps >= 0) || !std::isfinite(form_.eps)) r.fail("attribute 'eps' must not be negative");
        bytes_ = r.inputs()[7] >= 0;
        if (bytes_ != (r.inputs()[8] >= 0)) r.fail("keys and values both have scales, or none");
        r.require_outputs(bytes_ ? 5 : 3);
        form_.q_norm = floats_of(q_norm_);
        form_.k_norm = floats_of(k_norm_);
    }

    void plan(Planner& p) const override {
        p.runs("cache_attention");
        CacheAttentionForm f = form_;
        const Tensor qkv = p.contiguous(p.typed_input(0, ElementType::f32));
        const Tensor cosine = p.contiguous(p.typed_input(1, ElementType::f32)),
                     sine = p.contiguous(p.typed_input(2, ElementType::f32)),
                     positions = p.contiguous(p.typed_input(3, ElementType::s64)),
                     sequences = p.contiguous(p.typed_input(4, ElementType::s64));
        read_cache(p, f);
        const Tensor k = p.to_be_written(p.input(5)), v = p.to_be_written(p.input(6));
        if (qkv.rank() != 2 || qkv.size(1) != f.width())
            throw PlanError("queries, keys and values of shape " + text_of(qkv.sizes) + ", not rows of " +
                            std::to_string(f.width()));
        const int64_t count = qkv.size(0);
        if (cosine.rank() != 2 || cosine.size(0) != count || 2 * cosine.size(1) > f.dim || sine.sizes != cosine.sizes)
            throw PlanError("cosines of shape " + text_of(cosine.sizes) + " and sines of " + text_of(sine.sizes) +
                            " for " + std::to_string(count) + " tokens with heads of " + std::to_string(f.dim));
        f.rotated = 2 * cosine.size(1);
        for (const Tensor* t : {&positions, &sequences})
            if (t->sizes != Sizes{count})
                throw PlanError("positions or sequences of shape " + text_of(t->sizes) + " for " +
                                std::to_string(count) + " tokens");
        const Tensor y = p.make(ElementType::f32, {count, f.heads * f.dim});
        p.give(0, y);
        p.give(1, k);
        p.give(2, v);
        std::vector<Place> places{k.place, v.place};
        if (bytes_)
            for (size_t i = 0; i < 2; ++i) {
                const Tensor scale = p.to_be_written(p.input(7 + i));
                p.give(3 + i, scale);
                places.push_back(scale.place);
            }
        if (count == 0) return;
        places.insert(places.end(), {positions.place, sequences.place});
        const size_t cache = bytes_ ? 4 : 2;
        p.keep_old(
            k, p.scratch(count * place_bytes(f)), {places.begin() + 1, places.end()},
            [=](void* const* at) {
                const CacheTokens tokens = places_at(at + cache + 1, count);
                require_places(f, tokens);
                save_places(f, tokens, cache_at(at[0], at + 2), static_cast<uint8_t*>(at[1]));
            },
            [=](void* const* at) {
                restore_places(f, places_at(at + cache + 1, count), cache_at(at[0], at + 2),
                               static_cast<const uint8_t*>(at[1]));
            });
        p.needs_memory(
            0, 4.0 * static_cast<double>(cache_attention_scratch(f.heads / f.shared_heads, 2 * f.dim, 0, f.context)));
        places.insert(places.end(), {qkv.place, cosine.place, sine.place, y.place});
        p.emit(std::move(places), [=](void* const* at) {
            CacheTokens tokens = places_at(at + cache, count);
            tokens.qkv = static_cast<const float*>(at[cache + 2]);
            tokens.cosine = static_cast<const float*>(at[cache + 3]);
            tokens.sine = static_cast<const float*>(at[cache + 4]);
            require_places(f, tokens);
            cache_attention(f, tokens, cache_at(at[0], at + 1), static_cast<float*>(at[cache + 5]));
        });
    }

private:
    // Checks keys, values and scales of the cache.
    void read_cache(Planner& p, CacheAttentionForm& f) const {
        const Tensor &k = p.input(5), &v = p.input(6);
        if (k.rank() != 4 || v.sizes != k.sizes || v.type != k.type)
            throw PlanError("keys of shape " + text_of(k.sizes) + " and values of " + text_of(v.sizes) +
                            " must be alike, with four axes");
        if (bytes_ != (k.type == ElementType::s8) ||
            (!bytes_ && k.type != ElementType::f16 && k.type != ElementType::f32))
            throw PlanError("keys must be int8 with scales, or float16 or float32 without, they are " +
                            std::string(name_of(k.type)));
        f.type = bytes_ ? CacheType::s8 : k.type == ElementType::f16 ? CacheType::f16 : CacheType::f32;
        f.sequences = k.size(0);
        f.context = k.size(2);
        f.dim = k.size(3);
        if (f.sequences < 1 || f.context < 1 || f.context % kCacheBlock != 0 || k.size(1) != f.shared_heads)
            throw PlanError("a cache of shape " + text_of(k.sizes) + " must be for " + std::to_string(f.shared_heads) +
                            " heads and a multiple of " + std::to_string(kCacheBlock) + " positions");
        if (f.dim < 1 || f.dim > kMostHead || f.dim % kHeadMultiple != 0)
            throw PlanError("heads of " + std::to_string(f.dim) + " numbers: they must be a multiple of " +
                            std::to_string(kHeadMultiple) + ", " + std::to_string(kMostHead) + " at most");
        for (const StoredTensor* norm : {q_norm_, k_norm_})
            if (norm != nullptr && norm->count() != f.dim)
                throw PlanError(std::to_string(norm->count()) + " weights for heads of " + std::to_string(f.dim));
        if (bytes_)
            for (size_t i = 7; i < 9; ++i)
                if (p.typed_input(i, ElementType::f32).sizes != Sizes{k.size(0), k.size(1), k.size(2)})
                    throw PlanError("scales of shape " + text_of(p.input(i).sizes) + " for a cache of " +
                                    text_of(k.sizes));
    }

    // Keys, then values and scales.
    Cache cache_at(void* k, void* const* at) const {
        Cache cache{k, at[0]};
        if (bytes_) {
            cache.k_scale = static_cast<float*>(at[1]);
            cache.v_scale = static_cast<float*>(at[2]);
        }
        return cache;
    }
    static CacheTokens places_at(void* const* at, int64_t count) {
        CacheTokens tokens;
        tokens.positions = static_cast<const int64_t*>(at[0]);
        tokens.sequences = static_cast<const int64_t*>(at[1]);
        tokens.count = count;
        return tokens;
    }

    CacheAttentionForm form_;
    const StoredTensor *q_norm_, *k_norm_;
    bool bytes_ = false;
};

}  // namespace

void add_generation_steps(StepTable& table) {
    table.add({{"group_linear", made<GroupLinear>},
               {"group_embedding", made<GroupEmbedding>},
               {"cache_attention", made<CacheAttentionStep>}});
}

}  // namespace zeropoint
