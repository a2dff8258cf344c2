#include "kernels/simd/portable.h"
#include "kernels/weight_only/template.h"

namespace zeropoint {
namespace {

struct Weights {
    static constexpr float kBias = 0;

    static int place(int n) { return n; }
    static Portable::F load(const float* w) { return Portable::load(w); }
    static Portable::F load(const uint16_t* w) { return Portable::load_half(w); }
    template <class Use, class Value>
    static void each(int input, const Use& use, const Value& value) {
        for (int v = 0; v < kWeightPanel / Portable::W; ++v) {
            float lanes[Portable::W];
            for (int i = 0; i < Portable::W; ++i) lanes[i] = value(v * Portable::W + i);
            use(input, v, Portable::load(lanes));
        }
    }
    template <class Use>
    static void bytes(const uint8_t* p, const Use& use) {
        each(0, use, [&](int n) { return static_cast<float>(p[n]); });
    }
    template <class Use>
    static void nibbles(const uint8_t* p, const Use& use) {
        each(0, use, [&](int n) { return static_cast<float>(p[n] & 15); });
        each(1, use, [&](int n) { return static_cast<float>(p[n] >> 4); });
    }
    template <class Use>
    static void halves(const uint16_t* p, const Use& use) {
        for (int v = 0; v < kWeightPanel / Portable::W; ++v) use(0, v, load(p + v * Portable::W));
    }
};

}  // namespace

const WeightOnlyKernel& weight_only_portable() {
    static const WeightOnlyKernel kernel = {Weights::place, WeightOnly<Portable, Weights>::multiply};
    return kernel;
}

}  // namespace zeropoint
