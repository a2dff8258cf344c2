"""Quantized models into ONNX files."""

from __future__ import annotations

import operator
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.atomic_file import replacing
from zeropoint.compiler.compiler import Recorder, call_name, compile, graph_to_compile, read_nodes
from zeropoint.compiler.errors import Missing, Unsupported
from zeropoint.compiler.restore import restore
from zeropoint.described import described
from zeropoint.graph.frontends.export import capture, is_exported
from zeropoint.graph.passes.input_checks import Sizes
from zeropoint.graph.state_buffers import kept_state
from zeropoint.installation import install_command
from zeropoint.interop.onnx.context import SOURCE, context_model
from zeropoint.operators import ONNX_WRITES
from zeropoint.runtime import Program

_IR_VERSION = 10  # of opset 21
_LARGE = 2**31 - 2**24  # a protobuf file ends before 2 GiB; weights of larger models lie beside it
VALUE = "zeropoint.value"  # metadata of operators: the name of the value in our graph
RUNTIMES = ("onnx", "onnxruntime", "openvino", SOURCE)


def export_onnx(
    model: nn.Module | Program | str | os.PathLike[str],
    example_inputs: Any,
    path: str | os.PathLike[str],
    *,
    runtime: str = "onnx",
) -> None:
    """Export a quantized model or a program to ONNX in QDQ format (opset 21).

    Preserves scales and zero points. Dynamic sizes become named dimensions. Other runtimes can round differently, by
    one step of a tensor; see docs/interchange.md.

    Args:
        model: a quantized model, as for `compile`, from `to_int8`, `convert_graph`, `convert_jit`, `convert` or
            `quantize_dynamic`; or such a model from a .pt2 file; or a program, also from a .zpt file, whose fused steps
            are split. For the runtime "zeropoint", also the path of a quantized ONNX file.
        example_inputs: a tuple of positional arguments, or a dictionary of keyword arguments; None for a program. For
            an ONNX file, None means zeros of the sizes in the file, and 2 for dynamic sizes.
        path: the file to write. Weights of 2 GB and more go to ``<path>.data``.
        runtime: the target. "onnx" uses standard operators only. "onnxruntime" also uses operators that only ONNX
            Runtime supports or runs fast: DynamicQuantizeLSTM, which multiplies in 8 bits, and clamps on integers.
            "openvino" is like "onnx", with float recurrent weights, which OpenVINO needs in static models. "zeropoint"
            writes the program as one node for zeropoint's execution provider in ONNX Runtime; of an ONNX file, the
            parts that compute on integers become such nodes, and the rest stays; see docs/interchange.md.

    Raises:
        Unsupported: if ONNX cannot express some operators; the message lists all of them. Also for programs with state.

    Example:
        >>> import tempfile, onnx, zeropoint
        >>> layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
        >>> model = zeropoint.to_int8(layers, (x,), [x], progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     zeropoint.export_onnx(model, (x,), f"{folder}/model.onnx")
        ...     [node.op_type for node in onnx.load(f"{folder}/model.onnx").graph.node][:4]
        ['QuantizeLinear', 'DequantizeLinear', 'DequantizeLinear', 'Gemm']
    """
    if runtime not in RUNTIMES:
        raise ValueError(f"export_onnx: runtime must be one of {', '.join(RUNTIMES)}, got {runtime!r}")
    try:
        import onnx_ir as ir
    except ImportError as error:
        raise ImportError(f"export_onnx needs onnx and onnx-ir: {install_command('onnx')}") from error
    if isinstance(model, Program) and example_inputs is not None:
        raise ValueError("export_onnx: example_inputs must be None for a program, which has its own example")
    if isinstance(model, (str, os.PathLike)) and runtime != SOURCE:
        raise ValueError(f"export_onnx: an ONNX file is taken for runtime={SOURCE!r} only: pass from_onnx(file)")
    if runtime == SOURCE:
        with replacing(path) as new:
            new.write_bytes(_for_provider(model, example_inputs).SerializeToString())
        return
    if isinstance(model, Program):
        model, example_inputs = restore(model)
    if is_exported(model):  # from a .pt2 file
        model = capture(model, example_inputs)
    graph, example = graph_to_compile("export_onnx", model, example_inputs)
    made = _model(graph, example, runtime)
    size = sum(value.const_value.nbytes for value in made.graph.initializers.values() if value.const_value is not None)
    path = Path(path)
    with replacing(path) as new:
        if size >= _LARGE:
            beside = path.with_name(path.name + ".data")
            beside.unlink(missing_ok=True)
            ir.save(made, new, external_data=beside.name)
        else:
            ir.save(made, new)


def _for_provider(model: Any, example_inputs: Any) -> Any:
    if isinstance(model, (str, os.PathLike)):
        from zeropoint.interop.onnx.partition import with_programs

        return with_programs(model, example_inputs)
    return context_model(model if isinstance(model, Program) else compile(model, example_inputs))


