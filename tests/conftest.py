"""Set-up for every test: the environment torch needs, Hypothesis, and the instruction sets to run under."""

from __future__ import annotations

import os

# Before torch is imported: see ONEDNN_MAX_CPU_ISA in the Makefile.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from collections.abc import Iterator

import hypothesis
import pytest
from oracle_uses import oracle_names

import zeropoint
from zeropoint import _native

hypothesis.settings.register_profile(
    "zeropoint",
    max_examples=100,
    deadline=None,  # the first call of an operator may take a second, and CI machines are shared
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,  # `isa` holds for the whole test, as it should
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)
# pytest --hypothesis-profile=unshrunk: show the first failing example, at once.
hypothesis.settings.register_profile(
    "unshrunk",
    hypothesis.settings.get_profile("zeropoint"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("zeropoint")

# The instruction sets that this CPU has and that have kernels of their own.
_WITH_KERNELS = {name for _, name in _native.kernel_list()}
ISAS = [name for name in zeropoint.cpu_info().available if name in _WITH_KERNELS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses PyTorch's quantization: `make test-future` leaves it out."""
    for item in items:
        names = oracle_names(item.path)
        if names & {"*", getattr(item, "originalname", item.name), getattr(getattr(item, "cls", None), "__name__", "")}:
            item.add_marker("oracle")


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once under each instruction set, on two threads."""
    threads = zeropoint.get_num_threads()
    zeropoint.set_num_threads(2)
    try:
        with zeropoint.use_isa(request.param):
            yield request.param
    finally:
        zeropoint.set_num_threads(threads)
