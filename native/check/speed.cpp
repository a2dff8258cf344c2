// kernel_speed [level [word]]: GMAC/s of linear layers and convolutions, on one thread with its share of what the
// level's instruction can do, and on two threads. With a word, only the cases whose names have it.
#include "check/clock.h"
#include "check/inputs.h"
#include "cpu/isa.h"
#include "cpu/peaks.h"
#include "cpu/threads.h"
#include "operators/convolution.h"
#include "operators/float_stage.h"
#include "operators/linear.h"

#include <cstdio>
#include <string>

namespace zeropoint::check {
namespace {

std::string g_word;  // that a case must have in its name
double g_peak = 0;   // of one thread, in GMAC/s; 0: not known

// The best of some runs, which is what the neighbours on this machine disturb least.
template <class Body>
double best_time(const Body& body) {
    body();
    double best = 1e30;
    for (const double stop = seconds() + 0.15; seconds() < stop;) {
        const double begin = seconds();
        body();
        best = std::min(best, seconds() - begin);
    }
    return best;
}

template <class T>
std::vector<T> random_bytes(Random& random, int64_t n) {
    std::vector<T> r(static_cast<size_t>(n));
    for (T& x : r) x = static_cast<T>(random.bits());
    return r;
}

template <class Body>
void show(const char* what, double macs, const Body& body) {
    if (std::string(what).find(g_word) == std::string::npos) return;
    std::printf("%-38s", what);
    for (int threads : {1, 2}) {
        set_num_threads(threads);
        const double time = best_time(body), rate = macs / time * 1e-9;
        std::printf("  %d: %7.1f GMAC/s %9.1f us", threads, rate, time * 1e6);
        if (threads == 1 && g_peak > 0) std::printf(" %3.0f%%", 100 * rate / g_peak);
    }
    std::printf("\n");
}

enum class Finish { plain, gelu, residual, table };
constexpr const char* kFinishes[] = {"", ", gelu", ", residual", ", table"};

void linear(int64_t rows, int64_t outputs, int64_t inputs, Finish finish = Finish::plain) {
    Random random(1);
    const auto x = random_bytes<uint8_t>(random, rows * inputs);
    const auto w = random_bytes<int8_t>(random, outputs * inputs);
    std::vector<uint8_t> y(static_cast<size_t>(rows * outputs));
    const LinearPlan plan({w.data(), IntType::s8, nullptr, 0}, outputs, inputs);
    const float multiplier = 1e-4f;
    MatmulOutput out;
    out.y = y.data();
    out.multiplier = &multiplier;
    out.zero_point = 128;
    FloatStage gelu;
    gelu.scale = 0.02;
    gelu.prepare(out.hi - out.zero_point);
    const auto z = random_bytes<uint8_t>(random, rows * outputs), table = random_bytes<uint8_t>(random, 256);
    out.z_multiplier = 0.5f;
    if (finish == Finish::gelu) out.function = &gelu;
    if (finish == Finish::residual) out.z = z.data();
    if (finish == Finish::table) out.table = table.data();
    char what[64];
    std::snprintf(what, sizeof what, "linear %lldx%lld M=%lld%s", static_cast<long long>(outputs),
                  static_cast<long long>(inputs), static_cast<long long>(rows), kFinishes[static_cast<size_t>(finish)]);
    show(what, static_cast<double>(rows * outputs * inputs), [&] { plan.run({x.data(), IntType::u8, 3}, rows, out); });
}

void convolution(const char* name, const ConvShape& shape, int64_t images, int64_t size) {
    Random random(2);
    const Size3 in{1, size, size}, out = shape.output_size(in);
    const int64_t places = out[1] * out[2],
                  depth = shape.kernel[1] * shape.kernel[2] * shape.in_channels / shape.groups;
    const auto x = random_bytes<uint8_t>(random, images * size * size * shape.in_channels);
    // As trained ones are, few weights are large: Winograd's algorithm is exact for them.
    auto w = random_bytes<int8_t>(random, shape.out_channels * depth);
    for (int8_t& value : w) value = static_cast<int8_t>((value + static_cast<int8_t>(random.bits())) / 2);
    std::vector<uint8_t> y(static_cast<size_t>(images * places * shape.out_channels));
    const ConvPlan plan({w.data(), IntType::s8, nullptr, 0}, shape);
    const float multiplier = 1e-4f;
    MatmulOutput o;
    o.y = y.data();
    o.multiplier = &multiplier;
    o.zero_point = 128;
    const double reads = shape.transposed ? static_cast<double>(size * size) : static_cast<double>(places);
    char what[64];
    std::snprintf(what, sizeof what, "%s batch %lld", name, static_cast<long long>(images));
    show(what, static_cast<double>(images * shape.out_channels * depth) * reads,
         [&] { plan.run({x.data(), IntType::u8, 3}, images, in, o); });
}

ConvShape square(int64_t in, int64_t out, int64_t groups, int64_t kernel, int64_t stride, int64_t padding) {
    ConvShape s;
    s.in_channels = in;
    s.out_channels = out;
    s.groups = groups;
    s.kernel = {1, kernel, kernel};
    s.stride = {1, stride, stride};
    s.padding = {0, padding, padding};
    return s;
}

}  // namespace
}  // namespace zeropoint::check

