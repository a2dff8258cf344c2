#!/usr/bin/env bash
# Tries FUZZ_COUNT wrong program files, made from those of the tests (FUZZ_SEED=1: others with another number). Files that
# are trouble are kept in build/found.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "fuzz: building program_fuzz"
build=$(scripts/build_checks.sh program_fuzz)
"$build/program_fuzz" fuzz tests/golden/programs --count "${FUZZ_COUNT:-1000000}" --seed "${FUZZ_SEED:-1}" \
    --keep build/found
