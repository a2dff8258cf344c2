#include "engine/container.h"

#include "cpu/memory.h"
#include "engine/json.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace zeropoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;
constexpr size_t kLine = 64;
constexpr int64_t kPage = 4096;
constexpr int64_t kWorthMapping = 1 << 20;  // bytes of a file

[[noreturn]] void fail(const std::string& what) { throw FormatError("safetensors: " + what); }

// Types of the container that programs have; others are refused where a tensor has them.
bool stored_type(const std::string& name, ElementType& type) {
    static const std::map<std::string, ElementType> known{
        {"U8", ElementType::u8},   {"I8", ElementType::s8},   {"I16", ElementType::s16}, {"I32", ElementType::s32},
        {"I64", ElementType::s64}, {"F32", ElementType::f32}, {"F16", ElementType::f16}, {"BOOL", ElementType::boolean},
    };
    const auto found = known.find(name);
    if (found == known.end()) return false;
    type = found->second;
    return true;
}

#if defined(__linux__)
bool read_at(int file, uint8_t* to, size_t bytes, size_t offset) {
    while (bytes > 0) {
        const ssize_t got = pread(file, to, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        offset += static_cast<size_t>(got);
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

uint64_t hash_of(const uint8_t* data, size_t bytes) {
    uint64_t hash = bytes;
    const auto mix = [&](uint64_t word) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    };
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= bytes; i += sizeof word) {
        std::memcpy(&word, data + i, sizeof word);
        mix(word);
    }
    for (; i < bytes; ++i) mix(data[i]);
    return hash;
}
#endif

}  // namespace

struct Container::Memory {
    // Whole pages of a tensor.
    struct Part {
        size_t offset, bytes;
        uint64_t hash;
    };

