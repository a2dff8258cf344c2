#include "cpu/input_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#if defined(_WIN32)
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace zeropoint {
namespace {

[[noreturn]] void fail(int error, const std::string& path) {
    throw std::system_error(error, std::generic_category(), path);
}

#if defined(_WIN32)
HANDLE file_of(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }

[[noreturn]] void fail_here(const std::string& path) {
    throw std::system_error(static_cast<int>(GetLastError()), std::system_category(), path);
}
#endif

}  // namespace

InputFile::InputFile(InputFile&& other) noexcept
    : handle_(std::exchange(other.handle_, kNone)),
      path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(path_, other.path_);
    return *this;
}

#if defined(_WIN32)

InputFile::InputFile(const std::string& path) : path_(path) {
    const std::filesystem::path name = std::filesystem::u8path(path);
    (void)std::filesystem::file_size(name);  // what is no regular file has none
    handle_ = reinterpret_cast<intptr_t>(CreateFileW(name.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE,
                                                     nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
    if (!is_open()) fail_here(path);
}

void InputFile::close() {
    if (is_open()) CloseHandle(file_of(std::exchange(handle_, kNone)));
}

int64_t InputFile::size() const {
    LARGE_INTEGER size;
    if (!GetFileSizeEx(file_of(handle_), &size)) fail_here(path_);
    return size.QuadPart;
}

bool InputFile::read_at(uint8_t* to, size_t bytes, int64_t offset) const {
    while (bytes > 0) {
        OVERLAPPED at{};
        at.Offset = static_cast<DWORD>(offset);
        at.OffsetHigh = static_cast<DWORD>(offset >> 32);
        constexpr size_t kMost = size_t{1} << 30;
        DWORD got = 0;
        if (!ReadFile(file_of(handle_), to, static_cast<DWORD>(bytes < kMost ? bytes : kMost), &got, &at) || got == 0)
            return false;
        to += got;
        offset += got;
        bytes -= got;
    }
    return true;
}

bool InputFile::can_map() { return false; }
void InputFile::map(const ZeroPages&, int64_t, size_t) const { fail(ENOTSUP, path_); }

#else

InputFile::InputFile(const std::string& path) : path_(path) {
    (void)std::filesystem::file_size(path);  // what is no regular file has none
    handle_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!is_open()) fail(errno, path);
}

void InputFile::close() {
    if (is_open()) ::close(static_cast<int>(std::exchange(handle_, kNone)));
}

int64_t InputFile::size() const {
    struct stat now{};
    if (fstat(static_cast<int>(handle_), &now) != 0) fail(errno, path_);
    return now.st_size;
}

bool InputFile::read_at(uint8_t* to, size_t bytes, int64_t offset) const {
    while (bytes > 0) {
        const ssize_t got = pread(static_cast<int>(handle_), to, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        offset += got;
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

#if defined(__EMSCRIPTEN__)
bool InputFile::can_map() { return false; }
#else
bool InputFile::can_map() { return true; }
#endif

void InputFile::map(const ZeroPages& pages, int64_t offset, size_t bytes) const {
    if (mmap(pages.data() + offset, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, static_cast<int>(handle_),
             static_cast<off_t>(offset)) == MAP_FAILED)
        fail(errno, path_);
}

#endif

}  // namespace zeropoint
