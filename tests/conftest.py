"""Set-up for every test: the environment torch needs, Hypothesis, and the instruction sets to run under."""

from __future__ import annotations

import gc
import os

# Before torch is imported: see ONEDNN_MAX_CPU_ISA in the Makefile.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from collections.abc import Iterator

import hypothesis
import pytest
import torch
from oracle_uses import mark_oracle
from quick_suite import mark_thorough

import zeropoint
from zeropoint import _native

hypothesis.settings.register_profile(
    "zeropoint",
    max_examples=100,
    deadline=None,  # the first call of an operator may take a second, and CI machines are shared
    derandomize=True,  # the same examples in every run, on every machine
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,  # `isa` holds for the whole test, as it should
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)
# make test-more: other examples, from the seed it prints.
hypothesis.settings.register_profile("more", hypothesis.settings.get_profile("zeropoint"), derandomize=False)
# make test: fewer examples; make test-all takes those above.
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("zeropoint"), max_examples=12)
# pytest --hypothesis-profile=unshrunk: show the first failing example, at once.
hypothesis.settings.register_profile(
    "unshrunk",
    hypothesis.settings.get_profile("zeropoint"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("zeropoint")


def seed_torch(seed: int) -> None:
    """``torch.manual_seed`` of the CPU: that one keeps what other devices are to do later, with the whole stack."""
    torch.default_generator.manual_seed(seed)


class TorchRandom:
    """torch's random numbers as Hypothesis wants them: it begins every example with the same ones."""

    def seed(self, seed: int) -> None:
        seed_torch(seed)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


TORCH_RANDOM = TorchRandom()  # Hypothesis keeps a weak reference
hypothesis.register_random(TORCH_RANDOM)


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> None:
    """What a test file makes when it is imported is the same, whichever files were imported before."""
    if isinstance(collector, pytest.Module):
        seed_torch(0)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """The same numbers in every run, whichever tests ran before in this process."""
    seed_torch(0)


# PyTorch's engine `x86` is FBGEMM or oneDNN, by the CPU and by the layer, and oneDNN's transposed convolutions are tens
# of steps off: docs/numerics.md. FBGEMM is exact, with activations of 7 bits on every CPU.
_ORACLE = getattr(torch.backends, "quantized", None)  # a PyTorch without quantization has no engine
if _ORACLE is not None and "fbgemm" in _ORACLE.supported_engines:
    _ORACLE.engine = "fbgemm"

# The instruction sets that this CPU has and that have kernels of their own.
_WITH_KERNELS = {name for _, name in _native.kernel_list()}
ISAS = [name for name in zeropoint.cpu_info().available if name in _WITH_KERNELS]


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


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "oracle" in config.option.markexpr or config.pluginmanager.has_plugin("removal"):
        mark_oracle(items)  # seconds: every file is read
    mark_thorough(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """PyTorch and thousands of tests stay until the end: the garbage collector need not look at them each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
