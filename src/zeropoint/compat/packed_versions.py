"""How releases of PyTorch wrote packed weights: states of convolutions, and code that takes packed weights for tensors.

=======  =======================================================================================
version  state of a packed convolution
=======  =======================================================================================
1        weight, bias, strides, paddings, dilations, groups: every number a tensor of its own
"2"      the version, [numbers in one tensor, weight], [bias]
3        the version, [numbers], [None, weight, bias]
=======  =======================================================================================

The numbers are dimensions, strides, paddings, dilations, output paddings, groups, and 1 for a transposed convolution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class ConvState(NamedTuple):
    """A packed convolution as its file has it, whatever the version."""

    numbers: list[int]
    weight: Any
    bias: Any


def conv_state(
    state: Sequence[Any],
    listed: Callable[[Any], Sequence[Any]] = list,
    integer: Callable[[Any], list[int]] | None = None,
) -> ConvState:
    """Read the state of a packed convolution of any version.

    Args:
        state: what the file says.
        listed: gives the elements of what the file has for a list.
        integer: gives the integers in what the file has for a tensor.

    Raises:
        ValueError: if the version is none of the three.

    Example:
        >>> import torch
        >>> numbers = [1, 2, 0, 1, 0, 1, 0]
        >>> conv_state((3, numbers, [None, "weight", "bias"])) == conv_state(
        ...     ("2", [torch.tensor(numbers), "weight"], ["bias"])
        ... )
        True
    """
    integers = integer or (lambda tensor: tensor.flatten().tolist())
    if len(state) == 6:
        weight, bias, *geometry, groups = state
        strides, paddings, dilations = ([integers(n)[0] for n in listed(part)] for part in geometry)
        numbers = [len(strides), *strides, *paddings, *dilations, *([0] * len(strides)), integers(groups)[0], 0]
        return ConvState(numbers, weight, bias)
    version, first, second = state
    if str(version) == "2":
        numbers, weight = listed(first)
        return ConvState(integers(numbers), weight, listed(second)[0])
    if str(version) == "3":
        _, weight, bias = listed(second)
        return ConvState([int(n) for n in listed(first)], weight, bias)
    raise ValueError(f"a packed convolution has version {version!r}; supported: 1, '2' and 3")


# ---------------------------------------------------------------------------------------------------------------- code

# Modules that said `Tensor` where their packed weight is, in files up to PyTorch 1.5.
_UNTYPED = re.compile(r"^( +_packed_params : )Tensor$", re.MULTILINE)
# Convolutions that were given their geometry again, behind the packed weight that has it.
_CONV = re.compile(r"\bops\.quantized\.(?:conv[23]d|conv[23]d_relu)\(")
_WITH_GEOMETRY = 8


def current_code(code: str, path: str, packed: Callable[[str], str]) -> str:
    """Code of a TorchScript file in the spelling of files since PyTorch 1.6.

    Args:
        code: the code.
        path: the record that has it, which says what kind of layer it is.
        packed: gives the type of packed weights, for "Linear" and "Conv".
    """
    kind = "Linear" if "/linear" in path else "Conv"
    code = _UNTYPED.sub(lambda found: found[1] + packed(kind), code)
    made, done = [], 0
    for found in _CONV.finditer(code):
        end, arguments = _arguments(code, found.end())
        if len(arguments) == _WITH_GEOMETRY:
            made += [code[done : found.end()], ", ".join((*arguments[:2], *arguments[-2:]))]
            done = end
    return "".join((*made, code[done:]))


def _arguments(code: str, start: int) -> tuple[int, list[str]]:
    """Where the bracket that opened before `start` closes, and the arguments up to there."""
    found: list[str] = []
    depth, begin = 0, start
    for place in range(start, len(code)):
        character = code[place]
        if character in "([":
            depth += 1
        elif character in ")]":
            if depth == 0:
                return place, [*found, code[begin:place].strip()]
            depth -= 1
        elif character == "," and depth == 0:
            found.append(code[begin:place].strip())
            begin = place + 1
    raise ValueError("the file is damaged: a bracket is not closed in its code")
