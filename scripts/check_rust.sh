#!/usr/bin/env bash
# check_rust.sh: tests the crate of bindings/rust against the C library of this tree: its own tests, and the bytes of its
# example on the program files of the tests. Needs cargo, and no crates. PYTHON names the interpreter whose cmake is used.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || { echo "rust: NOT RUN: cargo not found" >&2; exit 1; }
ZEROPOINT_DIR=$(scripts/install_c_api.sh build/c_api)
export ZEROPOINT_DIR CARGO_TARGET_DIR=$PWD/build/rust LD_LIBRARY_PATH=$ZEROPOINT_DIR/lib
cargo test --quiet --offline --locked --manifest-path bindings/rust/Cargo.toml
cargo build --quiet --offline --locked --release --examples --manifest-path bindings/rust/Cargo.toml
echo "rust: $(scripts/check_example.sh build/rust build/rust/release/examples/run)"
