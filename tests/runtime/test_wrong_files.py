"""Files that are not in order: each is a FormatError that says what and where, at once and without much memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_programs
import numpy as np
import pytest
import safetensors.numpy
import torch
from colliding_keys import colliding_words
from golden_programs import joined
from torch import nn

import zeropoint
from zeropoint import _native, runtime

Edit = Callable[[dict[str, Any]], None]


def parts(name: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Tensors, program and bytes of a file."""
    return golden_programs.parts_of((golden_programs.FOLDER / f"{name}.zpt").read_bytes())


def edited(name: str, edit: Edit) -> bytes:
    header, program, data = parts(name)
    edit(program)
    return joined(header, program, data)


def step(program: dict[str, Any], op: str, number: int = 0) -> dict[str, Any]:
    return [s for s in program["steps"] if s["op"] == op][number]


def conv(**attributes: Any) -> Edit:
    return lambda program: step(program, "conv")["attributes"].update(attributes)


def input_of(**fields: Any) -> Edit:
    return lambda program: program["inputs"][0].update(fields)


def field(name: str, value: Any) -> Edit:
    return lambda program: program.update({name: value})


def called(arguments: str) -> Edit:
    return lambda program: program.update(version=3, arguments=arguments)


def rewired(program: dict[str, Any]) -> None:
    """The first step reads what the last one makes."""
    program["steps"][0]["inputs"][0] = program["steps"][-1]["outputs"][0]


def renamed(program: dict[str, Any]) -> None:
    program["steps"][1]["outputs"] = program["steps"][0]["outputs"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (field("version", 5), "version 5 is newer than this library, which reads up to 4"),
        (field("arguments", "0"), "program: .arguments. is not known"),
        (field("result", '["constant",1]'), "result: expected the number"),
        (field("result", '["as float64",0]'), "result: expected the number"),
        (lambda program: program.update(version=4, result='["as float64",[0]]'), "result: expected the number"),
        (lambda program: program.update(version=4, result='["as float64",1]'), "result: there is no output 1"),
        (lambda program: program.update(version=4, result='["as float80",0]'), "result: expected the number"),
        (called("0"), "arguments: expected a tuple of a tuple and a dictionary"),
        (called('["tuple",[0,["dict",[]]]]'), "arguments: expected a tuple of a tuple and a dictionary"),
        (called('["tuple",[["tuple",[1]],["dict",[]]]]'), "arguments: there is no input 1"),
        (called('["tuple",[["tuple",[]],["dict",[]]]]'), "arguments: input 0 must be named once"),
        (called('["tuple",[["tuple",[0]],["dict",[["x",0]]]]]'), "arguments: input 0 must be named once"),
        (field("version", 0), "'version' must be a positive integer"),
        (field("version", "1"), "'version' must be a positive integer"),
        (field("steps", {}), "'steps' must be a list"),
        (field("outputs", []), "outputs: there must be one"),
        (field("outputs", ["nothing"]), "outputs: there is no such value"),
        (field("result", "["), "result: JSON"),
        (field("result", "1"), "result: there is no output 1"),
        (field("result", "-1"), "result: there is no output -1"),
        (field("result", "true"), "result: expected the number"),
        (field("result", '["set",[0]]'), "result: expected the number"),
        (field("result", '["dict",[0]]'), "result: expected pairs"),
        (field("result", "[" * 10000), "result: JSON.*deep"),
        (field("result", 3), "'result' must be a string"),
        (input_of(dtype="float64"), "inputs: there is no dtype 'float64'"),
        (input_of(shape=[1] * 9, example=[1] * 9), "inputs: input 'image' has more than 8 axes"),
        (input_of(example=[2, 3, 8, -1]), "inputs: a size of the example"),
        (input_of(example=[2, 3, 8]), r"'image' has shape \(2, 3, 8\)"),
        (rewired, r"step 0 \(quantize\): input '.*' has not been made before"),
        (renamed, r"step 1 \(conv\): value '.*' is made twice"),
        (conv(stride=[1, 0, 1]), r"step 1 \(conv\): attribute 'stride' must have integers from 1"),
        (conv(stride=[1, 1]), "attribute 'stride' must be a list of 3"),
        (conv(groups=5), "groups do not divide"),
        (conv(surprise=1), "attribute 'surprise' is not known"),
        (conv(input_scale=0), "attribute 'input_scale' must be a positive number"),
        (conv(input_scale=1e-46), "attribute 'input_scale' must be a positive number"),
        (conv(input_zero_point=256), "attribute 'input_zero_point' must be an integer from -128 to 255"),
    ],
)
def test_what_is_wrong_is_said(edit: Edit, message: str) -> None:
    with pytest.raises(runtime.FormatError, match=message):
        _native.Program(edited("image", edit))


