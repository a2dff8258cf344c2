// A safetensors file in memory: eight bytes with the length of a JSON header, the header, the bytes of the tensors.
#pragma once

#include "engine/tensor.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace zeropoint {

struct StoredTensor {
    ElementType type = ElementType::u8;
    Sizes sizes;
    const uint8_t* data = nullptr;  // on a boundary of the type, inside the container

    int64_t count() const { return count_of(sizes); }
    int64_t bytes() const { return count() * bytes_of(type); }
};

// Owns the bytes; tensors point into them.
class Container {
public:
    // A copy of the bytes. Throws FormatError if they are no safetensors file.
    explicit Container(std::string_view bytes);
    // Throws std::system_error if the file cannot be read, FormatError if it is no safetensors file.
    static Container read(const std::string& path);

    const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    int64_t bytes() const { return size_; }
    // The file.
    std::string_view data() const;

private:
    struct Memory;
    explicit Container(std::shared_ptr<Memory> memory);
    void parse();

    std::shared_ptr<Memory> memory_;
    int64_t size_ = 0;
    std::map<std::string, StoredTensor> tensors_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace zeropoint
