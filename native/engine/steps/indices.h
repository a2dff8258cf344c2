// Indices that come with the data.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace zeropoint {

// `index` along an axis of `size`, from its end if it is negative and `wraps`; throws if there is no such place.
inline int64_t checked_index(const char* op, int64_t index, int64_t size, bool wraps) {
    if (index < (wraps ? -size : 0) || index >= size)
        throw std::invalid_argument(std::string(op) + ": index " + std::to_string(index) + " is outside an axis of " +
                                    std::to_string(size));
    return index < 0 ? index + size : index;
}

}  // namespace zeropoint
