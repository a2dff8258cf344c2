#include "engine/container.h"

#include "cpu/input_file.h"
#include "cpu/memory.h"
#include "engine/json.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

namespace zeropoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;
constexpr int64_t kWorthPages = 1 << 20;  // bytes of a file

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

// Whole pages between two places.
std::pair<int64_t, int64_t> whole_pages(int64_t first, int64_t last) {
    const int64_t page = static_cast<int64_t>(page_bytes());
    return {(first + page - 1) / page * page, last / page * page};
}

}  // namespace

struct Container::Memory {
    // Whole pages of a tensor.
    struct Part {
        size_t offset, bytes;
        uint64_t hash;
    };

    // With `mapped`, parts may become those of a file.
    explicit Memory(size_t size, bool mapped = false) {
        if (static_cast<int64_t>(size) >= kWorthPages)
            pages = ZeroPages(size, !mapped);
        else
            bytes = AlignedBytes(size, false);
        data = pages.size() > 0 ? pages.data() : bytes.data();
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint8_t* data = nullptr;
    AlignedBytes bytes;                             // of a small file
    ZeroPages pages;                                // of a large one
    std::vector<std::unique_ptr<uint8_t[]>> moved;  // tensors that were not on a boundary of their type
    InputFile file;                                 // open as long as parts may be forgotten
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
    InputFile file(path);
    const int64_t size = file.size();
    const bool maps = InputFile::can_map() && mapped != nullptr && size >= kWorthPages;
    Container made(std::make_shared<Memory>(static_cast<size_t>(size), maps));
    made.size_ = size;
    Memory& memory = *made.memory_;
    memory.file = std::move(file);
    const auto read_part = [&](int64_t begin, int64_t end) {
        if (!memory.file.read_at(memory.data + begin, static_cast<size_t>(end - begin), begin))
            throw std::system_error(EIO, std::generic_category(), path);
    };
    read_part(0, std::min(size, kLengthBytes));
    int64_t at = made.header_end();
    read_part(kLengthBytes, at);
    made.parse(at);
    if (maps) {
        if (memory.file.size() != size)  // behind its end there is nothing that can be mapped
            throw std::system_error(EIO, std::generic_category(), path);
        for (const auto& [begin, end] : made.map_pages(mapped(made.metadata_))) {
            read_part(at, begin);
            at = end;
        }
    }
    read_part(at, size);
    made.align();
    return made;
}

// Parts of the file, in their order, that are mapped: whole pages of these tensors.
std::vector<std::pair<int64_t, int64_t>> Container::map_pages(const std::vector<std::string>& names) {
    std::vector<std::pair<int64_t, int64_t>> parts;
    Memory& m = *memory_;
    for (const std::string& name : names) {
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) continue;
        const int64_t first = found->second.data - m.data;
        const auto [begin, end] = whole_pages(first, first + found->second.bytes());
        if (begin < end) parts.emplace_back(begin, end);
    }
    std::sort(parts.begin(), parts.end());
    // A name that is chosen twice counts once; one call for neighbours would need the pages between them, too.
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (const auto& [begin, end] : parts) m.file.map(m.pages, begin, static_cast<size_t>(end - begin));
    return parts;
}

void Container::forget(const std::vector<const StoredTensor*>& tensors) {
    constexpr size_t kWorth = size_t{1} << 20;  // less is not worth a file that stays open
    Memory& m = *memory_;
    if (!m.file.is_open()) return;
    if (m.parts.empty()) {
        size_t all = 0;
        std::vector<Memory::Part> parts;
        for (const StoredTensor* tensor : tensors) {
            const uintptr_t data = reinterpret_cast<uintptr_t>(m.data), at = reinterpret_cast<uintptr_t>(tensor->data);
            if (at < data || at >= data + static_cast<uintptr_t>(size_)) continue;  // moved
            const int64_t first = static_cast<int64_t>(at - data);
            const auto [begin, end] = whole_pages(first, first + tensor->bytes());
            if (begin >= end) continue;
            const size_t bytes = static_cast<size_t>(end - begin);
            parts.push_back({static_cast<size_t>(begin), bytes, hash_of(m.data + begin, bytes)});
            all += bytes;
        }
        if (all < kWorth || m.pages.size() == 0) return m.file.close();
        m.parts = std::move(parts);
    }
    m.forgotten = true;
    for (const Memory::Part& part : m.parts) m.pages.give_back(part.offset, part.bytes);
}

void Container::recall() {
    if (!memory_->forgotten) return;
    for (const Memory::Part& part : memory_->parts) {
        uint8_t* at = memory_->data + part.offset;
        if (!memory_->file.read_at(at, part.bytes, static_cast<int64_t>(part.offset)) ||
            hash_of(at, part.bytes) != part.hash)
            throw FormatError("the file that the program was loaded from has been changed since: load it again");
    }
    memory_->forgotten = false;
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
