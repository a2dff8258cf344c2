// run MODEL.zpt FILE...: any program, once. Each FILE has the bytes of one input, of the sizes the program was compiled
// for; the bytes of the results go to standard output, in the order of their axes.
#include <zeropoint/zeropoint.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif

namespace {

// Bytes of an element, by the numbers of zp_type.
constexpr std::size_t kBytes[] = {1, 1, 2, 4, 8, 4, 2, 1};

// Writes what lies at `data` from `axis` on; an output may lie in memory in another order than that of its axes.
void write(const zeropoint::View& view, const char* data, int axis, std::size_t element) {
    if (axis == view.rank) {
        std::fwrite(data, 1, element, stdout);
        return;
    }
    for (std::int64_t i = 0; i < view.sizes[axis]; ++i)
        write(view, data + static_cast<std::size_t>(i * view.strides[axis]) * element, axis + 1, element);
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 2) {
        std::cerr << "usage: run MODEL.zpt FILE... > results\n";
        return 2;
    }
    const zeropoint::Program program(argv[1]);
    const std::vector<zp_input> inputs = program.inputs();
    if (inputs.size() != static_cast<std::size_t>(argc - 2)) {
        std::cerr << "run: the program takes " << inputs.size() << " inputs, got " << argc - 2 << " files\n";
        return 2;
    }
    std::vector<std::vector<char>> memory;
    std::vector<zeropoint::View> given;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        std::ifstream file(argv[2 + i], std::ios::binary);
        if (!file) throw std::runtime_error(std::string("cannot read ") + argv[2 + i]);
        memory.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        zeropoint::View view;
        view.type = inputs[i].type;
        view.rank = inputs[i].rank;
        for (int axis = 0; axis < view.rank; ++axis) view.sizes[axis] = inputs[i].example[axis];
        view.zp_tensor::data = memory.back().data();
        if (memory.back().size() != static_cast<std::size_t>(view.count()) * kBytes[view.type])
            throw std::runtime_error(std::string(argv[2 + i]) + " has not the bytes of input " + inputs[i].name);
        given.push_back(view);
    }
#if defined(_WIN32)
    _setmode(_fileno(stdout), _O_BINARY);  // else each byte 10 becomes two
#endif
    zeropoint::Session session(program);
    for (const zeropoint::View& result : session.run(given))
        write(result, static_cast<const char*>(result.zp_tensor::data), 0, kBytes[result.type]);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "run: " << error.what() << '\n';
    return 1;
}
