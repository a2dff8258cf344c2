#include "engine/state.h"

#include <cstring>
#include <stdexcept>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace zeropoint {
namespace {

std::atomic<int> g_forks{0};

}  // namespace

int count_of_forks() {
#if defined(__unix__) || defined(__APPLE__)
    static const int once = pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1); });
    (void)once;
#endif
    return g_forks.load(std::memory_order_relaxed);
}

State::State(const std::vector<StateTensor>& tensors) : tensors_(tensors) {
    count_of_forks();
    for (const StateTensor& tensor : tensors) {
        memory_.emplace_back(static_cast<size_t>(std::max<int64_t>(tensor.bytes(), 1)), false);
        addresses_.push_back(memory_.back().data());
    }
    fill();
}

void State::fill() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const size_t bytes = static_cast<size_t>(tensors_[i].bytes());
        if (tensors_[i].initial == nullptr)
            std::memset(addresses_[i], 0, bytes);
        else
            std::memcpy(addresses_[i], tensors_[i].initial->data, bytes);
    }
}

void State::reset() {
    const Use use(*this);
    fill();
}

State::Use::Use(State& state) : state_(state) {
    const int here = count_of_forks() + 1;
    int before = state.user_.load();
    // A run of the parent process that the fork cut off is over.
    while (before != here)
        if (state.user_.compare_exchange_weak(before, here)) return;
    throw std::runtime_error(
        "another call is running with this program's state: calls follow each other, and program.copy() has a state of"
        " its own");
}

}  // namespace zeropoint
