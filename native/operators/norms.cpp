#include "operators/norms.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"
#include "kernels/simd/fused.h"
#include "kernels/registry.h"
#include "operators/scratch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(2);  // worth a thread

// Rows of `length` elements that make a share of work.
int64_t grain_of(int64_t length) { return std::max<int64_t>(1, kElements / std::max<int64_t>(length, 1)); }

NormalizeArgs arguments_of(const NormTensor& t) {
    NormalizeArgs a;
    a.x = t.x;
    a.y = t.y;
    a.type = t.type;
    a.inverse = 1.0f / t.y_scale;
    a.zero_point = t.y_zero_point;
    a.lo = t.lo;
    a.hi = t.hi;
    return a;
}

template <class T>
T* advanced(T* data, int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<T>, const uint8_t, uint8_t>;
    return static_cast<Byte*>(data) + bytes;
}

NormalizeArgs from(NormalizeArgs a, int64_t element) {
    a.x = advanced(a.x, element);
    a.y = advanced(a.y, element);
    return a;
}

// Each of n images, or other parts: shared among the threads if there are enough of them, else one after the other,
// and the body shares its own work.
template <class Body>
void over_parts(int64_t n, int64_t elements, const Body& body) {
    if (n >= num_threads())
        return parallel_for(n, grain_of(elements), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) body(i);
        });
    for (int64_t i = 0; i < n; ++i) body(i);
}

