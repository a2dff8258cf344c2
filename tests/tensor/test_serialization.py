"""QTensors in files, pickles, copies and modules."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from forked import run_forked
from hypothesis import given
from pairs import BYTES, PACKED, assert_equal_qtensors, every_kind, make
from safetensors import safe_open
from safetensors.torch import save_file
from saving import WAYS, torch_saved, ways
from strategies import assert_same, examples

import zeropoint
from zeropoint.numerics.dtypes import QuantizedDtype, qint8, quint4x2, quint8
from zeropoint.tensor import QTensor
from zeropoint.tensor.errors import QTensorError

# -------------------------------------------------------------------------------------------------- pickles and copies


@ways
@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_every_kind_comes_back(dtype: QuantizedDtype, scheme: str, way: Any) -> None:
    for q in (
        make(dtype, scheme),
        make(dtype, scheme, (2, 3, 4, 5), axis=1).contiguous(memory_format=torch.channels_last),
        make(dtype, scheme, (0, 3), axis=1),
        make(dtype, scheme, (3, 5))[1:, ::2],
    ):
        loaded = way(q)
        assert_equal_qtensors(loaded, q)
        assert loaded._data.untyped_storage().data_ptr() != q._data.untyped_storage().data_ptr() or not q.numel()


# Not pickle alone: it stores each tensor with memory of its own, as it does for floats.
@pytest.mark.parametrize("way", [WAYS[name] for name in ("weights_only", "torch.load", "deepcopy")])
@pytest.mark.parametrize("dtype", [*BYTES, *PACKED], ids=repr)
def test_views_share_memory_again(dtype: QuantizedDtype, way: Any) -> None:
    q = make(dtype, shape=(15, 2))
    base, column = way((q, q[:, 1]))
    assert_equal_qtensors(base, q)
    assert_equal_qtensors(column, q[:, 1])
    assert base._data.untyped_storage().data_ptr() == column._data.untyped_storage().data_ptr()
    # Still part of a larger tensor: what is written to it gets that tensor's qparams.
    column.copy_(zeropoint.quantize_per_tensor(torch.zeros(15), 9.0, 0, dtype))
    assert column.q_scale() == 0.25
    assert base.dequantize()[:, 1].eq(0).all()
    column.fill_(0.25)
    assert base.dequantize()[:, 1].eq(0.25).all()


def test_deepcopy_keeps_identity() -> None:
    q = make(quint8)
    first, second = copy.deepcopy([q, q])
    assert first is second
    assert copy.copy(q).data_ptr() == q.data_ptr()


def test_attributes_travel() -> None:
    q = make(quint8)
    q.origin = "somewhere"  # type: ignore[attr-defined]
    for way in WAYS.values():
        assert way(q).origin == "somewhere"


def test_map_location() -> None:
    q = torch_saved(make(qint8, "per_channel"), map_location="meta", weights_only=True)
    assert q.device.type == q.q_per_channel_scales().device.type == "meta"


def test_safe_globals_need_no_more_than_the_import(tmp_path: Path) -> None:
    torch.save(make(quint8), tmp_path / "q.pt")
    code = f"import torch, zeropoint; print(torch.load({str(tmp_path / 'q.pt')!r}, weights_only=True).q_scale())"
    ran = run_forked(code)
    assert ran.stdout.strip() == "0.25", ran.stderr


def test_a_pickle_cannot_claim_what_is_not_there() -> None:
    from zeropoint.tensor.qtensor import rebuild

    data = torch.zeros(4, dtype=torch.uint8)
    assert rebuild(data, "quint8", (0.1, 3), None).shape == (4,)
    for parts in (
        (data, "qint8", (0.1, 3), None),
        (data, "quint4x2", (0.1, 3), None),
        (data, "quint4x2", (0.1, 3), ((9,), (1,), 0)),
        (data, "quint4x2", (0.1, 3), ((4,), (1,), 5)),
        (data, "quint4x2", (0.1, 3), ((4,), (-1,), 5)),
        (data, "quint4x2", (0.1, 3), ((4, 1), (1,), 0)),
        (data, "quint8", (0.1, 300), None),
        (data, "quint8", (torch.ones(3), torch.zeros(3, dtype=torch.int64), 0), None),
    ):
        with pytest.raises(QTensorError):
            rebuild(*parts)


def put(queue: Any, q: QTensor) -> None:
    queue.put((q.dequantize().sum().item(), q.q_scale()))


def test_other_processes() -> None:
    context = torch.multiprocessing.get_context("fork")
    queue = context.Queue()
    q = make(quint8).share_memory_()
    assert q.is_shared()
    process = context.Process(target=put, args=(queue, q))
    process.start()
    assert queue.get(timeout=60) == (q.dequantize().sum().item(), 0.25)
    process.join()


# -------------------------------------------------------------------------------------------------------------- modules


class Holder(torch.nn.Module):
    def __init__(self, buffer: QTensor, parameter: QTensor) -> None:
        super().__init__()
        self.register_buffer("buffer", buffer)
        self.parameter = torch.nn.Parameter(parameter, requires_grad=False)


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_modules_hold_quantized_tensors(dtype: QuantizedDtype, scheme: str) -> None:
    module = Holder(make(dtype, scheme), make(dtype, scheme))
    assert isinstance(module.parameter, torch.nn.Parameter)
    assert isinstance(module.parameter, QTensor)
    state = torch_saved(module.state_dict(), weights_only=True)
    for load in ({}, {"assign": True}):
        # Other qparams: loading takes over those of the file.
        x = torch.zeros(3, 4)
        other = Holder(*(zeropoint.quantize_per_tensor(x, 9.0, 1, dtype) for _ in range(2)))
        other.load_state_dict(state, **load)
        for name in ("buffer", "parameter"):
            assert_equal_qtensors(getattr(other, name), make(dtype, scheme))
        assert list(other.state_dict()) == ["parameter", "buffer"]


@pytest.mark.parametrize("move", [lambda m: m.to("cpu"), lambda m: m.cpu()], ids=["to", "cpu"])
def test_modules_move_without_a_change(move: Any) -> None:
    module = move(Holder(make(quint8), make(qint8, "per_channel")))
    assert_equal_qtensors(module.buffer, make(quint8))
    assert_equal_qtensors(module.parameter, make(qint8, "per_channel"))
    assert isinstance(module.parameter, torch.nn.Parameter)


def test_modules_that_hold_qtensors_refuse_another_dtype() -> None:
    with pytest.raises(QTensorError, match=r"half\(\) would drop the qparams"):
        Holder(make(quint8), make(quint8)).half()


def test_modules_move_to_meta() -> None:
    module = Holder(make(quint4x2), make(qint8, "per_channel")).to("meta")
    assert module.buffer.device.type == module.parameter.q_per_channel_scales().device.type == "meta"
    assert module.buffer.shape == (3, 4)


def test_modules_are_copied_whole() -> None:
    module = Holder(make(quint8), make(quint8))
    for clone in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch_saved(module, weights_only=False)):
        assert isinstance(clone.parameter, torch.nn.Parameter)
        assert_equal_qtensors(clone.buffer, module.buffer)


# ---------------------------------------------------------------------------------------------------------- safetensors


@pytest.mark.parametrize(("dtype", "scheme"), every_kind())
def test_safetensors(dtype: QuantizedDtype, scheme: str, tmp_path: Path) -> None:
    base = make(dtype, scheme, (5, 4))
    tensors = {
        "q": make(dtype, scheme),
        "last": make(dtype, scheme, (2, 3, 4, 5), axis=1).contiguous(memory_format=torch.channels_last),
        "empty": make(dtype, scheme, (0, 3), axis=1),
        "base": base,
        "rows": base[1:3],
        "tied": base,
        "strided": make(dtype, scheme, (4, 4))[:, ::2],
        "plain": torch.randn(3, 2),
        "half": torch.randn(3).half(),
        "transposed": torch.randn(3, 2).t(),
        "scalar": torch.tensor(3),
    }
    zeropoint.save_qtensors(tensors, tmp_path / "t.safetensors", {"author": "me"})
    loaded = zeropoint.load_qtensors(tmp_path / "t.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        if isinstance(tensor, QTensor) and name != "strided":
            assert_equal_qtensors(loaded[name], tensor)
        elif isinstance(tensor, QTensor):
            assert_same(loaded[name].dequantize(), tensor.dequantize())
        else:
            assert_same(loaded[name], tensor)
    addresses = {name: loaded[name]._data.untyped_storage().data_ptr() for name in ("base", "rows", "tied")}
    assert len(set(addresses.values())) == 1
    with safe_open(tmp_path / "t.safetensors", "pt") as file:
        assert file.metadata()["author"] == "me"


def test_safetensors_of_no_tensors_and_on_a_device(tmp_path: Path) -> None:
    zeropoint.save_qtensors({}, tmp_path / "none")
    assert zeropoint.load_qtensors(tmp_path / "none") == {}
    zeropoint.save_qtensors({"q": make(quint8)}, str(tmp_path / "q"))
    assert zeropoint.load_qtensors(str(tmp_path / "q"), device=torch.device("cpu"))["q"].device.type == "cpu"


def test_safetensors_hold_integers_anyone_can_read(tmp_path: Path) -> None:
    q = make(qint8, "per_channel")
    zeropoint.save_qtensors({"w": q}, tmp_path / "w")
    with safe_open(tmp_path / "w", "pt") as file:
        assert_same(file.get_tensor("w"), q.int_repr())
        assert_same(file.get_tensor("w::scales"), q.q_per_channel_scales())
        description = json.loads(file.metadata()["zeropoint"])
    assert description == {"version": 1, "quantized": {"w": {"dtype": "qint8", "axis": 0}}, "views": {}}


@pytest.mark.parametrize(
    ("tensors", "metadata", "words"),
    [
        ({"a::b": torch.ones(1)}, None, "'a::b' contains '::'"),
        ({"a": torch.ones(1)}, {"zeropoint": "mine"}, "'zeropoint' is reserved"),
        ({"a": torch.ones(1, device="meta")}, None, "no values to save"),
        ({"a": 3}, None, "'a' is not a tensor but int"),
    ],
)
def test_what_cannot_be_saved(tensors: Any, metadata: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        zeropoint.save_qtensors(tensors, tmp_path / "no", metadata)
    assert not (tmp_path / "no").exists()


def test_foreign_and_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        zeropoint.load_qtensors(path)
    path.write_bytes(b"no safetensors at all")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        zeropoint.load_qtensors(path)
    save_file({"x": torch.ones(2)}, path)
    with pytest.raises(ValueError, match=r"did not write it: read it with safetensors\.torch\.load_file"):
        zeropoint.load_qtensors(path)
    zeropoint.save_qtensors({"q": make(quint8)}, path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        zeropoint.load_qtensors(path)


GOOD = {
    "version": 1,
    "quantized": {
        "q": {"dtype": "quint8", "scale": 0.1, "zero_point": 3},
        "c": {"dtype": "qint8", "axis": 0},
        "p": {"dtype": "quint4x2", "scale": 0.1, "zero_point": 3, "size": [4], "stride": [1], "offset": 0},
    },
    "views": {"v": {"of": "memory::0", "size": [2, 2], "stride": [2, 1], "offset": 0}},
}
CONTENT = {
    "q": torch.zeros(3, dtype=torch.uint8),
    "c": torch.zeros(2, 2, dtype=torch.int8),
    "c::scales": torch.ones(2, dtype=torch.float64),
    "c::zero_points": torch.zeros(2, dtype=torch.int64),
    "p": torch.zeros(2, dtype=torch.uint8),
    "memory::0": torch.zeros(4),
}


def written(path: Path, description: Any, without: str | None = None) -> Path:
    save_file({k: v for k, v in CONTENT.items() if k != without}, path, {"zeropoint": json.dumps(description)})
    return path


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("version",), 2, "version 2, this zeropoint reads 1"),
        (("version",), None, "version None"),
        (("quantized", "q", "dtype"), "quint7", "'q' cannot be restored: dtype must be one of"),
        (("quantized", "q", "dtype"), "qint8", "the integers of a qint8 tensor are int8, got torch.uint8"),
        (("quantized", "q", "scale"), "0.1", "are not numbers"),
        (("quantized", "q", "scale"), float("nan"), "are not numbers"),
        (("quantized", "q", "zero_point"), 0.5, "are not numbers"),
        (("quantized", "q", "zero_point"), 300, "outside the range"),
        (("quantized", "c", "axis"), 2, "axis 2 is out of range"),
        (("quantized", "c", "axis"), -1, "expected a list of sizes"),
        (("quantized", "c", "axis"), "0", "expected a list of sizes"),
        (("quantized", "p", "size"), [9], "bytes do not hold"),
        (("quantized", "p", "stride"), [-1], "expected a list of sizes"),
        (("quantized", "p", "offset"), 9, "bytes do not hold"),
        (
            ("quantized", "missing"),
            {"dtype": "quint8", "scale": 1.0, "zero_point": 0},
            "integers of 'missing' are missing",
        ),
        (("views", "v", "of"), "memory::9", "storage 'memory::9' of 'v' is missing"),
        (("views", "v", "stride"), [9, 9], "'v' exceeds its storage"),
        (("views", "v", "size"), [2], "'v' exceeds its storage"),
        (("views",), [], "is damaged"),
        (("quantized",), "all", "is damaged"),
        (("views", "v"), {"of": "memory::0", "size": [2**30], "stride": [0], "offset": 0}, "out of proportion"),
        (
            ("quantized", "p"),
            {"dtype": "quint4x2", "scale": 0.1, "zero_point": 3, "size": [2**30], "stride": [0], "offset": 0},
            "out of proportion",
        ),
        (("quantized", "q", "scale"), list(range(9999)), "scale list of 9999"),
    ],
)
def test_the_message_names_what_is_wrong(where: tuple[str, ...], value: Any, words: str, tmp_path: Path) -> None:
    description = copy.deepcopy(GOOD)
    target: Any = description
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    with pytest.raises(ValueError, match=words):
        zeropoint.load_qtensors(written(tmp_path / "file", description))


@pytest.mark.parametrize("text", ["[" * 100_000, "1", "{}", "\\u"])
def test_metadata_that_is_something_else_is_refused(text: str, tmp_path: Path) -> None:
    save_file(CONTENT, tmp_path / "file", {"zeropoint": text})
    with pytest.raises(ValueError, match="file is damaged"):
        zeropoint.load_qtensors(tmp_path / "file")


@pytest.mark.parametrize("without", CONTENT)
def test_a_missing_part_is_named(without: str, tmp_path: Path) -> None:
    assert len(zeropoint.load_qtensors(written(tmp_path / "good", GOOD))) == 4
    with pytest.raises(ValueError, match=f"'{without}'.* missing|of '{without}' are missing"):
        zeropoint.load_qtensors(written(tmp_path / "file", GOOD, without))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**64) | st.floats() | st.sampled_from(["q", "qint8", "memory::0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["q", "v", "dtype", "axis"]), inner),
    max_leaves=4,
)


@examples(150)
@given(data=st.data())
def test_any_damage_is_a_value_error(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    description = copy.deepcopy(GOOD)
    target: Any = description
    while True:
        key = data.draw(st.sampled_from(sorted(target)))
        if not isinstance(target[key], dict) or not target[key] or data.draw(st.booleans()):
            break
        target = target[key]
    if data.draw(st.booleans()):
        target[key] = data.draw(values)
    else:
        del target[key]
    path = written(tmp_path_factory.mktemp("damaged") / "file", description)
    loaded: dict[str, torch.Tensor] = {}
    with contextlib.suppress(ValueError):
        loaded = zeropoint.load_qtensors(path)
    for tensor in loaded.values():  # what was not noticed does no harm
        assert repr(tensor)


# --------------------------------------------------------------------------------------------------------- TorchScript


def scripted(*, per_channel: bool) -> Any:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", make(qint8, "per_channel") if per_channel else make(quint8))

        def forward(self) -> torch.Tensor:
            return self.x

    return torch.jit.script(Module())


def saved_and_loaded(module: Any) -> Any:
    buffer = io.BytesIO()
    zeropoint.save_script(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


@pytest.mark.parametrize("per_channel", [False, True])
def test_torchscript_files_hold_qtensors(per_channel: bool, tmp_path: Path) -> None:
    module = scripted(per_channel=per_channel)
    expected = make(qint8, "per_channel") if per_channel else make(quint8)
    zeropoint.save_script(module, tmp_path / "saved.pt")
    for loaded in (saved_and_loaded(module), torch.jit.load(str(tmp_path / "saved.pt"))):
        assert_equal_qtensors(loaded(), expected)
        assert not isinstance(loaded.x, QTensor)
        assert torch.equal(loaded.x, expected.int_repr())
    assert_equal_qtensors(module(), expected)  # the module itself is as it was
    assert_equal_qtensors(module.x, expected)
    assert_equal_qtensors(copy.deepcopy(module)(), module())
    assert_equal_qtensors(saved_and_loaded(saved_and_loaded(module))(), expected)


class Keeper(torch.nn.Module):
    def __init__(self, q: QTensor) -> None:
        super().__init__()
        self.register_buffer("x", q)

    def forward(self) -> torch.Tensor:
        return self.x


class Assigning(Keeper):
    def forward(self) -> torch.Tensor:
        self.x = self.x + 1.0
        return self.x


class Pair(torch.nn.Module):
    """Two modules of one class, read by their own methods and from outside, in a branch too."""

    def __init__(self, first: QTensor, second: QTensor) -> None:
        super().__init__()
        self.first, self.second = Keeper(first), Keeper(second)

    def forward(self, twice: bool) -> torch.Tensor:
        total = torch.ops.zeropoint.dequantize(self.first()) + torch.ops.zeropoint.dequantize(self.second.x)
        if twice:
            total = total + torch.ops.zeropoint.dequantize(self.second())
        return total


def test_modules_of_one_class_keep_their_own_qparams_in_torchscript_files() -> None:
    first = zeropoint.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 3, qint8)
    second = zeropoint.quantize_per_tensor(torch.tensor([10.0, 20.0]), 2.0, -7, qint8)
    loaded = saved_and_loaded(torch.jit.script(Pair(first, second)))
    assert loaded(False).tolist() == [11.0, 22.0]
    assert loaded(True).tolist() == [21.0, 42.0]


def test_a_scripted_class_saves_its_qtensors_too() -> None:
    class Scripted(torch.jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", make(quint8))

        @torch.jit.script_method
        def forward(self) -> torch.Tensor:
            return self.x

    assert_equal_qtensors(saved_and_loaded(Scripted())(), make(quint8))


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (lambda: torch.jit.script(Keeper(make(quint4x2))), "'x' of quint4x2"),
        (lambda: torch.jit.script(Assigning(make(quint8))), "'x', to which forward assigns"),
        (lambda: torch.jit.freeze(torch.jit.script(Keeper(make(quint8)).eval())), "as a constant in forward"),
        (
            lambda: torch.jit.script(Pair(make(quint8), make(qint8, "per_channel"))),
            "'x' per tensor in one module, and per channel in another",
        ),
    ],
    ids=["packed", "assigned", "frozen", "mixed"],
)
def test_torchscript_files_refuse_what_they_would_lose(module: Any, what: str) -> None:
    with pytest.raises(QTensorError, match=rf"cannot hold the quantized tensor .*{what}.*zeropoint\.save_qtensors"):
        zeropoint.save_script(module(), io.BytesIO())


def test_other_scripted_modules_are_saved_as_ever() -> None:
    buffer = io.BytesIO()
    zeropoint.save_script(torch.jit.script(torch.nn.Linear(2, 2)), buffer)
    buffer.seek(0)
    assert torch.jit.load(buffer)(torch.ones(1, 2)).shape == (1, 2)


def test_saving_inside_torchscript_does_not_crash(tmp_path: Path) -> None:
    """C++ finds no bytes to write; whoever loads the file hears of it."""

    class Saver(torch.jit.ScriptModule):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = torch.jit.Attribute(name, str)

        @torch.jit.script_method
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.save(x, self.name)
            return x

    path = str(tmp_path / "q.pt")
    Saver(path)(make(quint8))
    with pytest.raises(RuntimeError):
        torch.load(path, weights_only=True)
