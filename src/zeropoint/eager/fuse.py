"""Putting modules together that will be one quantized layer."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.overrides import TorchFunctionMode

from zeropoint.described import described
from zeropoint.eager.hooks import move_hooks
from zeropoint.nn.qat.trained import folded
from zeropoint.nn.simulated_tensor import tensors_in
from zeropoint.operators import fusions, layer_records, modules_of

Fuser = Callable[..., nn.Module]


def fold_batch_norm(layer: Any, bn: Any) -> nn.Module:
    """A copy of a linear layer or convolution with the batch norm after it in its weight and bias.

    Example:
        >>> layer, bn = nn.Linear(2, 3), nn.BatchNorm1d(3)
        >>> fold_batch_norm(layer.eval(), bn.eval())
        Linear(in_features=2, out_features=3, bias=True)
    """
    if layer.training or bn.training:
        raise ValueError("batch norm is folded in evaluation mode: call .eval() on the model, or use fuse_modules_qat")
    if bn.running_mean is None:
        raise ValueError(
            "batch norm without running statistics cannot be folded: set track_running_stats=True, or "
            "leave it out of the list"
        )
    made = copy.deepcopy(layer)
    made._forward_pre_hooks.clear()  # what is fused gets them
    transposed = isinstance(layer, modules_of(layer_records(transposed=True)))
    with torch.no_grad():
        weight, bias = folded(layer.weight, layer.bias, bn, layer.groups if transposed else 0)
        made.weight, made.bias = nn.Parameter(weight), nn.Parameter(bias)
    return made


def fuse_parts(modules: Sequence[nn.Module], is_qat: bool, more: Mapping[Any, Any] = MappingProxyType({})) -> nn.Module:
    """The module that these become, without their hooks; `more`: tuple of types -> function of (is_qat, *modules)."""
    kinds = tuple(type_before_parametrizations(m) for m in modules)
    if kinds in more:
        return more[kinds](is_qat, *modules)
    fusion = next((f for f in fusions() if f.parts == kinds), None)
    names = " + ".join(t.__name__ for t in kinds)
    if fusion is None:
        known = "; ".join(" + ".join(t.__name__ for t in f.parts) for f in fusions())
        raise NotImplementedError(f"cannot fuse {names}. Supported: {known}")
    # Layers and batch norms compute another thing in training; an activation without values of its own does not.
    if len({m.training for m in modules if m.state_dict()}) > 1:
        raise ValueError(f"cannot fuse {names}: all must be in training mode, or all in evaluation mode")
    if is_qat:
        if fusion.training is None:
            raise NotImplementedError(
                f"{names} is not supported in quantization-aware training: fuse the modules after training"
            )
        return fusion.training(*modules)
    if not fusion.folds:
        if fusion.evaluation is None:
            raise NotImplementedError(
                f"{names} can only be fused for quantization-aware training: use fuse_modules_qat"
            )
        return fusion.evaluation(*modules)
    folded = fold_batch_norm(modules[0], modules[1])
    return folded if fusion.evaluation is None else fusion.evaluation(folded, *modules[2:])


def fuse_known_modules(
    mod_list: Sequence[nn.Module], is_qat: bool, additional_fuser_method_mapping: Mapping[Any, Any] | None = None
) -> list[nn.Module]:
    """The fused module, then an Identity for each of the others.

    Hooks before the first module and after the last move to the fused one.

    Args:
        additional_fuser_method_mapping: tuple of types -> function of (is_qat, *modules).

    Example:
        >>> fuse_known_modules([nn.Linear(1, 1), nn.ReLU()], is_qat=True)[1]
        Identity()
    """
    fused = fuse_parts(mod_list, is_qat, additional_fuser_method_mapping or {})
    first, last = mod_list[0], mod_list[-1]
    move_hooks(first, last, fused)
    first._forward_pre_hooks.clear()
    last._forward_hooks.clear()
    rest: list[nn.Module] = []
    for module in mod_list[1:]:
        identity = nn.Identity()
        identity.training = module.training
        rest.append(identity)
    fused.train(first.training)
    return [fused, *rest]


def _parent(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    *parents, name = path.split(".")
    for part in parents:
        model = getattr(model, part)
    return model, name


def _fuse_modules(
    model: nn.Module, modules_to_fuse: Any, is_qat: bool, inplace: bool, fuser_func: Fuser | None, config: Any
) -> nn.Module:
    given = list(modules_to_fuse) if isinstance(modules_to_fuse, (list, tuple)) else [modules_to_fuse]
    groups = [given] if given and isinstance(given[0], str) else given
    for part in groups:
        wrong = [part] if not isinstance(part, (list, tuple)) else [path for path in part if not isinstance(path, str)]
        if wrong:
            raise TypeError(f"modules_to_fuse takes names of modules or lists of them, got {described(wrong[0])}")
    if not inplace:
        model = copy.deepcopy(model)
    more = (config or {}).get("additional_fuser_method_mapping", {})
    for group in groups:
        found = []
        for path in group:
            try:
                found.append(model.get_submodule(path))
            except AttributeError as error:
                raise ValueError(f"fuse_modules: the model has no module {path!r}") from error
        fused = (fuser_func or fuse_known_modules)(found, is_qat, more)
        for path, module in zip(group, fused, strict=True):
            setattr(*_parent(model, path), module)
    return model


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Fuser | None = None,
    fuse_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Fuse groups of modules, given by name, for calibration. Batch norm is folded into the layer before it.

    Args:
        modules_to_fuse: names of consecutive modules, or a list of such lists.
        inplace: change `model` instead of a copy.
        fuse_custom_config_dict: its "additional_fuser_method_mapping" adds sequences.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()).eval()
        >>> [type(m).__name__ for m in fuse_modules(model, ["0", "1", "2"])]
        ['ConvReLU2d', 'Identity', 'Identity']
    """
    return _fuse_modules(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Fuser | None = None,
    fuse_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Fuse groups of modules, by their names, for training: batch norm stays, with the layer before it.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU())
        >>> [type(m).__name__ for m in fuse_modules_qat(model, ["0", "1", "2"])]
        ['ConvBnReLU2d', 'Identity', 'Identity']
    """
    return _fuse_modules(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)


# ------------------------------------------------------------------------------------------------- finding the chains


class _Uses(TorchFunctionMode):
    """Counts how many functions make something of a value; asking for its size is none.

    A value is a tensor between two functions that work in place: such a function uses one value and makes the next.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[tuple[int, int]] = Counter()
        self._writes: Counter[int] = Counter()
        self._alive: list[Tensor] = []  # so that no id is used twice

    def value(self, t: Tensor) -> tuple[int, int]:
        self._alive.append(t)
        return id(t), self._writes[id(t)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = [self.value(t) for t in tensors_in((args, kwargs or {}))]
        result = func(*args, **(kwargs or {}))
        made = tensors_in(result)
        if made:
            self.count.update(used)
        self._writes.update({id(t) for t in made} & {key for key, _ in used})
        return result


def find_chains(model: nn.Module, example_inputs: Any) -> list[list[str]]:
    """Names of modules, group by group, that `fuse_modules` can put together; found by running the model once.

    Two modules belong together if the result of the first goes to the second and nowhere else, and each runs once.

    Example:
        >>> find_chains(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(1, 2),))
        [['0', '1']]
    """
    starts = {f.parts[0] for f in fusions()} | {p for f in fusions() for p in f.parts}
    names = {m: name for name, m in model.named_modules() if type_before_parametrizations(m) in starts}
    calls: Counter[str] = Counter()
    made: dict[tuple[int, int], str] = {}
    taken: dict[tuple[int, int], str] = {}
    uses = _Uses()
    handles = []

    def before(module: nn.Module, args: Any) -> None:
        calls[names[module]] += 1
        if len(args) == 1 and isinstance(args[0], Tensor):
            taken[uses.value(args[0])] = names[module]

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            made[uses.value(output)] = names[module]

    inputs = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    try:
        handles = [h for m in names for h in (m.register_forward_pre_hook(before), m.register_forward_hook(after))]
        with torch.no_grad(), uses:
            result = model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    for t in tensors_in(result):
        uses.count[uses.value(t)] += 1
    following = {
        name: taken[key]
        for key, name in made.items()
        if key in taken and uses.count[key] == 1 and calls[name] == calls[taken[key]] == 1 and taken[key] != name
    }
    kinds = {name: type_before_parametrizations(m) for m, name in names.items()}
    known = sorted({f.parts for f in fusions()}, key=len, reverse=True)
    groups: list[list[str]] = []
    used: set[str] = set()
    for name in names.values():
        chain = [name]
        while len(chain) < 3 and chain[-1] in following:
            chain.append(following[chain[-1]])
        for parts in known:
            group = chain[: len(parts)]
            if tuple(kinds[n] for n in group) == parts and not used.intersection(group):
                groups.append(group)
                used.update(group)
                break
    return groups


def auto_fuse(model: nn.Module, example_inputs: Any, is_qat: bool | None = None, inplace: bool = False) -> nn.Module:
    """Find the chains of layer, batch norm and activation in a model, and fuse them.

    Args:
        example_inputs: a tuple of positional arguments. The model runs on them once; statistics do not change.
        is_qat: fuse for training; by default if the model is in training mode.

    Example:
        >>> auto_fuse(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval(), (torch.ones(1, 2),))
        Sequential(
          (0): LinearReLU(
            (0): Linear(in_features=2, out_features=2, bias=True)
            (1): ReLU()
          )
          (1): Identity()
        )
    """
    is_qat = model.training if is_qat is None else is_qat
    groups = find_chains(copy.deepcopy(model).eval(), example_inputs)
    if is_qat:
        trainable = {f.parts for f in fusions() if f.training is not None}
        groups = [g for g in groups if _kinds(model, g) in trainable]
    return _fuse_modules(model, groups, is_qat, inplace, None, None)


def _kinds(model: nn.Module, names: list[str]) -> tuple[type, ...]:
    return tuple(type_before_parametrizations(model.get_submodule(n)) for n in names)
