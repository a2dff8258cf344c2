"""Ranges by the error of the layers that read a value, and factors of channels by the error of theirs."""

from __future__ import annotations

import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint.accuracy import choose_ranges, search_scaling
from zeropoint.nn.quantized.storage import found_qparams


def prepared_on(model: nn.Module, batches: list[torch.Tensor], observer, **options):
    """A model whose activations one kind of observer watched."""
    qconfig = zeropoint.QConfig(
        observer.with_args(dtype=zeropoint.quint8), zeropoint.default_per_channel_weight_observer
    )
    mapping = zeropoint.QConfigMapping().set_global(qconfig)
    prepared = zeropoint.prepare_graph(model, mapping, (batches[0],), **options)
    for batch in batches:
        prepared(batch)
    return prepared


def with_outlier(read: bool) -> tuple[nn.Module, list[torch.Tensor]]:
    """A layer, and inputs of which one is a hundred times the others; the layer reads that one or does not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 4)).eval()
    with torch.no_grad():
        model[0].weight[:, 0] = 1.0 if read else 0.0
    batches = [torch.randn(64, 16) for _ in range(2)]
    for batch in batches:
        batch[::8, 0] = 100.0
    return model, batches


def test_a_value_that_the_layer_reads_is_not_cut_off():
    model, batches = with_outlier(read=True)
    prepared = prepared_on(model, batches, zeropoint.MinMaxObserver)
    change = choose_ranges(prepared, batches)[0]
    assert change.after >= change.before
    scale, _ = found_qparams(prepared.graph_module.activation_post_process_0)
    assert 255 * float(scale) > 100


def test_a_value_that_no_weight_looks_for_is_cut_off():
    model, batches = with_outlier(read=False)
    prepared = prepared_on(model, batches, zeropoint.MinMaxObserver)
    change = choose_ranges(prepared, batches)[0]
    # The range falls from more than 100 to less than 10: ten times smaller steps are 20 dB.
    assert change.after > change.before + 20
    scale, _ = found_qparams(prepared.graph_module.activation_post_process_0)
    assert 255 * float(scale) < 10
    assert change.what != "unchanged"


def test_the_whole_model_comes_nearer_and_is_deployed_with_these_ranges():
    model, batches = with_outlier(read=False)
    prepared = prepared_on(model, batches, zeropoint.MinMaxObserver)
    before = zeropoint.compare(model, zeropoint.convert_graph(prepared), batches, progress=False).sqnr
    choose_ranges(prepared, batches)
    quantized = zeropoint.convert_graph(prepared)
    assert zeropoint.compare(model, quantized, batches, progress=False).sqnr > before + 10
    program = zeropoint.compile(quantized, (batches[0],))
    assert torch.equal(program(batches[1]), quantized(batches[1]))


def test_choosing_again_changes_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1)).eval()
    batches = [torch.randn(4, 2, 8, 8) for _ in range(2)]
    prepared = prepared_on(model, batches, zeropoint.HistogramObserver)
    choose_ranges(prepared, batches)
    again = choose_ranges(prepared, batches)
    assert {change.what for change in again} == {"unchanged"}
    assert all(change.before == change.after for change in again)


def test_shared_observers_are_judged_at_all_their_places():
    class Joined(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.cat([x.relu(), -x], 1)[:, :8])

    torch.manual_seed(0)
    batches = [torch.randn(16, 4) for _ in range(2)]
    prepared = prepared_on(Joined(layer=nn.Linear(8, 4)).eval(), batches, zeropoint.HistogramObserver)
    names = [change.name for change in choose_ranges(prepared, batches)]
    assert len(names) == len(set(names))


def test_ranges_need_a_batch():
    model, batches = with_outlier(read=True)
    with pytest.raises(ValueError, match="is empty"):
        choose_ranges(prepared_on(model, batches, zeropoint.MinMaxObserver), [])


def test_the_strength_of_scaling_is_the_one_with_the_least_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    with torch.no_grad():
        model[0].weight[3], model[0].weight[5] = 40.0, 7.0
        model[1].weight[:, 3] *= 0.1
    batches = [torch.randn(64, 32) for _ in range(4)]
    others = [torch.randn(64, 32) for _ in range(4)]
    qconfig = zeropoint.QConfig(
        zeropoint.MinMaxObserver.with_args(dtype=zeropoint.quint8), zeropoint.default_per_channel_weight_observer
    )
    mapping = zeropoint.QConfigMapping().set_global(qconfig).set_object_type(nn.LayerNorm, None)
    prepared = zeropoint.prepare_graph(model, mapping, (batches[0],), equalize_channels=True)
    for batch in batches:
        prepared(batch)
    before = zeropoint.compare(model, zeropoint.convert_graph(prepared), others, progress=False)
    changes = search_scaling(prepared, batches)
    assert changes
    assert all(change.after >= change.before for change in changes)
    assert any(change.what.startswith("strength") for change in changes)
    factors = prepared.graph_module.activation_post_process_0.chosen
    assert bool((torch.log2(factors) == torch.log2(factors).round()).all())
    assert float(factors.min()) == 1.0
    assert float(factors[3]) == float(factors.max()) > 1.0
    after = zeropoint.compare(model, zeropoint.convert_graph(prepared), others, progress=False)
    assert after.sqnr > before.sqnr
