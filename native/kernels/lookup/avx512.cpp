#include "kernels/lookup/lookup.h"
#include "kernels/lookup/rows_avx512.h"

namespace zeropoint {

void lookup_avx512(const LookupArgs& a, int64_t begin, int64_t end) {
    const LookupRows rows(a.table);
    int64_t i = begin;
    for (; i + 64 <= end; i += 64) _mm512_storeu_si512(a.y + i, rows(_mm512_loadu_si512(a.x + i)));
    if (i < end) {
        const __mmask64 rest = (__mmask64{1} << (end - i)) - 1;
        _mm512_mask_storeu_epi8(a.y + i, rest, rows(_mm512_maskz_loadu_epi8(rest, a.x + i)));
    }
}

}  // namespace zeropoint