void normalize_rows(const NormalizeArgs& a, int64_t rows) {
    const NormalizeFn kernel = kernels().normalize;
    parallel_for(rows, grain_of(a.length), [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

// Channels that are innermost in memory: a row of the kernel is one pixel, or, where these are short, as many as fill
// whole vectors. The parameters are then repeated.
int64_t pixels_in_row(int64_t channels, int64_t pixels) {
    constexpr int64_t kShort = 128, kVector = 32;
    if (channels >= kShort || pixels < 2) return 1;
    const int64_t whole = kVector / std::gcd(channels, kVector);
    return std::min(pixels, (kShort / channels + whole) / whole * whole);
}

std::vector<float> repeated(const float* values, int64_t n, int64_t times) {
    std::vector<float> all;
    all.reserve(static_cast<size_t>(n * times));
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), values, values + n);
    return all;
}

// a.length is pixels_in_row * channels.
void normalize_pixels(const NormalizeArgs& a, int64_t pixels, int64_t channels) {
    const int64_t elements = pixels * channels, rest = elements % a.length;
    normalize_rows(a, elements / a.length);
    if (rest == 0) return;
    NormalizeArgs last = from(a, elements - rest);
    last.length = rest;
    kernels().normalize(last, 0, 1);
}

struct Standard {
    float center, factor;
};

Standard standard_of(int64_t sum, int64_t squares, int64_t n, float scale, float eps) {
    const float count = static_cast<float>(n), mean = static_cast<float>(sum) / count;
    const float spread = fused(-mean, mean, static_cast<float>(squares) / count);
    const float var = spread > 0.0f ? spread : 0.0f;
    return {mean, scale / std::sqrt(var * scale * scale + eps)};
}

float weight_of(const ChannelParams& p, int64_t c) { return p.weight != nullptr ? p.weight[c] : 1.0f; }
float bias_of(const ChannelParams& p, int64_t c) { return p.bias != nullptr ? p.bias[c] : 0.0f; }

// One group of one image, contiguous: channels [first, first + count).
void normalize_group(const NormTensor& t, const NormalizeArgs& a, int64_t first, int64_t count, int64_t places,
                     const ChannelParams& params, float eps) {
    int64_t sum = 0, squares = 0;
    MomentsArgs m;
    m.x = a.x;
    m.type = a.type;
    m.length = count * places;
    m.sums = &sum;
    m.squares = &squares;
    kernels().moments(m, 0, 1);
    const Standard s = standard_of(sum, squares, m.length, t.scale, eps);
    NormalizeArgs n = a;
    constexpr int64_t kShort = 64;
    const int64_t each = places < kShort ? places : 1;  // short channels: parameters for every element, in one row
    struct Group {};
    float* memory = reinterpret_cast<float*>(scratch_of<Group>(static_cast<size_t>(3 * count * each) * sizeof(float)));
    float *center = memory, *weight = memory + count * each, *bias = weight + count * each;
    for (int64_t c = 0; c < count; ++c)
        for (int64_t i = c * each; i < (c + 1) * each; ++i) {
            center[i] = s.center;
            weight[i] = s.factor * weight_of(params, first + c);
            bias[i] = bias_of(params, first + c);
        }
    n.center = center;
    n.weight = weight;
    n.bias = bias;
    n.by_row = each == places ? ByRow::none : ByRow::all;
    n.length = each == places ? count * places : places;
    normalize_rows(n, each == places ? 1 : count);
}

// One image with its channels innermost.
void normalize_image(const NormTensor& t, const NormalizeArgs& a, const NormShape& shape, int64_t groups,
                     const ChannelParams& params, float eps) {
    const int64_t channels = shape.channels, count = channels / groups;
    std::vector<int64_t> sums(static_cast<size_t>(channels)), squares(sums);
    MomentsArgs m;
    m.x = a.x;
    m.type = a.type;
    m.across = true;
    m.length = channels;
    m.rows = shape.places;
    m.sums = sums.data();
    m.squares = squares.data();
    const MomentsFn kernel = kernels().moments;
    parallel_for(m.blocks(), std::max<int64_t>(1, grain_of(shape.places * MomentsArgs::kColumns)),
                 [&](int64_t begin, int64_t end) { kernel(m, begin, end); });
    const int64_t times = a.length / channels;
    std::vector<float> center, weight, bias;
    for (int64_t g = 0; g < groups; ++g) {
        const auto total = [&](const std::vector<int64_t>& of) {
            return std::accumulate(of.begin() + g * count, of.begin() + (g + 1) * count, int64_t{0});
        };
        const Standard s = standard_of(total(sums), total(squares), count * shape.places, t.scale, eps);
        for (int64_t c = g * count; c < (g + 1) * count; ++c) {
            center.push_back(s.center);
            weight.push_back(s.factor * weight_of(params, c));
            bias.push_back(bias_of(params, c));
        }
    }
    center = repeated(center.data(), channels, times);
    weight = repeated(weight.data(), channels, times);
    bias = repeated(bias.data(), channels, times);
    NormalizeArgs n = a;
    n.by_row = ByRow::none;
    n.set_rows = shape.places;
    n.center = center.data();
    n.weight = weight.data();
    n.bias = bias.data();
    normalize_pixels(n, shape.places, channels);
}

}  // namespace

void batch_norm(const NormTensor& t, const NormShape& shape, const ChannelParams& params, const float* mean,
                const float* var, float eps) {
    if (shape.numel() == 0) return;
    std::vector<float> alpha, beta;
    for (int64_t c = 0; c < shape.channels; ++c) {
        const float factor = 1.0f / std::sqrt(var[c] + eps), weight = weight_of(params, c);
        alpha.push_back(factor * weight * (t.scale / t.y_scale));
        beta.push_back((bias_of(params, c) - mean[c] * factor * weight) / t.y_scale);
    }
    const float center = static_cast<float>(t.zero_point);
    NormalizeArgs a = arguments_of(t);
    a.inverse = 1.0f;
    // |x - zero_point| is at most 255 + |zero_point|, which is at most 255 itself.
    a.bounded = std::abs(t.zero_point) < 256;
    for (size_t c = 0; c < alpha.size(); ++c)
        a.bounded = a.bounded && std::fabs(alpha[c]) < 1e6f && std::fabs(beta[c]) < 1e9f;
    prepare_output(t.y, static_cast<size_t>(shape.numel()));
    const bool last = shape.channels_last || shape.places == 1;
    if (!last) {
        const std::vector<float> centers(alpha.size(), center);
        a.length = shape.places;
        a.center = centers.data();
        a.weight = alpha.data();
        a.bias = beta.data();
        over_parts(shape.images, shape.channels * shape.places, [&](int64_t image) {
            normalize_rows(from(a, image * shape.channels * shape.places), shape.channels);
        });
        return;
    }
    const int64_t pixels = shape.images * shape.places, times = pixels_in_row(shape.channels, pixels);
    alpha = repeated(alpha.data(), shape.channels, times);
    beta = repeated(beta.data(), shape.channels, times);
    a.by_row = ByRow::center;
    a.step = 0;
    a.length = shape.channels * times;
    a.center = &center;
    a.weight = alpha.data();
    a.bias = beta.data();
    normalize_pixels(a, pixels, shape.channels);
}

