#include "kernels/map/template.h"

namespace zeropoint {

MapLoops map_avx2() { return {operation_of, conversion_of}; }

}  // namespace zeropoint
