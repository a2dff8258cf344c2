// Tables of embeddings, quantized row by row (kernels/embedding/embedding.h has the format), and lookups in them.
#pragma once

#include "kernels/embedding/embedding.h"

#include <string>

namespace zeropoint {

// Integers as they come from the caller.
struct IndexArray {
    const void* data = nullptr;
    bool wide = true;  // int64, or int32
    int64_t count = 0;

    int64_t operator[](int64_t i) const {
        return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    }
};

struct EmbeddingTensor {
    const uint8_t* table = nullptr;
    int64_t rows = 0, columns = 0;
    int bits = 8;
    float* y = nullptr;  // bags x columns
};

struct Bags {
    IndexArray indices;
    IndexArray offsets;  // where each bag begins
    bool cut = false;    // by the offsets, or into bags of `length` indices
    int64_t length = 1;
    bool last = false;               // the last offset is the number of indices and begins no bag
    IndexArray mapping;              // int32: the row of an index, -1 if it was pruned; data nullptr: the index itself
    const float* weights = nullptr;  // one for each index
    BagMode mode = BagMode::sum;
};

// What each bag adds up to. Throws std::out_of_range for an index that has no row and std::invalid_argument for
// offsets that do not cut the indices into bags; `op` is the name in the message.
void embedding_bags(const std::string& op, const EmbeddingTensor& t, const Bags& bags);

// Every row as float32.
void embedding_unpack(const EmbeddingTensor& t);

struct RowRanges {
    const float* given = nullptr;  // rows x (min, max); nullptr: each row's own
    bool least_loss = false;       // search for the range that loses least
    int bins = 200;
    float ratio = 0.16f;
};

// Rows of float32 to rows of the table. Returns the first row that has no finite scale and bias, or -1.
int64_t embedding_pack(const float* x, int64_t rows, int64_t columns, int bits, const RowRanges& ranges,
                       uint8_t* table);

}  // namespace zeropoint
