"""ONNX's own tests of operators, scored: right, wrong, refused or internal error, and programs with the same bytes.

``python tests/interop/onnx_nodes.py [names] -o nodes.json``. Names are parts of those of tests. Every test is read as
ONNX ships it, and with constants for all inputs but the first, as files of exporters have them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

import zeropoint
from zeropoint.graph.from_qdq import float_model
from zeropoint.graph.workflow import Quantized
from zeropoint.interop.onnx.imported_value import tensor_of

VERDICTS = ("internal", "wrong", "refused", "right")  # from the worst to the best
PROGRAMS = ("equal", "differs", "refused", "internal")
_TRAINING = ("ai.onnx.preview.training",)
_LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
_RANDOM = ("Bernoulli",)  # and Dropout of this name, in training, whose results are those of one generator
_CLOSE = 1e-6  # of the largest value: sums are made in another order
_SECONDS = 120  # until a test is ended that does not end


def node_tests(names: Sequence[str] = ()) -> list[Any]:
    """Those of one operator on tensors: no training, strings, sequences, and no operators that are written out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return [test for test in found if _is_counted(test) and (not names or any(part in test.name for part in names))]


def _is_counted(test: Any) -> bool:
    graph = test.model.graph
    kinds = [value.type for value in (*graph.input, *graph.output)]
    tensors = all(k.HasField("tensor_type") and k.tensor_type.elem_type != TensorProto.STRING for k in kinds)
    nodes = all(n.domain not in _TRAINING and n.op_type not in (*_LOSSES, *_RANDOM) for n in graph.node)
    return tensors and nodes and "_expanded" not in test.name and "training_dropout" not in test.name


def examine(test: Any, programs: bool = True) -> dict[str, Any]:
    """What became of a test: the worst of wrong and internal errors in one of its forms, else the best."""
    found = [_form(test, *form, programs) for form in _forms(test)]
    bad = [each for each in found if each["verdict"] in ("internal", "wrong")]
    best = max(found, key=lambda each: VERDICTS.index(each["verdict"]))
    made = bad[0] if bad else best
    program = next((kind for kind in PROGRAMS[::-1][:1] + PROGRAMS for each in found if each["program"] == kind), "")
    return {"name": test.name, "operator": test.model.graph.node[0].op_type, **made, "program": program}


def _forms(test: Any) -> Iterator[tuple[onnx.ModelProto, list[Any], list[Any]]]:
    inputs, outputs = test.data_sets[0]
    inputs, outputs = ([_array(value) for value in values] for values in (inputs, outputs))
    yield test.model, inputs, outputs
    if len(inputs) > 1:
        model = onnx.ModelProto()
        model.CopyFrom(test.model)
        stored = [value.name for value in model.graph.input][1:]
        model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in zip(stored, inputs[1:]))
        del model.graph.input[1:]
        yield model, inputs[:1], outputs


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _form(test: Any, proto: Any, inputs: list[Any], outputs: list[Any], programs: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.onnx"
        onnx.save(proto, path)
        try:
            tensors = tuple(map(tensor_of, inputs))
            model = zeropoint.from_onnx(path, tensors)
            with torch.no_grad():
                given = model(*tensors)
        except Exception as error:
            return {"verdict": _kind(error), "why": _said(error), "program": ""}
    results = list(given) if isinstance(given, (list, tuple)) else [given]
    for number, (result, expected) in enumerate(zip(results, outputs)):
        why = _difference(result, expected, test)
        if why:
            return {"verdict": "wrong", "why": f"output {number}: {why}", "program": ""}
    if not programs:
        return {"verdict": "right", "why": "", "program": ""}
    try:
        if not isinstance(model, Quantized):  # floats are summed in another order: compared with the same operators
            model = float_model(model, tensors)
            with torch.no_grad():
                given = model(*tensors)
            results = list(given) if isinstance(given, (list, tuple)) else [given]
        made = zeropoint.compile(model, tensors)(*tensors)
    except Exception as error:
        return {"verdict": "right", "why": _said(error), "program": _kind(error)}
    made = [torch.as_tensor(value) for value in (made if isinstance(made, (list, tuple)) else [made])]
    same = all(_same(a, b) for a, b in zip(made, results))
    return {"verdict": "right", "why": "", "program": "equal" if same else "differs"}


def _same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def _kind(error: Exception) -> str:
    refused = isinstance(error, (NotImplementedError, ValueError, TypeError)) and "broken" not in str(error)
    return "refused" if refused else "internal"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _difference(result: Any, expected: Any, test: Any) -> str:
    result, expected = result.detach(), tensor_of(expected)
    if result.dtype != expected.dtype or list(result.shape) != list(expected.shape):
        return f"{result.dtype} {list(result.shape)}, not {expected.dtype} {list(expected.shape)}"
    a, b = result.double().numpy(), expected.double().numpy()
    is_half = expected.dtype in (torch.float16, torch.bfloat16)  # which of the steps inside are rounded is open
    step = 2 * torch.finfo(expected.dtype).eps if is_half else _CLOSE
    least = max(_CLOSE, step * np.nanmax(np.abs(b), initial=0.0, where=np.isfinite(b)))
    if np.allclose(a, b, rtol=test.rtol, atol=max(test.atol, least), equal_nan=True):
        return ""
    return f"off by {np.nanmax(np.abs(a - b)):.3g} of {np.nanmax(np.abs(b)):.3g}"


def totals(results: list[dict[str, Any]]) -> dict[str, int]:
    verdicts = Counter(result["verdict"] for result in results)
    programs = Counter(result["program"] for result in results)
    made = {"tests": len(results), **{verdict: verdicts[verdict] for verdict in VERDICTS[::-1]}}
    return {**made, **{f"programs {kind}": programs[kind] for kind in PROGRAMS}}


def _ended(*_: Any) -> None:
    raise RuntimeError(f"not done after {_SECONDS} s")


def main(arguments: list[str] | None = None) -> int:
    """The command; it fails if a result is wrong or an error is one of the code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names; all without any")
    parser.add_argument("-o", "--output", type=Path, help="JSON with a result for each test")
    parser.add_argument("--some", type=int, help="so many tests, by chance")
    parser.add_argument("--no-programs", action="store_true", help="do not compile")
    options = parser.parse_args(arguments)
    chosen = node_tests(options.names)
    if options.some:
        chosen = random.Random(41).sample(chosen, options.some)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _ended)
    results = []
    for number, test in enumerate(chosen, 1):
        signal.alarm(_SECONDS)
        result = examine(test, not options.no_programs)
        signal.alarm(0)
        results.append(result)
        bad = result["verdict"] in ("internal", "wrong") or result["program"] in ("internal", "differs")
        if bad:
            what = f"{result['verdict']}, program {result['program'] or 'none'}"
            print(f"[{number}/{len(chosen)}] {result['name']}: {what}: {result['why']}", flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps({"totals": totals(results), "results": results}, indent=1))
    print(", ".join(f"{what} {count}" for what, count in totals(results).items()))
    return int(any(result["verdict"] in ("internal", "wrong") for result in results))


if __name__ == "__main__":
    sys.exit(main())
