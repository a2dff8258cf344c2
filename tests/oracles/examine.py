"""One case: captured, quantized, compiled, and run on many inputs beside what PyTorch gives."""

from __future__ import annotations

import copy
import re
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import zeropoint
from zeropoint.graph.frontends.export import CaptureError

from .database import BETWEEN, FREE, STATIC, Call, Case

# From the worst to the best. What a case reached (captured, compiled) stands beside it.
VERDICTS = ("internal", "wrong", "refused", "not captured", "equal", "left out")
_CLOSE = 1e-5  # of the largest value of a result: sums are made in another order
_FARTHER = 4  # times: a result may be so much farther from that in float64 than PyTorch's own
_SPECIAL = (float("nan"), 1.5, float("inf"), -0.0, 1e-42, -float("inf"), 0.0, -2.5, 1e30, -1e-40, 1.0, -1e10)
_WORDS = (NotImplementedError, ValueError, TypeError)  # CONTRIBUTING.md: what a user's mistake raises
# A refusal names the operator, or the dtype.
_OPERATOR = re.compile(
    r"\b(aten|prims|zeropoint|higher_order)\.\w+|\w+\.(default|Tensor|Scalar)\b|<built-in function|complex|float64"
)
_IN_FLOAT32 = (torch.float16, torch.bfloat16, torch.float64)  # passes/compute_in_float32.py: the result is float32
# How many results are defined; of equal values, where one was is not.
_DEFINED = {"argsort": 0, **dict.fromkeys(("kthvalue", "median", "mode", "nanmedian", "sort", "topk"), 1)}
# Of PyTorch's own: errors on sizes that are as good as others, and a vector of nothing that is a number.
_FAULTS = ("MKL FFT error", "result type Float can't be cast to the desired output type Long")
_NO_EMPTY = ("addmv",)
_NO_REPEATS = ("linalg_cond", "lu")  # a matrix with a row twice is singular, but for what rounding leaves
_ENDS_TORCH = ("linalg_eig", "as_strided")  # PyTorch's own dies of NaN, or reads memory that is not its input's
# An infinity times a sine that is 0 is NaN in a sum of products; a fast transform has no such product.
_NO_SPECIAL = (*_ENDS_TORCH, "fft_", "stft", "mode")  # mode counts NaN as its sort happens to put them
_HERE = Path(zeropoint.__file__).parent


