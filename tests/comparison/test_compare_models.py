"""The layer that went wrong is ranked first, whatever made the quantized model."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch
from damaged_models import BAD, Net, assert_outliers_found, batches, clipped, net, per_tensor, with_outliers
from few_layers import Layers
from graph_models import Bert, Recurrent, SpoiledRecurrent
from torch import nn

import zeropoint
from zeropoint.accuracy import gptq
from zeropoint.comparison.layers import Comparison
from zeropoint.numerics.distance import Distance


def eager(model: Net, qconfig: zeropoint.QConfig, bad: zeropoint.QConfig | None = None) -> nn.Module:
    wrapped = zeropoint.auto_fuse(zeropoint.QuantWrapper(model).eval(), (batches()[0],))
    wrapped.qconfig = qconfig
    if bad is not None:
        wrapped.module.second.qconfig = bad
    prepared = zeropoint.prepare(wrapped)
    for batch in batches():
        prepared(batch)
    return zeropoint.convert(prepared)


def graph(model: Net, mapping: zeropoint.QConfigMapping) -> nn.Module:
    return zeropoint.to_int8(model, (batches()[0],), batches(), mapping, progress=False)


def test_outliers_in_a_weight_are_found_in_a_graph() -> None:
    model = with_outliers(net())
    found = zeropoint.compare(model, graph(model, zeropoint.QConfigMapping().set_global(per_tensor())), batches())
    assert_outliers_found(found.rows)


def test_a_clipped_range_is_found_in_a_graph() -> None:
    model = net()
    mapping = zeropoint.get_default_qconfig_mapping("native").set_module_name(BAD, clipped())
    found = zeropoint.compare(model, graph(model, mapping), batches())
    assert found.rows[0].path == BAD
    assert found.rows[0].clipped > 0.1
    assert "clipped" in found.rows[0].why


def test_outliers_in_a_weight_are_found_in_modules() -> None:
    model = with_outliers(net())
    found = zeropoint.compare(model, eager(model, per_tensor()), batches())
    assert found.rows[0].path == f"module.{BAD}"
    assert found.rows[0].share > 0.5


def test_a_clipped_range_is_found_in_modules() -> None:
    model = net()
    found = zeropoint.compare(model, eager(model, zeropoint.get_default_qconfig("native"), clipped()), batches())
    assert found.rows[0].path == f"module.{BAD}"
    assert found.rows[0].clipped > 0.1


def test_a_good_model_has_no_culprit() -> None:
    model = net()
    for quantized in (
        eager(model, zeropoint.get_default_qconfig("native")),
        graph(model, zeropoint.get_default_qconfig_mapping("native")),
    ):
        found = zeropoint.compare(model, quantized, batches())
        assert found.sqnr > 25
        assert found.cosine > 0.999
        assert all(row.alone > 30 for row in found.rows)
        assert not any(row.why for row in found.rows)
        assert sum(row.share for row in found.rows) == pytest.approx(1)


def test_fused_layers_are_compared_behind_their_batch_norm_and_relu() -> None:
    """One float layer with a large batch norm: taken before it, the values would have nothing in common."""
    model = net()
    with torch.no_grad():
        model.norm.weight.mul_(100)
    found = zeropoint.compare(model, eager(model, zeropoint.get_default_qconfig("native")), batches())
    [first] = [row for row in found.rows if row.path == "module.first"]
    assert first.sqnr > 30
    assert first.weight_sqnr is not None
    assert first.weight_sqnr > 30


def test_what_follows_the_bad_layer_inherits_its_error_but_not_its_guilt() -> None:
    model = with_outliers(net())
    found = zeropoint.compare(model, graph(model, zeropoint.QConfigMapping().set_global(per_tensor())), batches())
    [third] = [row for row in found.rows if row.path == "third"]
    assert third.sqnr < 20
    assert third.alone > 30


def test_rows_keep_the_order_of_computation() -> None:
    model = net()
    found = zeropoint.compare(model, graph(model, zeropoint.get_default_qconfig_mapping("native")), batches())
    paths = [row.path for row in found.in_order() if row.operator.startswith(("conv", "linear"))]
    assert paths == ["first", "second", "third", "last"]
    assert [row.share for row in found.rows] == sorted((row.share for row in found.rows), reverse=True)


def test_a_saved_model_can_still_be_compared() -> None:
    model = net()
    quantized = graph(model, zeropoint.get_default_qconfig_mapping("native"))
    file = io.BytesIO()
    torch.save(quantized, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    before, after = (zeropoint.compare(model, q, batches()) for q in (quantized, loaded))
    assert before == after


@pytest.mark.parametrize("mode", ["static", "dynamic", pytest.param("weight_only", marks=pytest.mark.thorough)])
def test_transformers(mode: str) -> None:
    torch.manual_seed(0)
    model = Bert().eval()
    example = (torch.randint(0, 50, (2, 12)), torch.ones(2, 12, dtype=torch.long))
    quantized = zeropoint.to_int8(model, example, mode=mode, progress=False)
    found = zeropoint.compare(model, quantized, [example])
    assert found.cosine > 0.99
    computed = {"static": "int8", "dynamic": "int8 dynamic", "weight_only": "int8 weights"}[mode]
    assert computed in {row.computed for row in found.rows}
    assert all(row.alone > 25 for row in found.rows)


def test_recurrent_models() -> None:
    torch.manual_seed(0)
    model = Recurrent(nn.LSTM).eval()
    example = (torch.randn(2, 9, 20),)
    found = zeropoint.compare(model, zeropoint.to_int8(model, example, mode="dynamic"), [example])
    assert "quantized_lstm" in {row.operator for row in found.rows}
    assert found.sqnr > 20


def test_trained_models() -> None:
    model = net()
    prepared = zeropoint.prepare_qat_graph(
        net().train(), zeropoint.get_default_qat_qconfig_mapping("native"), (batches()[0],)
    )
    for batch in batches():
        prepared(batch)
    found = zeropoint.compare(model, zeropoint.convert_graph(prepared.eval()), batches())
    assert {row.path for row in found.rows} >= {"first", "second", "third", "last"}
    assert found.sqnr > 20


def test_dynamic_modules() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    found = zeropoint.compare(model, zeropoint.quantize_dynamic(model), [torch.randn(5, 8)])
    assert {row.path for row in found.rows} == {"0", "2"}
    assert {row.computed for row in found.rows} == {"int8 dynamic"}


def test_a_module_that_is_called_twice_has_one_row_of_both() -> None:
    class Twice(Layers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.fc(x))

    model = Twice(fc=nn.Linear(4, 4)).eval()
    found = zeropoint.compare(model, zeropoint.quantize_dynamic(model), [torch.randn(5, 4)])
    assert [row.path for row in found.rows] == ["fc"]


def test_keywords() -> None:
    model = net()
    quantized = graph(model, zeropoint.get_default_qconfig_mapping("native"))
    by_name = zeropoint.compare(model, quantized, [{"x": batch} for batch in batches()])
    assert by_name == zeropoint.compare(model, quantized, batches())


def test_the_hooks_are_gone_afterwards() -> None:
    model = net()
    quantized = eager(model, zeropoint.get_default_qconfig("native"))
    zeropoint.compare(model, quantized, batches())
    assert not any(m._forward_hooks for m in (*model.modules(), *quantized.modules()))
    assert "add_relu" not in vars(quantized.module.add)


def test_it_prints_as_a_table_and_as_json() -> None:
    model = net()
    found = zeropoint.compare(model, graph(model, zeropoint.get_default_qconfig_mapping("native")), batches())
    assert str(found).splitlines()[-1].startswith("output: SQNR")
    data = json.loads(found.to_json())
    assert data["sqnr"] == found.sqnr
    assert [row["path"] for row in data["rows"]] == [row.path for row in found.rows]
    assert json.loads(Comparison((), math.inf, 1.0, 1).to_json())["sqnr"] is None


def test_mistakes_are_named() -> None:
    model = net()
    quantized = graph(model, zeropoint.get_default_qconfig_mapping("native"))
    with pytest.raises(ValueError, match="is empty"):
        zeropoint.compare(model, quantized, [])
    with pytest.raises(ValueError, match="the quantized model was made from"):
        zeropoint.compare(nn.Flatten().eval(), quantized, batches())
    with pytest.raises(ValueError, match="training mode"):
        zeropoint.compare(net().train(), quantized, batches())
    with pytest.raises(ValueError, match="nothing to compare"):
        zeropoint.compare(model, model, batches())
    with pytest.raises(ValueError, match="no module"):
        zeropoint.compare(nn.Linear(1, 1).eval(), eager(model, zeropoint.get_default_qconfig("native")), batches())
    with pytest.raises(TypeError, match="must be a module"):
        zeropoint.compare(model, "model.pt", batches())  # type: ignore[arg-type]


def test_infinities_are_left_out() -> None:
    distance = Distance()
    distance.add(torch.tensor([-math.inf, 1.0]), torch.tensor([-math.inf, 1.0]))
    assert (distance.sqnr, distance.cosine, distance.count) == (math.inf, 1.0, 1)


def test_layers_with_equalized_channels_are_compared_with_the_float_ones() -> None:
    """Large channels are divided before they are rounded, and the weights multiplied: neither is an error."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 16)).eval()
    with torch.no_grad():
        model[0].weight[3] = 60.0
    batch = torch.randn(64, 32)
    quantized = zeropoint.to_int8(model, (batch,), [batch], progress=False)
    assert any("quantize_per_channel" in str(node.target) for node in quantized.graph_module.graph.nodes)
    found = zeropoint.compare(model, quantized, [batch])
    [linear] = [row for row in found.rows if row.operator.startswith("linear")]
    assert linear.alone > 35
    assert linear.weight_sqnr is not None
    assert linear.weight_sqnr > 30
    [rounding] = [row for row in found.rows if row.operator == "quantize"]
    assert rounding.alone > 30


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("spoiled", [0, 1, 2])
def test_a_recurrent_network_that_was_split_is_compared_run_by_run(kind, spoiled):
    class Sequence(SpoiledRecurrent):
        def forward(self, x):
            return self.recurrent(x)[0]

    torch.manual_seed(0)
    model, x = Sequence(kind, spoiled).eval(), torch.randn(7, 5, 16)
    x[..., 1] = x[..., 0]
    quantized = zeropoint.to_int8(model, (x,), mode="dynamic", progress=False)
    found = zeropoint.compare(model, quantized, [x, x[:3]], progress=False)
    assert len(found.rows) == (3 if spoiled == 1 else 2)
    assert all(row.alone >= row.sqnr - 1 or row.alone > 20 for row in found.rows)
    assert sorted({row.computed for row in found.rows}) == ["float16 weights", "int8 dynamic"]


def test_a_model_that_takes_any_number_of_inputs_is_compared_and_tuned() -> None:
    class Varied(Layers):  # as those of from_onnx are
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs[0] + inputs[1])

    model, batches = Varied(layer=nn.Linear(8, 4)).eval(), [(torch.randn(6, 8), torch.randn(6, 8)) for _ in range(4)]
    quantized = zeropoint.to_int8(model, batches[0], batches, progress=False)
    assert zeropoint.compare(model, quantized, batches, progress=False).sqnr > 20
    assert len(gptq(model, quantized, batches)) == 1
