"""A model in, a model on integers out."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import fx, nn

from zeropoint.described import described
from zeropoint.graph.calibration import Calibration
from zeropoint.graph.calibration_checkpoint import CalibrationCheckpoint
from zeropoint.graph.frontends.export import call_of, is_exported
from zeropoint.graph.passes.qconfig_rules import unused_rules, warn_of_unused_rules
from zeropoint.graph.policy import Policy, choose_policy
from zeropoint.graph.rounding_loss import Measured, rounding_losses, warn_of_lost_values, warn_of_poor_outputs
from zeropoint.graph.state_buffers import reset_state
from zeropoint.graph.workflow import Prepared, Quantized, convert_graph, float_graph, mapping_of, prepare_captured
from zeropoint.progress import during, shown
from zeropoint.qconfig import QConfig
from zeropoint.qconfig_mapping import QConfigMapping

__all__ = ["call_of", "evaluated", "policy_of", "prepare_int8", "to_int8"]


def to_int8(
    model: nn.Module,
    example_inputs: Any,
    calibration: Iterable[Any] | None = None,
    qconfig: QConfig | QConfigMapping | None = None,
    mode: str = "static",
    progress: bool = True,
    policy: Policy | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Quantized:
    """Quantize a model in one call: capture, calibrate, convert.

    Args:
        model: any module that `torch.export` can capture.
        example_inputs: a tuple of positional arguments for the model, or a dictionary of keyword arguments.
        calibration: batches for ``mode="static"``. A batch is a tensor, a tuple of positional arguments, or a
            dictionary of keyword arguments. Without it, `to_int8` calibrates on the example inputs and warns.
        qconfig: a QConfig for all layers, or a QConfigMapping. The default uses all 8 bits, per-channel weights, and
            8-bit embedding tables (float in dynamic mode).
        mode: "static" (activation ranges from calibration), "dynamic" (ranges computed at run time), or "weight_only"
            (float activations; linear layers and embedding tables in 8 bits). For 4-bit weights, use "weight_only" with
            ``qconfig=float_qparams_weight_only_qconfig_4bit`` (groups of 128 inputs) or
            ``get_weight_only_qconfig_4bit(32)`` (groups of 32).
        progress: show a progress bar on a terminal.
        policy: which operators stay in float, equalization, recurrent weights and more; see `Policy`. By default it is
            chosen from the graph, and `summary()` prints it. A dictionary changes some of its fields.
        dynamic_shapes: the dynamic sizes of the inputs, as for `torch.export`. By default, batch sizes and sequence
            lengths are dynamic. "all" makes every size dynamic that the model does not depend on, including image
            sizes.
        checkpoint: a file for long calibrations. `to_int8` saves its progress there every minute, and when an error or
            Ctrl-C stops it. The same call resumes from the file. The file is removed at the end.

    Raises:
        ValueError: if a batch does not fit the model; the message has the number of the batch.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> quantized = to_int8(model, (torch.ones(1, 4),), [torch.randn(16, 4) for _ in range(4)], progress=False)
        >>> quantized.summary().counts()["int8"]
        2
    """
    if mode == "dynamic" and calibration is not None:
        raise ValueError("to_int8: dynamic quantization computes ranges at run time: omit calibration")
    if mode == "weight_only" and calibration is not None:
        raise ValueError("to_int8: weight_only does not quantize activations: omit calibration")
    model = evaluated(model)
    with during("capturing", progress):
        prepared, policy = prepare_int8(model, example_inputs, qconfig, mode, policy, dynamic_shapes)
    if mode != "static" and policy.recurrent_weights == "auto":
        args, kwargs = call_of(example_inputs)
        prepared.choose_recurrent_weights(*args, **kwargs)
    if mode == "static":
        if calibration is None:
            warnings.warn(
                "to_int8: no calibration: the ranges of activations come from the example inputs alone. Pass"
                " calibration=[...], some batches of real data",
                stacklevel=2,
            )
        batches = [example_inputs] if calibration is None else calibration
        measured = calibrate(prepared, batches, policy, progress, checkpoint)
    with during("converting", progress):
        quantized = convert_graph(prepared)
    if mode == "static":
        warn_of_poor_outputs(measured, quantized.graph_module, stacklevel=3)
    return quantized


def calibrate(
    prepared: Prepared,
    batches: Iterable[Any],
    policy: Policy,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Measured:
    """Run a prepared model on batches; what rounding costs on the first of them.

    Args:
        checkpoint: where to keep what was seen, and to go on from if it is there: see `to_int8`.

    Raises:
        ValueError: for a batch that does not fit, with its number and the reason.
    """
    seen = Calibration(prepared.graph_module)
    kept = None if checkpoint is None else CalibrationCheckpoint(checkpoint, prepared)
    done = 0 if kept is None else kept.batches
    finished = 0
    first: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    try:
        with torch.no_grad():
            for number, batch in enumerate(shown(batches, "calibrating", progress)):
                args, kwargs = call_of(batch)
                try:
                    seen.check(args, kwargs)
                    if number >= done:
                        reset_state(prepared.graph_module)  # every batch is a beginning
                        prepared(*args, **kwargs)
                        reset_state(prepared.graph_module)
                    if number == 0 and policy.recurrent_weights == "auto":
                        prepared.choose_recurrent_weights(*args, **kwargs)
                except Exception as error:
                    raise ValueError(f"to_int8: calibration batch {number} does not fit the model: {error}") from error
                if number == 0:
                    first = args, kwargs
                if kept is not None and number + 1 == done:
                    kept.restore()
                elif kept is not None and number >= done:
                    kept.seen(number + 1)
                finished = number + 1
    except BaseException as error:
        if kept is not None and kept.batches > done:
            kept.write()
        if isinstance(error, KeyboardInterrupt) and not error.args:
            error.args = (_how_to_go_on(finished, kept),)
        raise
    if first is None:
        raise ValueError("to_int8: calibration has no batches: pass at least one. An iterator gives them only once")
    if kept is not None:
        kept.remove(finished)
    seen.warn_if_constant()
    measured = rounding_losses(prepared.graph_module, prepared.choices(), *first)
    warn_of_lost_values(measured, stacklevel=4)
    return measured


def _how_to_go_on(batches: int, kept: CalibrationCheckpoint | None) -> str:
    """What is said when Ctrl-C ends a calibration."""
    stopped = f"to_int8: calibration was interrupted after {batches} batches."
    if kept is not None and kept.batches:
        return f"{stopped} Their statistics are in {kept.path}: repeat the call to resume"
    return (
        f"{stopped} Their statistics are lost: pass checkpoint=path to resume an interrupted calibration. To use "
        "only part of the data, call prepare_graph, run the prepared model on that part, and call convert_graph"
    )


def prepare_int8(
    model: nn.Module,
    example_inputs: Any,
    qconfig: Any,
    mode: str,
    policy: Policy | Mapping[str, Any] | None,
    dynamic_shapes: Any = None,
) -> tuple[Prepared, Policy]:
    """A model in evaluation mode with the observers that `to_int8` gives it, and the policy for it."""
    Policy().mapping(None, mode)  # says whether there is such a mode before the model is captured
    graph = float_graph(model, example_inputs, dynamic_shapes)
    policy = policy_of(graph, policy)
    own = mapping_of(model, qconfig) if isinstance(qconfig, (QConfigMapping, Mapping)) else qconfig
    unused = unused_rules(graph, own) if isinstance(own, QConfigMapping) else ()
    warn_of_unused_rules(unused)
    mapping = policy.mapping(own, mode)
    if mode == "static":
        policy.mark(graph, mapping)
    notes = tuple(f"this rule matches nothing in the model: {rule}" for rule in unused)
    return prepare_captured(graph, mapping, policy.equalize and mode == "static", (str(policy), *notes)), policy


def policy_of(graph: fx.GraphModule, given: Policy | Mapping[str, Any] | None) -> Policy:
    """The policy for a float graph: the one that is given, or the one it asks for, with some fields changed."""
    if isinstance(given, Policy):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"to_int8: policy must be a Policy or a dictionary of its fields, got {described(given)}")
    names = [field.name for field in dataclasses.fields(Policy)]
    unknown = [name for name in given or () if name not in names]
    if unknown:
        raise ValueError(f"to_int8: unknown policy field {unknown[0]!r}; choose from {', '.join(names)}")
    return dataclasses.replace(choose_policy(graph), **(given or {}))


def evaluated(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation mode; TypeError for what is none."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"to_int8 takes a module, got {described(model)}")
    model = copy.deepcopy(model)
    return model if is_exported(model) else model.eval()  # what was exported stays as it is
