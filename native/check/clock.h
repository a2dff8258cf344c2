#pragma once

#include <chrono>

namespace zeropoint::check {

inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace zeropoint::check
