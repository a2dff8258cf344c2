# Builds for 64-bit ARM on another machine: cmake -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake. What it builds runs in
# qemu, whose "max" CPU has every instruction that the kernels know (scripts/check_arm.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
find_program(qemu_aarch64 NAMES qemu-aarch64-static qemu-aarch64)
if(qemu_aarch64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu_aarch64} -cpu max)
endif()
