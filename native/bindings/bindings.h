// What the files of bindings/ share.
#pragma once

#include "bindings/python_lock.h"

#include <nanobind/nanobind.h>

#include <cstdint>

namespace zeropoint {

namespace nb = nanobind;

// Tensors cross as addresses: the Python side has checked them.
using Address = uintptr_t;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

void bind_embedding(nb::module_& m);
void bind_elementwise(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_floats(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_recurrent(nb::module_& m);
void bind_norms(nb::module_& m);
void bind_weight_only(nb::module_& m);

}  // namespace zeropoint
