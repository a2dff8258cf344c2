"""THE table: each thing that can be quantized, once, with what becomes of it in every workflow.

A recipe names a float module (its functional and graph spellings come with graph mode), the modules that stand for it
when it is quantized statically or dynamically, in training and as a reference, and where the parameters of its result
come from. Mappings, fusions and the choice of observers all follow from here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from zeropoint import qfunctions
from zeropoint.graph.lowering.shared_scale import PASSED
from zeropoint.nn import intrinsic as nni
from zeropoint.nn import qat as nnqat
from zeropoint.nn import quantizable as nnqa
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import qat as nniqat
from zeropoint.nn.intrinsic import quantized as nniq
from zeropoint.nn.intrinsic.quantized import dynamic as nniqd
from zeropoint.nn.qat import dynamic as nnqatd
from zeropoint.nn.quantized import dynamic as nnqd
from zeropoint.nn.quantized import reference as nnqr
from zeropoint.nn.stubs import DeQuantStub, QuantStub


class Output(enum.Enum):
    """Where scale and zero point of a result come from."""

    OWN = "observed: the result has a range of its own"
    INPUT = "those of the input, whose values are only passed on, chosen from or averaged"
    UNIT = "fixed: results lie in [0, 1]"
    SYMMETRIC = "fixed: results lie in [-1, 1]"
    FLOAT = "none: the result is float32"


@dataclass(frozen=True)
class Recipe:
    """One row. `None`: there is no such form."""

    module: type[nn.Module]
    static: type[nn.Module] | None = None
    dynamic: type[nn.Module] | None = None
    reference: type[nn.Module] | None = None
    training: type[nn.Module] | None = None  # stands in for it during quantization-aware training
    output: Output = Output.OWN


RECIPES: tuple[Recipe, ...] = (
    Recipe(QuantStub, nnq.Quantize, reference=nnq.Quantize),
    Recipe(DeQuantStub, nnq.DeQuantize, reference=nnq.DeQuantize, output=Output.FLOAT),
    # layers
    Recipe(nn.Linear, nnq.Linear, nnqd.Linear, nnqr.Linear, nnqat.Linear),
    Recipe(NonDynamicallyQuantizableLinear, nnq.Linear, nnqd.Linear, nnqr.Linear, nnqat.Linear),
    Recipe(nn.Conv1d, nnq.Conv1d, nnqd.Conv1d, nnqr.Conv1d, nnqat.Conv1d),
    Recipe(nn.Conv2d, nnq.Conv2d, nnqd.Conv2d, nnqr.Conv2d, nnqat.Conv2d),
    Recipe(nn.Conv3d, nnq.Conv3d, nnqd.Conv3d, nnqr.Conv3d, nnqat.Conv3d),
    Recipe(nn.ConvTranspose1d, nnq.ConvTranspose1d, nnqd.ConvTranspose1d, nnqr.ConvTranspose1d),
    Recipe(nn.ConvTranspose2d, nnq.ConvTranspose2d, nnqd.ConvTranspose2d, nnqr.ConvTranspose2d),
    Recipe(nn.ConvTranspose3d, nnq.ConvTranspose3d, nnqd.ConvTranspose3d, nnqr.ConvTranspose3d),
    # recurrent layers and embedding tables
    Recipe(nn.LSTM, dynamic=nnqd.LSTM, reference=nnqr.LSTM),
    Recipe(nn.GRU, dynamic=nnqd.GRU, reference=nnqr.GRU),
    Recipe(nn.LSTMCell, dynamic=nnqd.LSTMCell, reference=nnqr.LSTMCell),
    Recipe(nn.GRUCell, dynamic=nnqd.GRUCell, reference=nnqr.GRUCell),
    Recipe(nn.RNNCell, dynamic=nnqd.RNNCell, reference=nnqr.RNNCell),
    Recipe(nn.Embedding, nnq.Embedding, nnq.Embedding, nnqr.Embedding, nnqat.Embedding, Output.FLOAT),
    Recipe(nn.EmbeddingBag, nnq.EmbeddingBag, nnq.EmbeddingBag, nnqr.EmbeddingBag, nnqat.EmbeddingBag, Output.FLOAT),
    # norms
    Recipe(nn.BatchNorm2d, nnq.BatchNorm2d),
    Recipe(nn.BatchNorm3d, nnq.BatchNorm3d),
    Recipe(nn.LayerNorm, nnq.LayerNorm),
    Recipe(nn.GroupNorm, nnq.GroupNorm),
    Recipe(nn.InstanceNorm1d, nnq.InstanceNorm1d),
    Recipe(nn.InstanceNorm2d, nnq.InstanceNorm2d),
    Recipe(nn.InstanceNorm3d, nnq.InstanceNorm3d),
    # functions
    Recipe(nn.ELU, nnq.ELU),
    Recipe(nn.Hardswish, nnq.Hardswish),
    Recipe(nn.LeakyReLU, nnq.LeakyReLU),
    Recipe(nn.PReLU, nnq.PReLU),
    Recipe(nn.ReLU6, nnq.ReLU6, output=Output.INPUT),
    Recipe(nn.Dropout, nnq.Dropout, output=Output.INPUT),
    Recipe(nnq.FloatFunctional, nnq.QFunctional),
    # fused layers
    Recipe(nni.ConvReLU1d, nniq.ConvReLU1d, training=nniqat.ConvReLU1d),
    Recipe(nni.ConvReLU2d, nniq.ConvReLU2d, training=nniqat.ConvReLU2d),
    Recipe(nni.ConvReLU3d, nniq.ConvReLU3d, training=nniqat.ConvReLU3d),
    Recipe(nni.ConvBn1d, training=nniqat.ConvBn1d),
    Recipe(nni.ConvBn2d, training=nniqat.ConvBn2d),
    Recipe(nni.ConvBn3d, training=nniqat.ConvBn3d),
    Recipe(nni.ConvBnReLU1d, training=nniqat.ConvBnReLU1d),
    Recipe(nni.ConvBnReLU2d, training=nniqat.ConvBnReLU2d),
    Recipe(nni.ConvBnReLU3d, training=nniqat.ConvBnReLU3d),
    Recipe(nni.LinearReLU, nniq.LinearReLU, nniqd.LinearReLU, training=nniqat.LinearReLU),
    Recipe(nni.LinearBn1d, training=nniqat.LinearBn1d),
    Recipe(nni.LinearLeakyReLU, nniq.LinearLeakyReLU),
    Recipe(nni.LinearTanh, nniq.LinearTanh),
    Recipe(nni.ConvAdd2d, nniq.ConvAdd2d),
    Recipe(nni.ConvAddReLU2d, nniq.ConvAddReLU2d),
    Recipe(nni.BNReLU2d, nniq.BNReLU2d),
    Recipe(nni.BNReLU3d, nniq.BNReLU3d),
    # layers in training
    Recipe(nnqat.Linear, nnq.Linear, reference=nnqr.Linear),
    Recipe(nnqatd.Linear, dynamic=nnqd.Linear),
    Recipe(nnqat.Conv1d, nnq.Conv1d, reference=nnqr.Conv1d),
    Recipe(nnqat.Conv2d, nnq.Conv2d, reference=nnqr.Conv2d),
    Recipe(nnqat.Conv3d, nnq.Conv3d, reference=nnqr.Conv3d),
    Recipe(nnqat.Embedding, nnq.Embedding, output=Output.FLOAT),
    Recipe(nnqat.EmbeddingBag, nnq.EmbeddingBag, output=Output.FLOAT),
    Recipe(nniqat.LinearReLU, nniq.LinearReLU),
    Recipe(nniqat.LinearBn1d, nnq.Linear),
    Recipe(nniqat.ConvReLU1d, nniq.ConvReLU1d),
    Recipe(nniqat.ConvReLU2d, nniq.ConvReLU2d),
    Recipe(nniqat.ConvReLU3d, nniq.ConvReLU3d),
    Recipe(nniqat.ConvBn1d, nnq.Conv1d),
    Recipe(nniqat.ConvBn2d, nnq.Conv2d),
    Recipe(nniqat.ConvBn3d, nnq.Conv3d),
    Recipe(nniqat.ConvBnReLU1d, nniq.ConvReLU1d),
    Recipe(nniqat.ConvBnReLU2d, nniq.ConvReLU2d),
    Recipe(nniqat.ConvBnReLU3d, nniq.ConvReLU3d),
    # functions with fixed results
    Recipe(nn.Sigmoid, output=Output.UNIT),
    Recipe(nn.Hardsigmoid, output=Output.UNIT),
    Recipe(nn.Softmax, nnq.Softmax, output=Output.UNIT),
    Recipe(nn.Tanh, output=Output.SYMMETRIC),
)

# ------------------------------------------------------------------------------------------------------- custom modules


@dataclass(frozen=True)
class CustomModule:
    """A module that is swapped as a whole twice: for `observed` by prepare, for `quantized` by convert.

    `observes_inside`: its parts have observers, so its result needs none.
    """

    module: type[nn.Module]
    observed: type[nn.Module]
    quantized: type[nn.Module]
    observes_inside: bool = True


CUSTOM_MODULES: tuple[CustomModule, ...] = (
    CustomModule(nn.LSTM, nnqa.LSTM, nnq.LSTM),
    CustomModule(nn.MultiheadAttention, nnqa.MultiheadAttention, nnq.MultiheadAttention),
)

# Modules that take quantized tensors as they are, and hand on scale and zero point.
PASSING: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.Hardtanh,
    nn.Threshold,
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.Upsample,
    nn.UpsamplingNearest2d,
    nn.UpsamplingBilinear2d,
    nn.PixelShuffle,
    nn.PixelUnshuffle,
    nn.ChannelShuffle,
)

# Functions of floats -> those of quantized tensors that take scale and zero point of the result.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.elu: qfunctions.elu,
    F.hardswish: qfunctions.hardswish,
    F.instance_norm: qfunctions.instance_norm,
    F.layer_norm: qfunctions.layer_norm,
    F.leaky_relu: qfunctions.leaky_relu,
    F.dropout: qfunctions.dropout,
}


# ---------------------------------------------------------------------------------------------------------- fusions


@dataclass(frozen=True)
class Fusion:
    """Modules in a row that become one. `evaluation`, `training`: the class of the fused module in these modes.

    `folds`: the second part is a batch norm, whose numbers go into the layer before it; then, for evaluation, no class
    means the layer itself.
    """

    parts: tuple[type[nn.Module], ...]
    evaluation: Callable[..., nn.Module] | None = None
    training: Callable[..., nn.Module] | None = None
    folds: bool = False


FUSIONS: tuple[Fusion, ...] = (
    Fusion((nn.Conv1d, nn.BatchNorm1d), None, nni.ConvBn1d, folds=True),
    Fusion((nn.Conv2d, nn.BatchNorm2d), None, nni.ConvBn2d, folds=True),
    Fusion((nn.Conv3d, nn.BatchNorm3d), None, nni.ConvBn3d, folds=True),
    Fusion((nn.Conv1d, nn.BatchNorm1d, nn.ReLU), nni.ConvReLU1d, nni.ConvBnReLU1d, folds=True),
    Fusion((nn.Conv2d, nn.BatchNorm2d, nn.ReLU), nni.ConvReLU2d, nni.ConvBnReLU2d, folds=True),
    Fusion((nn.Conv3d, nn.BatchNorm3d, nn.ReLU), nni.ConvReLU3d, nni.ConvBnReLU3d, folds=True),
    Fusion((nn.Conv1d, nn.ReLU), nni.ConvReLU1d, nni.ConvReLU1d),
    Fusion((nn.Conv2d, nn.ReLU), nni.ConvReLU2d, nni.ConvReLU2d),
    Fusion((nn.Conv3d, nn.ReLU), nni.ConvReLU3d, nni.ConvReLU3d),
    Fusion((nn.Linear, nn.BatchNorm1d), None, nni.LinearBn1d, folds=True),
    Fusion((nn.Linear, nn.ReLU), nni.LinearReLU, nni.LinearReLU),
    Fusion((nn.Linear, nn.LeakyReLU), nni.LinearLeakyReLU),
    Fusion((nn.Linear, nn.Tanh), nni.LinearTanh),
    Fusion((nn.BatchNorm2d, nn.ReLU), nni.BNReLU2d, nni.BNReLU2d),
    Fusion((nn.BatchNorm3d, nn.ReLU), nni.BNReLU3d, nni.BNReLU3d),
    Fusion((nn.ConvTranspose1d, nn.BatchNorm1d), folds=True),
    Fusion((nn.ConvTranspose2d, nn.BatchNorm2d), folds=True),
    Fusion((nn.ConvTranspose3d, nn.BatchNorm3d), folds=True),
)


def mapping(form: str) -> dict[type[nn.Module], Any]:
    """Float module -> its `form` ("static", "dynamic", "reference" or "training"), for those that have one.

    Example:
        >>> mapping("training")[nn.Linear] is nnqat.Linear
        True
    """
    return {recipe.module: getattr(recipe, form) for recipe in RECIPES if getattr(recipe, form) is not None}


# ------------------------------------------------------------------------------------------------ operators in graphs


class Form(enum.Enum):
    """How the arguments of an operator become those of the operator on integers."""

    LAYER = "input, weight, bias and a geometry"
    BINARY = "two tensors, or a tensor and a number"
    CAT = "a list of tensors and an axis"
    MATMUL = "two tensors that are both quantized"
    FUNCTION = "a tensor and numbers or float tensors"
    EMBEDDING = "a table and indices"
    SLOPES = "a tensor and a parameter of the same dtype"
    RECURRENT = "a sequence, states and weights"
    CELL = "a step, states and two weights"


@dataclass(frozen=True)
class Operator:
    """A function as graphs spell it, with what computes it on integers.

    Args:
        name: ``torch.ops.zeropoint.<name>``; with ``_relu`` and ``_dynamic`` behind it where `relu` and `dynamic` say
            so.
        aten: ATen operators that are this function, with their overloads; in-place spellings are made plain before.
        more: for `Form.FUNCTION`, the arguments between the input and the output's parameters, by their ATen names.
        heavy: worth quantizing even if its inputs are float.
        alone: quantized in TorchScript even if its inputs are float, as PyTorch does there.
    """

    name: str
    aten: tuple[str, ...]
    form: Form
    output: Output = Output.OWN
    more: tuple[str, ...] = ()
    functions: tuple[Any, ...] = ()
    relu: bool = False
    dynamic: bool = False
    heavy: bool = False
    alone: bool = False

    @property
    def weight_axis(self) -> int:
        """The axis of a layer's weight that counts output channels."""
        return 1 if "transpose" in self.name else 0


