#include "operators/float_pooling.h"

#include "cpu/machine.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(4);  // worth a thread

// The places [begin, end) of an axis, every `step`-th, that a window reaches; `size` counts those of the padding, too.
struct Reach {
    int64_t begin = 0, end = 0, step = 1, size = 1;
};

template <class Of, class Take>
void each_window(const FloatPoolTensor& t, const Of& window_of, const Take& take) {
    const int64_t places = t.out[0] * t.out[1] * t.out[2], c = t.channels;
    if (t.images * places * c == 0) return;
    prepare_output(t.y, static_cast<size_t>(t.images * places * c) * sizeof(float));
    const int64_t image = t.in[0] * t.in[1] * t.in[2] * c;
    parallel_for(t.images * places, std::max<int64_t>(1, kElements / (c * 8)), [&](int64_t begin, int64_t end) {
        for (int64_t place = begin; place < end; ++place) {
            const int64_t within = place % places;
            const Reach d = window_of(0, within / t.out[2] / t.out[1]), h = window_of(1, within / t.out[2] % t.out[1]),
                        w = window_of(2, within % t.out[2]);
            take(t.x + place / places * image, t.y + place * c, d, h, w);
        }
    });
}

template <class Visit>
void each_place(const FloatPoolTensor& t, const Reach& d, const Reach& h, const Reach& w, const Visit& visit) {
    for (int64_t i = d.begin; i < d.end; i += d.step)
        for (int64_t j = h.begin; j < h.end; j += h.step)
            for (int64_t k = w.begin; k < w.end; k += w.step) visit(((i * t.in[1] + j) * t.in[2] + k) * t.channels);
}

Reach sliding(const FloatPoolTensor& t, const PoolWindows& p, size_t axis, int64_t out) {
    const int64_t first = out * p.stride[axis] - p.padding[axis], step = p.dilation[axis];
    const int64_t last = std::min(first + p.kernel[axis], t.in[axis] + p.padding[axis]);
    Reach w;
    w.step = step;
    w.begin = first < 0 ? (-first + step - 1) / step * step + first : first;
    w.end = std::min(first + step * (p.kernel[axis] - 1) + 1, t.in[axis]);
    w.size = last - first;
    return w;
}

void average(const FloatPoolTensor& t, const float* x, float* y, const Reach& d, const Reach& h, const Reach& w,
             float divisor) {
    std::fill_n(y, t.channels, 0.0f);
    each_place(t, d, h, w, [&](int64_t at) {
        for (int64_t c = 0; c < t.channels; ++c) y[c] += x[at + c];
    });
    for (int64_t c = 0; c < t.channels; ++c) y[c] /= divisor;
}

float count_in(const Reach& d, const Reach& h, const Reach& w) {
    const auto size = [](const Reach& a) { return std::max<int64_t>(a.end - a.begin, 0); };
    return static_cast<float>(size(d) * size(h) * size(w));
}

}  // namespace

void float_max_pool(const FloatPoolTensor& t, const PoolWindows& p) {
    each_window(
        t, [&](size_t axis, int64_t out) { return sliding(t, p, axis, out); },
        [&](const float* x, float* y, const Reach& d, const Reach& h, const Reach& w) {
            std::fill_n(y, t.channels, -std::numeric_limits<float>::infinity());
            each_place(t, d, h, w, [&](int64_t at) {
                for (int64_t c = 0; c < t.channels; ++c) {
                    const float v = x[at + c];
                    y[c] = v > y[c] || v != v ? v : y[c];
                }
            });
        });
}

void float_average_pool(const FloatPoolTensor& t, const PoolWindows& p, bool count_padding, int64_t divisor) {
    each_window(
        t, [&](size_t axis, int64_t out) { return sliding(t, p, axis, out); },
        [&](const float* x, float* y, const Reach& d, const Reach& h, const Reach& w) {
            const float all = static_cast<float>(d.size * h.size * w.size);
            average(t, x, y, d, h, w,
                    divisor != 0    ? static_cast<float>(divisor)
                    : count_padding ? all
                                    : count_in(d, h, w));
        });
}

void float_adaptive_average_pool(const FloatPoolTensor& t) {
    each_window(
        t,
        [&](size_t axis, int64_t out) {
            const int64_t in = t.in[axis], n = t.out[axis];
            return Reach{out * in / n, ((out + 1) * in + n - 1) / n, 1, 1};
        },
        [&](const float* x, float* y, const Reach& d, const Reach& h, const Reach& w) {
            average(t, x, y, d, h, w, count_in(d, h, w));
        });
}

namespace {

template <class Sum>
void each_row(const float* x, float* y, int64_t rows, int64_t length, const Sum& sum) {
    parallel_for(rows, std::max<int64_t>(1, kElements / std::max<int64_t>(length, 1)), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) y[row] = static_cast<float>(sum(x + row * length));
    });
}

}  // namespace

void float_mean(const float* x, float* y, int64_t rows, int64_t length) {
    each_row(x, y, rows, length, [length](const float* row) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]);
        return sum / static_cast<double>(length);
    });
}

void float_sum(const float* x, float* y, int64_t rows, int64_t length) {
    each_row(x, y, rows, length, [length](const float* row) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]);
        return sum;
    });
}

void float_product(const float* x, float* y, int64_t rows, int64_t length) {
    each_row(x, y, rows, length, [length](const float* row) {
        double product = 1;
        for (int64_t i = 0; i < length; ++i) product *= static_cast<double>(row[i]);
        return product;
    });
}

void float_variance(const float* x, float* y, int64_t rows, int64_t length, double correction) {
    each_row(x, y, rows, length, [length, correction](const float* row) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]);
        const double mean = sum / static_cast<double>(length);
        for (int64_t i = 0; i < length; ++i) {
            const double distance = static_cast<double>(row[i]) - mean;
            squares += distance * distance;
        }
        return squares / std::max(static_cast<double>(length) - correction, 0.0);
    });
}

void float_norm(const float* x, float* y, int64_t rows, int64_t length) {
    each_row(x, y, rows, length, [length](const float* row) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
        return std::sqrt(sum);
    });
}

}  // namespace zeropoint
