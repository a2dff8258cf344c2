// Counts what this process takes from operator new, which is all memory that the native core takes.
#pragma once

#include <cstdint>

namespace zeropoint::check {

struct Allocations {
    int64_t live = 0;     // bytes now
    int64_t peak = 0;     // most at one time since the last reset
    int64_t largest = 0;  // of one request since then, granted or not
};

Allocations allocations();
// Peak and largest begin anew.
void reset_allocations();
// Requests that would make more than this live are refused with std::bad_alloc; they count as `largest` all the same.
void limit_allocations(int64_t bytes);
// Of the requests from now on, by any thread, the one of this number fails; none if it is 0.
void fail_request(int64_t number);
// Requests since then.
int64_t requests();
// New memory is filled with this byte, so that what reads it before it is written differs from run to run.
void fill_allocations(uint8_t byte);

}  // namespace zeropoint::check
