// Numbers as text, the same in every locale.
#pragma once

namespace zeropoint {

// The double nearest to the decimal number [first, last), in JSON's notation; false if it is too large.
bool read_decimal(const char* first, const char* last, double& value);

}  // namespace zeropoint
