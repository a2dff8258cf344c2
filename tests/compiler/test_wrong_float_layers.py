"""Program files whose layers on floats are not in order: a FormatError that names the step, never a crash."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

import numpy as np
import pytest
from golden_programs import joined, parts_of
from test_compiled_float_layers import EXAMPLES, SIZES, made

from zeropoint import _native
from zeropoint.runtime import FormatError


def opened(name: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The tensors, the program and the bytes of an example's file."""
    return parts_of(made(name)[1]._native.data())


def loaded(header: dict[str, Any], program: dict[str, Any], data: bytes) -> Any:
    return _native.Program(joined(header, program, data))


def edited(name: str, op: str, attributes: dict[str, Any], inputs: dict[int, Any]) -> Any:
    """An example with other attributes and inputs in its first step of a kind; an input is the number of another."""
    header, program, data = opened(name)
    step = next(s for s in program["steps"] if s["op"] == op)
    step["attributes"].update(attributes)
    given = list(step["inputs"])
    for place, other in inputs.items():
        step["inputs"][place] = None if other is None else given[other]
    return loaded(header, program, data)


@pytest.mark.parametrize(
    ("name", "op", "attributes", "inputs", "message"),
    [
        ("lstm", "recurrent", {"cell": "gru"}, {}, r"\(recurrent\): there are 3 outputs, not 2"),
        ("lstm", "recurrent", {"cell": "transformer"}, {}, "'cell' must be lstm"),
        ("lstm", "recurrent", {"layers": 1}, {}, "there are 19 inputs, not 11"),
        ("lstm", "recurrent", {"directions": 2}, {}, "there are 19 inputs, not 35"),
        ("lstm", "recurrent", {"layers": 0}, {}, "'layers' must be an integer from 1"),
        ("lstm", "recurrent", {"weight_dtype": "float16"}, {}, "must be float16, it is int8"),
        ("lstm", "recurrent", {"weight_dtype": "int64"}, {}, "'weight_dtype' must be"),
        ("lstm", "recurrent", {"batch_first": 1}, {}, "'batch_first' must be true or false"),
        ("lstm", "recurrent", {}, {4: None}, "8-bit weights need scales"),
        ("lstm", "recurrent", {}, {3: 0}, "must be stored in the file"),
        ("lstm", "recurrent", {}, {6: 5}, "must be float32, it is int32"),
        ("lstm", "recurrent", {}, {2: 0}, r"a first state of shape .* must be \(2, 3, 32\)"),
        ("lstm-float16", "recurrent", {}, {4: 6}, "floats have neither"),
        ("gru-states", "recurrent", {}, {2: 6}, r"input 10 must have shape \(60, 20\), it has \(60, 12\)"),
        ("recommender", "embedding_bags", {"bits": 3}, {}, "'bits' must be 2, 4 or 8"),
        ("recommender", "embedding_bags", {"mode": "median"}, {}, "'mode' must be sum"),
        ("recommender", "embedding_bags", {"include_last_offset": None}, {}, "true or false"),
        ("recommender", "embedding_bags", {}, {3: 1}, "only sums can have weights"),
        ("recommender", "embedding_bags", {}, {2: None}, "without offsets must have two axes"),
        ("recommender", "embedding_bags", {}, {0: 1}, "must be stored in the file"),
        ("recommender", "embedding", {}, {1: 0}, "input 1 must be int64 or int32, it is uint8"),
        ("mlp-int4-weights", "weight_only_linear", {"storage": "uint8"}, {}, "is not for 40 inputs"),
        ("mlp-int4-weights", "weight_only_linear", {"storage": "int4"}, {}, "'storage' must be"),
        ("mlp-int4-weights", "weight_only_linear", {"inputs": 43}, {}, "is not for 43 inputs"),
        ("mlp-int4-weights", "weight_only_linear", {"group_size": 12}, {}, "multiple of 8"),
        ("mlp-int4-weights", "weight_only_linear", {"group_size": 0}, {}, "'group_size' must be"),
        ("mlp-int4-weights", "weight_only_linear", {}, {2: None}, "integers need scales"),
        ("mlp-float16", "weight_only_linear", {}, {2: 5}, "float16 has neither"),
        ("mlp-dynamic", "linear_dynamic", {"per_token": 0}, {}, "'per_token' must be true or false"),
        ("mlp-dynamic", "linear_dynamic", {"more": 0}, {}, "'more' is not known"),
        ("mlp-dynamic", "linear_dynamic", {}, {1: 4}, "must be int8"),
        ("convolutions", "conv_dynamic", {"groups": 3}, {}, "groups do not divide"),
        ("residual", "map", {"code": [["silu", "int64", 0]]}, {}, "'silu' is of float32 only"),
    ],
)
def test_step_that_is_not_in_order_is_refused(
    name: str, op: str, attributes: dict[str, Any], inputs: dict[int, Any], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        edited(name, op, attributes, inputs)


_OTHERS = [None, True, False, -1, 0, 1, 2, 3, 8, 41, 1 << 20, 1 << 62, 0.5, -2.0, "sum", "uint8", "x", []]


def _changed(value: Any, chance: random.Random) -> Any:
    """Something else in the place of an attribute."""
    if isinstance(value, list) and value and chance.random() < 0.7:
        value = list(value)
        value[chance.randrange(len(value))] = chance.choice([-1, 0, 1, 2, 7, 1 << 33])
        return value
    return chance.choice(_OTHERS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_random_changes_never_crash(name: str) -> None:
    """Each is refused, or gives a program that runs or refuses its inputs."""
    header, program, data = opened(name)
    chance = random.Random(name)
    inputs = [x.numpy() for x in EXAMPLES[name].inputs(*SIZES[0])]
    names = [*header, *(o for s in program["steps"] for o in s["outputs"])]
    refused = 0
    for _ in range(60):
        wrong, tensors = copy.deepcopy(program), copy.deepcopy(header)
        step = chance.choice(wrong["steps"])
        kind = chance.random()
        if kind < 0.4 and step["attributes"]:
            key = chance.choice(sorted(step["attributes"]))
            step["attributes"][key] = _changed(step["attributes"][key], chance)
        elif kind < 0.8 and step["inputs"]:
            step["inputs"][chance.randrange(len(step["inputs"]))] = chance.choice([None, *names])
        else:
            stored = tensors[chance.choice(sorted(header))]
            shape = stored["shape"]
            stored["shape"] = chance.choice([shape[::-1], [int(np.prod(shape))], [*shape, 1], [1, *shape]])
        try:
            changed = loaded(tensors, wrong, data)
        except FormatError:
            refused += 1
            continue
        with contextlib.suppress(ValueError, IndexError):
            changed.run(inputs)
    assert refused > 20
