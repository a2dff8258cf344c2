#include "engine/state.h"

#include "cpu/forks.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace zeropoint {
State::State(const std::vector<StateTensor>& tensors) : tensors_(tensors) { count_of_forks(); }

void* const* State::addresses() const {
    const Kept* kept = kept_.load();
    return kept == nullptr ? nullptr : kept->addresses.data();
}

void State::take_memory() {
    if (kept_.load() != nullptr) return;
    auto made = std::make_unique<Kept>();
    for (const StateTensor& tensor : tensors_) {
        const size_t bytes = static_cast<size_t>(std::max<int64_t>(tensor.bytes(), 1));
        if (is_pages(tensor)) {
            made->zeros.emplace_back(bytes);
            made->addresses.push_back(made->zeros.back().data());
        } else {
            made->memory.emplace_back(bytes, false);
            made->addresses.push_back(made->memory.back().data());
        }
    }
    fill(*made);
    kept_ = made.release();
}

bool State::is_pages(const StateTensor& tensor) {
    constexpr int64_t kWorthPages = 1 << 16;  // bytes
    return tensor.initial == nullptr && tensor.bytes() >= kWorthPages;
}

void State::fill(Kept& kept) const {
    for (ZeroPages& pages : kept.zeros) pages.clear();
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const size_t bytes = static_cast<size_t>(tensors_[i].bytes());
        if (is_pages(tensors_[i])) continue;
        if (tensors_[i].initial == nullptr)
            std::memset(kept.addresses[i], 0, bytes);
        else
            std::memcpy(kept.addresses[i], tensors_[i].initial->data, bytes);
    }
}

void State::reset() {
    const Use use(*this);
    fill(*kept_.load());
}

std::vector<std::string> State::values() {
    const Use use(*this);
    std::vector<std::string> out;
    for (size_t i = 0; i < tensors_.size(); ++i)
        out.emplace_back(static_cast<const char*>(addresses()[i]), static_cast<size_t>(tensors_[i].bytes()));
    return out;
}

void State::set_values(const std::vector<std::string_view>& values) {
    const Use use(*this);
    if (values.size() != tensors_.size())
        throw std::invalid_argument("the state has " + std::to_string(tensors_.size()) + " tensors, got " +
                                    std::to_string(values.size()));
    for (size_t i = 0; i < tensors_.size(); ++i)
        if (static_cast<int64_t>(values[i].size()) != tensors_[i].bytes())
            throw std::invalid_argument(tensors_[i].name + " has " + std::to_string(tensors_[i].bytes()) +
                                        " bytes, got " + std::to_string(values[i].size()));
    for (size_t i = 0; i < tensors_.size(); ++i) std::memcpy(addresses()[i], values[i].data(), values[i].size());
}

void State::require_inside(size_t tensor, int64_t offset, int64_t bytes) const {
    if (tensor >= tensors_.size())
        throw std::invalid_argument("the state has " + std::to_string(tensors_.size()) + " tensors, no number " +
                                    std::to_string(tensor));
    if (offset < 0 || bytes < 0 || offset > tensors_[tensor].bytes() || bytes > tensors_[tensor].bytes() - offset)
        throw std::invalid_argument(tensors_[tensor].name + " has " + std::to_string(tensors_[tensor].bytes()) +
                                    " bytes, not " + std::to_string(bytes) + " from " + std::to_string(offset) + " on");
}

std::string State::part(size_t tensor, int64_t offset, int64_t bytes) {
    require_inside(tensor, offset, bytes);
    const Use use(*this);
    return {static_cast<const char*>(addresses()[tensor]) + offset, static_cast<size_t>(bytes)};
}

void State::set_part(size_t tensor, int64_t offset, std::string_view bytes) {
    require_inside(tensor, offset, static_cast<int64_t>(bytes.size()));
    const Use use(*this);
    if (!bytes.empty()) std::memcpy(static_cast<char*>(addresses()[tensor]) + offset, bytes.data(), bytes.size());
}

State::Use::Use(State& state) : state_(state) {
    const int here = count_of_forks() + 1;
    int before = state.user_.load();
    // A run of the parent process that the fork cut off is over.
    do {
        if (before == here)
            throw std::runtime_error(
                "another call is running with this program's state: calls follow each other, and program.copy() has a "
                "state of its own");
    } while (!state.user_.compare_exchange_weak(before, here));
    try {
        state.take_memory();
    } catch (...) {
        state.user_ = 0;
        throw;
    }
}

}  // namespace zeropoint
