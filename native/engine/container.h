// A safetensors file in memory: eight bytes with the length of a JSON header, the header, the bytes of the tensors.
#pragma once

#include "engine/tensor.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace zeropoint {

struct StoredTensor {
    ElementType type = ElementType::u8;
    Sizes sizes;
    const uint8_t* data = nullptr;  // on a boundary of the type, inside the container

    int64_t count() const { return count_of(sizes); }
    int64_t bytes() const { return count() * bytes_of(type); }
};

// Owns the bytes; tensors point into them. Those that have been copied elsewhere can be left to the file that they came
// from, which stays open and is read again when somebody needs them.
class Container {
public:
    // A copy of the bytes. Throws FormatError if they are no safetensors file.
    explicit Container(std::string_view bytes);
    // Names of tensors, from the metadata of a file.
    using Chosen = std::function<std::vector<std::string>(const std::map<std::string, std::string>& metadata)>;
    // Throws std::system_error if the file cannot be read, FormatError if it is no safetensors file. Those tensors that
    // are `mapped` are not read: their bytes are those of the file, whatever becomes of it, so nothing may depend on
    // them but results. Small files, and other systems than Linux, map nothing.
    static Container read(const std::string& path, const Chosen& mapped = nullptr);

    const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    int64_t bytes() const { return size_; }
    // The file, if nothing is forgotten.
    std::string_view data() const;

    // Gives back the memory of those of these tensors that are worth it, until recall() reads them again. Does nothing
    // for a container that was not read from a file, or where the system cannot do so. The tensors of the first call
    // are those of every call.
    void forget(const std::vector<const StoredTensor*>& tensors);
    // Throws FormatError if the file is not what it was.
    void recall();

private:
    struct Memory;
    explicit Container(std::shared_ptr<Memory> memory);
    // Where the header ends, by its length. Throws FormatError if that is behind the end of the file.
    int64_t header_end() const;
    void parse(int64_t header_end);
    std::vector<std::pair<int64_t, int64_t>> map_pages(const std::vector<std::string>& names);
    void align();

    std::shared_ptr<Memory> memory_;
    int64_t size_ = 0;
    std::map<std::string, StoredTensor> tensors_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace zeropoint
