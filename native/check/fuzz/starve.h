// Programs without memory: every request is refused once, wherever it comes from.
#pragma once

#include <string>
#include <vector>

namespace zeropoint::check {

// The number of files with something wrong. For each file: load it, plan it for a second shape, run it on one thread,
// on two and on three, plan and run it with the portable kernels, ask for its bytes. That is repeated as often as it
// asks for memory, and each time another request fails. Then std::bad_alloc must come out, and nothing else; the
// program that was loaded must go on and give what it gave before; and no memory may be lost.
int check_starved(const std::vector<std::string>& paths);

}  // namespace zeropoint::check
