// Makes wrong files from right ones: on the level of the program, of its constants, of the container and of bytes.
#pragma once

#include "check/fuzz/random.h"
#include "engine/json.h"

#include <string>
#include <string_view>
#include <vector>

namespace zeropoint::check {

// A program file in parts.
struct FileParts {
    Json header;   // a record of tensors
    Json program;  // a record
    std::string data;

    // Throws FormatError if it is none.
    explicit FileParts(std::string_view file);
    // As a file. The header is followed by `padding` spaces.
    std::string file(size_t padding) const;
};

class Mutator {
public:
    explicit Mutator(std::vector<std::string> files);

    // The file of this number: some changes to one of the files.
    std::string make(uint64_t seed, uint64_t number) const;
    // Some changes to this file; most of them leave it in order.
    std::string change(FileParts parts, Random& random) const;

private:
    void change_program(FileParts& parts, Random& random) const;
    void change_steps(FileParts& parts, Random& random) const;
    void change_tree(Json& root, Random& random) const;
    Json strange_value(const Json& old, Random& random) const;
    std::string some_text(Random& random) const;

    std::vector<FileParts> parts_;
    std::vector<std::string> texts_;  // of all programs, and more
    std::vector<Json> subtrees_;      // of all programs
    std::vector<Json> steps_;         // of all programs
};

}  // namespace zeropoint::check
