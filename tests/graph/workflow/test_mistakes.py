"""What is said when a model cannot be quantized, or is not used as it was made for."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from few_layers import Layers
from torch import Tensor, nn

import zeropoint
from zeropoint.graph.frontends.export import CaptureError
from zeropoint.graph.lowering.integer import NotCalibrated
from zeropoint.graph.workflow import float_graph

X = torch.ones(2, 4)


class DependsOnData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # the line
            return self.fc(x)
        return x


class Counts(DependsOnData):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)[: int(x.abs().sum().item())]


class UsesNumpy(DependsOnData):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.fc(x).detach().numpy())


def _layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def _mapping() -> Any:
    return zeropoint.get_default_qconfig_mapping("native")


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """The warnings and errors that are logged in a test, by whomever."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append  # type: ignore[method-assign]
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    listened = [logger for logger in loggers if logger is logging.root or not logger.propagate]
    for logger in listened:
        logger.addHandler(handler)
    yield records
    for logger in listened:
        logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("model", "line"),
    [(DependsOnData(), "if x.sum() > 0"), (Counts(), "int(x.abs().sum().item())"), (UsesNumpy(), ".numpy())")],
)
def test_what_cannot_be_captured_is_one_message(
    model: nn.Module, line: str, capfd: pytest.CaptureFixture[str], logged: list[logging.LogRecord]
) -> None:
    with pytest.raises(CaptureError) as caught:
        zeropoint.to_int8(model, (X,))
    message = str(caught.value)
    assert message.startswith(f"torch.export cannot capture {type(model).__name__} at {__file__}:")
    assert line in message
    assert "\n" not in message
    for way_out in ("eager mode (zeropoint.prepare, zeropoint.convert)", "TorchScript", "out of forward"):
        assert way_out in message
    written = capfd.readouterr()
    assert written.out + written.err == ""
    assert logged == []


def test_what_a_model_writes_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    class Talks(DependsOnData):
        def forward(self, x: Tensor) -> Tensor:
            sys.stderr.write("hello")
            return self.fc(x)

    zeropoint.to_int8(Talks(), (X,), progress=False)
    assert "hello" in capsys.readouterr().err


@pytest.mark.parametrize("inputs", [(torch.ones(2, 3),), (), (X, X), ("words",)])
def test_example_inputs_that_do_not_fit(inputs: Any) -> None:
    with pytest.raises(ValueError, match="the model does not run on the example inputs: "):
        zeropoint.prepare_graph(_layers(), _mapping(), inputs)


def test_not_calibrated() -> None:
    prepared = zeropoint.prepare_graph(_layers(), _mapping(), (X,))
    for debug in (False, True):
        with pytest.raises(NotCalibrated, match="saw no data: run the prepared model on some batches"):
            zeropoint.convert_graph(prepared, debug=debug)


def test_calibration_without_batches() -> None:
    with pytest.raises(ValueError, match="calibration has no batches: pass at least one"):
        zeropoint.to_int8(_layers(), (X,), [])


@pytest.mark.parametrize("bad", [torch.ones(2, 5), (X, X), {"y": X}, torch.ones(4)])
def test_batch_that_does_not_fit_is_named_by_its_number(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"to_int8: calibration batch 2 does not fit the model: "):
        zeropoint.to_int8(_layers(), (X,), [X, X, bad], progress=False)


def test_batches_may_be_tuples_and_keywords() -> None:
    layers, other = _layers(), 2 * X
    plain = zeropoint.to_int8(layers, (X,), [X, other, X, other], progress=False)
    mixed = zeropoint.to_int8(layers, (X,), [X, (other,), [X], {"input": other}], progress=False)
    assert torch.equal(mixed(other), plain(other))
    assert not torch.equal(plain(other), zeropoint.to_int8(layers, (X,), [X], progress=False)(other))


