"""Does the quick suite find bugs? Puts deliberate ones into the sources, one at a time, and says which test finds each.

``python scripts/mutation.py [--only TEXT] [--native]``: a row for each bug; fails if one is not found. Native bugs need
the build directory of `make setup` and a minute each, and are tried with ``--native``. Sources are put back at the end.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Bug:
    """A wrong piece of source: `text` of `file` becomes `wrong`, and one of `tests` must fail."""

    name: str
    file: str
    text: str
    wrong: str
    tests: str  # paths with spaces between

    @property
    def native(self) -> bool:
        return self.file.startswith("native/")


BUGS = (
    Bug(
        "qparams: zero point not clamped to the range",
        "src/zeropoint/numerics/qparams.py",
        ".clamp(qmin, qmax).to(torch.int64)",
        ".to(torch.int64)",
        "tests/numerics/test_qparams_oracle.py tests/observers/test_minmax_oracle.py",
    ),
    Bug(
        "qparams: symmetric scale from the upper side alone",
        "src/zeropoint/numerics/qparams.py",
        "torch.maximum(torch.maximum(-low, high) / (steps / 2), eps)",
        "torch.maximum(high / (steps / 2), eps)",
        "tests/numerics/test_qparams_oracle.py tests/observers/test_minmax_oracle.py",
    ),
    Bug(
        "observers: merge keeps the smaller maximum",
        "src/zeropoint/observers/minmax.py",
        "\n        torch.maximum(self.max_val, other.max_val.to(self.max_val), out=self.max_val)",
        "\n        torch.minimum(self.max_val, other.max_val.to(self.max_val), out=self.max_val)",
        "tests/observers/test_minmax_oracle.py tests/observers/test_state.py tests/test_docs.py",
    ),
    Bug(
        "batch norm: groups of a transposed convolution share factors",
        "src/zeropoint/nn/qat/trained.py",
        "factor.reshape(transposed_groups, 1, -1,",
        "factor.flip(0).reshape(transposed_groups, 1, -1,",
        "tests/eager/test_fuse.py tests/graph/workflow/test_training.py",
    ),
    Bug(
        "batch norm: folded into a layer that others read",
        "src/zeropoint/graph/passes/fold_batch_norm.py",
        "not record.folds_batch_norm or len(layer.users) != 1:",
        "not record.folds_batch_norm:",
        "tests/graph/workflow/test_shared_results.py",
    ),
    Bug(
        "fusing: modules in different modes are fused",
        "src/zeropoint/eager/fuse.py",
        "if len({m.training for m in modules if m.state_dict()}) > 1:",
        "if len({m.training for m in modules if m.state_dict()}) > 2:",
        "tests/eager/test_fuse.py",
    ),
    Bug(
        "annotation: relu fused into a layer that others read",
        "src/zeropoint/operators/choice.py",
        "if not operator.relu or len(node.users) != 1:",
        "if not operator.relu:",
        "tests/graph/workflow/test_shared_results.py",
    ),
    Bug(
        "lowering: padded with 0 instead of the zero point",
        "src/zeropoint/operators/indexing.py",
        'q, a["pad"], s.zero_point)',
        'q, a["pad"], 0)',
        "tests/graph/workflow/test_shared_results.py",
    ),
    Bug(
        "compiler: a table folded into a layer that others read",
        "src/zeropoint/compiler/fusion.py",
        "readers[str(step.inputs[0])] == 1 and _absorb",
        "_absorb",
        "tests/graph/workflow/test_shared_results.py",
    ),
    Bug(
        "kernel: requantization without the bias of the zero points",
        "native/kernels/gemm/epilogue.h",
        "V::to_float(V::add(V::load_int(acc + i * V::W), bias[i]))",
        "V::to_float(V::load_int(acc + i * V::W))",
        "tests/native",
    ),
    Bug(
        "kernel: quantize rounds down",
        "native/kernels/quantize/template.h",
        "return V::to_int(V::clamp(V::add(V::round(V::mul(x, inv)), zero_point), r.lo, r.hi));",
        "return V::to_int(V::clamp(V::add(V::sub(V::round(V::mul(x, inv)), V::set(1.0f)), zero_point), r.lo, r.hi));",
        "tests/native tests/ops",
    ),
    Bug(
        "kernel: a pool forgets the fourth input",
        "native/kernels/max_pool/template.h",
        "if (N > 3) m = two(m, d[i]);",
        "if (N > 4) m = two(m, d[i]);",
        "tests/native tests/tensor/test_pooling.py",
    ),
    Bug(
        "dynamic quantization: zero point from the other side",
        "native/operators/qparams.cpp",
        "low_error < high_error ? from_low : from_high",
        "low_error < high_error ? from_high : from_low",
        "tests/numerics/test_qparams_oracle.py",
    ),
    Bug(
        "arena: values that are used at the same time overlap",
        "native/engine/arena.cpp",
        "offset = std::max(offset, o.offset + o.bytes);",
        "offset = std::max(offset, o.offset + o.bytes / 2);",
        "tests/runtime tests/compiler",
    ),
    Bug(
        "file: bytes that belong to no tensor are taken",
        "native/engine/container.cpp",
        "if (until != room) fail(",
        "if (until > room) fail(",
        "tests/runtime",
    ),
)


def run_tests(paths: str) -> str:
    """The first test of the quick suite that fails, or nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not thorough",
               "--hypothesis-profile=quick", *paths.split()]  # fmt: skip
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"pytest ended with {result.returncode}:\n{(result.stdout + result.stderr)[-2000:]}")
    return failed.group(1)


def build() -> None:
    """Compile the native module where set-up did, and put it where Python finds it."""
    caches = sorted(ROOT.glob("build/cp*/CMakeCache.txt"))
    if not caches:
        raise SystemExit("mutation: no build directory of set-up: run 'make setup' first")
    subprocess.run(["cmake", "--build", caches[-1].parent, "--target", "_native"], check=True, capture_output=True)
    found = subprocess.run(
        [sys.executable, "-c", "from zeropoint import _native; print(_native.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    target = Path(found.stdout.strip())
    made = target.with_suffix(".new")  # renamed into place: a process may have the old one open
    shutil.copy(caches[-1].parent / target.name, made)
    made.replace(target)


def try_bug(bug: Bug) -> str:
    """The test that finds the bug, or nothing."""
    path = ROOT / bug.file
    right = path.read_text()
    if right.count(bug.text) != 1:
        raise SystemExit(f"mutation: {bug.file} has {right.count(bug.text)} times {bug.text!r}; it must be once")
    try:
        path.write_text(right.replace(bug.text, bug.wrong))
        if bug.native:
            build()
        return run_tests(bug.tests)
    finally:
        path.write_text(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    parser.add_argument("--native", action="store_true", help="also bugs of native/, which are compiled")
    arguments = parser.parse_args()
    chosen = [bug for bug in BUGS if arguments.only in bug.name and (arguments.native or not bug.native)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutation: stopped"))  # `finally` puts the sources back
    missed = 0
    try:
        for bug in chosen:
            finder = try_bug(bug)
            missed += not finder
            print(f"| {bug.name} | {finder or 'NOT FOUND'} |", flush=True)
    finally:
        if any(bug.native for bug in chosen):
            build()
    print(f"{len(chosen) - missed} of {len(chosen)} bugs found, {len(BUGS) - len(chosen)} not tried")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
