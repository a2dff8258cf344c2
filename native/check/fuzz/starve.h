// Programs without memory: requests are refused one by one, wherever they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zeropoint::check {

// The number of files with something wrong. For each file: load it, plan it for a second shape, run it on one thread,
// on two and on three, plan and run it with the portable kernels, ask for its bytes. That is repeated as often as it
// asks for memory, and each time another request fails; for `most` of them, spread evenly, if there are more. Then
// std::bad_alloc must come out, and nothing else; the program that was loaded must go on and give what it gave before;
// and no memory may be lost.
int check_starved(const std::vector<std::string>& paths, int64_t most);

}  // namespace zeropoint::check
