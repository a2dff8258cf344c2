"""How an operator is written to ONNX files and read from them: what records say, and what such code sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx

from zeropoint.operators.steps import full_names


class OnnxWriter(Protocol):
    """The file while it is written, as a function sees it that writes one node of a quantized graph.

    What its methods give are values of the file. Integers of the graph are integers of the file; a function computes on
    floats (`floats`), and `result` rounds what it made where the node gives integers. So every operator stands between
    DequantizeLinear and QuantizeLinear, which is what runtimes look for.
    """

    node: fx.Node
    found: dict[fx.Node, Any]  # what each node gave for the example, tensors without their values
    runtime: str  # whom the file is for: "onnx" for all, or "onnxruntime", "openvino"

    def op(self, name: str, *inputs: Any, domain: Any = "", **attributes: Any) -> Any:
        """An operator with one result; inputs are values, None, or tensors, which are stored."""

    def ops(self, name: str, count: int, *inputs: Any, domain: Any = "", **attributes: Any) -> Sequence[Any]:
        """An operator with several results."""

    def tensor(self, node: Any) -> Any:
        """The value of a node as it is; None for None."""

    def floats(self, node: Any) -> Any:
        """The value of a node as floats: dequantized if it is integers with a scale."""

    def result(self, value: Any) -> Any:
        """What the node at hand gives, from its floats: with its ReLU, and rounded, if it gives integers."""

    def bounded(self, integers: Any, scale: tuple[float, int], dtype: torch.dtype, low: int, high: int) -> Any:
        """Integers of this scale, kept between two of them."""

    def constant(self, value: Tensor, name: str = ...) -> Any:
        """A tensor that is stored in the file."""

    def number(self, value: float, dtype: torch.dtype = ...) -> Any:
        """A number that is stored in the file."""

    def parameter(self, node: Any) -> Tensor:
        """A tensor that the graph holds."""

    def is_parameter(self, node: Any) -> bool:
        """Whether the graph holds it."""

    def dtype(self, node: fx.Node) -> torch.dtype:
        """The dtype of a node's result."""

    def rank(self, node: fx.Node) -> int:
        """The number of axes of a node's result."""

    def scale_of(self, node: fx.Node) -> tuple[float, int] | None:
        """Scale and zero point of a node that gives 8-bit integers; None for others."""

    def ints(self, values: Any) -> Any:
        """A vector of int64 with these numbers or sizes."""

    def axis_size(self, node: Any, axis: int) -> Any:
        """The size of an axis of a node, as a vector of one number."""

    def dequantized(self, weight: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, name: str) -> Any:
        """The floats of stored integers, with one scale or one for each index along an axis."""

    def dequantized_blocks(self, small: Any, integers: Tensor, name: str) -> Any:
        """The floats of a weight with a scale for each block of inputs, turned: inputs along the first axis."""

    def require_fixed(self, node: fx.Node, axes: Any) -> None:
        """Refuse where sizes of axes are free: what is written holds for the example's only."""

    def convert(self, value: Any, dtype: torch.dtype) -> Any:
        """A value in another dtype."""

    def mark(self, value: Any, name: str, text: str) -> None:
        """Say something about the operator that makes a value, which no runtime reads, in the metadata of the file."""

    def unsupported(self, why: str) -> Exception:
        """The error for a node that ONNX has nothing for."""


class ReadNode(Protocol):
    """A node of an ONNX file while it is read.

    A reader asks for everything that the file says about the node. An attribute, an input or an output that it does not
    ask for is refused when it is done, so nothing is ignored by mistake.
    """

    op_type: str
    version: int  # of the operators of its domain
    outputs: int  # how many it has, with those that are not read

    def attribute(self, name: str, default: Any = ...) -> Any:
        """An attribute: a number, a string, a list or a tensor."""

    def without_effect(self, *names: str) -> None:
        """Attributes that change no result here."""

    def input(self, place: int) -> Any:
        """A tensor, an array of numbers that are known, or None for what is left out."""

    def first(self, count: int) -> list[Any]:
        """So many inputs."""

    def every(self) -> list[Any]:
        """All inputs, of an operator with any number of them."""

    def has(self, place: int) -> bool:
        """Whether an input is there."""

    def wants(self, place: int) -> bool:
        """Whether somebody reads an output. A reader gives a list with all that somebody reads, in their order."""

    def keeps_dtype(self) -> None:
        """Results are as the reader made them, where ONNX has a dtype that PyTorch computes nothing with."""

    def mark(self, name: str) -> str:
        """What `OnnxWriter.mark` said; nothing in files of others."""


