#include "kernels/map/template.h"

namespace zeropoint {

MapLoops map_portable() { return {operation_of, conversion_of}; }

}  // namespace zeropoint
