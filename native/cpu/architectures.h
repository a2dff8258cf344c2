// The architecture that is compiled for, and the lines of the kernel lists that are for it: the others vanish. Include
// it before a list, with KERNEL defined.
#pragma once

#if defined(__x86_64__)
#define X86_KERNEL KERNEL
constexpr bool kX86 = true;
#else
#define X86_KERNEL(operation, isa)
constexpr bool kX86 = false;
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