def test_sizes_that_a_model_depends_on_are_named() -> None:
    quantized = zeropoint.to_int8(_layers(), (X,), progress=False)
    with pytest.raises(ValueError, match="input has size 5 along axis 1, but the model needs 4 there"):
        quantized(torch.ones(2, 5))
    with pytest.raises(ValueError, match="captured with input of 2 dimensions, got 1 dimensions"):
        quantized(torch.ones(4))


def test_sizes_that_must_be_equal_are_compared() -> None:
    class Sum(DependsOnData):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.fc(x) + self.fc(y)

    quantized = zeropoint.to_int8(Sum(), (torch.ones(3, 4), torch.ones(3, 4)), progress=False)
    quantized(torch.ones(5, 4), torch.ones(5, 4))
    with pytest.raises(ValueError, match="y has size 6 along axis 0, but the model needs 5 there"):
        quantized(torch.ones(5, 4), torch.ones(6, 4))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda m: m.set_module_name("3", None), "'3'"),
        (lambda m: m.set_module_name("0.weight", None), "'0.weight'"),
        (lambda m: m.set_module_name_regex("block.*", None), "'block.*'"),
        (lambda m: m.set_module_name_object_type_order("body", nn.Linear, 0, None), "'body'"),
    ],
)
def test_unknown_names(change: Any, name: str) -> None:
    for prepare in (zeropoint.prepare_graph, zeropoint.prepare_qat_graph):
        with pytest.raises(ValueError, match=f"^qconfig_mapping: the model has no module {re.escape(name)}$"):
            prepare(_layers(), change(_mapping()), (X,))


def test_nothing_quantized() -> None:
    with pytest.raises(
        ValueError, match=r"nothing in this model would be quantized\. Looked for: conv1d, .*linear"
    ) as caught:
        zeropoint.to_int8(nn.Sequential(nn.Sigmoid(), nn.Softplus()).eval(), (X,))
    assert "its input is in float" in str(caught.value)
    assert "no recipe" in str(caught.value)
    with pytest.raises(ValueError, match="qconfig None"):
        zeropoint.prepare_graph(_layers(), zeropoint.QConfigMapping(), (X,))


def test_other_mistakes() -> None:
    with pytest.raises(ValueError, match="mode must be one of static, dynamic, weight_only, got 'int4'"):
        zeropoint.to_int8(_layers(), (X,), mode="int4")
    for mode in ("dynamic", "weight_only"):
        with pytest.raises(ValueError, match="omit calibration"):
            zeropoint.to_int8(_layers(), (X,), [X], mode=mode)
    with pytest.raises(ValueError, match=r"in training mode: call model\.eval"):
        zeropoint.prepare_graph(_layers().train(), _mapping(), (X,))
    with pytest.raises(TypeError, match="must be a QConfigMapping or a dictionary, got QConfig"):
        zeropoint.prepare_graph(_layers(), zeropoint.default_qconfig, (X,))
    with pytest.raises(TypeError, match="expects a model from prepare_graph or prepare_qat_graph, got Sequential"):
        zeropoint.convert_graph(_layers())
    with pytest.raises(NotImplementedError, match=r"convert_custom_config is not supported.*; got dict of 1"):
        zeropoint.convert_graph(zeropoint.prepare_graph(_layers(), _mapping(), (X,)), convert_custom_config={"a": X})
    with pytest.raises(NotImplementedError, match="prepare_custom_config is not supported"):
        zeropoint.prepare_graph(_layers(), _mapping(), (X,), prepare_custom_config={"a": 1})


def test_backend_config_is_refused() -> None:
    config = {"name": "another"}
    for prepare in (zeropoint.prepare_graph, zeropoint.prepare_qat_graph):
        with pytest.raises(NotImplementedError, match=f"{prepare.__name__}: backend_config must be None"):
            prepare(_layers(), _mapping(), (X,), backend_config=config)
    prepared = zeropoint.prepare_graph(_layers(), _mapping(), (X,))
    prepared(X)
    with pytest.raises(NotImplementedError, match="convert_graph: backend_config must be None, got "):
        zeropoint.convert_graph(prepared, backend_config=config)


