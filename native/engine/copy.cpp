#include "engine/copy.h"

#include "cpu/machine.h"
#include "cpu/threads.h"

#include <algorithm>
#include <cstring>

namespace zeropoint {
namespace {

constexpr int64_t kElements = worth_elements(4);
constexpr int64_t kTile = 32;

}  // namespace

StridedCopy::StridedCopy(const Tensor& from, const Tensor& to) : element_(bytes_of(from.type)) {
    std::vector<Axis> axes;
    for (const int64_t d : to.memory_order()) {
        const size_t axis = static_cast<size_t>(d);
        const Axis next{to.sizes[axis], from.strides[axis] * element_, to.strides[axis] * element_};
        if (next.size == 1) continue;
        if (!axes.empty() && axes.back().x == next.size * next.x && axes.back().y == next.size * next.y)
            axes.back() = {axes.back().size * next.size, next.x, next.y};
        else
            axes.push_back(next);
    }
    // Innermost: the axis along which y is written. Beside it: the one along which x is read, if that is another.
    inner_ = {1, element_, element_};
    if (!axes.empty()) {
        inner_ = axes.back();
        axes.pop_back();
    }
    middle_ = {1, 0, 0};
    if (!axes.empty()) {
        auto nearest = axes.end() - 1;
        if (inner_.x != element_)
            for (auto axis = axes.begin(); axis != axes.end(); ++axis)
                if (axis->x == element_) nearest = axis;
        middle_ = *nearest;
        axes.erase(nearest);
    }
    outer_ = std::move(axes);
    for (const Axis& axis : outer_) planes_ *= axis.size;
}

void StridedCopy::start(int64_t plane, int64_t& x, int64_t& y) const {
    x = y = 0;
    for (size_t i = outer_.size(); i-- > 0; plane /= outer_[i].size) {
        const int64_t index = plane % outer_[i].size;
        x += index * outer_[i].x;
        y += index * outer_[i].y;
    }
}

template <class T>
void StridedCopy::rows(const uint8_t* x, uint8_t* y) const {
    const bool straight = inner_.x == element_ && inner_.y == element_;
    const int64_t band = straight ? std::max<int64_t>(1, kElements / inner_.size) : kTile;
    const int64_t bands = (middle_.size + band - 1) / band;
    const int64_t work = std::min(band, middle_.size) * inner_.size;
    parallel_for(planes_ * bands, std::max<int64_t>(1, kElements / work), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
            int64_t x_start = 0, y_start = 0;
            start(task / bands, x_start, y_start);
            const int64_t first = task % bands * band, last = std::min(first + band, middle_.size);
            if (straight) {
                for (int64_t m = first; m < last; ++m)
                    std::memcpy(y + y_start + m * middle_.y, x + x_start + m * middle_.x,
                                static_cast<size_t>(inner_.size * element_));
                continue;
            }
            for (int64_t tile = 0; tile < inner_.size; tile += kTile) {
                const int64_t until = std::min(tile + kTile, inner_.size);
                for (int64_t m = first; m < last; ++m) {
                    const uint8_t* from = x + x_start + m * middle_.x;
                    uint8_t* to = y + y_start + m * middle_.y;
                    for (int64_t i = tile; i < until; ++i)
                        std::memcpy(to + i * inner_.y, from + i * inner_.x, sizeof(T));
                }
            }
        }
    });
}

void StridedCopy::run(const void* from, void* to) const {
    const uint8_t* x = static_cast<const uint8_t*>(from);
    uint8_t* y = static_cast<uint8_t*>(to);
    switch (element_) {
        case 1: return rows<uint8_t>(x, y);
        case 2: return rows<uint16_t>(x, y);
        case 4: return rows<uint32_t>(x, y);
        default: return rows<uint64_t>(x, y);
    }
}

}  // namespace zeropoint