void layer_norm(const NormTensor& t, int64_t rows, int64_t length, const ChannelParams& params, float eps) {
    if (rows * length == 0) return;
    std::vector<float> ones, zeros;
    if (params.weight == nullptr) ones.assign(static_cast<size_t>(length), 1.0f);
    if (params.bias == nullptr) zeros.assign(static_cast<size_t>(length), 0.0f);
    NormalizeArgs a = arguments_of(t);
    a.length = length;
    a.by_row = ByRow::center;
    a.weight = params.weight != nullptr ? params.weight : ones.data();
    a.bias = params.bias != nullptr ? params.bias : zeros.data();
    MomentsArgs m;
    m.type = t.type;
    m.length = length;
    prepare_output(t.y, static_cast<size_t>(rows * length));
    const MomentsFn moments = kernels().moments;
    const NormalizeFn normalize = kernels().normalize;
    // A few rows at a time, which then are read again from the cache.
    constexpr int64_t kRows = 16;
    parallel_for(rows, grain_of(length), [&](int64_t begin, int64_t end) {
        int64_t sums[kRows], squares[kRows];
        float center[kRows], factor[kRows];
        MomentsArgs some = m;
        some.sums = sums;
        some.squares = squares;
        for (int64_t row = begin; row < end; row += kRows) {
            const int64_t count = std::min(kRows, end - row);
            NormalizeArgs n = from(a, row * length);
            some.x = n.x;
            moments(some, 0, count);
            for (int64_t i = 0; i < count; ++i) {
                const Standard s = standard_of(sums[i], squares[i], length, t.scale, eps);
                center[i] = s.center;
                factor[i] = s.factor;
            }
            n.center = center;
            n.factor = factor;
            normalize(n, 0, count);
        }
    });
}

void group_norm(const NormTensor& t, const NormShape& shape, int64_t groups, const ChannelParams& params, float eps) {
    if (shape.numel() == 0) return;
    constexpr int64_t kVector = 32;
    const int64_t channels = shape.channels, count = channels / groups;
    NormalizeArgs a = arguments_of(t);
    prepare_output(t.y, static_cast<size_t>(shape.numel()));
    if (shape.channels_last) {
        a.joined = count < kVector;
        a.length = channels * pixels_in_row(channels, shape.places);
        over_parts(shape.images, channels * shape.places, [&](int64_t image) {
            normalize_image(t, from(a, image * channels * shape.places), shape, groups, params, eps);
        });
        return;
    }
    over_parts(shape.images * groups, count * shape.places, [&](int64_t part) {
        normalize_group(t, from(a, part * count * shape.places), part % groups * count, count, shape.places, params,
                        eps);
    });
}

