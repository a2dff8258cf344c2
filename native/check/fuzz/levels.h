// Programs on every instruction set: the same bytes from all, and those that were kept with the program.
#pragma once

#include <string>
#include <vector>

namespace zeropoint::check {

// The number of files with a result that differs. For each file, inputs of several sizes, chosen by chance, run at
// every level that this CPU has, with one thread and with two; what the reference kernels give is right. Where a file
// of the same name that ends in .safetensors lies beside it, its arrays input_00, ... must give its output_00, ... as
// well.
int check_levels(const std::vector<std::string>& paths);

}  // namespace zeropoint::check