class Beside(nn.Module):
    """The operator, and an int8 layer that does not touch it: `to_int8` refuses models without any."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call, self.layer = call, nn.Linear(4, 4)

    def forward(self, side: Tensor, *tensors: Tensor) -> Any:
        return [self.layer(side), self.call(*tensors)]


class Between(nn.Module):
    """The operator on what an int8 layer gives, and an int8 layer on its first result."""

    def __init__(self, call: Call, width: int, result: int | None) -> None:
        super().__init__()
        self.call, self.first = call, nn.Linear(width, width)
        with torch.no_grad():  # near its input: operators are not defined everywhere
            self.first.weight.mul_(0.01).add_(torch.eye(width))
            self.first.bias.zero_()
        self.last = nn.Identity() if result is None else nn.Linear(result, 3)

    def forward(self, tensor: Tensor, *tensors: Tensor) -> Any:
        leaves, tree = pytree.tree_flatten(self.call(self.first(tensor), *tensors))
        return pytree.tree_unflatten([self.last(leaves[0]), *leaves[1:]], tree)


class _Random(TorchDispatchMode):
    """Whether an operator that is called has the tag of those that draw numbers."""

    found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= torch.Tag.nondeterministic_seeded in function.tags
        return function(*args, **(kwargs or {}))


def examine(case: Case, call: Call) -> dict[str, Any]:
    """The verdict of a case, and why."""
    found: dict[str, Any] = {**vars(case), "captured": False, "compiled": False, "verdict": "equal"}
    begin = time.process_time()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            _examine(case, call, found)
        except Exception as error:
            found.update(verdict="internal", why=f"of the harness: {_described(error)}")
    found["seconds"] = round(time.process_time() - begin, 2)
    return found


def _examine(case: Case, call: Call, found: dict[str, Any]) -> None:
    torch.manual_seed(0)
    made = _model(case, call)
    if made is None:
        found.update(verdict="left out")
        return
    model, inputs = made
    shapes = {} if case.form == STATIC else None
    layer = zeropoint.QConfigMapping().set_module_name("layer", zeropoint.get_default_qconfig())
    qconfig = layer if case.form == FREE else None  # None: the operator may be computed on integers, too
    calibration = [tuple(t.nan_to_num(0.5, 1.0, -1.0) if t.is_floating_point() else t.clone() for t in inputs)]
    try:
        quantized = zeropoint.to_int8(model, _copied(inputs), calibration, qconfig, "static", False, None, shapes)
    except CaptureError as error:
        exported = _exported(model, inputs)
        found.update(captured=exported, verdict="refused" if exported else "not captured", why=_described(error))
        return
    except Exception as error:
        found.update(captured=_exported(model, inputs))
        _worse(found, _verdict_of(error, case), f"to_int8: {_described(error)}")
        return
    found["captured"] = True
    program = None
    try:
        program = zeropoint.compile(quantized, _copied(inputs))
        found["compiled"] = True
    except Exception as error:
        _worse(found, _verdict_of(error, case), f"compile: {_described(error)}")
    integers = sum(row.precision.startswith("int") for row in quantized.summary().rows) > 1
    rounded = case.form == BETWEEN or (integers and case.dtype in ("float32", "example"))
    for kind, given in _runs(case, inputs, rounded):
        _compare(kind, rounded, _DEFINED.get(case.name), model, quantized, program, given, found)


def _model(case: Case, call: Call) -> tuple[nn.Module, tuple[Tensor, ...]] | None:
    """The model and its inputs; None if its results are random or sparse, or PyTorch cannot run it."""
    tensors = call.tensors
    try:
        with _Random() as drawn:
            result = copy.deepcopy(call)(*_copied(tensors))
        strided = all(leaf.layout == torch.strided for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        if drawn.found or not strided:
            return None
        if case.form != BETWEEN:
            return Beside(call).eval(), (torch.randn(3, 4), *tensors)
        if tensors[0].dim() < 2 or not tensors[0].is_floating_point() or 0 in tensors[0].shape:
            return None
        leaf = pytree.tree_leaves(result)[0]
        follows = isinstance(leaf, Tensor) and leaf.dtype == torch.float32 and leaf.dim() > 0 and leaf.numel() > 0
        model = Between(call, tensors[0].shape[-1], leaf.shape[-1] if follows else None).eval()
        results = pytree.tree_leaves(call(model.first(tensors[0]), *_copied(tensors[1:])))
        if any(isinstance(leaf, Tensor) and not bool(torch.isfinite(leaf).all()) for leaf in results):
            return None  # it has no range
        copy.deepcopy(model)(*_copied(tensors))
    except Exception:
        return None
    return model, tuple(tensors)


def _exported(model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    """Whether torch.export captures a model."""
    for strict in (False, True):
        try:
            torch.export.export(copy.deepcopy(model), _copied(inputs), strict=strict)
            return True
        except Exception:
            continue
    return False


def _copied(tensors: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.clone() for tensor in tensors)


def _runs(case: Case, inputs: tuple[Tensor, ...], rounded: bool) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """The sample, and other inputs: special values, other strides, other sizes."""
    yield "sample", inputs
    beside = 0 if case.form == BETWEEN else 1
    fixed, tensors = inputs[:beside], inputs[beside:]
    if not rounded and not case.name.startswith(_NO_SPECIAL) and any(tensor.is_floating_point() for tensor in tensors):
        yield "special values", (*fixed, *(_special(tensor, shift) for shift, tensor in enumerate(tensors)))
    if not case.name.startswith(_ENDS_TORCH):
        yield "strided", (*fixed, *map(_strided, tensors))
    if case.form == STATIC or case.name in _NO_REPEATS:
        return
    sizes = [tensor.shape[0] for tensor in tensors if tensor.dim()]
    if not sizes or sizes[0] == 0:
        return
    for size in dict.fromkeys((sizes[0] + 1, 2 * sizes[0] + 1, 1, 0)):
        if size != sizes[0] and (size or case.name not in _NO_EMPTY):
            yield f"first axis {size}", (*fixed, *(_resized(t, sizes[0], size, (0,)) for t in tensors))
    every = (*fixed, *(_resized(t, sizes[0], sizes[0] + 1, tuple(range(t.dim()))) for t in tensors))
    yield f"axes of {sizes[0]} are {sizes[0] + 1}", every


def _special(tensor: Tensor, shift: int) -> Tensor:
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor.clone()
    values = torch.tensor(_SPECIAL[shift:] + _SPECIAL[:shift], dtype=tensor.dtype)
    count = tensor.numel()
    return values.repeat(count // len(values) + 1)[:count].reshape(tensor.shape)


def _strided(tensor: Tensor) -> Tensor:
    """The same values, with the axes in the other order in memory, and gaps between them."""
    if not tensor.dim():
        return tensor.clone()
    turned = tensor.permute(*reversed(range(tensor.dim())))
    room = torch.zeros((*turned.shape, 2), dtype=tensor.dtype)
    room[..., 1] = turned
    return room[..., 1].permute(*reversed(range(tensor.dim())))


def _resized(tensor: Tensor, old: int, new: int, axes: tuple[int, ...]) -> Tensor:
    """Axes of the old size with the new one; values repeat, so that they stay those that an operator takes."""
    for axis in axes:
        if axis < tensor.dim() and tensor.shape[axis] == old:
            tensor = tensor.index_select(axis, torch.arange(new) % old)
    return tensor.clone()


def _tried(function: Any, inputs: tuple[Tensor, ...]) -> Any:
    """The leaves of what a function gives, or its error."""
    try:
        return [leaf for leaf in pytree.tree_leaves(function(*(t.detach() for t in inputs))) if leaf is not None]
    except Exception as error:
        return error


def _compare(
    kind: str,
    rounded: bool,
    defined: int | None,
    model: nn.Module,
    quantized: Any,
    program: Any,
    inputs: tuple[Tensor, ...],
    found: dict[str, Any],
) -> None:
    """Run all three; graph and program refuse what PyTorch does, and may refuse other sizes in words."""
    expected = _tried(copy.deepcopy(model), _kept(inputs))
    given = _tried(quantized, _kept(inputs))
    compiled = None if program is None else _tried(program, _kept(inputs))

    def exact() -> Any:
        return _tried(copy.deepcopy(model).double(), _double(inputs))

    for who, result in (("graph", given), ("program", compiled)):
        if result is None:
            continue
        if isinstance(expected, Exception):
            # What PyTorch says of strides and of values is its own; of sizes, it is true for all.
            own = kind in ("strided", "special values") or str(expected).startswith(_FAULTS)
            if not isinstance(result, Exception) and not own:
                _worse(found, "wrong", f"{kind}: the {who} runs where PyTorch raises {_described(expected)}")
            continue
        if isinstance(result, Exception):
            words = isinstance(result, (*_WORDS, IndexError)) and kind not in ("sample", "strided")
            words |= rounded and "torch.linalg" in str(result)  # what it says of rounded values
            _worse(found, "equal" if words else "internal", f"{kind}: the {who} raises {_described(result)}")
            continue
        unlike = _unlike(result, expected)
        if unlike is None and not rounded:
            unlike = _far(result[1 : None if defined is None else 1 + defined], expected[1:], exact)
        if unlike is not None:
            _worse(found, "wrong", f"{kind}: the {who}'s {unlike}")
    both = isinstance(given, list) and isinstance(compiled, list) and _unlike(compiled, given) is None
    if both and not all(map(_same, compiled, given)):
        _worse(found, "wrong", f"{kind}: the program differs from the graph")


def _kept(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Copies with the strides of the inputs."""
    return tuple(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) for t in inputs)