namespace {

// y[c][r] = x[r][c] for 8 x 8 bytes: halves, quarters and eighths change places, 8 bytes in a word.
void transpose_eight(const uint8_t* x, int64_t x_stride, uint8_t* y, int64_t y_stride) {
    uint64_t rows[8];
    for (int r = 0; r < 8; ++r) std::memcpy(&rows[r], x + r * x_stride, sizeof rows[r]);
    const auto exchange = [&](int distance, uint64_t mask) {
        for (int r = 0; r < 8; ++r) {
            if ((r & distance) != 0) continue;
            const uint64_t moved = ((rows[r] >> 8 * distance) ^ rows[r + distance]) & mask;
            rows[r] ^= moved << 8 * distance;
            rows[r + distance] ^= moved;
        }
    };
    exchange(4, 0x00000000FFFFFFFF);
    exchange(2, 0x0000FFFF0000FFFF);
    exchange(1, 0x00FF00FF00FF00FF);
    for (int r = 0; r < 8; ++r) std::memcpy(y + r * y_stride, &rows[r], sizeof rows[r]);
}

// y[c][r] = x[r][c]
void transpose(const uint8_t* x, int64_t x_stride, uint8_t* y, int64_t y_stride, int64_t rows, int64_t columns) {
    const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
    for (int64_t r = 0; r < whole_rows; r += 8)
        for (int64_t c = 0; c < whole_columns; c += 8)
            transpose_eight(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
            y[c * y_stride + r] = x[r * x_stride + c];
}

}  // namespace

void softmax(const NormTensor& t, int64_t outer, int64_t length, int64_t inner) {
    if (outer * length * inner == 0) return;
    float table[256];
    for (int d = 0; d < 256; ++d) table[255 - d] = static_cast<float>(std::exp(-d * static_cast<double>(t.scale)));
    SoftmaxArgs a;
    a.x = static_cast<const uint8_t*>(t.x);
    a.y = static_cast<uint8_t*>(t.y);
    a.type = t.type;
    a.length = length;
    a.table = table;
    a.inverse = 1.0f / t.y_scale;
    a.zero_point = t.y_zero_point;
    a.lo = t.lo;
    a.hi = t.hi;
    prepare_output(t.y, static_cast<size_t>(outer * length * inner));
    const SoftmaxFn kernel = kernels().softmax;
    struct Exponentials {};
    const auto memory = [&] {
        return reinterpret_cast<float*>(scratch_of<Exponentials>(static_cast<size_t>(a.scratch()) * sizeof(float)));
    };
    if (inner == 1)
        return parallel_for(outer, grain_of(4 * length),
                            [&](int64_t begin, int64_t end) { kernel(a, begin, end, memory()); });
    // Some columns at a time become rows, and the results columns again.
    constexpr int64_t kColumns = 64;
    const int64_t blocks = (inner + kColumns - 1) / kColumns;
    struct Rows {};
    parallel_for(outer * blocks, grain_of(4 * length * std::min(inner, kColumns)), [&](int64_t begin, int64_t end) {
        float* exponentials = memory();
        uint8_t* rows = scratch_of<Rows>(static_cast<size_t>(2 * kColumns * length));
        SoftmaxArgs some = a;
        some.x = rows;
        some.y = rows + kColumns * length;
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block % blocks * kColumns, columns = std::min(kColumns, inner - first);
            const int64_t at = block / blocks * length * inner + first;
            transpose(a.x + at, inner, rows, length, length, columns);
            kernel(some, 0, columns, exponentials);
            transpose(some.y, length, a.y + at, inner, columns, length);
        }
    });
}

