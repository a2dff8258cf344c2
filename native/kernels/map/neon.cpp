#include "kernels/map/template.h"

namespace zeropoint {

MapLoops map_neon() { return {operation_of, conversion_of}; }

}  // namespace zeropoint
