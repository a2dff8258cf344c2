"""Programs in sessions of ONNX Runtime, through the execution provider: ``make onnx-provider`` builds it and runs this.

Not part of the quick tests, because ONNX Runtime's headers are in no package of PyPI.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from divided_files import STEP, by_condition, two_convolutions
from interchange_models import MODELS, case
from onnx import helper
from torch import nn
from ways import as_the_file_says

import zeropoint

LIBRARY = os.environ["ZEROPOINT_ONNX_PROVIDER"]
NAME = "ZeropointExecutionProvider"


@pytest.fixture(scope="session", autouse=True)
def registered() -> Iterator[None]:
    onnxruntime.register_execution_provider_library("zeropoint", LIBRARY)
    yield
    onnxruntime.unregister_execution_provider_library("zeropoint")


def session_of(path: Path | bytes, **options: str) -> onnxruntime.InferenceSession:
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    settings = onnxruntime.SessionOptions()
    settings.add_provider_for_devices(devices, options)
    return onnxruntime.InferenceSession(path if isinstance(path, bytes) else str(path), settings, enable_fallback=0)


def run(session: onnxruntime.InferenceSession, inputs: Any) -> list[Any]:
    return session.run(None, dict(zip([value.name for value in session.get_inputs()], map(np.asarray, inputs))))


def written(path: Path, model: Any = None) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """A program in a file for the provider, and inputs for it."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    model = model or nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    program = zeropoint.compile(zeropoint.to_int8(model, (x,), [x], progress=False), (x,))
    zeropoint.export_onnx(program, None, path, runtime="zeropoint")
    return program, (x,)


@pytest.mark.parametrize("name", list(MODELS))
def test_a_session_gives_the_bytes_of_the_program(name: str, tmp_path: Path) -> None:
    made = case(name)
    program = zeropoint.compile(made.quantized(), made.example)
    path = tmp_path / "model.onnx"
    zeropoint.export_onnx(program, None, path, runtime="zeropoint")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = session_of(path)
    assert NAME in session.get_providers()
    for inputs in (made.example, *made.calibration):
        expected = program(*inputs)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        for result, wanted in zip(run(session, inputs), expected, strict=True):
            assert np.array_equal(result, wanted.numpy())


def test_results_with_channels_last_come_in_the_order_of_the_axes(tmp_path: Path) -> None:
    program, inputs = written(tmp_path / "model.onnx")
    result = run(session_of(tmp_path / "model.onnx"), inputs)[0]
    assert not program(*inputs).is_contiguous()
    assert np.array_equal(result, program(*inputs).numpy())