namespace {

// The nearest integer, ties to even, of a number below 2^51: so much is added that no bit is left for a fraction.
double rne(double x) {
    constexpr double kAll = 6755399441055744.0;
    return (x + kAll) - kAll;
}

void store_mean(const NormTensor& t, int64_t at, double rounded) {
    const auto y = std::clamp(static_cast<int32_t>(rounded), t.lo, t.hi);
    static_cast<uint8_t*>(t.y)[at] = static_cast<uint8_t>(y);
}

struct MeanMemory;

// Sums of float32 in the order in which PyTorch 2.13 adds: in blocks, and blocks of blocks, so that errors stay small.
template <class At>
float cascade_sum(int64_t size, const At& at) {
    constexpr int kLevels = 4;
    int64_t log = 0;
    while ((int64_t{1} << log) < size) ++log;
    const int64_t power = std::max<int64_t>(4, log / kLevels), step = int64_t{1} << power;
    float sums[kLevels] = {};
    int64_t i = 0;
    while (i + step <= size) {
        for (const int64_t end = i + step; i < end; ++i) sums[0] += at(i);
        for (int level = 1; level < kLevels; ++level) {
            sums[level] += sums[level - 1];
            sums[level - 1] = 0;
            if ((i & ((step - 1) << (level * power))) != 0) break;
        }
    }
    for (; i < size; ++i) sums[0] += at(i);
    for (int level = 1; level < kLevels; ++level) sums[0] += sums[level];
    return sums[0];
}

// The same of a column that is added alone: four sums side by side.
template <class At>
float lone_sum(int64_t size, const At& at) {
    constexpr int64_t kSums = 4;
    const int64_t each = size / kSums;
    float sums[kSums];
    for (int64_t k = 0; k < kSums; ++k) sums[k] = cascade_sum(each, [&](int64_t i) { return at(i * kSums + k); });
    for (int64_t i = each * kSums; i < size; ++i) sums[0] += at(i);
    for (int64_t k = 1; k < kSums; ++k) sums[0] += sums[k];
    return sums[0];
}

// rne(fma(sum / rows, 1 / scale, zero_point)) of the dequantized values of a column, in float32.
double single_mean(const NormTensor& t, int64_t image, int64_t column, int64_t rows, int64_t length) {
    const uint8_t* x = static_cast<const uint8_t*>(t.x) + image * rows * length + column;
    const auto at = [&](int64_t row) {
        const uint8_t byte = x[row * length];
        const int32_t q = t.type == IntType::u8 ? byte : static_cast<int8_t>(byte);
        return static_cast<float>(q - t.zero_point) * t.scale;
    };
    // Columns are added 32 at a time, or four if there are fewer than eight, and what is left alone.
    const int64_t together = length >= 8 ? 32 : 4;
    const float sum = column < length / together * together ? cascade_sum(rows, at) : lone_sum(rows, at);
    const float mean = sum / static_cast<float>(rows);
    return rne(static_cast<double>(fused(mean, 1.0f / t.scale, static_cast<float>(t.zero_point))));
}

}  // namespace

void mean_of_rows(const NormTensor& t, int64_t rows, int64_t length) {
    MomentsArgs m;
    m.x = t.x;
    m.type = t.type;
    m.length = length;
    const MomentsFn kernel = kernels().moments;
    constexpr int64_t kRows = 64;
    parallel_for(rows, grain_of(length), [&](int64_t begin, int64_t end) {
        int64_t sums[kRows];
        MomentsArgs some = m;
        some.sums = sums;
        for (int64_t row = begin; row < end; row += kRows) {
            const int64_t count = std::min(kRows, end - row);
            some.x = advanced(m.x, row * length);
            kernel(some, 0, count);
            for (int64_t i = 0; i < count; ++i)
                store_mean(t, row + i,
                           rne(static_cast<double>(static_cast<float>(sums[i]) / static_cast<float>(length))));
        }
    });
}

void mean_of_columns(const NormTensor& t, int64_t images, int64_t rows, int64_t length) {
    auto* sums =
        reinterpret_cast<int64_t*>(scratch_of<MeanMemory>(static_cast<size_t>(images * length) * sizeof(int64_t)));
    MomentsArgs m;
    m.x = t.x;
    m.type = t.type;
    m.across = true;
    m.length = length;
    m.rows = rows;
    m.sums = sums;
    const MomentsFn kernel = kernels().moments;
    parallel_for(images * m.blocks(), grain_of(rows * std::min(length, MomentsArgs::kColumns)),
                 [&](int64_t begin, int64_t end) { kernel(m, begin, end); });
    constexpr double kClose = 3e-4;  // ten times what was measured
    for (int64_t image = 0; image < images; ++image)
        for (int64_t column = 0; column < length; ++column) {
            const int64_t at = image * length + column;
            const double mean = static_cast<double>(sums[at]) / static_cast<double>(rows);
            double rounded = rne(mean);
            if (std::fabs(mean - rounded) > 0.5 - kClose) rounded = single_mean(t, image, column, rows, length);
            store_mean(t, at, rounded);
        }
}

}  // namespace zeropoint
