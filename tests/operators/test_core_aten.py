"""torch's core ATen operators, by what programs do with each: a table of states, complete and true."""

from __future__ import annotations

import torch

from zeropoint.compiler.sizes import SIZES
from zeropoint.graph.passes.canonicalize import REWRITTEN
from zeropoint.operators import BY_ATEN, STEPS

# Why programs do not have them.
DATA = "the size of its result depends on data"
RANDOM = "it is random"
TRAINING = "it belongs to training"
MEMORY = "it is about memory, not about values"
REFUSED: dict[str, str] = {
    "_local_scalar_dense.default": "a number that depends on data would decide what is computed",
    "nonzero.default": DATA,
    **dict.fromkeys(("rand.default", "randn.default", "randperm.default", "native_dropout.default"), RANDOM),
    **dict.fromkeys(
        (
            "_adaptive_avg_pool2d_backward.default", "avg_pool2d_backward.default", "convolution_backward.default",
            "embedding_dense_backward.default", "max_pool2d_with_indices_backward.default",
            "native_group_norm_backward.default", "native_layer_norm_backward.default",
            "_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats",
        ),
        TRAINING,
    ),
    **dict.fromkeys(
        (
            "empty_strided.default", "resize_.default",
            "sym_storage_offset.default", "sym_is_contiguous.default", "atan2.out",
        ),
        MEMORY,
    ),
    **dict.fromkeys(
        (
            "_cdist_forward.default", "_pdist_forward.default", "_embedding_bag.default", "_fft_c2r.default",
            "_fft_r2c.default",
        ),
        "no model has asked for it yet: fallback=True",
    ),
}  # fmt: skip


def core_operators() -> list[str]:
    """The overloads that torch tags as core."""
    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                found.append(f"{name}.{overload}")
    return found


def state_of(name: str) -> str:
    """What becomes of an operator: a step, other operators, or why nothing."""
    if f"aten.{name}" in STEPS or f"aten.{name}" in SIZES:
        return "step"
    if name in REWRITTEN or (name in BY_ATEN and BY_ATEN[name].float_form is not None):
        return "decomposed"
    if name in BY_ATEN and BY_ATEN[name].lower is not None:
        return "quantized"
    return f"refused: {REFUSED[name]}" if name in REFUSED else "unknown"


def test_every_core_operator_has_a_state() -> None:
    unknown = [name for name in core_operators() if state_of(name) == "unknown"]
    assert not unknown, "give them steps, or say in REFUSED why not"


def test_what_is_refused_has_no_steps() -> None:
    done = [name for name in REFUSED if not state_of(name).startswith("refused")]
    assert not done, "take them off REFUSED"


def test_nearly_all_core_operators_are_computed() -> None:
    states = [state_of(name).partition(":")[0] for name in core_operators()]
    assert states.count("step") >= 110
    assert states.count("refused") <= 32
