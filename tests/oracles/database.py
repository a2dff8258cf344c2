"""The cases: operators of PyTorch's database with their samples, and the examples of torch.export."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._export.db import examples
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

FREE, STATIC, BETWEEN = "free", "static", "between"  # alone with free sizes, with fixed ones; between int8 layers
_DTYPES = (torch.float32, torch.int64, torch.bool)
_SAMPLES = 64  # of an operator, from which some are taken
_LARGEST = 100_000  # elements of an input
_SEED = 37
# What they give is not defined.
_UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@dataclass(frozen=True)
class Case:
    """A sample of an operator in one form; `name` is that of the operator, or ``export/`` and that of an example."""

    name: str
    form: str
    dtype: str
    sample: int

    @property
    def key(self) -> str:
        return f"{self.name} {self.form} {self.dtype} {self.sample}"


class Call(nn.Module):
    """A function with its arguments: those that are tensors are the inputs, others are fixed.

    Attributes:
        tensors: the inputs of the sample.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        leaves, self._tree = pytree.tree_flatten((args, kwargs))
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._fixed = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._tensors = [(leaves[place].detach(),) for place in self._places]  # no attributes: they are no weights

    @property
    def tensors(self) -> list[Tensor]:
        return [held[0].clone() for held in self._tensors]

    def forward(self, *tensors: Tensor) -> Any:
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, tensors):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._tree)
        return self.function(*args, **kwargs)


def _operators() -> dict[str, Any]:
    return {info.formatted_name: info for info in op_db if info.name not in _UNDEFINED}


def names() -> list[str]:
    """All operators and examples."""
    return [*_operators(), *(f"export/{name}" for name in examples.all_examples())]


def operators_and_examples(count: int | None = None, seed: int = _SEED) -> list[str]:
    """All names, or some by chance."""
    return names() if count is None else sorted(random.Random(seed).sample(names(), count))


def _example(name: str) -> Any:
    """An example as code of a model: what code of PyTorch's own asks about sizes decides nothing."""
    path = Path(examples.__file__).with_name(f"{name}.py")
    made: dict[str, Any] = {"__name__": name}
    exec(compile(path.read_text(), f"{name}.py", "exec"), made)
    return SimpleNamespace(
        model=made["model"], example_args=made["example_args"], example_kwargs=made.get("example_kwargs", {})
    )


def _samples(info: Any, dtype: torch.dtype, count: int) -> dict[int, Call]:
    """Some samples of an operator, from the first to the last; they are the same in each run."""
    torch.manual_seed(_SEED)
    found = {}
    for number, sample in enumerate(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), _SAMPLES)):
        call = Call(info.op, (sample.input, *sample.args), sample.kwargs)
        if call.tensors and all(tensor.numel() <= _LARGEST for tensor in call.tensors):
            found[number] = call
    numbers = list(found)
    taken = {numbers[round(i * (len(numbers) - 1) / max(count - 1, 1))] for i in range(count)} if numbers else set()
    return {number: found[number] for number in sorted(taken)}


def cases_of(name: str, count: int) -> Iterator[tuple[Case, Call]]:
    """The cases of an operator, `count` samples of each dtype that it takes, or of an example."""
    if name.startswith("export/"):
        example = _example(name.removeprefix("export/"))
        for form in (FREE, STATIC):
            call = Call(example.model, example.example_args, example.example_kwargs or {})
            yield Case(name, form, "example", 0), call.eval()
        return
    info = _operators()[name]
    for dtype in _DTYPES:
        if dtype not in info.supported_dtypes("cpu"):
            continue
        forms = (FREE, STATIC, BETWEEN) if dtype is torch.float32 else (FREE,)
        for number, call in _samples(info, dtype, count).items():
            for form in forms:
                yield Case(name, form, str(dtype).removeprefix("torch."), number), call
