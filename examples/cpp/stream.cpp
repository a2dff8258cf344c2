// stream MODEL.zpt: frames of float32 from standard input, one result for each to standard output.
//
// The model takes one frame (1, 1, features) and keeps its recurrent state from frame to frame; so this process holds
// no state of its own, and two streams are two sessions of one program.
#include <zeropoint/zeropoint.hpp>

#include <cstdio>
#include <iostream>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "usage: stream MODEL.zpt < frames > results\n";
        return 2;
    }
    const zeropoint::Program program(argv[1]);
    const zp_input input = program.inputs().at(0);
    std::vector<std::int64_t> shape(input.example, input.example + input.rank);
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    std::vector<float> frame(static_cast<std::size_t>(count));

#if defined(_WIN32)
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
#endif
    zeropoint::Session session(program);
    while (std::fread(frame.data(), sizeof(float), frame.size(), stdin) == frame.size()) {
        const zeropoint::View result = session.run({zeropoint::view(frame, shape)}).at(0);
        std::fwrite(result.data<float>(), sizeof(float), static_cast<std::size_t>(result.count()), stdout);
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "stream: " << error.what() << '\n';
    return 1;
}