def layer_with_a_sum(**attributes: Any) -> Edit:
    def edit(program: dict[str, Any]) -> None:
        found = next(s for s in program["steps"] if "then" in s["attributes"])
        for name, value in attributes.items():
            if value is None:
                del found["attributes"][name]
            else:
                found["attributes"][name] = value

    return edit


def summand(name: str | None) -> Edit:
    def edit(program: dict[str, Any]) -> None:
        next(s for s in program["steps"] if "then" in s["attributes"])["inputs"][6] = name

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (layer_with_a_sum(then="divide"), "attribute 'then' must be add or multiply"),
        (layer_with_a_sum(then=None), "attribute 'then' is missing"),
        (layer_with_a_sum(then_swapped=None), "attribute 'then_swapped' is missing"),
        (layer_with_a_sum(then_scale=0), "attribute 'then_scale' must be a positive number"),
        (layer_with_a_sum(then_a_scale=1e39), "attribute 'then_a_scale' must be finite"),
        (layer_with_a_sum(then_b_zero_point=-1), "zero point -1 is outside the range of uint8"),
        (layer_with_a_sum(dtype="float32", relu=False), "only a result of bytes, without a function, can be combined"),
        (summand(None), "attribute 'then[a-z_]*' is not known"),
        (summand("image"), "input 6 must be uint8 or int8"),
        (summand("nothing"), "input 'nothing' has not been made before"),
    ],
)
def test_what_is_wrong_with_a_sum_is_said(edit: Edit, message: str) -> None:
    with pytest.raises(runtime.FormatError, match=message):
        _native.Program(edited("residual", edit))


def test_text_that_is_no_program() -> None:
    header, _, data = parts("image")
    for text, message in [("", "JSON at byte 0"), ("[]", "'version' is missing"), ("{} {}", "nothing may follow")]:
        metadata = {"__metadata__": {"zeropoint.program": text}}
        body = json.dumps({**metadata, **header}).encode()
        with pytest.raises(runtime.FormatError, match=message):
            _native.Program(struct.pack("<Q", len(body)) + body + data)
    with pytest.raises(runtime.FormatError, match=r"no metadata 'zeropoint\.program'"):
        _native.Program(struct.pack("<Q", 2) + b"{}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data_offsets": [0, 1 << 62]}, "lies outside the file"),
        ({"data_offsets": [-8, 0]}, "lies outside the file"),
        ({"data_offsets": [4, 0]}, "lies outside the file"),
        ({"shape": [1 << 40, 1 << 40]}, "too many elements"),
        ({"shape": [3]}, "needs .* bytes, its offsets span"),
        ({"shape": [-1]}, "has a size that is none"),
        ({"dtype": "F8_E4M3"}, "dtype"),
        ({"dtype": 1}, "needs dtype, shape and data_offsets"),
    ],
)
def test_tensors_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    header, program, data = parts("image")
    header[next(iter(header))].update(change)
    with pytest.raises(runtime.FormatError, match=message):
        _native.Program(joined(header, program, data))


def test_tensors_may_not_overlap_or_leave_gaps() -> None:
    header, program, data = parts("image")
    with pytest.raises(runtime.FormatError, match="belong to no tensor"):
        _native.Program(joined(header, program, data + b"\0"))
    twice = {**header, "again": header[next(iter(header))]}
    with pytest.raises(runtime.FormatError, match="overlap"):
        _native.Program(joined(twice, program, data))


# Small files that ask for much. Each once took minutes, gigabytes, or both.


def test_a_transposed_convolution_has_no_more_phases_than_its_kernel_is_worth() -> None:
    def edit(program: dict[str, Any]) -> None:
        attributes = step(program, "conv", 1)["attributes"]
        assert attributes["transposed"]
        attributes.update(stride=[1, 32768, 32768], padding=[0, 0, 0], output_padding=[0, 0, 0])

    with pytest.raises(runtime.FormatError, match=r"step 2 \(conv\): the stride is too large for the kernel"):
        _native.Program(edited("upsampled", edit))


