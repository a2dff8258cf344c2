// The formulas of functions.h and template.h, one element at a time.
#include "kernels/map/template.h"

namespace zeropoint {

MapLoops map_reference() { return {operation_of, conversion_of}; }

}  // namespace zeropoint