def _layers() -> tuple[Operator, ...]:
    made = []
    for d in (1, 2, 3):
        functions = (getattr(F, f"conv{d}d"), getattr(nn, f"Conv{d}d"))
        aten: tuple[str, ...] = (f"conv{d}d.default", f"conv{d}d.padding")
        made.append(Operator(f"conv{d}d", aten, Form.LAYER, functions=functions, relu=True, dynamic=True, heavy=True))
        functions = (getattr(F, f"conv_transpose{d}d"), getattr(nn, f"ConvTranspose{d}d"))
        aten = (f"conv_transpose{d}d.default" if d == 1 else f"conv_transpose{d}d.input",)
        made.append(Operator(f"conv_transpose{d}d", aten, Form.LAYER, functions=functions, dynamic=True, heavy=True))
    return tuple(made)


OPERATORS: tuple[Operator, ...] = (
    *_layers(),
    Operator(
        "linear", ("linear.default",), Form.LAYER, functions=(F.linear, nn.Linear), relu=True, dynamic=True, heavy=True
    ),
    Operator("matmul", ("matmul.default",), Form.MATMUL, functions=(torch.matmul,), heavy=True),
    Operator("bmm", ("bmm.default",), Form.MATMUL, functions=(torch.bmm,), heavy=True),
    Operator(
        "add", ("add.Tensor", "add.Scalar", "sub.Tensor"), Form.BINARY, functions=(torch.add, torch.sub), relu=True
    ),
    Operator("mul", ("mul.Tensor", "mul.Scalar"), Form.BINARY, functions=(torch.mul,), relu=True),
    Operator("cat", ("cat.default",), Form.CAT, functions=(torch.cat,), relu=True),
    Operator(
        "batch_norm",
        ("batch_norm.default",),
        Form.FUNCTION,
        more=("weight", "bias", "running_mean", "running_var", "eps"),
        functions=(F.batch_norm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        relu=True,
        alone=True,
    ),
    Operator(
        "layer_norm",
        ("layer_norm.default",),
        Form.FUNCTION,
        more=("normalized_shape", "weight", "bias", "eps"),
        functions=(F.layer_norm, nn.LayerNorm),
        alone=True,
    ),
    Operator(
        "group_norm",
        ("group_norm.default",),
        Form.FUNCTION,
        more=("num_groups", "weight", "bias", "eps"),
        functions=(F.group_norm, nn.GroupNorm),
        alone=True,
    ),
    Operator(
        "instance_norm",
        ("instance_norm.default",),
        Form.FUNCTION,
        more=("weight", "bias", "eps"),
        functions=(F.instance_norm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        alone=True,
    ),
    Operator("hardswish", ("hardswish.default",), Form.FUNCTION, functions=(F.hardswish, nn.Hardswish), alone=True),
    Operator("silu", ("silu.default",), Form.FUNCTION, functions=(F.silu, nn.SiLU)),
    Operator("mish", ("mish.default",), Form.FUNCTION, functions=(F.mish, nn.Mish)),
    Operator("gelu", ("gelu.default",), Form.FUNCTION, more=("approximate",), functions=(F.gelu, nn.GELU)),
    Operator(
        "elu", ("elu.default",), Form.FUNCTION, more=("alpha", "scale", "input_scale"), functions=(F.elu, nn.ELU),
        alone=True,
    ),
    Operator("celu", ("celu.default",), Form.FUNCTION, more=("alpha",), functions=(F.celu, nn.CELU), alone=True),
    Operator(
        "leaky_relu",
        ("leaky_relu.default",),
        Form.FUNCTION,
        more=("negative_slope",),
        functions=(F.leaky_relu, nn.LeakyReLU),
    ),
    Operator("prelu", ("prelu.default",), Form.SLOPES, functions=(F.prelu, nn.PReLU)),
    Operator("sigmoid", ("sigmoid.default",), Form.FUNCTION, Output.UNIT, functions=(torch.sigmoid, nn.Sigmoid)),
    Operator(
        "hardsigmoid", ("hardsigmoid.default",), Form.FUNCTION, Output.UNIT, functions=(F.hardsigmoid, nn.Hardsigmoid)
    ),
    Operator("tanh", ("tanh.default",), Form.FUNCTION, Output.SYMMETRIC, functions=(torch.tanh, nn.Tanh)),
    Operator(
        "softmax", ("softmax.int", "_softmax.default"), Form.FUNCTION, Output.UNIT, ("dim",), (F.softmax, nn.Softmax)
    ),
    Operator(
        "embedding", ("embedding.default",), Form.EMBEDDING, Output.FLOAT, functions=(F.embedding, nn.Embedding),
        heavy=True,
    ),
    Operator(
        "embedding_bag", ("embedding_bag.padding_idx", "embedding_bag.default"), Form.EMBEDDING, Output.FLOAT,
        functions=(F.embedding_bag, nn.EmbeddingBag), heavy=True,
    ),
    Operator("quantized_lstm", ("lstm.input",), Form.RECURRENT, Output.FLOAT, functions=(nn.LSTM,), heavy=True),
    Operator("quantized_gru", ("gru.input",), Form.RECURRENT, Output.FLOAT, functions=(nn.GRU,), heavy=True),
    Operator(
        "quantized_lstm_cell", ("lstm_cell.default",), Form.CELL, Output.FLOAT, functions=(nn.LSTMCell,), heavy=True
    ),
    Operator("quantized_gru_cell", ("gru_cell.default",), Form.CELL, Output.FLOAT, functions=(nn.GRUCell,), heavy=True),
    Operator(
        "quantized_rnn_tanh_cell", ("rnn_tanh_cell.default",), Form.CELL, Output.FLOAT, functions=(nn.RNNCell,),
        heavy=True,
    ),
    Operator(
        "quantized_rnn_relu_cell", ("rnn_relu_cell.default",), Form.CELL, Output.FLOAT, functions=(nn.RNNCell,),
        heavy=True,
    ),
)  # fmt: skip

# Operators that give every value of a tensor once, in another shape or order.
RESHAPING: frozenset[str] = frozenset(
    (
        "reshape.default", "flatten.using_ints", "unflatten.int", "transpose.int", "permute.default", "t.default",
        "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "contiguous.default", "clone.default",
        "movedim.int", "swapaxes.default", "swapdims.default", "movedim.intlist", "ravel.default", "detach.default",
    )
)  # fmt: skip
# Operators that hand values on, chosen or moved, so that integers can go through them as they are.
MOVING: frozenset[str] = RESHAPING | frozenset(
    (
        "expand.default", "expand_as.default", "slice.Tensor", "select.int", "index_select.default", "narrow.default",
        "chunk.default", "split.Tensor", "split_with_sizes.default", "unbind.int", "flip.default", "roll.default",
        "repeat.default", "moveaxis.int", "moveaxis.intlist", "tile.default", "numpy_T.default", "mT.default",
        "sort.default", "sort.stable", "max.dim", "min.dim", "max.default", "min.default",
        "amax.default", "amin.default", "pixel_shuffle.default", "pixel_unshuffle.default", "channel_shuffle.default",
        "alias.default", "lift_fresh_copy.default", "reshape_as.default", "index.Tensor", "gather.default",
        "repeat_interleave.self_int", "tensor_split.sections", "rot90.default", "broadcast_to.default",
    )
)  # fmt: skip
# Operators that hand values on or average them, and have an operator of their own on integers.
POOLING: frozenset[str] = frozenset(PASSED)
BY_ATEN: dict[str, Operator] = {name: operator for operator in OPERATORS for name in operator.aten}

_LAYER = ("input", "weight", "bias")
_WINDOWS = ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
# What stays float32 in a graph on integers and PyTorch rounds differently on different CPUs: our operator, whose bytes
# a program has too, and which arguments of the old one it takes.
FLOAT_OPERATORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "layer_norm.default": ("float_layer_norm", ("input", "normalized_shape", "weight", "bias", "eps")),
    "softmax.int": ("float_softmax", ("self", "dim")),
    "_softmax.default": ("float_softmax", ("self", "dim")),
    "log_softmax.int": ("float_log_softmax", ("self", "dim")),
    "_log_softmax.default": ("float_log_softmax", ("self", "dim")),
    "_safe_softmax.default": ("float_safe_softmax", ("self", "dim")),
    "gelu.default": ("float_gelu", ("self", "approximate")),
    "tanh.default": ("float_tanh", ("self",)),
    "sigmoid.default": ("float_sigmoid", ("self",)),
    "silu.default": ("float_silu", ("self",)),
    "matmul.default": ("float_matmul", ("self", "other")),
    "bmm.default": ("float_matmul", ("self", "mat2")),
    "mm.default": ("float_matmul", ("self", "mat2")),
    "linear.default": ("float_linear", ("input", "weight", "bias")),
    **{f"conv{d}d.default": ("float_conv", (*_LAYER, "stride", "padding", "dilation", "groups")) for d in (1, 2, 3)},
    **{
        f"conv_transpose{d}d.{'default' if d == 1 else 'input'}": (
            "float_conv_transpose",
            (*_LAYER, "stride", "padding", "output_padding", "groups", "dilation"),
        )
        for d in (1, 2, 3)
    },
    "batch_norm.default": ("float_batch_norm", ("input", "weight", "bias", "running_mean", "running_var", "eps")),
    "group_norm.default": ("float_group_norm", ("input", "num_groups", "weight", "bias", "eps")),
    "instance_norm.default": ("float_instance_norm", ("input", "weight", "bias", "eps")),
    **{f"avg_pool{d}d.default": (f"float_avg_pool{d}d", _WINDOWS[: 6 if d == 1 else 7]) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d.default": (f"float_adaptive_avg_pool{d}d", ("self", "output_size")) for d in (1, 2, 3)},
    "upsample_bilinear2d.vec": ("float_bilinear", ("input", "output_size", "align_corners", "scale_factors")),
    "mean.dim": ("float_mean", ("self", "dim", "keepdim")),
    "sum.dim_IntList": ("float_sum", ("self", "dim", "keepdim")),
    "topk.default": ("top", ("self", "k", "dim", "largest")),
    "linalg_vector_norm.default": ("float_norm", ("self", "dim", "keepdim")),
}
# Recurrent layers that stay float32: our operator, which takes float32 weights too.
FLOAT_RECURRENT: dict[str, str] = {
    **{f"{name}.input": f"quantized_{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{name}_cell.default": f"quantized_{name}_cell_dynamic" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}