    // With `pages` the memory is whole pages, parts of which may become those of a file. Else large ones, if it is
    // large.
    explicit Memory(size_t size, bool pages = false) {
#if defined(__linux__)
        if (pages || size >= kHugePageThreshold) {
            void* made =
                mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (made == MAP_FAILED) throw std::bad_alloc();
            data = static_cast<uint8_t*>(made);
            mapped_bytes = size;
            if (!pages) prepare_output(data, size);
            return;
        }
#else
        (void)pages;
#endif
        data = static_cast<uint8_t*>(::operator new(size + 1, std::align_val_t(kLine)));
    }
    ~Memory() {
#if defined(__linux__)
        if (mapped_bytes > 0)
            munmap(data, mapped_bytes);
        else
#endif
            ::operator delete(data, std::align_val_t(kLine));
#if defined(__linux__)
        if (file >= 0) close(file);
#endif
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint8_t* data = nullptr;
    size_t mapped_bytes = 0;                        // of which, if they are pages
    std::vector<std::unique_ptr<uint8_t[]>> moved;  // tensors that were not on a boundary of their type
    int file = -1;                                  // open as long as parts may be forgotten
    std::vector<Part> parts;                        // what may be forgotten: chosen once
    // A process may be forked at any time, and its child go on: one value says which of the two holds, and it says so
    // before memory is given back and after it is filled.
    std::atomic<bool> forgotten{false};
};

Container::Container(std::string_view bytes) : memory_(std::make_shared<Memory>(bytes.size())) {
    size_ = static_cast<int64_t>(bytes.size());
    if (!bytes.empty()) std::memcpy(memory_->data, bytes.data(), bytes.size());
    parse(header_end());
    align();
}

Container::Container(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

// The header comes first: what it refuses is not read, however large a file claims to be.
Container Container::read(const std::string& path, const Chosen& mapped) {
    const int64_t size = static_cast<int64_t>(std::filesystem::file_size(path));  // what is no regular file has none
    Container made(std::make_shared<Memory>(static_cast<size_t>(size), mapped != nullptr && size >= kWorthMapping));
    made.size_ = size;
    Memory& memory = *made.memory_;
#if defined(__linux__)
    memory.file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (memory.file < 0) throw std::system_error(errno, std::generic_category(), path);
    const auto read_part = [&](int64_t begin, int64_t end) {
        if (!read_at(memory.file, memory.data + begin, static_cast<size_t>(end - begin), static_cast<size_t>(begin)))
            throw std::system_error(EIO, std::generic_category(), path);
    };
#else
    std::ifstream file(path, std::ios::binary);
    const auto read_part = [&](int64_t begin, int64_t end) {
        file.read(reinterpret_cast<char*>(memory.data + begin), end - begin);
        if (file.gcount() != end - begin) throw std::system_error(EIO, std::generic_category(), path);
    };
#endif
    read_part(0, std::min(size, kLengthBytes));
    int64_t at = made.header_end();
    read_part(kLengthBytes, at);
    made.parse(at);
    for (const auto& [begin, end] : made.map_pages(path, mapped)) {
        read_part(at, begin);
        at = end;
    }
    read_part(at, size);
    made.align();
    return made;
}

// Parts of the file, in their order, that are mapped: whole pages of the tensors that are chosen.
std::vector<std::pair<int64_t, int64_t>> Container::map_pages(const std::string& path, const Chosen& mapped) {
    std::vector<std::pair<int64_t, int64_t>> parts;
#if defined(__linux__)
    Memory& m = *memory_;
    if (m.mapped_bytes == 0 || mapped == nullptr) return parts;
    struct stat now{};
    if (fstat(m.file, &now) != 0 || now.st_size != size_)  // behind its end there is nothing that can be mapped
        throw std::system_error(EIO, std::generic_category(), path);
    for (const std::string& name : mapped(metadata_)) {
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) continue;
        const int64_t first = found->second.data - m.data, last = first + found->second.bytes();
        const int64_t begin = (first + kPage - 1) / kPage * kPage, end = last / kPage * kPage;
        if (begin < end) parts.emplace_back(begin, end);
    }
    std::sort(parts.begin(), parts.end());
    // A name that is chosen twice counts once; one call for neighbours would need the pages between them, too.
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (const auto& [begin, end] : parts)
        if (mmap(m.data + begin, static_cast<size_t>(end - begin), PROT_READ, MAP_PRIVATE | MAP_FIXED, m.file,
                 static_cast<off_t>(begin)) == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(), path);
#else
    (void)path;
    (void)mapped;
#endif
    return parts;
}

void Container::forget(const std::vector<const StoredTensor*>& tensors) {
#if defined(__linux__)
    constexpr size_t kWorth = size_t{1} << 20;  // less is not worth a file that stays open
    Memory& m = *memory_;
    if (m.file < 0) return;
    if (m.parts.empty()) {
        size_t all = 0;
        std::vector<Memory::Part> parts;
        for (const StoredTensor* tensor : tensors) {
            const uintptr_t data = reinterpret_cast<uintptr_t>(m.data), at = reinterpret_cast<uintptr_t>(tensor->data);
            if (at < data || at >= data + static_cast<uintptr_t>(size_)) continue;  // moved
            constexpr uintptr_t kWhole = kPage;
            const uintptr_t begin = (at + kWhole - 1) / kWhole * kWhole;
            const uintptr_t end = (at + static_cast<uintptr_t>(tensor->bytes())) / kWhole * kWhole;
            if (begin >= end) continue;
            const uint8_t* from = m.data + (begin - data);
            parts.push_back({begin - data, end - begin, hash_of(from, end - begin)});
            all += end - begin;
        }
        if (all < kWorth) {
            close(m.file);
            m.file = -1;
            return;
        }
        m.parts = std::move(parts);
    }
    m.forgotten = true;
    for (const Memory::Part& part : m.parts) (void)madvise(m.data + part.offset, part.bytes, MADV_DONTNEED);
#else
    (void)tensors;
#endif
}

void Container::recall() {
#if defined(__linux__)
    if (!memory_->forgotten) return;
    for (const Memory::Part& part : memory_->parts) {
        uint8_t* at = memory_->data + part.offset;
        if (!read_at(memory_->file, at, part.bytes, part.offset) || hash_of(at, part.bytes) != part.hash)
            throw FormatError("the file that the program was loaded from has been changed since: load it again");
    }
    memory_->forgotten = false;
#endif
}

std::string_view Container::data() const {
    return {reinterpret_cast<const char*>(memory_->data), static_cast<size_t>(size_)};
}

int64_t Container::header_end() const {
    const std::string stranger = "not a .zpt file: ";
    if (size_ < kLengthBytes)
        throw FormatError(stranger + "it has " + std::to_string(size_) + " bytes, too few for a header");
    uint64_t header = 0;
    for (int i = kLengthBytes - 1; i >= 0; --i) header = header << 8 | memory_->data[i];
    if (header > static_cast<uint64_t>(std::min(size_ - kLengthBytes, kMostHeaderBytes)))
        throw FormatError(stranger + "a header of " + std::to_string(header) + " bytes does not fit in a file of " +
                          std::to_string(size_));
    return kLengthBytes + static_cast<int64_t>(header);
}

void Container::parse(int64_t header_end) {
    const char* text = reinterpret_cast<const char*>(memory_->data) + kLengthBytes;
    const Json json = parse_json({text, static_cast<size_t>(header_end - kLengthBytes)});
    if (json.record() == nullptr) fail("the header is no JSON object");
    const uint8_t* data = memory_->data + header_end;
    const int64_t room = size_ - header_end;
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const auto& [name, entry] : *json.record()) {
        if (name == "__metadata__") {
            if (entry.record() == nullptr) fail("__metadata__ is no JSON object");
            for (const auto& [key, value] : *entry.record()) {
                if (value.text() == nullptr) fail("metadata '" + key + "' is no string");
                metadata_[key] = *value.text();
            }
            continue;
        }
        const Json *type = entry.find("dtype"), *shape = entry.find("shape"), *offsets = entry.find("data_offsets");
        if (type == nullptr || type->text() == nullptr || shape == nullptr || shape->list() == nullptr ||
            offsets == nullptr || offsets->list() == nullptr || offsets->list()->size() != 2)
            fail("tensor '" + name + "' needs dtype, shape and data_offsets");
        StoredTensor tensor;
        if (!stored_type(*type->text(), tensor.type)) fail("tensor '" + name + "' has dtype " + *type->text());
        for (const Json& n : *shape->list()) {
            if (n.integer() == nullptr || *n.integer() < 0) fail("tensor '" + name + "' has a size that is none");
            tensor.sizes.push_back(*n.integer());
        }
        const int64_t *begin = (*offsets->list())[0].integer(), *end = (*offsets->list())[1].integer();
        if (begin == nullptr || end == nullptr || *begin < 0 || *begin > *end || *end > room)
            fail("tensor '" + name + "' lies outside the file");
        int64_t bytes = 0;
        try {
            bytes = tensor.bytes();
        } catch (const PlanError& error) {
            fail("tensor '" + name + "': " + error.what());
        }
        if (bytes != *end - *begin)
            fail("tensor '" + name + "' of shape " + text_of(tensor.sizes) + " needs " + std::to_string(bytes) +
                 " bytes, its offsets span " + std::to_string(*end - *begin));
        tensor.data = data + *begin;
        taken.emplace_back(*begin, *end);
        tensors_[name] = std::move(tensor);
    }
    // Tensors fill the file, each byte in one: copies of them are never larger than the file.
    std::sort(taken.begin(), taken.end());
    int64_t until = 0;
    for (const auto& [begin, end] : taken) {
        if (begin != until)
            fail("the tensors overlap or leave a gap at byte " + std::to_string(std::min(begin, until)));
        until = end;
    }
    if (until != room) fail(std::to_string(room - until) + " bytes at the end belong to no tensor");
}

void Container::align() {
    for (auto& [name, tensor] : tensors_) {
        if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes_of(tensor.type)) == 0) continue;
        const size_t bytes = static_cast<size_t>(tensor.bytes());
        memory_->moved.emplace_back(new uint8_t[bytes]);
        std::memcpy(memory_->moved.back().get(), tensor.data, bytes);
        tensor.data = memory_->moved.back().get();
    }
}

}  // namespace zeropoint
