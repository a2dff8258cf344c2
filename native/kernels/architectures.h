// The lines of the kernel lists that are for another architecture vanish. Include it before a list, with KERNEL
// defined.
#pragma once

#if defined(__x86_64__)
#define X86_KERNEL KERNEL
#else
#define X86_KERNEL(operation, isa)
#endif
#if defined(__aarch64__)
#define ARM_KERNEL KERNEL
#else
#define ARM_KERNEL(operation, isa)
#endif
#if defined(__wasm__)
#define WASM_KERNEL KERNEL
#else
#define WASM_KERNEL(operation, isa)
#endif
