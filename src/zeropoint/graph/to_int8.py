"""A model in, a model on integers out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from zeropoint.described import described
from zeropoint.graph.frontends.export import is_exported
from zeropoint.graph.quantize_fx import Quantized, convert_fx, prepare_fx
from zeropoint.numerics.dtypes import quint8
from zeropoint.observers import MinMaxObserver, default_per_channel_weight_observer, default_placeholder_observer
from zeropoint.progress import during, shown
from zeropoint.qconfig import (
    QConfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    get_default_qconfig,
    per_token_dynamic_qconfig,
)
from zeropoint.qconfig_mapping import QConfigMapping, get_default_qconfig_mapping

__all__ = ["to_int8"]

_WEIGHT_ONLY = QConfig(activation=default_placeholder_observer, weight=default_per_channel_weight_observer)

_MODES = ("static", "dynamic", "weight_only")
# Float in transformers: sums of a block with its input, norms, attention weights, activations.
_BETWEEN_LAYERS: tuple[Any, ...] = (
    torch.add, torch.mul, F.layer_norm, nn.LayerNorm, F.softmax, nn.Softmax, F.gelu, nn.GELU, F.silu, nn.SiLU,
)  # fmt: skip


def to_int8(
    model: nn.Module,
    example_inputs: Any,
    calibration: Iterable[Any] | None = None,
    qconfig: QConfig | QConfigMapping | None = None,
    mode: str = "static",
    progress: bool = True,
) -> Quantized:
    """Quantize a model in one call: capture, calibrate, convert.

    Args:
        model: any module that torch.export can capture.
        example_inputs: a tuple of what the model is called with.
        calibration: batches, each a tensor, or a tuple of what the model is called with; a batch that is a dictionary
            is keywords. For ``mode="static"``; without it the example inputs are the only batch.
        qconfig: for all, or a QConfigMapping; by default full 8 bits, weights per channel, and tables of 8 bits for
            embeddings. In a model with layer norms (a transformer), what is between linear layers and matrix products
            stays float, because a few large channels leave no room for the others in 8 bits, and what goes into
            linear layers is equalized (see `prepare_fx`); dynamic linear layers take a range for each token. A
            recurrent layer that 8 bits would spoil, tried on the first batch, gets float16 weights.
        mode: "static" (activations with ranges from calibration), "dynamic" (with their own) or "weight_only" (float
            activations, weights of linear layers and embedding tables in 8 bits; with
            ``qconfig=float_qparams_weight_only_qconfig_4bit`` in 4 bits, a scale for each 128 inputs).
        progress: show a bar on a terminal.

    Raises:
        ValueError: if a batch does not fit the model, with its number.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> quantized = to_int8(model, (torch.ones(1, 4),), [torch.randn(16, 4) for _ in range(4)], progress=False)
        >>> quantized.summary().counts()["int8"]
        2
    """
    if mode == "dynamic" and calibration is not None:
        raise ValueError("to_int8: dynamic quantization takes ranges from what it is run on: it needs no calibration")
    if mode == "weight_only" and calibration is not None:
        raise ValueError("to_int8: weights alone have no ranges to be found: weight_only needs no calibration")
    model = evaluated(model)
    mapping = qconfig_mapping_for(qconfig, mode, model)
    equalize = mode == "static" and qconfig is None and is_transformer(model)
    with during("capturing", progress):
        prepared = prepare_fx(model, mapping, example_inputs, equalize_channels=equalize)
    if mode != "static" and qconfig is None:
        args, kwargs = call_of(example_inputs)
        prepared.choose_recurrent_weights(*args, **kwargs)
    if mode == "static":
        batches = [example_inputs] if calibration is None else calibration
        with torch.no_grad():
            for number, batch in enumerate(shown(batches, "calibrating", progress)):
                args, kwargs = call_of(batch)
                try:
                    prepared(*args, **kwargs)
                    if number == 0 and qconfig is None:
                        prepared.choose_recurrent_weights(*args, **kwargs)
                except Exception as error:
                    raise ValueError(f"to_int8: calibration batch {number} does not fit the model: {error}") from error
    with during("converting", progress):
        return convert_fx(prepared)


def evaluated(model: nn.Module) -> nn.Module:
    """A copy of a model in evaluation mode."""
    model = copy.deepcopy(model)
    return model if is_exported(model) else model.eval()  # what was exported stays as it is


def qconfig_mapping_for(qconfig: Any, mode: str, model: nn.Module) -> QConfigMapping:
    """The mapping that `to_int8` uses for its arguments of these names."""
    if mode not in _MODES:
        raise ValueError(f"to_int8: mode must be one of {', '.join(_MODES)}, got {described(mode)}")
    if isinstance(qconfig, QConfigMapping):
        return qconfig
    if mode == "dynamic":
        mapping = QConfigMapping().set_global(qconfig or per_token_dynamic_qconfig)
    elif mode == "weight_only":
        mapping = QConfigMapping().set_global(qconfig or _WEIGHT_ONLY)
    elif qconfig is not None:
        mapping = QConfigMapping().set_global(qconfig)
    elif is_transformer(model):
        weight = get_default_qconfig("native").weight
        mapping = QConfigMapping().set_global(QConfig(MinMaxObserver.with_args(dtype=quint8), weight))
        for between in _BETWEEN_LAYERS:
            mapping.set_object_type(between, None)
    else:
        mapping = get_default_qconfig_mapping("native")
    four = qconfig is not None and str(qconfig.weight().dtype).endswith("quint4x2")
    tables = float_qparams_weight_only_qconfig_4bit if four else float_qparams_weight_only_qconfig
    for kind in (nn.Embedding, nn.EmbeddingBag, F.embedding, F.embedding_bag):
        mapping.set_object_type(kind, tables)
    return mapping


def is_transformer(model: nn.Module) -> bool:
    """Whether a model has layer norms."""
    if is_exported(model):
        return any("layer_norm" in str(node.target) for node in model.graph.nodes)
    return any(isinstance(module, nn.LayerNorm) for module in model.modules())


def call_of(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and keywords of a batch: a tensor, a tuple or list of arguments, or a dictionary.

    Example:
        >>> call_of({"x": 1}), call_of((1, 2)), call_of(3)
        (((), {'x': 1}), ((1, 2), {}), ((3,), {}))
    """
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}
