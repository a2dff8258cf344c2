"""Run the oracles and write what became of each case: ``python -m tests.oracles.run [names] -o oracles.json``.

Names are parts of those of operators or examples. The cases of an operator run in a process of their own with a limit
of CPU time for each; if it dies, another goes on with the next case. The file is written after each operator: a run
that was stopped goes on with ``--more``.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["OMP_NUM_THREADS"] = "1"

import torch

from zeropoint.atomic_file import replacing

from .database import Call, Case, cases_of, operators_and_examples
from .examine import VERDICTS, examine

_SHOWN = ("internal", "wrong")
# Wrong results that are counted and shown, and for which the command does not fail, with their causes.
KNOWN = {
    "nn_functional_local_response_norm": "torch.export takes a free size for more than zero: an early return is lost",
    "nn_functional_interpolate_linear": "an infinity becomes NaN along its line: docs/numerics.md",
    "nn_functional_interpolate_bicubic": "an infinity becomes NaN along its lines: docs/numerics.md",
    "nn_functional_interpolate_trilinear": "an infinity becomes NaN along its lines: docs/numerics.md",
    "nn_functional_upsample_bilinear": "an infinity becomes NaN along its lines: docs/numerics.md",
}
_WAITING = 600  # seconds without a result until a process is ended that does not even take CPU time


def warm_up() -> None:
    """What the first capture of a process takes seconds for; processes that are forked have it."""
    examine(Case("warm-up", "free", "float32", 0), Call(torch.relu, (torch.ones(2, 3),), {}))


def results_of(name: str, samples: int, seconds: float) -> list[dict[str, Any]]:
    """What became of the cases of an operator."""
    results: list[dict[str, Any]] = []
    while True:
        fork = multiprocessing.get_context("fork")
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=_send, args=(sender, name, samples, seconds, len(results)))
        process.start()
        sender.close()
        current: dict[str, Any] | None = None
        try:
            while receiver.poll(_WAITING):
                said = receiver.recv()
                if said is None:
                    return results
                if "verdict" in said:
                    results.append(said)
                    current = None
                else:
                    current = said
        except EOFError:
            process.join()
        finally:
            process.kill()
            process.join()
        if current is None:  # before its first case, or between two: it would do so again
            unknown = {"name": name, "form": "", "dtype": "", "sample": 0, "captured": False, "compiled": False}
            return [*results, {**unknown, "verdict": "internal", "why": _end(process.exitcode, seconds)}]
        results.append({**current, "captured": True, "verdict": "internal", "why": _end(process.exitcode, seconds)})


def _end(code: int | None, seconds: float) -> str:
    limited = code in (-signal.SIGXCPU, -signal.SIGKILL)
    return f"not done after {seconds:g} s" if limited else f"the process ended with {code}"


def _send(sender: Any, name: str, samples: int, seconds: float, done: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # PyTorch describes captures that fail
    for number, (case, call) in enumerate(cases_of(name, samples)):
        if number < done:
            continue
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), most))
        sender.send({**vars(case), "compiled": False})
        sender.send(examine(case, call))
    sender.send(None)
    sender.close()


def totals(results: list[dict[str, Any]]) -> dict[str, int]:
    """How many cases there are of each verdict; those that are left out are no cases."""
    counted = [result for result in results if result["verdict"] != "left out"]
    verdicts = Counter(result["verdict"] for result in counted)
    reached = {what: sum(result[what] for result in counted) for what in ("captured", "compiled")}
    return {"cases": len(counted), **reached, **{v: verdicts[v] for v in VERDICTS if v != "left out"}}


def table(results: list[dict[str, Any]]) -> str:
    """The totals of each form, as a few lines."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault(f"{result['form']} {result['dtype']}", []).append(result)
    rows = [(group, totals(found)) for group, found in groups.items()] + [("all", totals(results))]
    heads = list(rows[-1][1])
    lines = [f"{'':20}" + "".join(f"{head:>14}" for head in heads)]
    return "\n".join([*lines, *(f"{group:20}" + "".join(f"{row[head]:>14}" for head in heads) for group, row in rows)])


def line(result: dict[str, Any]) -> str:
    key = Case(*(result[part] for part in ("name", "form", "dtype", "sample"))).key
    cause = f" (known: {KNOWN[result['name']]})" if result["name"] in KNOWN else ""
    return f"{result['verdict']}: {key}: {result.get('why', '')}{cause}"


def main(arguments: list[str] | None = None) -> int:
    """The command; it fails if a result is wrong that is not `KNOWN`, or an error is one of the code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names; all without any")
    parser.add_argument("-o", "--output", type=Path, help="JSON with a result for each case")
    parser.add_argument("--samples", type=int, default=2, help="of each operator, dtype and form")
    parser.add_argument("--some", type=int, help="so many operators and examples, by chance")
    parser.add_argument("--seed", type=int, default=37, help="of that chance")
    parser.add_argument("--seconds", type=float, default=60, help="limit of a case, of CPU time")
    parser.add_argument("--more", action="store_true", help="run only what the output file has no result for")
    options = parser.parse_args(arguments)
    wanted = [
        name
        for name in operators_and_examples(options.some, options.seed)
        if not options.names or any(part in name for part in options.names)
    ]
    results: list[dict[str, Any]] = []
    if options.more and options.output.exists():
        results = json.loads(options.output.read_text())["results"]
    known = {result["name"] for result in results}
    torch.set_num_threads(1)
    warm_up()
    for number, name in enumerate(wanted, 1):
        if name in known:
            continue
        found = results_of(name, options.samples, options.seconds)
        results += found
        for result in found:
            if result["verdict"] in _SHOWN:
                print(f"[{number}/{len(wanted)}] {line(result)}", flush=True)
        if options.output is not None:
            with replacing(options.output) as new:
                new.write_text(json.dumps({"totals": totals(results), "results": results}, indent=1))
    print(table(results))
    return int(any(result["verdict"] in _SHOWN and result["name"] not in KNOWN for result in results))


if __name__ == "__main__":
    sys.exit(main())
