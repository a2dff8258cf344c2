// classify MODEL.zpt IMAGE.ppm: the five highest scores of an image classifier.
//
// The model takes one float image (1, 3, height, width), normalized as torchvision's models expect it. The image is a
// binary PPM; it is resized to what the model was compiled with.
#include <zeropoint/zeropoint.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>

namespace {

struct Image {
    std::int64_t width = 0, height = 0;
    std::vector<std::uint8_t> pixels;  // red, green, blue
};

Image read_ppm(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string kind;
    Image image;
    int most = 0;
    if (!(file >> kind >> image.width >> image.height >> most) || kind != "P6" || most != 255 || image.width < 1 ||
        image.height < 1 || image.width > 65536 || image.height > 65536)
        throw std::runtime_error(path + ": not a binary PPM with 8 bits per color");
    file.get();  // the one space behind the header
    image.pixels.resize(static_cast<std::size_t>(3 * image.width * image.height));
    if (!file.read(reinterpret_cast<char*>(image.pixels.data()), static_cast<std::streamsize>(image.pixels.size())))
        throw std::runtime_error(path + ": the file is too short");
    return image;
}

// The nearest pixels, normalized, one plane for each color.
std::vector<float> prepared(const Image& image, std::int64_t height, std::int64_t width) {
    constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};
    std::vector<float> planes(static_cast<std::size_t>(3 * height * width));
    for (std::int64_t color = 0; color < 3; ++color)
        for (std::int64_t y = 0; y < height; ++y)
            for (std::int64_t x = 0; x < width; ++x) {
                const std::int64_t from = (y * image.height / height) * image.width + x * image.width / width;
                const float value = static_cast<float>(image.pixels[static_cast<std::size_t>(3 * from + color)]) / 255;
                planes[static_cast<std::size_t>((color * height + y) * width + x)] =
                    (value - kMean[color]) / kDeviation[color];
            }
    return planes;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) {
        std::cerr << "usage: classify MODEL.zpt IMAGE.ppm\n";
        return 2;
    }
    const zeropoint::Program program(argv[1]);
    const zp_input input = program.inputs().at(0);
    if (input.rank != 4 || input.example[1] != 3) throw std::runtime_error("the model takes no image of three colors");
    const std::int64_t height = input.example[2], width = input.example[3];
    const std::vector<float> planes = prepared(read_ppm(argv[2]), height, width);

    zeropoint::Session session(program);
    const zeropoint::View scores = session.run({zeropoint::view(planes, {1, 3, height, width})}).at(0);
    const float* score = scores.data<float>();
    std::vector<std::int64_t> order(static_cast<std::size_t>(scores.count()));
    std::iota(order.begin(), order.end(), 0);
    const std::size_t shown = std::min<std::size_t>(5, order.size());
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
        [&](std::int64_t a, std::int64_t b) { return score[a] > score[b] || (score[a] == score[b] && a < b); });
    for (std::size_t i = 0; i < shown; ++i)
        std::printf("%lld %.9g\n", static_cast<long long>(order[i]), static_cast<double>(score[order[i]]));
    return 0;
} catch (const std::exception& error) {
    std::cerr << "classify: " << error.what() << '\n';
    return 1;
}