int main(int argc, char** argv) {
    using namespace zeropoint;
    if (argc > 1) set_active_isa(isa_from_name(argv[1]));
    if (argc > 2) check::g_word = argv[2];
    check::g_peak = peaks().macs(active_isa()) * 1e-9;
    std::printf("level %s, at most %.1f GMAC/s on one thread\n", isa_name(active_isa()), check::g_peak);
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 128, 1024}) check::linear(rows, 1024, 1024);
    check::linear(64, 4096, 4096);
    check::linear(2048, 384, 384);
    check::linear(2048, 1536, 384);
    check::linear(2048, 384, 1536);
    using check::Finish;
    check::linear(2048, 1536, 384, Finish::gelu);
    for (const Finish finish : {Finish::residual, Finish::table}) {
        check::linear(2048, 384, 64, finish);
        check::linear(2048, 384, 384, finish);
    }
    for (int64_t images : {1, 16}) {
        using check::square;
        check::convolution("3x3 64 @ 56", square(64, 64, 1, 3, 1, 1), images, 56);
        check::convolution("3x3 128 @ 28", square(128, 128, 1, 3, 1, 1), images, 28);
        check::convolution("3x3 256 @ 14", square(256, 256, 1, 3, 1, 1), images, 14);
        check::convolution("3x3 512 @ 7", square(512, 512, 1, 3, 1, 1), images, 7);
        check::convolution("7x7 stem 3 -> 64 @ 224", square(3, 64, 1, 7, 2, 3), images, 224);
        check::convolution("3x3 stem 3 -> 32 @ 224", square(3, 32, 1, 3, 2, 1), images, 224);
        check::convolution("1x1 stride 2 64 -> 128 @ 56", square(64, 128, 1, 1, 2, 0), images, 56);
        check::convolution("1x1 stride 2 128 -> 256 @ 28", square(128, 256, 1, 1, 2, 0), images, 28);
        check::convolution("1x1 stride 2 256 -> 512 @ 14", square(256, 512, 1, 1, 2, 0), images, 14);
        check::convolution("1x1 256 -> 64 @ 56", square(256, 64, 1, 1, 1, 0), images, 56);
        // MobileNetV2's, and some of EfficientNet's.
        const auto depthwise = [&](int64_t channels, int64_t kernel, int64_t stride, int64_t size) {
            char name[64];
            std::snprintf(name, sizeof name, "depthwise %dx%d/%d %d @ %d", int(kernel), int(kernel), int(stride),
                          int(channels), int(size));
            check::convolution(name, square(channels, channels, channels, kernel, stride, kernel / 2), images, size);
        };
        depthwise(32, 3, 1, 112);
        depthwise(96, 3, 2, 112);
        depthwise(144, 3, 1, 56);
        depthwise(144, 3, 2, 56);
        depthwise(192, 3, 1, 28);
        depthwise(192, 3, 2, 28);
        depthwise(384, 3, 1, 14);
        depthwise(576, 3, 1, 14);
        depthwise(576, 3, 2, 14);
        depthwise(960, 3, 1, 7);
        depthwise(240, 5, 1, 28);
        depthwise(144, 5, 2, 56);
        ConvShape up = square(128, 64, 1, 4, 2, 1);
        up.transposed = true;
        check::convolution("transposed 4x4 128 -> 64 @ 28", up, images, 28);
        check::convolution("groups of 4, 3x3 128 @ 56", square(128, 128, 32, 3, 1, 1), images, 56);
    }
    // The 1x1 convolutions of MobileNetV2: input and output channels, and the size of the image.
    constexpr int64_t kPointwise[][3] = {{32, 16, 112}, {16, 96, 112}, {96, 24, 56},  {24, 144, 56}, {144, 24, 56},
                                         {144, 32, 28}, {32, 192, 28}, {192, 32, 28}, {192, 64, 14}, {64, 384, 14},
                                         {384, 64, 14}, {384, 96, 14}, {96, 576, 14}, {576, 96, 14}, {576, 160, 7},
                                         {160, 960, 7}, {960, 160, 7}, {960, 320, 7}, {320, 1280, 7}};
    for (const auto& [in, out, size] : kPointwise) {
        char name[64];
        std::snprintf(name, sizeof name, "1x1 %lld -> %lld @ %lld", static_cast<long long>(in),
                      static_cast<long long>(out), static_cast<long long>(size));
        check::convolution(name, check::square(in, out, 1, 1, 1, 0), 16, size);
    }
    return 0;
}