def peak_of_loading(path: Path) -> tuple[int, str]:
    """By how many bytes loading a file makes a process larger at most, and what it is refused for."""
    code = """if True:
        import re, sys
        from zeropoint import runtime
        peak = lambda: 1024 * int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
        open(sys.argv[1], "rb").read()
        before, said = peak(), ""
        try:
            runtime.load(sys.argv[1])
        except runtime.FormatError as error:
            said = str(error)
        print(peak() - before, said)
    """
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    peak, _, said = done.stdout.partition(" ")
    return int(peak), said


def test_tensors_that_overlap_are_not_copied_first(tmp_path: Path) -> None:
    """A thousand float tensors that lie over each other at odd addresses: copies would be a gigabyte."""
    floats = 1 << 18
    entry = {"dtype": "F32", "shape": [floats], "data_offsets": [1, 1 + 4 * floats]}
    header = {"odd": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, **{f"t{i}": entry for i in range(1000)}}
    _, program, _ = parts("image")
    path = tmp_path / "overlap.zpt"
    path.write_bytes(joined(header, program, bytes(1 + 4 * floats)))
    peak, said = peak_of_loading(path)
    assert "overlap" in said
    assert peak < 64 << 20


def test_phases_without_taps_are_packed_once(tmp_path: Path) -> None:
    """A transposed 1x1 convolution with a stride of 16 by 16 has 256 phases, of which one has a weight."""
    groups = 499  # prime, so that groups are not joined
    model = nn.Sequential(nn.ConvTranspose2d(2 * groups, groups, 1, stride=16, groups=groups)).eval()
    x = torch.randn(1, 2 * groups, 2, 2)
    quantized = zeropoint.to_int8(model, (x,), [x], progress=False)
    program = zeropoint.compile(quantized, (x,))
    assert torch.equal(program(x), quantized(x))
    path = tmp_path / "wide.zpt"
    program.save(path)
    assert peak_of_loading(path)[0] <= (2 << 20) + 1024 * path.stat().st_size


def test_weights_that_grow_out_of_proportion_are_refused(tmp_path: Path) -> None:
    """A kernel of 16 by 16 with that stride is 256 phases; each of the groups has a padded panel in each phase."""
    groups = 1999
    model = nn.Sequential(nn.ConvTranspose2d(2 * groups, groups, 16, stride=16, groups=groups)).eval()
    x = torch.randn(1, 2 * groups, 1, 1)
    program = zeropoint.compile(zeropoint.to_int8(model, (x,), [x], progress=False), (x,))
    path = tmp_path / "bomb.zpt"
    program.save(path)
    peak, said = peak_of_loading(path)
    assert "packed" in said
    assert "memory_limit" in said
    assert peak <= 64_000_000 + 64 * path.stat().st_size
    trusted = runtime.load(path, memory_limit=(8 << 30) + 1)
    np.testing.assert_array_equal(trusted(x.numpy()), program(x.numpy()))


def test_what_a_convolution_takes_for_itself_counts() -> None:
    def edit(program: dict[str, Any]) -> None:
        # Three kernel rows, thousands of lines apart: the input of a single output is most of a gigabyte.
        step(program, "conv")["attributes"].update(dilation=[1, 8000, 8000], padding=[0, 8000, 8000])

    data = edited("image", edit)
    with pytest.raises(runtime.FormatError, match="bytes of memory, more than the limit"):
        _native.Program(data, memory_limit=1 << 28)


def test_every_output_counts() -> None:
    data = edited("image", lambda program: program.update(outputs=program["outputs"] * 2000))
    _native.Program(data, memory_limit=1 << 20)
    with pytest.raises(runtime.FormatError, match="bytes of memory, more than the limit"):
        _native.Program(data, memory_limit=1 << 15)


