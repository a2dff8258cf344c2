"""Models that are captured in several threads at once."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

import zeropoint
from zeropoint.graph.frontends.export import capture
from zeropoint.graph.torch_internals import trace


class Voice(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.recurrent = kind(8, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0])


def in_threads(*work: Any) -> list[Any]:
    """What each function returns, or the error that it raised."""
    results: list[Any] = [None] * len(work)
    together = threading.Barrier(len(work))

    def run(place: int) -> None:
        together.wait()
        try:
            results[place] = work[place]()
        except Exception as error:  # the test compares it
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_threads_quantize_recurrent_models():
    models = [Voice(kind).eval() for kind in (nn.LSTM, nn.GRU)]
    x = torch.randn(6, 3, 8)

    def work(model: nn.Module) -> Any:
        made = [zeropoint.to_int8(model, (x,), mode="dynamic", progress=False) for _ in range(3)]
        return [m(x[:4]).detach() for m in made]  # another length

    found = in_threads(*(lambda model=model: work(model) for model in models))
    for model, results in zip(models, found):
        assert isinstance(results, list), results
        expected = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)(x[:4])
        assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_only_the_capturing_thread_sees_stand_ins(kind):
    seen: list[Any] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Voice(kind)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_exporting():
                seen.extend(in_threads(lambda: [torch._VF.lstm, torch._VF.gru]))
            return self.inner(x)

    graph = capture(Watched().eval(), (torch.randn(6, 3, 8),))
    assert seen[0] == [torch._C._VariableFunctions.lstm, torch._C._VariableFunctions.gru]
    assert any(node.target in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input) for node in graph.graph.nodes)


def test_traces_in_two_threads_leave_modules_as_they_were() -> None:
    before = nn.Module.__call__

    def traced(start: float) -> Any:
        def slow(x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.05)  # one begins while the other runs, and ends after it
            return x + 1

        time.sleep(start)
        return trace(slow, [torch.zeros(2)])

    found = in_threads(lambda: traced(0.0), lambda: traced(0.02))
    assert all(isinstance(graph, torch.fx.GraphModule) for graph in found), found
    assert nn.Module.__call__ is before
