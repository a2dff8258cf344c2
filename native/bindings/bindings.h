// What the files of bindings/ share.
#pragma once

#include "bindings/python_lock.h"

#include <nanobind/nanobind.h>

#include <cstdint>
#include <type_traits>

namespace zeropoint {

namespace nb = nanobind;

// Tensors cross as addresses: the Python side has checked them.
using Address = uintptr_t;

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

// What Python passes for a parameter: the address for a pointer, the number for an enumeration.
template <class P>
using Passed = std::conditional_t<std::is_pointer_v<P>, Address, std::conditional_t<std::is_enum_v<P>, int, P>>;

template <class P>
P received(Passed<P> value) {
    if constexpr (std::is_pointer_v<P>)
        return reinterpret_cast<P>(value);
    else if constexpr (std::is_enum_v<P>)
        return static_cast<P>(value);
    else
        return value;
}

template <auto function>
struct Called;
template <class R, class... P, R (*function)(P...)>
struct Called<function> {
    static R from_python(Passed<P>... values) { return function(received<P>(values)...); }
};

// A function of addresses and numbers, which runs without Python's lock.
template <auto function>
void define(nb::module_& m, const char* name) {
    m.def(name, &Called<function>::from_python, nb::call_guard<Unlocked>());
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