def test_a_file_has_a_reasonable_number_of_inputs_and_values() -> None:
    with pytest.raises(runtime.FormatError, match="inputs: there are more than 1024"):
        _native.Program(edited("image", lambda program: program.update(inputs=program["inputs"] * 100_000)))
    with pytest.raises(runtime.FormatError, match="more than 8 axes"):
        _native.Program(edited("image", input_of(shape=[f"n{i}" for i in range(300_000)])))

    def many_copies(program: dict[str, Any]) -> None:
        turned = next(s["outputs"][0] for s in program["steps"] if s["op"] == "transpose")
        inputs = [turned] * 20_000 + [None] * 40_000
        more = {"op": "cat", "inputs": inputs, "outputs": ["more"], "attributes": {"axis": 0}}
        program["steps"].insert(1, more)
        program["steps"].insert(2, more | {"outputs": ["most"]})

    with pytest.raises(runtime.FormatError, match="values would be needed"):
        _native.Program(edited("moved", many_copies))


@pytest.mark.parametrize("name", [path.stem for path in golden_programs.paths()])
def test_a_file_that_was_cut_off_is_refused(name: str) -> None:
    data = (golden_programs.FOLDER / f"{name}.zpt").read_bytes()
    for length in {*range(0, len(data), 97), 1, 7, 8, 9, len(data) - 1}:
        with pytest.raises(runtime.FormatError):
            _native.Program(data[:length])


@pytest.mark.parametrize(
    "content",
    [b"", b"\x89PNG\r\n" * 50, b"PK\x03\x04" + bytes(200), bytes(range(256))],
    ids=["empty", "png", "zip", "bytes"],
)
def test_what_is_no_program_at_all_is_said_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "picture.zpt"
    path.write_bytes(content)
    with pytest.raises(runtime.FormatError) as caught:
        runtime.load(path)
    assert str(caught.value).startswith(f"{path}: not a .zpt file: ")


def test_file_of_tensors_is_said_to_be_no_program(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.numpy.save_file({"weight": np.zeros(4, np.float32)}, path)
    with pytest.raises(runtime.FormatError, match=r"weights\.safetensors: not a \.zpt file: it has no metadata"):
        runtime.load(path)


def seconds_to_refuse(names: list[str], entry: dict[str, Any]) -> float:
    """CPU time that a file takes whose header has these names."""
    program = json.dumps({"version": 1, "inputs": [], "outputs": [], "result": "", "steps": []})
    header = {"__metadata__": {"zeropoint.program": program}, **dict.fromkeys(names, entry)}
    text = json.dumps(header).encode()
    begin = time.process_time()
    with pytest.raises(zeropoint.FormatError):
        _native.Program(struct.pack("<Q", len(text)) + text)
    return time.process_time() - begin


@pytest.mark.parametrize("entry", [{}, {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}], ids=["keys", "tensors"])
def test_names_that_no_hash_can_tell_apart_take_no_longer_than_others(entry: dict[str, Any]) -> None:
    """A megabyte of them took seconds, ten megabytes minutes."""
    words = colliding_words(160)
    others = [f"{i:032}" for i in range(len(words))]
    ordinary = min(seconds_to_refuse(others, entry) for _ in range(2))
    assert seconds_to_refuse(words, entry) < 5 * ordinary + 0.1


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "batch"])
def test_a_size_may_have_any_name(name: str) -> None:
    shape = [name, *parts("image")[1]["inputs"][0]["shape"][1:]]
    program = runtime.Program(_native.Program(edited("image", input_of(shape=shape))))
    assert program.inputs[0][2][0] == name
    assert name in repr(program)


def with_a_state_of(megabytes: int) -> bytes:
    more = {"name": "more", "dtype": "float32", "shape": [megabytes << 18], "initial": None, "next": "more"}
    return edited("remembering", lambda program: program["state"].append(more))


def test_a_state_takes_memory_when_it_is_used(tmp_path: Path) -> None:
    """Its size is a number that the file claims: a file of two kilobytes took eight gigabytes to load."""
    path = tmp_path / "claims.zpt"
    path.write_bytes(with_a_state_of(512))
    peak, said = peak_of_loading(path)
    assert not said.strip()
    assert peak <= (2 << 20) + 1024 * path.stat().st_size


def test_a_state_counts_as_memory_of_a_run() -> None:
    data = with_a_state_of(2)
    program = runtime.Program(_native.Program(data, memory_limit=3 << 20))
    (x, *_), (expected, *_) = golden_programs.arrays_of(golden_programs.FOLDER / "remembering.zpt")
    assert np.asarray(program(x)).tobytes() == expected.tobytes()
    with pytest.raises(zeropoint.FormatError, match="bytes of memory, more than the limit of 2097216"):
        _native.Program(data, memory_limit=(2 << 20) + 64)
