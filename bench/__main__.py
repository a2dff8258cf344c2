"""``python -m bench [suite ...] [--only TEXT] [--without NAMES] [--seconds S] [--least-rounds N]
[--samples N] [--threads N] [--isa LEVEL] [--scaling] [--brief] [--realtime] [--json FILE]``: run the benchmarks, print
ratios."""

from __future__ import annotations

import contextlib
import sys

from bench.held import LEVELS, NOT_HELD, hold

HELD = hold(sys.argv)  # before anybody looks at the CPU

with contextlib.suppress(ImportError):  # before zeropoint and torch: loading it after them ended the process here
    import onnxruntime  # noqa: F401

import argparse
import importlib
import pathlib
import warnings

import zeropoint
from zeropoint.interop.peers import keep_from_masked_amx

AMX = keep_from_masked_amx()  # before torch is there

import torch

from bench import report
from bench.timing import How, Result
from zeropoint.cpu import peaks
from zeropoint.interop.peer_process import priority
from zeropoint.interop.tasks import first_line

SUITES = (
    "affine",
    "qtensor",
    "observers",
    "layers",
    "elementwise",
    "norms",
    "recurrent",
    "embedding",
    "weight_only",
    "generation",
    "eager",
    "graph",
    "engine",
    "scaling",
    "script",
)
# These need packages (`make bench-architectures`, `make bench-pretrained`), or minutes.
ON_REQUEST = ("architectures", "pretrained", "onnx_files", "torch_compile", "beginnings")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "suite", nargs="*", choices=[*SUITES, *ON_REQUEST, []], default=[], help=f"default: all of {', '.join(SUITES)}"
    )
    parser.add_argument(
        "--brief", action="store_true", help="one call of each, one row of those that are alike: that they run"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row")
    parser.add_argument("--least-rounds", type=int, help="of each row, however long they take; default: the row's own")
    parser.add_argument("--threads", type=int, default=2, help="for everybody")
    parser.add_argument("--only", default="", help="rows whose name contains this, or one of these: MLP|GRU")
    parser.add_argument(
        "--without",
        default="",
        help="peers to leave out, with commas; slow: those that take minutes to start; peers: all with own processes",
    )
    parser.add_argument(
        "--isa",
        choices=LEVELS,
        help=f"hold everybody to this; without {' and '.join(NOT_HELD)}, which cannot be",
    )
    parser.add_argument(
        "--scaling", action="store_true", help="whole models: also with one thread, for the model of threads"
    )
    parser.add_argument("--samples", type=int, help="that whole models are calibrated on, at most")
    parser.add_argument(
        "--realtime", action="store_true", help="engine and scaling: turns before all else on the machine (needs root)"
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write the results here")
    arguments = parser.parse_args()
    if arguments.brief:
        arguments.seconds, arguments.least_rounds, arguments.samples = 0.0, 1, 1

    warnings.filterwarnings("ignore")  # the peers' deprecation is why this project exists
    torch.set_num_threads(arguments.threads)
    zeropoint.set_num_threads(arguments.threads)
    with priority(arguments.realtime):
        peaks()  # measured here
    print(report.header(), flush=True)
    if AMX:
        print(AMX, flush=True)
    without = [name for name in arguments.without.split(",") if name]
    if HELD:
        print(f"held to {HELD}, without {' and '.join(NOT_HELD)}, which cannot be", flush=True)
        without += NOT_HELD
    how = How(
        without, arguments.seconds, arguments.least_rounds, arguments.realtime, arguments.threads, arguments.samples,
        arguments.scaling,
    )  # fmt: skip
    results: list[Result] = []
    failures = 0
    alike: set[str] = set()
    for name in arguments.suite or SUITES:
        print(f"\n{name}", flush=True)
        before = len(results)
        for row in importlib.import_module(f"bench.{name}").rows():
            if not any(part in row.name for part in arguments.only.split("|")):
                continue
            if arguments.brief and f"{name}: {row.alike}" in alike:
                continue
            alike |= {f"{name}: {row.alike}"} if row.alike else set()
            try:
                results.append(row.measure(how))
            except Exception as error:  # the next row may do better
                failures += 1
                print(f"{row.name:<44} FAILED: {type(error).__name__}: {first_line(error)}", flush=True)
                continue
            failures += bool(results[-1].failed)
            print(report.line(results[-1]), flush=True)
            if arguments.json:  # after each row: what was measured is kept if the rest is not
                arguments.json.write_text(report.as_json(results))
        if any("contenders" in r.facts for r in results[before:]):
            print(report.summary(results[before:]), flush=True)
    missed = [(r.row.name, peer) for r in results for peer in r.peers if r.verdict(peer) == "missed"]
    print(f"\n{len(missed)} of {sum(len(r.peers) for r in results)} ratios below what was asked, beyond noise")
    if failures:
        print(f"{failures} rows failed")
        sys.exit(1)


if __name__ == "__main__":
    main()
