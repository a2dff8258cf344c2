// A few values that are made once and kept: what follows from shapes and scales, of which most layers see one or two.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <utility>

namespace zeropoint {

// Holds the values of the first keys it is asked for; none is ever given up, so readers need no lock. Key has ==.
template <class Key, class Value>
class SmallCache {
public:
    SmallCache() = default;
    SmallCache(const SmallCache&) = delete;
    SmallCache& operator=(const SmallCache&) = delete;
    ~SmallCache() { clear(); }

    // The value of a key, from make() if it is new; null if it is new and there is no room.
    template <class Make>
    const Value* get(const Key& key, const Make& make) const {
        for (std::atomic<const Kept*>& slot : slots_) {
            const Kept* kept = slot.load(std::memory_order_acquire);
            if (kept == nullptr) {
                auto made = std::make_unique<const Kept>(Kept{key, make()});
                // Somebody else may have been faster, with this key or another.
                if (slot.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel))
                    return &made.release()->value;
            }
            if (kept->key == key) return &kept->value;
        }
        return nullptr;
    }

    // No reader may be active.
    void clear() {
        for (std::atomic<const Kept*>& slot : slots_) delete slot.exchange(nullptr);
    }

private:
    struct Kept {
        Key key;
        Value value;
    };
    mutable std::array<std::atomic<const Kept*>, 4> slots_{};
};

}  // namespace zeropoint
