"""The Open Inference Protocol, version 2, as KServe and Triton speak it: JSON to arrays and back, for one program."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from zeropoint.runtime import Program

DATATYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64"}
DATATYPES |= {f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)}
KINDS = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}  # what JSON may have for an array of a kind


class OpenInference:
    """A program under a name.

    Args:
        name: of the model, in addresses and answers.
    """

    def __init__(self, program: Program, name: str) -> None:
        self.program, self.name = program, name

    def metadata(self) -> dict[str, Any]:
        """What the model takes and gives; a free size is -1."""
        inputs = [_tensor(name, dtype, shape) for name, dtype, shape in self.program.inputs]
        outputs = [_tensor(name, dtype, [-1] * len(shape)) for name, dtype, shape in self.program.outputs]
        return {"name": self.name, "platform": "zeropoint", "inputs": inputs, "outputs": outputs}

    def infer(self, body: bytes) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            ValueError: if the request is wrong, in words for the client.
        """
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the body is no JSON: {error}"[:300]) from None
        if not isinstance(request, dict) or not isinstance(request.get("inputs"), list):
            raise ValueError('the body must be an object with "inputs", a list')
        named = dict(map(self._array, request["inputs"]))
        names = [name for name, _, _ in self.program.inputs]
        if sorted(named) != sorted(names) or len(named) != len(request["inputs"]):
            raise ValueError(f"the model takes the inputs {', '.join(names)}, each once")
        results = list(_leaves(self.program(**named)))
        made = [_result(row[0], array) for row, array in zip(self.program.outputs, results, strict=True)]
        answer = {"model_name": self.name, "outputs": _chosen(made, request.get("outputs"))}
        return answer | ({"id": str(request["id"])[:200]} if "id" in request else {})

    def _array(self, given: Any) -> tuple[str, np.ndarray]:
        if not isinstance(given, dict) or not {"name", "shape", "datatype", "data"} <= given.keys():
            raise ValueError("an input has name, shape, datatype and data")
        types = {name: dtype for name, dtype, _ in self.program.inputs}
        name, shape = given["name"], given["shape"]
        if not isinstance(name, str) or name not in types:
            raise ValueError(f"the model has no input {str(name)[:60]!r}, only {', '.join(types)}")
        dtype = types[name]
        if given["datatype"] != DATATYPES.get(dtype):
            raise ValueError(
                f"input {name} has the datatype {DATATYPES.get(dtype)}, got {str(given['datatype'])[:60]!r}"
            )
        if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 31 for n in shape):
            raise ValueError(f"input {name}: shape is a list of sizes, got {str(shape)[:60]}")
        values = _flat(name, given["data"])
        count = math.prod(shape)
        if len(values) != count:
            raise ValueError(f"input {name}: shape {shape} has {count} values, data has {len(values)}"[:300])
        return name, _as(name, values, np.dtype(dtype)).reshape(shape)


def _flat(name: str, data: Any) -> list[Any]:
    """The values of a list, or of lists of lists, one length in each depth."""
    if not isinstance(data, list):
        raise ValueError(f"input {name}: data is a list")
    while data and isinstance(data[0], list):
        if {type(part) for part in data} != {list} or len(set(map(len, data))) > 1:
            raise ValueError(f"input {name}: data has lists of different lengths")
        data = [value for part in data for value in part]
    return data


def _as(name: str, values: list[Any], dtype: np.dtype) -> np.ndarray:
    """Values of JSON in the dtype of an input; none is rounded to an integer or cut."""
    kinds = {kind.__name__ for kind in set(map(type, values)) - KINDS[dtype.kind]}
    if kinds:  # before numpy sees them: it would make texts as long as the longest
        raise ValueError(f"input {name}: data of {DATATYPES[dtype.name]} was expected, got {', '.join(sorted(kinds))}")
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise ValueError(f"input {name}: a value is not between {limits.min} and {limits.max}")
    try:
        with np.errstate(over="ignore"):
            made = np.array(values, dtype)
    except OverflowError:
        made = np.array([np.inf])
    if dtype.kind == "f" and not np.isfinite(made).all():
        raise ValueError(f"input {name}: a value is not a finite number of {DATATYPES[dtype.name]}")
    return made


def _tensor(name: str, dtype: str, shape: Any) -> dict[str, Any]:
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    return {"name": name, "datatype": DATATYPES.get(dtype, dtype), "shape": sizes}


def _leaves(result: Any) -> Iterator[np.ndarray]:
    """The arrays of a result, in the order of the outputs."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from _leaves(part)
    else:
        yield np.asarray(result)


def _result(name: str, array: np.ndarray) -> dict[str, Any]:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"output {name} has NaN or infinity, which JSON has not: use /predict")
    return _tensor(name, str(array.dtype), array.shape) | {"data": array.reshape(-1).tolist()}


def _chosen(made: list[dict[str, Any]], wanted: Any) -> list[dict[str, Any]]:
    """The outputs that a request asks for; all, if it asks for none."""
    if not wanted:
        return made
    names = [row.get("name") if isinstance(row, dict) else None for row in wanted] if isinstance(wanted, list) else []
    if not names or not set(map(str, names)) <= {row["name"] for row in made}:
        raise ValueError(f"outputs is a list of objects with a name of {', '.join(row['name'] for row in made)}")
    return [row for row in made if row["name"] in names]