def _model(graph: fx.GraphModule, example: tuple[Any, ...], runtime: str) -> Any:
    import onnx_ir as ir

    from zeropoint.interop.onnx.writer import OPSET

    with torch.no_grad():
        made = _File(graph, example, runtime)
        made.run()
    w = made.w
    imports = {"": OPSET, **dict.fromkeys(sorted(w.domains), 1)}
    whole = ir.Graph(
        made.inputs, made.outputs, nodes=w.tape.nodes, initializers=w.tape.initializers, opset_imports=imports,
        name=type(graph).__name__,
    )  # fmt: skip
    return ir.Model(whole, ir_version=_IR_VERSION, producer_name="zeropoint")


class _File:
    """A graph, written node by node."""

    def __init__(self, graph: fx.GraphModule, example: tuple[Any, ...], runtime: str) -> None:
        from zeropoint.interop.onnx.writer import Writer

        recorder = Recorder(graph)
        with kept_state(graph):
            recorder.run(*example)
        self.graph, self.w = graph, Writer(recorder.found, recorder.fixed, runtime)
        self.missing = Missing("export_onnx", "")
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def run(self) -> None:
        read = read_nodes(self.graph.graph)
        for node in self.graph.graph.nodes:
            self.w.begin(node)
            if node in read and not self.missing.is_behind(node) and node.op != "get_attr":
                getattr(self, f"_{node.op}")(node)
        self.missing.check()

    def _placeholder(self, node: fx.Node) -> None:
        import onnx_ir as ir

        from zeropoint.interop.onnx.writer import DTYPES

        found = self.w.found[node]
        if found is None:
            return
        if not isinstance(found, Tensor):
            raise self.w.unsupported(f"input {node.target!r} must be a tensor, got {described(found)}")
        shape = self._dimensions(node, list(found.shape))
        made = ir.val(self.w.fresh(str(node.target)), DTYPES[found.dtype], shape)
        self.w.values[node] = self.w.typed(made, found.dtype)
        self.inputs.append(made)

    def _dimensions(self, node: fx.Node, shape: list[int]) -> list[int | str]:
        """Sizes that are fixed, and names for those that are free: the same for those that must be equal."""
        for module in self.graph.modules():
            if isinstance(module, Sizes) and str(node.target) in module.names:
                expected = module.expected[module.names.index(str(node.target))]
                if isinstance(expected, list):
                    return [
                        size if isinstance(size, int) else _dimension(size, str(node.target), axis)
                        for axis, size in enumerate(expected)
                    ]
        return list(shape)

    def _call_module(self, node: fx.Node) -> None:
        if not isinstance(self.graph.get_submodule(str(node.target)), Sizes):
            raise self.w.unsupported("it has no integer version in this graph")

    def _call_function(self, node: fx.Node) -> None:
        from zeropoint.interop.onnx.sizes import SIZES

        if node in self.w.fixed:  # stored when an operator reads it
            return
        if node.target is operator.getitem:
            whole = self.w.values[node.args[0]]
            self.w.values[node] = whole[node.args[1]] if isinstance(whole, (list, tuple)) else whole
            return
        name = call_name(node.target)
        write = SIZES.get(name) or ONNX_WRITES.get(name)
        try:
            if write is None:
                raise self.w.unsupported("ONNX has no operator for it")
            self.w.values[node] = write(self.w, node)
        except Unsupported as reason:
            self.missing.add(node, reason)
            return
        self._name(node)

    def _name(self, node: fx.Node) -> None:
        """Say in the file which value of the model an operator gives, for who compares the two."""
        value = self.w.values[node]
        producer = value.producer() if hasattr(value, "producer") else None
        if producer is not None:
            producer.metadata_props.setdefault(VALUE, node.name)

    def _output(self, node: fx.Node) -> None:
        import onnx_ir as ir

        from zeropoint.interop.onnx.writer import DTYPES

        flat = list(node.args[0]) if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        for number, part in enumerate(flat):
            if not isinstance(part, fx.Node):
                raise self.w.unsupported(f"the model returns {part!r}, which is not a tensor")
            found = self.w.found[part]
            if not isinstance(found, Tensor):
                raise self.w.unsupported(f"the model returns {described(found)}, which is not a tensor")
            # An output of its own, as the same value may be an input, or given twice.
            made = self.w.op("Identity", self.w.tensor(part))
            made.name = self.w.fresh("output" if len(flat) == 1 else f"output_{number}")
            made.type, made.shape = ir.TensorType(DTYPES[found.dtype]), self._result_shape(part, found)
            self.outputs.append(made)

    def _result_shape(self, node: fx.Node, found: Tensor) -> Any:
        """Only the number of axes is said: sizes that follow from free ones have no names."""
        import onnx_ir as ir

        is_free = any(isinstance(size, str) for value in self.inputs for size in _named(value.shape))
        return ir.Shape([None] * found.dim()) if is_free else ir.Shape(list(found.shape))


def _named(shape: Any) -> list[Any]:
    return [size if isinstance(size, int) else str(size) for size in shape]


def _dimension(size: Any, name: str, axis: int) -> str:
    """``batch`` for the first axis of the first input, ``x_size_1`` for ``x.size(1)``."""
    text = str(size) if size else f"{name}.size({axis})"
    return re.sub(r"\W+", "_", text).strip("_")
