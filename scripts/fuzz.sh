#!/usr/bin/env bash
# Tries FUZZ_COUNT wrong program files, made from those of the tests (FUZZ_SEED=1: others with another number), then for
# FUZZ_SECONDS files that are chosen by what they reach (scripts/cover.sh), where there is clang. Files that are trouble
# are kept in build/found.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "fuzz: building program_fuzz"
build=$(scripts/build_checks.sh program_fuzz)
"$build/program_fuzz" fuzz tests/golden/programs --count "${FUZZ_COUNT:-1000000}" --seed "${FUZZ_SEED:-1}" \
    --keep build/found
if [ "${FUZZ_SECONDS:-60}" -gt 0 ]; then
    # 3: there is no clang, which was said.
    scripts/cover.sh "${FUZZ_SECONDS:-60}" || [ $? -eq 3 ]
fi
