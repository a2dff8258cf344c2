// A file that is read: at any place, again later, and as pages of memory.
#pragma once

#include "cpu/memory.h"

#include <cstdint>
#include <string>

namespace zeropoint {

class InputFile {
public:
    InputFile() = default;
    // A regular file; the name is in UTF-8. Throws std::system_error.
    explicit InputFile(const std::string& path);
    ~InputFile() { close(); }
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;
    bool is_open() const { return handle_ != kNone; }
    void close();
    // As it is now. Throws std::system_error.
    int64_t size() const;
    // Whether there were so many bytes. Several threads may read.
    bool read_at(uint8_t* to, size_t bytes, int64_t offset) const;
    // Whether this system can do the next.
    static bool can_map();
    // Whole pages of `pages` become those of the file at the same offset: their bytes are the file's, whatever becomes
    // of it. Throws std::system_error.
    void map(const ZeroPages& pages, int64_t offset, size_t bytes) const;

private:
    static constexpr intptr_t kNone = -1;
    intptr_t handle_ = kNone;
    std::string path_;  // for messages
};

}  // namespace zeropoint