class OnnxReader(Protocol):
    """The model while a file is read, as a function sees it that computes one node with operators of ATen."""

    def tensor(self, value: Any) -> Any:
        """An input as a tensor; None for None."""

    def numbers(self, value: Any) -> list[Any]:
        """An input as numbers: known ones, or sizes."""

    def number(self, value: Any) -> Any:
        """An input that is one number."""

    def operand(self, value: Any) -> Any:
        """An input of arithmetic: a number if it is known and one, else a tensor."""

    def count(self, value: Any) -> int:
        """How many numbers a known input has."""

    def axes(self, n: Any) -> tuple[list[int], bool]:
        """The axes of a reduction, and whether they are kept."""

    def torch_dtype(self, code: int) -> torch.dtype:
        """The dtype of PyTorch for a number of ONNX."""

    def is_known(self, value: Any) -> bool:
        """Whether the numbers of an input are known, or follow from sizes."""

    def array(self, value: Any) -> Any:
        """The numbers of an input that are known."""

    def dtype(self, value: Any) -> torch.dtype:
        """The dtype of an input."""

    def storage(self, value: Any) -> str:
        """The dtype of an input as the file has it: ``"uint4"`` lies in bytes here."""

    def storage_of(self, code: int) -> str:
        """The same of a number of ONNX."""

    def rank(self, value: Any) -> int:
        """The number of axes of an input."""

    def stored(self, integers: Any, scale: Any, zero_point: Any, axis: int | None, block: int) -> Any:
        """Integers of the file with their parameters: a weight, which is dequantized where it is read."""

    def constant(self, number: float) -> Any:
        """A number as the file would have it."""

    def rounded(self, integers: Tensor, scale: float, zero_point: int) -> Any:
        """Integers that floats were rounded to: operators that move them stay operators on floats for lowering."""

    def weight(self, value: Any, order: Sequence[int] = ...) -> Any:
        """A stored weight with its axes in another order, dequantized if the file has integers."""

    def stored_parts(self, value: Any) -> list[tuple[Tensor, Tensor, Tensor, int | None]] | None:
        """Of weights of 8-bit integers, joined along the first axis: these, scales, zero points and the axis of scales.

        None for others.
        """

    def joined(self, values: Sequence[Any], axis: int) -> Any:
        """Values one behind the other: integers stay visible in weights that are."""

    def unsupported(self, why: str) -> Exception:
        """The error for a node that is not read."""


Write = Callable[[Any, fx.Node], Any]
Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class OnnxForms:
    """What ONNX has for an operator.

    Args:
        writes: calls of quantized graphs, each with the function that writes it.
        reads: operators of ONNX, each with the function that computes it with operators of ATen.
    """

    writes: tuple[tuple[str, Write], ...] = ()
    reads: tuple[tuple[str, Read], ...] = ()


def writes(write: Write, *calls: str | Sequence[str]) -> tuple[tuple[str, Write], ...]:
    """Calls, and the function that writes them.

    Args:
        calls: ``"aten.flip.default"``; one of zeropoint's by its name alone, ``"linear_relu"``.

    Example:
        >>> [call for call, _ in writes(print, "aten.flip.default", "linear")]
        ['aten.flip.default', 'zeropoint.linear.default']
    """
    return tuple((name, write) for name in full_names(*calls))


def reads(read: Read, *names: str) -> tuple[tuple[str, Read], ...]:
    """Operators of ONNX, and the function that reads them."""
    return tuple((name, read) for name in names)


def moves(
    name: str, write: Write, *overloads: str, more: tuple[str, ...] = (), read: tuple[tuple[str, Read], ...] = ()
) -> dict[str, OnnxForms]:
    """The forms of a record that has the name of its ATen operator."""
    calls = [f"aten.{name}.{overload}" for overload in overloads or ("default",)]
    return {name: OnnxForms(writes(write, calls, *more), read)}
