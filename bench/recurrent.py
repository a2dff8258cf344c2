"""LSTM and GRU against PyTorch's dynamically quantized ones, with ONNX Runtime's and float32 beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import zeropoint
from bench.timing import CALL, Row, made_late
from zeropoint import qfunctions

INPUTS = HIDDEN = 256
STEPS = 160
ASKED = {torch.qint8: 2.0, torch.float16: 1.0}


def rows() -> Iterator[Row]:
    for kind in ("LSTM", "GRU"):
        for layers, bidirectional in ((1, False), (2, True)):
            module = getattr(torch.nn, kind)(INPUTS, HIDDEN, layers, bidirectional=bidirectional).eval()
            for batch in (1, 16):
                for dtype in ASKED:
                    bits = str(dtype).removeprefix("torch.q").removeprefix("torch.")
                    name = f"{kind} {bits}, {layers} layer{'s, both ways' if bidirectional else ''}"
                    yield made_late(f"{name}, batch {batch}", _row, kind, module, batch, dtype, alike=name)


def _row(kind: str, module: torch.nn.RNNBase, batch: int, dtype: torch.dtype) -> Row:
    theirs = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(module), {type(module)}, dtype=dtype)[0]
    cells = _cells(theirs, dtype)
    x = torch.randn(STEPS, batch, INPUTS)
    h = torch.zeros(len(cells), batch, HIDDEN)
    hx: Any = [h, h] if kind == "LSTM" else h
    run = qfunctions.quantized_lstm if kind == "LSTM" else qfunctions.quantized_gru
    options = True, module.num_layers, 0.0, False, module.bidirectional, False
    peers: dict[str, CALL] = {"torch": torch.inference_mode()(lambda: theirs(x))}
    targets = {"torch": ASKED[dtype]}
    if dtype == torch.qint8:
        peers["float32"] = torch.inference_mode()(lambda: module(x))
        targets["float32"] = 0.0
        if (call := _onnxruntime(module, x)) is not None:
            peers["onnxruntime"] = call
            targets["onnxruntime"] = 1.0
    return Row("", lambda: run(x, hx, cells, *options), peers, targets)


def _cells(module: Any, dtype: torch.dtype) -> list[qfunctions.CellParams]:
    """The weights of a module that PyTorch quantized, packed anew."""
    cells = []
    for parameter in module._all_weight_values:
        packed = parameter.param.__getstate__()[0][4]
        if dtype == torch.float16:
            halves = [torch.ops.quantized.linear_unpack_fp16(p) for p in packed]
            made = [qfunctions.linear_prepack_fp16(w, b) for w, b in halves]
            cells.append(qfunctions.make_quantized_cell_params_fp16(*made))
        else:
            weights = [torch.ops.quantized.linear_unpack(p) for p in packed]
            ours = [
                qfunctions.linear_prepack(
                    zeropoint.make_per_tensor_quantized_tensor(w.int_repr(), w.q_scale(), w.q_zero_point()), b
                )
                for w, b in weights
            ]
            cells.append(qfunctions.make_quantized_cell_params_dynamic(*ours, None, None, True))
    return cells


def _onnxruntime(module: torch.nn.RNNBase, x: torch.Tensor) -> CALL | None:
    """The same layers, quantized dynamically by ONNX Runtime, which has LSTM only; None if it is not installed."""
    try:
        import onnx
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        return None
    if not isinstance(module, torch.nn.LSTM):
        return None
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    directions = 2 if module.bidirectional else 1
    nodes, tensors, source = [], [], "x"
    order = torch.cat([torch.arange(HIDDEN) + gate * HIDDEN for gate in (0, 3, 1, 2)])  # ONNX: i, o, f, c
    for layer in range(module.num_layers):
        parts: dict[str, list[torch.Tensor]] = {"W": [], "R": [], "B": []}
        for d in range(directions):
            end = f"l{layer}{'_reverse' if d else ''}"
            parts["W"].append(getattr(module, f"weight_ih_{end}")[order])
            parts["R"].append(getattr(module, f"weight_hh_{end}")[order])
            biases = [getattr(module, f"bias_{which}_{end}")[order] for which in ("ih", "hh")]
            parts["B"].append(torch.cat(biases))
        names = [f"{part}{layer}" for part in parts]
        tensors += [numpy_helper.from_array(torch.stack(p).detach().numpy(), n) for p, n in zip(parts.values(), names)]
        nodes.append(
            helper.make_node(
                "LSTM",
                [source, *names],
                [f"y{layer}"],
                hidden_size=HIDDEN,
                direction="bidirectional" if directions == 2 else "forward",
            )
        )
        # (steps, directions, batch, hidden) -> (steps, batch, directions * hidden)
        nodes.append(helper.make_node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]))
        shape = torch.tensor([0, 0, -1]).numpy()
        tensors.append(numpy_helper.from_array(shape, f"shape{layer}"))
        nodes.append(helper.make_node("Reshape", [f"t{layer}", f"shape{layer}"], [f"out{layer}"]))
        source = f"out{layer}"
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [helper.make_tensor_value_info("x", kind, list(x.shape))],
        [helper.make_tensor_value_info(source, kind, None)],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "small.onnx"
        onnx.save(model, plain)
        quantize_dynamic(plain, small, op_types_to_quantize=["LSTM"], weight_type=QuantType.QInt8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(str(small), options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)