def test_a_session_runs_in_several_threads(tmp_path: Path) -> None:
    program, inputs = written(tmp_path / "model.onnx")
    session, expected, found = session_of(tmp_path / "model.onnx"), program(*inputs).numpy(), []

    def work() -> None:
        found.extend(np.array_equal(run(session, inputs)[0], expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_operators_around_a_program_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    program, inputs = written(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.node.append(helper.make_node("Neg", ["output_0"], ["y"]))
    model.graph.value_info.append(model.graph.output[0])
    model.graph.output[0].name = "y"
    result = run(session_of(model.SerializeToString()), inputs)[0]
    assert np.array_equal(result, -program(*inputs).numpy())


def test_a_program_beside_the_model_is_read_and_one_elsewhere_is_not(tmp_path: Path) -> None:
    program, inputs = written(tmp_path / "model.onnx")
    program.save(tmp_path / "model.zpt")
    model = onnx.load(tmp_path / "model.onnx")
    attributes = {a.name: a for a in model.graph.node[0].attribute}
    attributes["embed_mode"].i, attributes["ep_cache_context"].s = 0, b"model.zpt"
    onnx.save(model, tmp_path / "beside.onnx")
    assert np.array_equal(run(session_of(tmp_path / "beside.onnx"), inputs)[0], program(*inputs).numpy())
    for elsewhere in (b"../model.zpt", str(tmp_path / "model.zpt").encode(), b""):
        attributes["ep_cache_context"].s = elsewhere
        onnx.save(model, tmp_path / "beside.onnx")
        with pytest.raises(Exception, match="file in the folder of the model"):
            session_of(tmp_path / "beside.onnx")


@pytest.mark.parametrize("damage", [b"", b"not a program", None])
def test_damaged_programs_are_refused_in_words(damage: bytes | None, tmp_path: Path) -> None:
    written(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    context = next(a for a in model.graph.node[0].attribute if a.name == "ep_cache_context")
    context.s = context.s[: len(context.s) // 2] if damage is None else damage
    with pytest.raises(Exception, match="zeropoint: "):
        session_of(model.SerializeToString())


def test_inputs_that_do_not_fit_are_refused_in_words(tmp_path: Path) -> None:
    written(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    for dimension in model.graph.input[0].type.tensor_type.shape.dim:
        dimension.Clear()
    session = session_of(model.SerializeToString())
    with pytest.raises(Exception, match=r"zeropoint: .*input.*shape"):
        run(session, [np.zeros((1, 4, 8, 8), np.float32)])


def test_a_node_with_other_inputs_than_its_program_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.node[0].input.append(model.graph.input[0].name)
    with pytest.raises(Exception, match="the node has 2 inputs, its program 1"):
        session_of(model.SerializeToString())


def test_threads_are_an_option_of_the_provider(tmp_path: Path) -> None:
    program, inputs = written(tmp_path / "model.onnx")
    result = run(session_of(tmp_path / "model.onnx", num_threads="1"), inputs)[0]
    assert np.array_equal(result, program(*inputs).numpy())
    with pytest.raises(Exception, match="threads"):
        session_of(tmp_path / "model.onnx", num_threads="0")


def test_other_compiled_nodes_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    next(a for a in model.graph.node[0].attribute if a.name == "source").s = b"another"
    with pytest.raises(Exception, match="EPContext"):
        session_of(model.SerializeToString())


def test_parts_of_a_quantized_file_run_as_programs_between_nodes_of_onnx_runtime(tmp_path: Path) -> None:
    source = two_convolutions(tmp_path / "source.onnx", *by_condition())
    zeropoint.export_onnx(source, None, tmp_path / "model.onnx", runtime="zeropoint")
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node] == ["EPContext", "If", "EPContext"]
    session = session_of(tmp_path / "model.onnx")
    for batch, shift in ((1, 1.0), (3, -1.0)):
        x = torch.randn(batch, 3, 6, 6) + shift
        assert np.abs(run(session, (x,))[0] - as_the_file_says(source, (x,))).max() <= 1.01 * STEP


def test_outputs_come_in_any_order_and_need_not_be_read(tmp_path: Path) -> None:
    class Three(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x - y, (x > y), x.argmax(-1)

    torch.manual_seed(0)
    example = (torch.randn(3, 4), torch.randn(3, 4))
    program = zeropoint.compile(Three().eval(), example)
    zeropoint.export_onnx(program, None, tmp_path / "model.onnx", runtime="zeropoint")
    for kept in ((2, 0), (1,), (2, 1, 0)):
        model = onnx.load(tmp_path / "model.onnx")
        inputs, outputs = list(model.graph.input), list(model.graph.output)
        model.graph.ClearField("output")
        model.graph.output.extend(outputs[place] for place in kept)
        model.graph.value_info.extend(value for place, value in enumerate(outputs) if place not in kept)
        model.graph.ClearField("input")
        model.graph.input.extend(inputs[::-1])
        expected = program(*example)
        session = session_of(model.SerializeToString())
        given = dict(zip((value.name for value in inputs), (x.numpy() for x in example)))
        for result, place in zip(session.run(None, given), kept, strict=True):
            assert np.array_equal(result, expected[place].numpy())
