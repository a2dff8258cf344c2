"""Run architectures and write what became of them: ``python -m tests.zoo.run [names] -o table.json``.

Names are parts of "package/architecture mode". Each runs in a process of its own, with one thread and a limit of CPU
time. The file is written after each: a run that was stopped goes on with ``--more``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
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

import zeropoint
from zeropoint.atomic_file import replacing

from . import packages
from .case import examine
from .table import CASES, Case

_INTERNAL = ("AttributeError", "KeyError", "AssertionError", "IndexError", "RecursionError", "UnboundLocalError")


def chosen(names: list[str]) -> list[Case]:
    """The cases that one of the names is a part of; all without names."""
    return [case for case in CASES if not names or any(name in case.key for name in names)]


def _place(case: Case, names: list[str]) -> int:
    """The first name that is a part of a case: cases run in the order of the names."""
    return next((place for place, name in enumerate(names) if name in case.key), 0)


def run(case: Case, seconds: float, torch_ao: bool = False) -> dict[str, Any]:
    """One case in a process of its own."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(sender, case, seconds, torch_ao))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        problem = {"type": "Crash", "text": f"the process ended with {process.exitcode}", "where": ""}
        if process.exitcode == -signal.SIGXCPU:
            problem = {"type": "Timeout", "text": f"not done after {seconds:g} s", "where": ""}
    finally:
        process.kill()
        process.join()
    return {"name": case.name, "mode": case.mode, "reached": "nothing", "seconds": seconds, "error": problem}


def _send(sender: Any, case: Case, seconds: float, torch_ao: bool) -> None:
    if sys.stderr is not None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    limit = math.ceil(time.process_time() + seconds)  # of this process: others may keep it waiting
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    sender.send(examine(case, torch_ao))
    sender.close()


def totals(results: list[dict[str, Any]]) -> dict[str, int]:
    """How many reached what."""
    reached = Counter(result["reached"] for result in results)
    errors = [result["error"]["type"] for result in results if "error" in result]
    not_captured = sum(error == "CaptureError" for error in errors)
    return {
        "cases": len(results),
        "built": len(results) - reached["nothing"],
        "captured": len(results) - reached["nothing"] - not_captured,
        "quantized": reached["quantized"] + reached["compiled"],
        "compiled": reached["compiled"],
        "equal": sum(bool(result.get("equal")) for result in results),
        "reload_equal": sum(bool(result.get("reloads_equal")) for result in results),
        "internal_errors": sum(error in _INTERNAL for error in errors),
    }


def machine() -> dict[str, Any]:
    """What the cases run on."""
    cpu = zeropoint.cpu_info()
    installed = [name for name in ("torch", "torchvision", "timm", "transformers") if importlib.util.find_spec(name)]
    versions = {name: importlib.metadata.version(name) for name in installed}
    return {"cpu": cpu.brand, "isa": cpu.isa, "versions": versions, "listed": len(CASES)}


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names; all without any")
    parser.add_argument("-o", "--output", type=Path, help="JSON with a result for each case")
    parser.add_argument("--seconds", type=float, default=120, help="limit of a case, of CPU time")
    parser.add_argument("--keep", action="store_true", help="keep results that the output file has for other cases")
    parser.add_argument("--more", action="store_true", help="run only what the output file has no result for")
    parser.add_argument("--torch-ao", action="store_true", help="compare the error with torch.ao's")
    options = parser.parse_args(arguments)
    wanted = sorted(chosen(options.names), key=lambda case: _place(case, options.names))
    cases = [case for case in wanted if packages.absent(case.name) is None]
    left_out = len(wanted) - len(cases)
    if left_out:
        print(f"{left_out} left out: their packages are not installed (make test-zoo installs them)")
    packages.preload({case.name.partition("/")[0] for case in cases})
    results: dict[str, dict[str, Any]] = {}
    if (options.keep or options.more) and options.output.exists():
        results = {f"{r['name']} {r['mode']}": r for r in json.loads(options.output.read_text())["results"]}
    if options.more:
        cases = [case for case in cases if case.key not in results]
    for number, case in enumerate(cases, 1):
        result = results[case.key] = run(case, options.seconds, options.torch_ao)
        print(f"[{number}/{len(cases)}] {_line(result)}", flush=True)
        if options.output is not None:
            every = list(results.values())
            found = {"machine": machine(), "totals": totals(every), "results": every}
            with replacing(options.output) as new:
                new.write_text(json.dumps(found, indent=1))
    print(json.dumps(totals([results[case.key] for case in wanted if case.key in results])))
    return 0


def _line(result: dict[str, Any]) -> str:
    said = f"{result['name']} {result['mode']}: {result['reached']}, {result['seconds']} s"
    if "sqnr" in result:
        said += f", {result['heavy_int8']}/{result['heavy']} int8, {result['sqnr']} dB"
    if result.get("torch_ao_sqnr") is not None:
        said += f" (torch.ao {result['torch_ao_sqnr']} dB, {result.get('torch_ao_int8')} int8)"
    if "equal" in result:
        said += ", equal" if result["equal"] and result.get("reloads_equal") else ", NOT EQUAL"
    error = result.get("error")
    return said + (f", {error['type']} at {error['where']}: {error['text'][:160]}" if error else "")


if __name__ == "__main__":
    sys.exit(main())