BIG = torch.arange(10000.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zeropoint.sensitivity(_layers(), X, [BIG]),
        lambda: zeropoint.sensitivity(_layers(), [X], BIG),
        lambda: zeropoint.to_int8(_layers(), (X,), mode=BIG),
        lambda: zeropoint.to_int8(_layers(), (X,), None, BIG),
        lambda: zeropoint.QConfigMapping().set_global(BIG),
        lambda: zeropoint.QConfigMapping().set_object_type(BIG, None),
        lambda: zeropoint.QConfigMapping().set_module_name(BIG, None),
        lambda: zeropoint.QConfigMapping.from_dict([BIG]),
        lambda: zeropoint.QConfigMapping.from_dict({"module_name": [(BIG,)]}),
        lambda: zeropoint.prepare_graph(_layers(), _mapping(), (X,), prepare_custom_config=BIG),
        lambda: zeropoint.MinMaxObserver(dtype=BIG),
        lambda: zeropoint.propagate_qconfig_(_layers(), BIG),
    ],
)
def test_messages_name_shape_and_dtype_of_tensors(call: Any) -> None:
    wrong = (TypeError, ValueError, NotImplementedError)
    with pytest.raises(wrong, match=r"got (Tensor of shape|list of|tuple of)") as caught:
        call()
    assert len(str(caught.value)) < 300


def test_an_error_of_the_model_in_capture_is_not_tried_away() -> None:
    class Breaks(DependsOnData):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            if torch.compiler.is_exporting():
                type(self).calls += 1
                raise KeyError("mine")
            return self.fc(x)

    with pytest.raises(CaptureError, match="mine"):
        zeropoint.to_int8(Breaks(), (X[:1],), progress=False)
    assert Breaks.calls == 1


def test_programs_show_free_sizes_by_the_names_of_the_inputs() -> None:
    quantized = zeropoint.to_int8(_layers(), (X,), [X, -X], progress=False)
    program = zeropoint.compile(quantized, (X,))
    with pytest.raises(
        ValueError, match=r"input 'input' has shape \(2, 5\), the program needs \(input\.size\(0\), 4\)"
    ):
        program(torch.ones(2, 5))


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t().reshape(-1), lambda x: x.diagonal(), lambda x: x.tensor_split(2)[0]],
    ids=["copy", "diagonal", "tensor_split"],
)
def test_a_write_through_a_view_of_what_is_used_again_is_refused(view: Any) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            view(x).relu_()
            return x + 1

    with pytest.raises(NotImplementedError, match=r"writes through a view .* of a tensor that is used again"):
        float_graph(Writes().eval(), (torch.randn(4, 6),))


def assert_written_alike(part: Any, *dynamic_shapes: Any) -> None:
    """A model that writes into what `part` gives of a value gives the same as a graph."""

    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            part(x).relu_()
            return x + 1

    x = torch.randn(4, 6)
    assert torch.equal(float_graph(Writes().eval(), (x,), *dynamic_shapes)(x), Writes()(x))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(-1),
        lambda x: x.reshape(3, 8),
        lambda x: x.flatten(),
        lambda x: x.unflatten(1, (2, 3)),
        lambda x: x.unsqueeze(1),
        lambda x: x[:1].squeeze(0),
        lambda x: x.t(),
        lambda x: x.transpose(-1, 0),
        lambda x: x.view(2, 2, 6).permute(2, 0, -2)[1:],
        lambda x: x.view(2, 2, 6).movedim(0, 2),
        lambda x: x[1:].t().unsqueeze(0).select(1, 2),
    ],
    ids=[
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "unsqueeze",
        "squeeze",
        "t",
        "transpose",
        "permute",
        "movedim",
        "all",
    ],
)
def test_a_write_through_a_view_is_seen_in_what_it_shows(view: Any) -> None:
    assert_written_alike(view, {"x": None})


