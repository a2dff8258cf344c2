"""TorchScript files of modules that hold QTensors.

torch.jit.save writes storages in C++, where a QTensor has none. What is written instead is a copy of the module: the
attribute holds the plain integers, further ones hold its qparams, and the code makes a QTensor where it reads it.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from zeropoint.tensor.errors import QTensorError
from zeropoint.tensor.qtensor import QTensor
from zeropoint.tensor.quantizer import PerTensorQuantizer

_lock = threading.Lock()


class _Attribute(NamedTuple):
    """A QTensor that a module of the model holds."""

    owner: Any  # the scripted module
    path: str  # of the owner in the model; "" for the model itself
    name: str
    q: QTensor


def _attributes(model: Any) -> list[_Attribute]:
    """The QTensors of all modules, found once for each module that holds them."""
    found = []
    for path, owner in model.named_modules(remove_duplicate=False):
        if not hasattr(owner, "_c"):
            continue
        for members in (owner.named_buffers, owner.named_parameters):
            for name, tensor in members(recurse=False, remove_duplicate=False):
                if isinstance(tensor, QTensor):
                    found.append(_Attribute(owner, path, name, tensor))
    return found


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _refuse(what: str) -> Any:
    raise QTensorError(
        f"TorchScript files cannot hold {what}: keep its int_repr() and qparams as buffers, or save the module's"
        " state_dict with torch.save or zeropoint.save_qtensors"
    )


def _refuse_constants(model: Any) -> None:
    for path, owner in model.named_modules():
        for method in owner._c._method_names() if hasattr(owner, "_c") else ():
            for node in _nodes(owner._c._get_method(method).graph):
                if (
                    node.kind() == "prim::Constant"
                    and "value" in node.attributeNames()
                    and node.kindOf("value") == "t"
                    and isinstance(node.t("value"), QTensor)
                ):
                    _refuse(f"the quantized tensor that {path or 'the module'} has as a constant in {method}")


def without_qtensors(model: Any) -> Any:
    """The model itself if it holds no QTensor, or a copy that a file can hold.

    Raises:
        QTensorError: if a QTensor has less than 8 bits, is a constant of the code (frozen), or is assigned in it.
    """
    model = vars(model).get("_actual_script_module", model)
    _refuse_constants(model)
    held = _attributes(model)
    if not held:
        return model
    for a in held:
        if a.q.is_packed():
            _refuse(f"the quantized tensor {a.name!r} of {a.q._qdtype.name}, several values in a byte")
    copy = _copy_with_integers(model, held)
    places = dict(copy.named_modules(remove_duplicate=False))
    kinds: dict[tuple[str, str], str] = {}
    for a in held:
        owner = places[a.path]._c
        kind = _keep_qparams(owner, a.name, a.q)
        if kinds.setdefault((owner._type().annotation_str, a.name), kind) != kind:
            _refuse(
                f"the quantized tensor {a.name!r} per tensor in one module, and per channel in another of its class"
            )
    _read_as_qtensors(copy, kinds)
    return copy


def _copy_with_integers(model: Any, held: list[_Attribute]) -> Any:
    """A copy with types of its own: through a file in memory, for which the integers stand in."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.load is deprecated; whoever called torch.jit.save has heard of it
        try:
            for a in held:
                a.owner._c.setattr(a.name, a.q._data)
            written = model._c.save_to_buffer({})
        finally:
            for a in held:
                a.owner._c.setattr(a.name, a.q)
        return torch.jit.load(io.BytesIO(written))


def _keep_qparams(owner: Any, name: str, q: QTensor) -> str:
    """Give the module the qparams of its attribute as further attributes; the operator that makes a QTensor of them."""
    quantizer = q._quantizer
    types = torch._C.FloatType.get(), torch._C.IntType.get(), torch._C.TensorType.get(), torch._C.StringType.get()
    number, integer, tensor, text = types
    if isinstance(quantizer, PerTensorQuantizer):
        owner._register_attribute(f"{name}_scale", number, quantizer.scale)
        owner._register_attribute(f"{name}_zero_point", integer, quantizer.zero_point)
        kind = "zeropoint::qtensor"
    else:
        owner._register_attribute(f"{name}_scales", tensor, quantizer.scales)
        owner._register_attribute(f"{name}_zero_points", tensor, quantizer.zero_points)
        owner._register_attribute(f"{name}_axis", integer, quantizer.axis)
        kind = "zeropoint::qtensor_per_channel"
    owner._register_attribute(f"{name}_dtype", text, q._qdtype.name)
    return kind


_PARAMETERS = {
    "zeropoint::qtensor": (("scale", "Float"), ("zero_point", "Int"), ("dtype", "String")),
    "zeropoint::qtensor_per_channel": (
        ("scales", "Tensor"),
        ("zero_points", "Tensor"),
        ("axis", "Int"),
        ("dtype", "String"),
    ),
}


def _read_as_qtensors(copy: Any, kinds: dict[tuple[str, str], str]) -> None:
    """In all code of the copy, make a QTensor of each attribute that was one."""
    edited = set()
    for _, owner in copy.named_modules():
        owner_type = owner._c._type().annotation_str
        for method in owner._c._method_names():
            if (owner_type, method) in edited:  # modules of one class share their code
                continue
            edited.add((owner_type, method))
            graph = owner._c._get_method(method).graph
            for node in list(_nodes(graph)):
                if node.kind() not in ("prim::GetAttr", "prim::SetAttr"):
                    continue
                holder, name = next(iter(node.inputs())), node.s("name")
                kind = kinds.get((holder.type().annotation_str, name))
                if kind is None:
                    continue
                if node.kind() == "prim::SetAttr":
                    _refuse(f"the quantized tensor {name!r}, to which {method} assigns")
                _make_after(graph, node, holder, name, kind)


def _make_after(graph: Any, node: Any, holder: Any, name: str, kind: str) -> None:
    last, arguments = node, [node.output()]
    for parameter, type_name in _PARAMETERS[kind]:
        reading = graph.create("prim::GetAttr", [holder], 1)
        reading.s_("name", f"{name}_{parameter}")
        reading.output().setType(getattr(torch._C, f"{type_name}Type").get())
        reading.insertAfter(last)
        last = reading
        arguments.append(reading.output())
    made = graph.create(kind, arguments, 1)
    made.insertAfter(last)
    node.output().replaceAllUsesAfterNodeWith(made, made.output())


def save_script(module: Any, path: str | os.PathLike[str] | io.BytesIO) -> None:
    """Write a scripted module that may hold quantized tensors to a file that torch.jit.load reads.

    torch.jit.save does it for modules without QTensors, those of `zeropoint.nn` among them. Of a QTensor it would write
    nothing, and the file could not be loaded.

    Args:
        module: from torch.jit.script or torch.jit.trace; it stays as it is.
        path: a file name or a buffer.

    Raises:
        ValueError: if a QTensor has less than 8 bits, is a constant of the code (frozen), or is assigned in it.

    Example:
        >>> import zeropoint
        >>> class Holder(torch.nn.Module):
        ...     def __init__(self, q: torch.Tensor) -> None:
        ...         super().__init__()
        ...         self.register_buffer("q", q)
        ...
        ...     def forward(self) -> torch.Tensor:
        ...         return torch.ops.zeropoint.dequantize(self.q)
        >>> file = io.BytesIO()
        >>> q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8)
        >>> save_script(torch.jit.trace(Holder(q), ()), file)
        >>> torch.jit.load(io.BytesIO(file.getvalue()))()
        tensor([1., 1.])
    """
    torch.jit.save(without_qtensors(module), path if isinstance(path, io.BytesIO) else os.fspath(path))
