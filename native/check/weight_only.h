// weight_only kernels against their reference, through the operator that packs the weights, and against plain sums in
// float64.
#pragma once

#include "check/kernels.h"
#include "cpu/threads.h"
#include "kernels/half.h"
#include "operators/weight_only.h"

#include <cmath>

namespace zeropoint::check {

struct WeightOnlyCase {
    WeightOnlyTensor tensor;
    int64_t rows = 0, outputs = 0, inputs = 0;
    std::vector<uint8_t> w;
    std::vector<float> scale, zero_point, shift, bias;
    std::vector<float> x;
    FloatType x_type = FloatType::f32, y_type = FloatType::f32;
    std::vector<uint16_t> narrow_x;
    bool relu = false;

    std::string describe() const {
        constexpr const char* kStorage[] = {"u8", "s8", "u4", "f16"};
        return std::string(kStorage[static_cast<int>(tensor.storage)]) + " " + std::to_string(rows) + "x" +
               std::to_string(outputs) + "x" + std::to_string(inputs) + ", groups of " +
               std::to_string(tensor.group_size);
    }
    int64_t groups() const { return (inputs + tensor.group_size - 1) / tensor.group_size; }
    static double of(const std::vector<float>& p, int64_t n, int64_t g, int64_t outputs, int64_t groups) {
        const int64_t count = static_cast<int64_t>(p.size());
        return double{p[static_cast<size_t>(count == outputs * groups ? n * groups + g : count == outputs ? n : 0)]};
    }
    double weight(int64_t n, int64_t k) const {
        const int64_t g = k / tensor.group_size;
        int q = 0;
        switch (tensor.storage) {
            case WeightStorage::f16: {
                uint16_t half;
                std::memcpy(&half, w.data() + (n * inputs + k) * 2, 2);
                return double{from_half(half)};
            }
            case WeightStorage::u4:
                q = w[static_cast<size_t>(n * ((inputs + 1) / 2) + k / 2)] >> (k % 2 * 4) & 15;
                break;
            case WeightStorage::u8: q = w[static_cast<size_t>(n * inputs + k)]; break;
            case WeightStorage::s8: q = static_cast<int8_t>(w[static_cast<size_t>(n * inputs + k)]); break;
        }
        const double value = (q - of(zero_point, n, g, outputs, groups())) * of(scale, n, g, outputs, groups());
        return shift.empty() ? value : value + of(shift, n, g, outputs, groups());
    }
};

inline WeightOnlyCase weight_only_case(Random& random, int64_t rows, int64_t outputs, int64_t inputs,
                                       WeightStorage storage, int64_t group_size) {
    WeightOnlyCase c;
    c.rows = rows;
    c.outputs = outputs;
    c.inputs = inputs;
    c.tensor.storage = storage;
    c.tensor.group_size = storage == WeightStorage::f16 ? std::max<int64_t>(1, inputs) : group_size;
    const int64_t groups = c.groups(), row_bytes = storage == WeightStorage::u4    ? (inputs + 1) / 2
                                                   : storage == WeightStorage::f16 ? 2 * inputs
                                                                                   : inputs;
    for (int64_t i = 0; i < outputs * row_bytes; ++i) c.w.push_back(static_cast<uint8_t>(random.bits()));
    if (storage == WeightStorage::f16) {  // numbers, zeros and subnormals of either sign; no infinities
        for (size_t i = 1; i < c.w.size(); i += 2)
            if ((c.w[i] & 0x7C) == 0x7C || random.below(2) != 0) c.w[i] &= 0xBB;
    } else {
        const auto count = [&] { return random.of({int64_t{1}, outputs, outputs * groups}); };
        const int least = storage == WeightStorage::s8 ? -128 : 0,
                  most = storage == WeightStorage::u4 ? 15 : least + 255;
        for (int64_t i = count(); i > 0; --i) c.scale.push_back(static_cast<float>(random.unit() * 0.1 - 0.02));
        for (int64_t i = count(); i > 0; --i) c.zero_point.push_back(static_cast<float>(random.between(least, most)));
        if (random.below(3) == 0)
            for (int64_t i = count(); i > 0; --i) c.shift.push_back(static_cast<float>(random.unit() - 0.5));
    }
    if (random.below(2) != 0)
        for (int64_t i = 0; i < outputs; ++i) c.bias.push_back(static_cast<float>(random.unit() * 4 - 2));
    for (int64_t i = 0; i < rows * inputs; ++i) c.x.push_back(static_cast<float>(random.unit() * 4 - 2));
    c.x_type = random.below(3) == 0 ? FloatType::bf16 : FloatType::f32;
    c.y_type = random.below(3) == 0 ? FloatType::bf16 : FloatType::f32;
    c.relu = random.below(3) == 0;
    if (c.x_type == FloatType::bf16)
        for (float& x : c.x) {
            c.narrow_x.push_back(to_bfloat16(x));
            x = from_bfloat16(c.narrow_x.back());
        }
    return c;
}

// What `kernel` writes, with 64 bytes on both sides.
inline std::vector<uint8_t> run_weight_only(const WeightOnlyCase& c, const WeightOnlyKernel& kernel) {
    constexpr size_t kRoom = 64;
    WeightOnlyTensor t = c.tensor;
    t.data = c.w.data();
    t.scale = {c.scale.data(), static_cast<int64_t>(c.scale.size())};
    t.zero_point = {c.zero_point.data(), static_cast<int64_t>(c.zero_point.size())};
    t.shift = {c.shift.data(), static_cast<int64_t>(c.shift.size())};
    const WeightOnlyLayer layer(t, c.outputs, c.inputs, c.bias.empty() ? nullptr : c.bias.data(), kernel);
    std::vector<uint8_t> y(static_cast<size_t>(c.rows * c.outputs) * (c.y_type == FloatType::bf16 ? 2 : 4) + 2 * kRoom,
                           uint8_t{0xA5});
    const void* x = c.x_type == FloatType::bf16 ? static_cast<const void*>(c.narrow_x.data()) : c.x.data();
    layer.run(x, c.x_type, c.rows, y.data() + kRoom, c.y_type, c.relu);
    return y;
}

// How far the reference may be from the sum in float64: what rounding in blocks and of the result can do.
inline void expect_near(Check& check, const WeightOnlyCase& c, const std::vector<uint8_t>& y) {
    const uint8_t* data = y.data() + 64;
    for (int64_t m = 0; m < c.rows; ++m)
        for (int64_t n = 0; n < c.outputs; ++n) {
            double sum = c.bias.empty() ? 0 : c.bias[static_cast<size_t>(n)], size = std::abs(sum);
            for (int64_t k = 0; k < c.inputs; ++k) {
                const double x = c.x[static_cast<size_t>(m * c.inputs + k)], w = c.weight(n, k);
                const double s = c.tensor.storage == WeightStorage::f16
                                     ? 0
                                     : 256 * std::abs(WeightOnlyCase::of(c.scale, n, k / c.tensor.group_size, c.outputs,
                                                                         c.groups()));
                sum += x * w;
                size += std::abs(x) * (std::abs(w) + (c.shift.empty() ? 0 : s));
            }
            if (c.relu) sum = std::max(sum, 0.0);
            const size_t at = static_cast<size_t>(m * c.outputs + n);
            float got;
            if (c.y_type == FloatType::bf16) {
                uint16_t bits;
                std::memcpy(&bits, data + at * 2, 2);
                got = from_bfloat16(bits);
            } else {
                std::memcpy(&got, data + at * 4, 4);
            }
            const double unit = 0x1p-24 * (kWeightBlock + static_cast<double>(c.inputs) / 8 + 4) * size +
                                (c.y_type == FloatType::bf16 ? 0x1p-8 * std::abs(sum) : 0) + 1e-30;
            check.expect(std::abs(got - sum) <= unit, [&] {
                return c.describe() + ": y[" + std::to_string(m) + ", " + std::to_string(n) + "] must be about " +
                       std::to_string(sum) + ", is " + std::to_string(got);
            });
        }
}

inline void check_weight_only(Report& report, bool quick) {
    const int before = num_threads();
    Contest<WeightOnlyFn> contest(report, "weight_only", &Kernels::weight_only);
    Random random(77);
    int count = 0;
    const auto one = [&](int64_t rows, int64_t outputs, int64_t inputs, WeightStorage storage, int64_t group_size) {
        const WeightOnlyCase c = weight_only_case(random, rows, outputs, inputs, storage, group_size);
        set_num_threads(1);
        const std::vector<uint8_t> want = run_weight_only(c, contest.reference());
        expect_near(contest.contract, c, want);
        set_num_threads(1 + count++ % 3);
        for (auto& candidate : contest.candidates)
            candidate.check.expect(run_weight_only(c, candidate.kernel()) == want,
                                   [&] { return c.describe() + ": differs from the reference"; });
        // A row alone gives what it gives among others.
        if (rows < 2) return;
        WeightOnlyCase alone = c;
        alone.rows = 1;
        const size_t bytes = static_cast<size_t>(outputs) * (c.y_type == FloatType::bf16 ? 2 : 4);
        for (auto& candidate : contest.candidates) {
            const std::vector<uint8_t> y = run_weight_only(alone, candidate.kernel());
            candidate.check.expect(
                std::equal(y.begin() + 64, y.begin() + 64 + static_cast<int64_t>(bytes), want.begin() + 64),
                [&] { return c.describe() + ": the first row alone differs"; });
        }
    };
    for (WeightStorage storage : {WeightStorage::u8, WeightStorage::s8, WeightStorage::u4, WeightStorage::f16}) {
        for (int64_t rows : {0, 1, 2, 3, 4, 7, 13})
            for (int64_t inputs : {0, 1, 2, 31, 128, 129, 300})
                for (int64_t outputs : {1, 32, 33, 70})
                    if (!quick || (rows + inputs + outputs) % 5 == 0)
                        one(rows, outputs, inputs, storage, std::max<int64_t>(1, inputs));
        for (int64_t group : {8, 32, 64, 128, 136, 256, 264})
            for (int64_t rows : {1, 2, 5})
                for (int64_t inputs : {256, 300, 301})
                    if (!quick || (rows + inputs + group) % 5 == 0) one(rows, 40, inputs, storage, group);
        one(quick ? 20 : 200, 65, 136, storage, 64);
        one(1, quick ? 100 : 1000, quick ? 136 : 1000, storage, 40);
    }
    set_num_threads(before);
    contest.close(report);
}

}  // namespace zeropoint::check
