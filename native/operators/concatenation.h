// Tensors of bytes one beside the other: what cat does to memory.
#pragma once

#include <cstdint>
#include <vector>

namespace zeropoint {

struct JoinedPiece {
    const uint8_t* x = nullptr;      // rows x length, contiguous
    const uint8_t* table = nullptr;  // 256 bytes that each byte goes through, or null
    int64_t length = 0;
};

// Each of the `rows` rows of y is the pieces' rows one after the other. Only bytes can have a table.
void join(const std::vector<JoinedPiece>& pieces, int64_t rows, uint8_t* y);

}  // namespace zeropoint