def _double(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.double() if t.dtype == torch.float32 else t.clone() for t in inputs)


def _unlike(given: list[Any], expected: list[Any]) -> str | None:
    """How results differ in number, dtype or shape."""
    if len(given) != len(expected):
        return f"results are {len(given)}, not {len(expected)}"
    for number, (mine, theirs) in enumerate(zip(given, expected)):
        mine, theirs = torch.as_tensor(mine), torch.as_tensor(theirs)
        alike = mine.dtype == theirs.dtype or (mine.dtype == torch.float32 and theirs.dtype in _IN_FLOAT32)
        if not alike or mine.shape != theirs.shape:
            return f"result {number} is {mine.dtype} {tuple(mine.shape)}, not {theirs.dtype} {tuple(theirs.shape)}"
    return None


def _same(mine: Any, theirs: Any) -> bool:
    mine, theirs = torch.as_tensor(mine), torch.as_tensor(theirs)
    return torch.equal(mine, theirs) or bool(torch.isclose(mine, theirs, rtol=0, atol=0, equal_nan=True).all())


def _far(given: list[Any], expected: list[Any], exact: Any) -> str | None:
    """How values differ from PyTorch's by more than rounding does, and from what it gives in float64."""
    for number, (mine, theirs) in enumerate(zip(given, expected)):
        mine, theirs = torch.as_tensor(mine), torch.as_tensor(theirs)
        near = _near(mine, theirs)
        if not near.all() and theirs.dtype == torch.float32 and isinstance(best := exact(), list):
            truth = torch.as_tensor(best[number + 1])
            if truth.shape == theirs.shape:
                near |= _near(mine, truth.float()) | ((mine - truth).abs() <= _FARTHER * (theirs - truth).abs())
        if not near.all():
            at = tuple((~near).nonzero()[0].tolist())
            return f"result {number} at {at} is {mine[at].item()}, not {theirs[at].item()}"
    return None


def _near(mine: Tensor, theirs: Tensor) -> Tensor:
    if not (theirs.is_floating_point() or theirs.is_complex()):
        return mine == theirs
    close = max(_CLOSE, torch.finfo(theirs.dtype).eps)
    overflow = theirs.isinf() if theirs.dtype == torch.float16 else torch.zeros_like(theirs, dtype=torch.bool)
    theirs = theirs.to(mine.dtype)
    finite = theirs.abs()[torch.isfinite(theirs) & (theirs.abs() < 1e30)]
    largest = float(finite.max()) if finite.numel() else 0.0
    return overflow | torch.isclose(mine, theirs, rtol=close, atol=close * min(largest, 1.0), equal_nan=True)


def _worse(found: dict[str, Any], verdict: str, why: str) -> None:
    """Keep the worst verdict, and the first reason for it."""
    if VERDICTS.index(verdict) < VERDICTS.index(found["verdict"]):
        found.update(verdict=verdict, why=why)


def _verdict_of(error: Exception, case: Case) -> str:
    """Whether an error of ours names the operator that is refused, or is one of the code."""
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    words = isinstance(error, _WORDS) and frames[-1].is_relative_to(_HERE)
    named = case.name.partition("_")[0] in str(error) or _OPERATOR.search(str(error)) is not None
    return "refused" if words and named else "internal"


def _described(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_HERE)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"
