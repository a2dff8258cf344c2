"""OpenVINO, with a model quantized by NNCF; with `weight_bits`, whose weights NNCF has compressed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Ready, Task, Unavailable, best_of, first_line, one_operator_each, quietly


def write(task: Task, folder: Path) -> Path:
    """Convert, quantize, save; weights are in a second file beside the first."""
    from zeropoint.graph.policy import evidence_in
    from zeropoint.graph.workflow import float_graph

    try:
        import nncf
        import openvino
    except ImportError as error:
        raise Unavailable(f"OpenVINO with NNCF is not installed ({first_line(error)})") from error
    path = folder / "int8.xml"
    with quietly():
        try:
            with one_operator_each():
                converted = _converted(task)
            if task.weight_bits is not None:
                quantized = nncf.compress_weights(converted, **_compression(task.weight_bits))
            else:
                data = nncf.Dataset([[x.numpy() for x in batch] for batch in task.calibration])
                attends = evidence_in(float_graph(task.model, task.inputs)).attention
                kind = {"model_type": nncf.ModelType.TRANSFORMER} if attends else {}
                quantized = nncf.quantize(converted, data, subset_size=len(task.calibration), **kind)
            openvino.save_model(quantized, path, compress_to_fp16=False)
        except Exception as error:
            raise Unavailable(f"OpenVINO: {first_line(error)}") from error
    return path


def accurate(
    model: Any,
    example: tuple[Any, ...],
    calibration: list[Any],
    metric: Callable[[Any], float] | None = None,
    target: float = 0.0,
    *,
    fast: bool = False,
    file: Path | None = None,
) -> Any:
    """A model quantized by NNCF with its slower, more accurate bias correction: tensors in, a tensor out.

    Transformers get SmoothQuant, as NNCF has it for them. What stays float is computed in float32: by default OpenVINO
    takes bfloat16 where a CPU has it.

    Args:
        metric: with one, NNCF takes layers back to float until it is at least `target` (accuracy control). It ranks
            layers by the error of the outputs, on two batches.
        fast: its quicker bias correction, which it has by default.
        file: the ONNX file that the model was read from, which OpenVINO reads itself.
    """
    import nncf
    import openvino

    from zeropoint.graph.policy import evidence_in
    from zeropoint.graph.workflow import float_graph

    batches = [[x.numpy() for x in (batch if isinstance(batch, tuple) else (batch,))] for batch in calibration]
    with quietly():
        if file is not None:
            converted = openvino.convert_model(file)
        else:
            free = [openvino.PartialShape([-1] * x.dim()) for x in example]
            converted = openvino.convert_model(model, example_input=example, input=free)
        for place, given in enumerate(converted.outputs):
            if not given.get_names():  # NNCF finds results by their names
                given.get_tensor().set_names({f"result_{place}"})
        attends = evidence_in(float_graph(model, example)).attention
        kind = {"model_type": nncf.ModelType.TRANSFORMER} if attends else {}
        options = {"subset_size": len(batches), "fast_bias_correction": fast, **kind}
        if metric is None:
            return _compiled(nncf.quantize(converted, nncf.Dataset(batches), **options))

        def judged(compiled: Any, items: Any) -> tuple[float, list[list[Any]]]:
            return metric(_called(compiled)), [list(compiled(item).values()) for item in items]

        drop = max(metric(_compiled(converted)) - target, 0.0)
        return _compiled(
            nncf.quantize_with_accuracy_control(
                converted, nncf.Dataset(batches), nncf.Dataset(batches[:2]), judged, max_drop=drop, **options
            )
        )


def _compiled(model: Any) -> Callable[..., Any]:
    import openvino

    return _called(openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}))


def _called(compiled: Any) -> Callable[..., Any]:
    """A compiled model as a function of tensors."""
    import torch

    def call(*inputs: Any) -> Any:
        found = [torch.from_numpy(array.copy()) for array in compiled([x.numpy() for x in inputs]).values()]
        return found[0] if len(found) == 1 else tuple(found)

    return call


def _converted(task: Task) -> Any:
    """A module is traced; where that fails, and of a graph of torch.export, what torch.export gives is taken."""
    import openvino
    import torch

    from zeropoint.graph.frontends.export import is_exported

    if not is_exported(task.model):
        with contextlib.suppress(Exception):
            shapes = [x.shape for x in task.inputs]
            return openvino.convert_model(task.model, example_input=task.inputs, input=shapes)
    with torch.no_grad():
        return openvino.convert_model(torch.export.export(task.model, task.inputs))


def _compression(bits: int) -> dict[str, Any]:
    import nncf

    if bits == 8:
        return {"mode": nncf.CompressWeightsMode.INT8_ASYM}
    return {"mode": nncf.CompressWeightsMode.INT4_SYM, "group_size": 128, "ratio": 1.0}


def load(path: Path, inputs: Arrays, threads: int) -> Ready:
    """Compiled for latency; of batches, also for throughput, with as many requests at a time as it asks for."""
    import openvino

    given, core = list(inputs), openvino.Core()

    def for_latency() -> Ready:
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(path, "CPU", options).create_infer_request()
        call = lambda: request.infer(given, share_inputs=True, share_outputs=True)[0]  # noqa: E731
        return Ready(call, "NNCF, latency hint")

    def for_throughput() -> Ready:
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "THROUGHPUT"}
        compiled = core.compile_model(path, "CPU", options)
        requests = [
            compiled.create_infer_request() for _ in range(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        ]

        def call() -> Any:
            for request in requests:
                request.start_async(given, share_inputs=True)
            for request in requests:
                request.wait()
            return requests[0].get_output_tensor(0).data

        return Ready(call, f"NNCF, throughput hint, {len(requests)} requests at a time", len(requests))

    if inputs[0].shape[:1] in ((), (1,)):
        return for_latency()
    return best_of([for_latency(), for_throughput()])
