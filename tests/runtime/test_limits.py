"""What keeps a step from being quicker, on constructed steps and machines; and the advice that follows."""

from __future__ import annotations

import pytest

from zeropoint.cpu import Machine, Peaks
from zeropoint.runtime.limits import Host, Work, limit_of
from zeropoint.runtime.profile import Profile, Row

MACHINE = Machine(
    l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, l3_cpus=4, cpus=4, cores=4, useful_threads=4, source="test"
)
PEAKS = Peaks(
    macs={"avx2": 100e9, "vnni": 200e9}, float_macs=50e9, l1=200e9, l2=100e9, l3=50e9, memory=20e9, all_memory=40e9,
    hand_over=0.3e-6, wake=20e-6,
)  # fmt: skip
ONE, FOUR = Host(1, MACHINE, PEAKS), Host(4, MACHINE, PEAKS)
MB = 1 << 20


def work(seconds: float, macs: float = 0.0, stored: int = 0, moved: int = 0, all_stored: int | None = None) -> Work:
    return Work(seconds, macs, 200e9, stored, stored if all_stored is None else all_stored, moved)


@pytest.mark.parametrize(
    ("kind", "here", "step"),
    [
        # 180 million products take 0.9 ms at the peak.
        ("compute", ONE, work(1e-3, 180e6, 100_000, 100_000)),
        # Far from the peak, and what is needed most of is still multiplying.
        ("compute", ONE, work(5e-3, 180e6, 100_000, 100_000)),
        # One row: 0.8 MB of weights, each used once, take 8 us from L2 and 4 us to multiply.
        ("L2", ONE, work(10e-6, 0.8e6, 800_000, 2000)),
        # The same layer in a program with 10 MB, and with 100 MB of weights.
        ("L3", ONE, work(20e-6, 0.8e6, 800_000, 2000, all_stored=10 * MB)),
        ("memory", ONE, work(50e-6, 0.8e6, 800_000, 2000, all_stored=100 * MB)),
        # A copy of 64 MB: no products at all.
        ("memory", ONE, work(5e-3, 0.0, 0, 64 * MB)),
        # A function of a few values: half a microsecond of it is the call.
        ("overhead", ONE, work(1e-6, 0.0, 0, 4000)),
        ("overhead", FOUR, work(3e-6, 1e5, 1000, 4000)),
        # 0.4 million products are 2 us for one thread: half a microsecond for each of four.
        ("threads", FOUR, work(8e-6, 0.4e6, 10_000, 4000)),
        # exp of a million values: reading them is a small part of it.
        ("compute", ONE, work(2e-3, 0.0, 0, 2 * MB)),
    ],
)
def test_what_limits_a_step(kind: str, here: Host, step: Work) -> None:
    assert limit_of(step, here).kind == kind


def test_shares_are_of_all_threads() -> None:
    step = work(1e-3, 400e6)
    assert limit_of(step, FOUR).of_peak == pytest.approx(0.5)
    assert limit_of(work(2e-3, 200e6), ONE).of_peak == pytest.approx(0.5)
    assert limit_of(work(1e-3, 0.0, 0, 1000), ONE).of_peak is None


def test_hyperthreads_do_not_add_to_the_peak() -> None:
    one_core = Host(2, Machine(32 << 10, MB, 32 * MB, 2, 2, 1, 2, "test"), PEAKS)
    assert limit_of(work(1e-3, 100e6), one_core).of_peak == pytest.approx(0.5)


def test_a_cpu_without_figures_has_no_peak() -> None:
    unknown = Host(1, MACHINE, Peaks({}, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    found = limit_of(Work(1e-3, 1e6, 0.0, 1000, 1000, 1000), unknown)
    assert (found.of_peak, found.of_reading) == (None, 0.0)


def row(
    op: str, seconds: float, macs: float, kernel: str = "", dtype: str = "uint8", stored: int = 0
) -> tuple[object, ...]:
    isa = "vnni" if kernel else ""
    return (op, op, 0, seconds, macs, kernel, isa, dtype, dtype, (1, 64), stored, 1000, 1000)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [row("conv", 1e-3, 180e6, "gemm")],
            "peak of the instruction: on this CPU, int8 multiplies at most 4.0x as fast",
        ),
        ([row("conv", 5e-3, 180e6, "gemm")], "below 60% of the instruction's peak"),
        ([row("conv", 1e-3, 40e6, "float_gemm", "float32")], "layers that multiply floats"),
        ([row("linear", 60e-6, 0.8e6, "gemm", stored=100 * MB)], "limited by memory bandwidth"),
        ([row("quantize", 1e-4, 0.0, "quantize", "float32")], "goes to quantize and dequantize"),
        ([row("relu", 1e-6, 0.0)], "starting them dominates"),
        ([row("softmax", 1e-3, 0.0, "float_softmax", "float32")], "functions and sums"),
    ],
)
def test_the_advice_names_the_reason(rows: list[tuple[object, ...]], words: str) -> None:
    profile = Profile.of([rows], ONE)
    assert len(profile.advice) == 1
    assert profile.advice[0].startswith("100% of the time")
    assert words in profile.advice[0]
    assert profile.advice[0] in str(profile)


def test_the_weightiest_reason_comes_first_and_small_ones_are_left_out() -> None:
    rows = [
        row("conv", 9e-3, 1620e6, "gemm"),
        row("softmax", 4e-3, 0.0),
        row("linear", 1e-4, 1e6, "float_gemm", "float32"),
    ]
    advice = Profile.of([rows], ONE).advice
    assert [words.split("%")[0] for words in advice] == ["69", "31"]
    assert "peak of the instruction" in advice[0]


def test_the_table_says_how_near_the_peak_each_step_is() -> None:
    text = str(Profile.of([[row("conv", 1e-3, 180e6, "gemm"), row("relu", 1e-6, 0.0)]], ONE))
    assert "90%  compute" in text
    assert "overhead" in text


def test_of_a_table_no_more_is_read_than_is_written() -> None:
    embedding = Row(*row("embedding", 1e-5, 0.0, stored=100 * MB))
    assert embedding.work(ONE, 0).stored == embedding.written
