#include "cpu/decimal.h"

#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>
#include <string>

namespace zeropoint {

bool read_decimal(const char* first, const char* last, double& value) {
#if defined(__cpp_lib_to_chars)
    if (std::from_chars(first, last, value).ec != std::errc()) return false;
#else  // LLVM's standard library before 20
    std::istringstream text(std::string(first, last));
    text.imbue(std::locale::classic());
    text >> value;
#endif
    return std::isfinite(value);
}

}  // namespace zeropoint
