"""ONNX Runtime: the quickest of the ways that it has to quantize a model, and its session at its best."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Ready, Task, Unavailable, best_of, first_line, one_operator_each, quietly

# The names of files, and how they were made.
WAYS = {
    "static": "static, quantize and dequantize nodes",
    "dynamic": "dynamic",
    "fused_static": "its transformer optimizer, then static",
    "fused_dynamic": "its transformer optimizer, then dynamic",
    "nbits8": "MatMulNBits, 8 bits",
    "nbits4": "MatMulNBits, 4 bits",
}


def write(task: Task, folder: Path) -> Path:
    """Export to ONNX, quantize with its own tools in every way that suits the model, keep the quickest file."""
    try:
        import onnxruntime.quantization  # noqa: F401
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ImportError as error:
        raise Unavailable(f"ONNX Runtime is not installed ({first_line(error)})") from error
    made: dict[Path, Ready] = {}
    reason = ""
    with quietly():
        source = _exported(task, folder)
        for way, make in _ways(task, source).items():
            path = folder / f"{way}.onnx"
            try:
                make(path)
                made[path] = load(path, task.arrays, _threads())
                made[path].call()
            except Exception as error:
                made.pop(path, None)
                reason = reason or f"ONNX Runtime, {WAYS[way]}: {first_line(error)}"
        if not made:
            raise Unavailable(reason)
        # One that leaves layers in float is no candidate beside one that does not.
        smallest = min(path.stat().st_size for path in made)
        fair = {path: ready for path, ready in made.items() if path.stat().st_size < 1.5 * smallest}
        best = best_of(fair.values())
        return next(path for path, ready in fair.items() if ready is best)


def _exported(task: Task, folder: Path) -> Path:
    """The float model in ONNX, prepared as its tools ask for.

    The new exporter leaves the weights of recurrent layers as a computation, which its tools do not quantize: such
    models go through the old one, where it takes them.
    """
    import torch
    from onnxruntime.quantization.shape_inference import quant_pre_process
    from torch import nn

    path = folder / "float.onnx"
    given: dict[str, Any] = {"input_names": _names(task)}
    new: dict[str, Any] = {"dynamo": True, "external_data": False}
    recurrent = any(isinstance(module, nn.RNNBase) for module in task.model.modules())
    ways: list[dict[str, Any]] = [{"dynamo": False, "opset_version": 17}] * recurrent + [new]
    error: Exception | None = None
    for way in ways:
        try:
            with torch.no_grad(), one_operator_each():
                torch.onnx.export(task.model, task.inputs, str(path), **given, **way)
            break
        except Exception as raised:
            error = raised
    else:
        raise Unavailable(f"ONNX Runtime: {first_line(error or ValueError('nothing was exported'))}") from error
    with contextlib.suppress(Exception):
        quant_pre_process(str(path), str(path))
    return path


def _ways(task: Task, source: Path) -> dict[str, Callable[[Path], object]]:
    """What makes a file, by its name in WAYS."""
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static

    from zeropoint.graph.policy import evidence_in
    from zeropoint.graph.workflow import float_graph

    def dynamic(path: Path, model: Path = source) -> None:
        quantize_dynamic(model, path, per_channel=True)

    def static(path: Path, model: Path = source) -> None:
        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(model, path, _reader(task), per_channel=True, **kinds)

    if task.weight_bits is not None:
        bits = task.weight_bits
        return {f"nbits{bits}": lambda path: _few_bits(source, path, bits)}
    if task.dynamic:
        return {"dynamic": dynamic}
    if not evidence_in(float_graph(task.model, task.inputs)).attention:
        return {"static": static}
    fused = source.with_name("fused.onnx")

    def after_fusion(make: Callable[[Path, Path], None]) -> Callable[[Path], None]:
        def run(path: Path) -> None:
            if not fused.exists():
                from onnxruntime.transformers.optimizer import optimize_model

                optimize_model(str(source), "bert", num_heads=0, hidden_size=0).save_model_to_file(str(fused))
            make(path, fused)

        return run

    return {
        "static": static,
        "dynamic": dynamic,
        "fused_static": after_fusion(static),
        "fused_dynamic": after_fusion(dynamic),
    }


def _few_bits(source: Path, path: Path, bits: int) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    # Level 4 lets it multiply in 8 bits, the quickest that it has.
    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=128, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


def _reader(task: Task) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            feeds = [dict(zip(_names(task), (x.numpy() for x in batch))) for batch in task.calibration]
            self.feeds: Iterator[dict[str, Any]] = iter(feeds)

        def get_next(self) -> Any:
            return next(self.feeds, None)

    return Reader()


def _names(task: Task) -> list[str]:
    return [f"input_{i}" for i in range(len(task.inputs))]


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def load(path: Path, inputs: Arrays, threads: int) -> Ready:
    """A session with all optimizations of graphs, whose threads spin between the parts of a call and between calls."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), inputs))
    how = WAYS.get(path.stem, path.stem)
    return Ready(lambda: session.run(None, feed)[0], f"{how}; all graph optimizations, threads spin")