def _assigned(x: torch.Tensor) -> torch.Tensor:
    x[:, 2] = x[:, 3]
    return x + x.sum()


def _nested(x: torch.Tensor) -> torch.Tensor:
    x[1:][:, 1:] = 5.0
    return x + 1


def _through_a_name(x: torch.Tensor) -> torch.Tensor:
    part = x[1:]
    part.relu_()
    return part.sum() + x


def _read_again(x: torch.Tensor) -> torch.Tensor:
    x[1:].add_(3)
    return x[1:] * 2


def _halves(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2)
    first.relu_()
    return first + second


def _twice(x: torch.Tensor) -> torch.Tensor:
    x.view(-1, 3).t()[1:3].relu_()
    x.transpose(0, 1)[0] = 0.5
    x[1] = x[2]
    return x * 2


@pytest.mark.parametrize("written", [_assigned, _nested, _through_a_name, _read_again, _halves, _twice])
def test_a_write_to_a_part_is_seen_by_who_reads_later(written: Any) -> None:
    class Writes(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return written(self.linear(x) * 2)

    torch.manual_seed(0)
    model, x = Writes(linear=nn.Linear(6, 6)).eval(), torch.randn(4, 6)
    with torch.no_grad():
        torch.testing.assert_close(float_graph(model, (x,))(x), model(x))
        quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
        assert torch.equal(zeropoint.compile(quantized, (x,))(x), quantized(x))


@pytest.mark.parametrize("view", [lambda x: x[1:], lambda x: x.view(-1), lambda x: x.chunk(2)[0].t()])
def test_a_write_that_is_seen_through_a_view_made_before_is_refused(view: Any) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            seen = view(x)
            x.relu_()
            return seen + 1

    with pytest.raises(NotImplementedError, match="read later through another view of it"):
        float_graph(Writes().eval(), (torch.randn(4, 6),))


def _part_then_whole(x: torch.Tensor) -> torch.Tensor:
    part = x[1:]
    part.relu_()
    x.add_(1)
    return part


def _part_twice(x: torch.Tensor) -> torch.Tensor:
    part = x[1:]
    part.relu_()
    part.add_(1)
    return x + 1


def _through_an_order(x: torch.Tensor) -> torch.Tensor:
    part = x.view(-1, 3).t()[1:]
    part.relu_()
    x[0] = 2.0
    return part + 1


@pytest.mark.parametrize("written", [_part_then_whole, _part_twice, _through_an_order])
def test_a_write_to_what_was_written_in_parts_and_is_read_by_another_name_is_refused(written: Any) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return written(x * 2)

    with pytest.raises(NotImplementedError, match="read later through another view of it"):
        float_graph(Writes().eval(), (torch.randn(4, 6),))


@pytest.mark.parametrize(
    "copied",
    [torch.clone, lambda x: x.t().contiguous(), lambda x: x.to(torch.float64), lambda x: x.to(torch.float32)],
    ids=["clone", "contiguous", "another dtype", "the same dtype, which is no copy"],
)
def test_a_write_into_what_conversions_give_is_taken(copied: Any) -> None:
    assert_written_alike(copied)


def test_line_is_named_in_a_folder_that_is_called_zeropoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "zeropoint"
    folder.mkdir()
    (folder / "asking_model.py").write_text(
        "from torch import nn\n\n\nclass Asking(nn.Module):\n    def forward(self, x):\n"
        "        return x if x.sum() > 0 else -x\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    model = importlib.import_module("asking_model").Asking().eval()
    with pytest.raises(zeropoint.CaptureError, match=r"zeropoint/asking_model\.py:6: return x if"):
        zeropoint.to_int8(model, (torch.ones(2, 2),), progress=False)


def test_what_is_no_model_is_described_and_not_printed() -> None:
    not_a_model: Any = X
    with pytest.raises(TypeError, match=r"takes a module, got Tensor of shape \(2, 4\), float32"):
        zeropoint.to_int8(not_a_model, (X,), [X])
