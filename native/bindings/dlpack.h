// DLPack's exchange table (version 1.3): how an array library shows its arrays without a call into Python. The
// structures are those of the standard, https://dmlc.github.io/dlpack, declared here because it is all we need of it.
#pragma once

#include "bindings/bindings.h"
#include "engine/tensor.h"

namespace zeropoint {

struct ExchangedTensor {
    void* data;
    int32_t device, device_number;
    int32_t axes;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *sizes, *strides;  // in elements
    uint64_t offset;           // in bytes

    bool is_on_cpu() const { return device == 1; }
    bool has_type(ElementType type) const;
};

// What a library that has such a table can do. Functions give 0, or set a Python error.
struct Exchange {
    uint32_t major, minor;
    const Exchange* earlier;
    void *allocate, *own, *to_object;                  // functions that are not needed here
    int (*look)(void* object, ExchangedTensor* seen);  // what it sees is valid as long as the object
    void* stream;
};

constexpr const char* kExchangeAttribute = "__dlpack_c_exchange_api__";

// The table of a class of arrays; null if it has none of its own. Subclasses are asked by other means: they may have no
// memory behind them.
const Exchange* exchange_of(PyTypeObject* type);

}  // namespace zeropoint
