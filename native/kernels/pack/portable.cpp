#include "kernels/pack/template.h"

namespace zeropoint {
namespace {

struct NoBulk {
    static int64_t pack4(const uint8_t*, uint8_t*, int64_t) { return 0; }
    static int64_t pack2(const uint8_t*, uint8_t*, int64_t) { return 0; }
    static int64_t unpack4(const uint8_t*, uint8_t*, int64_t) { return 0; }
    static int64_t unpack2(const uint8_t*, uint8_t*, int64_t) { return 0; }
};

}  // namespace

void pack_portable(const PackArgs& a, int64_t begin, int64_t end) { pack_with<NoBulk>(a, begin, end); }
void unpack_portable(const PackArgs& a, int64_t begin, int64_t end) { unpack_with<NoBulk>(a, begin, end); }

}  // namespace zeropoint
