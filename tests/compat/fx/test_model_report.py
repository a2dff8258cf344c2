"""ModelReport: what detectors find, against torch.ao's on the same model and data, and what they advise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._model_report.detector as theirs
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.fx._model_report.model_report import ModelReport as TheirReport
from torch.ao.quantization.quantize_fx import prepare_fx as their_prepare_fx

import zeropoint
from zeropoint.compat.fx import convert_fx, model_report, prepare_fx
from zeropoint.compat.fx.model_report import (
    DynamicStaticDetector,
    InputWeightEqualizationDetector,
    ModelReport,
    ModelReportObserver,
    ModelReportVisualizer,
    OutlierDetector,
    PerChannelDetector,
)

MAPPING = zeropoint.get_default_qconfig_mapping("x86")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(4, 4), nn.ReLU()
        self.block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid(), nn.Conv2d(4, 4, 1, groups=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.relu(self.linear(x)))


def network() -> Network:
    torch.manual_seed(0)
    return Network().eval()


def batches(count: int = 8) -> list[Tensor]:
    """Batches whose level moves, with a spike in channel 1."""
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(2, 4, 4, 4, generator=generator) + 3 * i for i in range(count)]
    for batch in made:
        batch[0, 1, 2, 3] = 500
    return made


def report(*detectors: Any) -> ModelReport:
    prepared = prepare_fx(network(), MAPPING, (batches()[0],))
    made = ModelReport(prepared, set(detectors))
    observed = made.prepare_detailed_calibration()
    for batch in batches():
        observed(batch)
    return made


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("DynamicStaticDetector", {"tolerance": 0.4}),
        ("InputWeightEqualizationDetector", {"ratio_threshold": 0.5}),
        ("OutlierDetector", {"reference_percentile": 0.95}),
        ("PerChannelDetector", {"backend": "x86"}),
    ],
)
def test_what_a_detector_finds_is_what_torch_ao_finds(name: str, arguments: dict[str, Any]) -> None:
    ours = report(getattr(model_report, name)(**arguments))
    prepared = their_prepare_fx(network(), get_default_qconfig_mapping("x86"), (batches()[0],))
    old = TheirReport(prepared, {getattr(theirs, name)(**arguments)})
    observed = old.prepare_detailed_calibration()
    for batch in batches():
        observed(batch)
    ((_, expected),) = old.generate_model_report(False).values()
    ((_, found),) = ours.generate_model_report(False).values()
    assert list(found) == list(expected)
    for path, entry in expected.items():
        assert list(found[path]) == list(entry)
        for key, value in entry.items():
            ours_too = torch.as_tensor(found[path][key]) if not isinstance(value, str) else found[path][key]
            if isinstance(value, str):
                assert ours_too == value
            else:  # means of the same numbers, added in another order
                torch.testing.assert_close(ours_too, torch.as_tensor(value), check_dtype=False)


def test_moving_values_are_advised_to_be_quantized_dynamically() -> None:
    made = report(DynamicStaticDetector(tolerance=1.0))
    mapping = made.generate_qconfig_mapping()
    assert mapping.module_name_qconfigs["linear"].activation().is_dynamic
    text, _ = made.generate_model_report(True)["dynamic_vs_static_detector"]
    assert "linear.0: dynamic" in text


def test_advice_of_several_detectors_is_joined_and_can_be_used() -> None:
    made = report(DynamicStaticDetector(tolerance=0.0), PerChannelDetector("x86"))
    mapping = made.generate_qconfig_mapping()
    assert set(mapping.module_name_qconfigs) == {"linear", "block.0", "block.2"}
    qconfig = mapping.module_name_qconfigs["block.0"]
    assert qconfig.weight().qscheme.per_channel
    assert not qconfig.activation().is_dynamic
    prepared = prepare_fx(network(), mapping, (batches()[0],))
    prepared(batches()[0])
    assert isinstance(convert_fx(prepared).linear, zeropoint.nn.intrinsic.quantized.LinearReLU)


def test_layers_that_gain_are_equalized_and_others_are_not() -> None:
    made = report(InputWeightEqualizationDetector(0.5))
    _, found = made.generate_model_report(False)["input_weight_equalization_detector"]
    gains = [
        path.removesuffix(".0") if path == "linear.0" else path  # the fused module has the path of the linear layer
        for path, entry in found.items()
        if sum(entry["input_weight_equalization_recommended"]) >= 2
    ]
    assert 0 < len(gains) < len(found)
    assert list(made.generate_equalization_mapping().module_name_qconfigs) == gains


def test_the_spike_is_named() -> None:
    text, found = report(OutlierDetector()).generate_model_report(True)["outlier_detector"]
    assert found["linear.0"]["outliers_detected"] == [False, True, False, False]
    assert "linear.0, channel 1 of axis 1: the largest value, 500," in text


def test_a_channel_of_zeros_has_no_outliers() -> None:
    made = ModelReport(prepare_fx(network(), MAPPING, (batches()[0],)), {OutlierDetector()})
    x = batches()[0]
    x[:, 2] = 0
    made.prepare_detailed_calibration()(x)
    _, found = made.generate_model_report(True)["outlier_detector"]
    assert found["linear.0"]["outlier_detection_percentile_ratios"][2] == 1
    assert found["linear.0"]["constant_batch_counts"].tolist() == [0, 0, 1, 0]


def test_observers_leave_without_a_trace() -> None:
    prepared = prepare_fx(network(), MAPPING, (batches()[0],))
    before = copy.deepcopy(prepared)
    made = ModelReport(prepared, {OutlierDetector(), DynamicStaticDetector()})
    made.prepare_detailed_calibration()(batches()[0])
    made.generate_model_report(remove_inserted_observers=True)
    assert [n.name for n in prepared.graph.nodes] == [n.name for n in before.graph.nodes]
    assert [path for path, _ in prepared.named_modules()] == [path for path, _ in before.named_modules()]
    before(batches()[0])
    assert torch.equal(prepared(batches()[0]), before(batches()[0]))


def test_detectors_share_the_observer_whose_percentile_is_read() -> None:
    made = report(OutlierDetector(reference_percentile=0.5), InputWeightEqualizationDetector(0.5))
    _, found = made.generate_model_report(False)["outlier_detector"]
    x = torch.stack(batches()).movedim(2, 1).flatten(2)  # batch, channel, values
    expected = (x.amax(2) / x.median(2).values).mean(0).abs()
    expected = torch.where(expected < 1, 1 / expected, expected)
    torch.testing.assert_close(found["linear.0"]["outlier_detection_percentile_ratios"], expected)


def test_plots_show_one_value_for_each_module(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    class Plot:
        def subplot(self) -> Plot:
            return self

        def plot(self, x: Any, y: Any) -> None:
            drawn.append((x, y))

        def hist(self, values: Any, bins: int, rwidth: float) -> Any:
            drawn.append(values)
            return None, [0, 1], None

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    monkeypatch.setattr("zeropoint.compat.fx.model_report.tables._pyplot", Plot)
    shown = ModelReportVisualizer({"a": {"x": torch.tensor([1.0, 3.0])}, "b": {"x": torch.tensor([4.0])}})
    shown.generate_plot_visualization("x")
    shown.generate_histogram_visualization("x")
    assert drawn == [([0, 1], [2.0, 4.0]), [1.0, 3.0, 4.0]]


class TestErrors:
    def test_no_detectors(self) -> None:
        with pytest.raises(ValueError, match="at least one detector"):
            ModelReport(prepare_fx(network(), MAPPING, (batches()[0],)), set())

    def test_observers_are_put_in_once(self) -> None:
        made = report(DynamicStaticDetector())
        with pytest.raises(ValueError, match="already"):
            made.prepare_detailed_calibration()

    def test_reports_need_observers(self) -> None:
        made = ModelReport(prepare_fx(network(), MAPPING, (batches()[0],)), {DynamicStaticDetector()})
        with pytest.raises(RuntimeError, match="prepare_detailed_calibration"):
            made.generate_model_report(True)
        with pytest.raises(RuntimeError, match="generate_model_report"):
            made.generate_visualizer()

    def test_a_report_after_the_observers_are_gone(self) -> None:
        made = report(DynamicStaticDetector())
        made.generate_model_report(True)
        with pytest.raises(RuntimeError, match="were removed"):
            made.generate_qconfig_mapping()

    def test_channels_on_two_axes(self) -> None:
        made = ModelReport(
            prepare_fx(network(), MAPPING, (batches()[0],)),
            {OutlierDetector(ch_axis=3), InputWeightEqualizationDetector(0.5)},
        )
        with pytest.raises(ValueError, match=r"the same channel axis at linear\.0"):
            made.prepare_detailed_calibration()

    @pytest.mark.parametrize("value", [-0.1, 1.1])
    def test_shares_are_between_zero_and_one(self, value: float) -> None:
        with pytest.raises(ValueError, match="ratio_threshold"):
            InputWeightEqualizationDetector(value)
        with pytest.raises(ValueError, match="reference_percentile"):
            OutlierDetector(reference_percentile=value)

    def test_unknown_backends(self) -> None:
        with pytest.raises(ValueError, match="'abacus'"):
            PerChannelDetector("abacus")

    def test_equal_values_have_no_range(self) -> None:
        observer = ModelReportObserver()
        observer(torch.ones(2, 3))
        with pytest.raises(ValueError, match="all are equal"):
            observer.get_batch_to_epoch_ratio()
        with pytest.raises(RuntimeError, match="statistics"):
            observer.calculate_qparams()


class TestTables:
    def test_features_of_modules_with_different_numbers_of_channels(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = ModelReportVisualizer(
            {"a": {"x": torch.tensor([1.0, 2.0]), "y": 3}, "b": {"x": torch.tensor([4.0]), "z": torch.tensor(0.5)}}
        )
        tables = shown.generate_filtered_tables()
        assert tables["tensor_level_info"] == (
            ["idx", "layer_fqn", "y", "z"],
            [[0, "a", 3, "-"], [1, "b", "-", 0.5]],
        )
        assert tables["channel_level_info"][1] == [[0, "a", 0, 1.0], [1, "a", 1, 2.0], [2, "b", 0, 4.0]]
        shown.generate_table_visualization(feature_filter="y")
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines[2:]] == [["idx", "layer_fqn", "y"], ["0", "a", "3"], ["1", "b", "-"]]
        shown.generate_table_visualization(feature_filter="no such")
        assert capsys.readouterr().out == "There are no such values.\n"

    def test_plottable_features_are_tensors(self) -> None:
        shown = ModelReportVisualizer({"a": {"x": torch.tensor([1.0]), "y": 3}})
        assert shown.get_all_unique_feature_names() == {"x"}
        assert shown.get_all_unique_feature_names(False) == {"x", "y"}
        assert shown.get_all_unique_module_fqns() == {"a"}

    def test_a_plot_of_two_features_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("zeropoint.compat.fx.model_report.tables._pyplot", object)
        shown = ModelReportVisualizer({"a": {"x": torch.tensor([1.0]), "y": 3}})
        with pytest.raises(ValueError, match="one feature"):
            shown.generate_plot_visualization("")
