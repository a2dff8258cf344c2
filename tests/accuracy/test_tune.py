"""One call: a target in, the model that meets it out, with everything that was tried; and the parts it is made of."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os

import pytest
import torch
from few_layers import Layers
from torch import nn

import zeropoint
from zeropoint.accuracy import layers_of, recipe
from zeropoint.accuracy.precision import Front, Option, choose, precision_front
from zeropoint.accuracy.recipe import ALGORITHMS, Bench, Recipe
from zeropoint.accuracy.tune import Tuned, _Goal
from zeropoint.graph.provenance import origin
from zeropoint.graph.workflow import convert_layers


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    """What is learned, and how well, is tested in test_rounding.py."""
    monkeypatch.setattr(recipe, "adaround", functools.partial(recipe.adaround, steps=50))


FOR_ALL = [algorithm for algorithm in ALGORITHMS if not algorithm.for_dynamic]


def spread_network() -> nn.Module:
    """Channels between two layers that are a thousand times apart: plain int8 loses the small ones."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    factors = 10.0 ** torch.linspace(-1.5, 1.5, 16)
    with torch.no_grad():
        model[0].weight *= factors[:, None]
        model[0].bias *= factors
        model[2].weight /= factors
    return model


def batches(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(32, 8, generator=generator) for _ in range(count)]


@functools.cache  # what is found is read, not changed
def tuned(target: float | None, **options) -> Tuned:
    data = batches()
    return zeropoint.tune(spread_network(), (data[0],), data, target=target, progress=False, **options)


@functools.cache
def plain_sqnr() -> float:
    """As `tune` measures it: on the last of four batches, with the ranges of the others."""
    data = batches()
    quantized = zeropoint.to_int8(spread_network(), (data[0],), data[:3], progress=False)
    return zeropoint.compare(spread_network(), quantized, data[3:], progress=False).sqnr


def test_a_target_that_plain_int8_meets_ends_the_search_at_once():
    found = tuned(target=5.0)
    assert found.met
    assert [str(trial.recipe) for trial in found.trials] == ["plain"]
    assert found.metric == pytest.approx(plain_sqnr())


def test_algorithms_are_added_until_the_target_is_met_and_no_further():
    before = plain_sqnr()
    found = tuned(target=before + 10)
    assert found.met
    assert found.metric >= before + 10
    assert "equalize" in found.recipe.algorithms
    tried = [trial.recipe.algorithms for trial in found.trials]
    assert tried == sorted(tried, key=len)
    assert all("adaround" not in algorithms for algorithms in tried)
    assert found.trials[-1].recipe == found.recipe
    assert all(
        change.after >= change.before for change in found.changes if change.algorithm != "cross-layer equalization"
    )


def test_the_program_gives_exactly_the_tuned_numbers(tmp_path):
    found = tuned(target=plain_sqnr() + 10)
    found.program.save(tmp_path / "tuned.zpt")
    loaded = zeropoint.runtime.load(tmp_path / "tuned.zpt")
    for x in batches(2):
        assert torch.equal(found.program(x), found.model(x))
        assert torch.equal(torch.from_numpy(loaded(x.numpy())), found.model(x))


def test_layers_are_computed_otherwise_where_int8_is_not_enough():
    # 60 dB are 10 bits: no integers of 8 bits have them, float layers do.
    found = tuned(target=60.0)
    assert found.met
    assert found.front is not None
    assert {way for _, way in found.recipe.precisions} & {"float", "int8 weights"}
    assert found.front.points[0].milliseconds <= found.front.points[-1].milliseconds
    assert "SQNR" in str(found.front)


def test_what_cannot_be_reached_gives_the_best_and_says_so():
    found = tuned(target=1000.0, mixed_precision=False)
    assert not found.met
    assert found.metric == max(trial.metric for trial in found.trials)
    assert "not met" in str(found)
    assert len(found.trials) == 1 + len(FOR_ALL)


def test_a_spent_budget_stops_with_the_best_so_far():
    found = tuned(target=1000.0, budget=0.0)
    assert [str(trial.recipe) for trial in found.trials] == ["plain"]
    assert found.note == "the budget is spent"


def test_without_a_target_slow_algorithms_get_no_more_time_than_the_cheap_ones_took(monkeypatch):
    given, make = {}, Bench.make

    def made(self, recipe, seconds):
        given[recipe] = seconds
        return make(self, recipe, seconds)

    monkeypatch.setattr(Bench, "make", made)
    monkeypatch.setattr(importlib.import_module("zeropoint.accuracy.tune"), "_LEAST", 0.25)
    data = batches()
    found = zeropoint.tune(spread_network(), (data[0],), data, progress=False)
    cheap = sum(trial.seconds for trial in found.trials if not trial.recipe.is_slow)
    slow = [seconds for recipe, seconds in given.items() if recipe.is_slow]
    assert len(slow) == 2
    assert all(seconds == pytest.approx(max(cheap, 0.25)) for seconds in slow)


def test_the_metric_may_be_a_function_of_a_model():
    data, model = batches(), spread_network()

    def right(candidate: nn.Module) -> float:
        return float((candidate(data[0]).argmax(1) == model(data[0]).argmax(1)).float().mean())

    found = zeropoint.tune(model, (data[0],), data, right, target=0.99, progress=False)
    assert found.title == "right"
    assert found.float_metric == 1.0
    assert found.metric == right(found.model)


def test_an_interrupted_search_goes_on_from_its_checkpoint(tmp_path):
    file, data, model = tmp_path / "tune.json", batches(), spread_network()
    calls = []

    def metric(candidate: nn.Module) -> float:
        calls.append(candidate)
        if len(calls) == 4:  # the float model, plain, ranges, and then
            raise KeyboardInterrupt
        wanted = model(data[0])
        return -float((candidate(data[0]) - wanted).square().sum())

    first = zeropoint.tune(model, (data[0],), data, metric, 0.0, checkpoint=file, mixed_precision=False, progress=False)
    assert first.note == "interrupted: the best so far"
    assert len(first.trials) == 2
    again = zeropoint.tune(model, (data[0],), data, metric, 0.0, checkpoint=file, mixed_precision=False, progress=False)
    assert [t.metric for t in again.trials[:2]] == [t.metric for t in first.trials]
    assert len(calls) == 4 + 1 + len(FOR_ALL) - 1  # the float model again, and what was not tried yet
    assert again.metric == max(t.metric for t in again.trials)
    others = [x + 1 for x in data]
    with pytest.raises(ValueError, match="another model, metric or calibration data"):
        zeropoint.tune(model, (data[0],), others, metric, 0.0, checkpoint=file, progress=False)


def test_what_judges_is_held_out_of_what_is_tuned_with():
    found = tuned(target=5.0)
    assert found.judged_by == "1 calibration batch of 4, held out from tuning"
    assert f"measured on {found.judged_by}" in str(found)
    # The last batch is a hundred times as large: its range would be seen, were it calibrated with.
    data = [*batches(3), 100 * batches(1)[0]]
    model = spread_network()
    found = zeropoint.tune(model, (data[0],), data, target=-100.0, progress=False)
    plain = zeropoint.to_int8(model, (data[0],), data[:3], progress=False)
    assert torch.equal(found.model(data[3]), plain(data[3]))
    assert found.metric == pytest.approx(zeropoint.compare(model, plain, data[3:], progress=False).sqnr)
    assert found.metric < 5


def test_given_validation_leaves_the_calibration_whole():
    data, model = batches(), spread_network()
    found = zeropoint.tune(model, (data[0],), data[:2], target=5.0, validation=iter(data[2:]), progress=False)
    assert found.judged_by == "2 validation batches"
    plain = zeropoint.to_int8(model, (data[0],), data[:2], progress=False)
    assert found.metric == pytest.approx(zeropoint.compare(model, plain, data[2:], progress=False).sqnr)
    with pytest.raises(ValueError, match="validation is empty"):
        zeropoint.tune(model, (data[0],), data, validation=[], progress=False)


def test_a_single_batch_judges_itself_and_the_result_says_so():
    data = batches(1)
    found = zeropoint.tune(spread_network(), (data[0],), data, target=5.0, progress=False)
    assert "the calibration batch" in str(found)


def test_a_checkpoint_of_other_validation_data_is_refused(tmp_path):
    data, model = batches(), spread_network()
    call = {"target": 5.0, "checkpoint": tmp_path / "tune.json", "progress": False}
    zeropoint.tune(model, (data[0],), data[:2], validation=data[2:3], **call)
    with pytest.raises(ValueError, match="another model, metric or calibration data"):
        zeropoint.tune(model, (data[0],), data[:2], validation=data[3:], **call)
    with pytest.raises(ValueError, match="another model, metric or calibration data"):
        zeropoint.tune(model, (data[0],), data[:2], "cosine", validation=data[2:3], **call)


@pytest.mark.parametrize("trials", [[], {"a": 1}, {"a": [1, 2, 3]}, {"a": ["x", 1]}, "pipe", "nested"])
def test_what_is_no_checkpoint_is_refused_in_words(tmp_path, trials):
    path, data = tmp_path / "tune.json", batches()
    call = {"target": 5.0, "checkpoint": path, "progress": False}
    if trials == "pipe":
        os.mkfifo(path)
    else:
        zeropoint.tune(spread_network(), (data[0],), data, mixed_precision=False, **call)
        path.write_text(
            "[" * 100_000 if trials == "nested" else json.dumps({**json.loads(path.read_text()), "trials": trials})
        )
    with pytest.raises(ValueError, match=r"tune\.json is not a checkpoint of tune"):
        zeropoint.tune(spread_network(), (data[0],), data, mixed_precision=False, **call)


def test_the_report_is_json():
    facts = json.loads(tuned(target=5.0).to_json())
    assert facts["met"] is True
    assert facts["trials"][0]["verdict"] == "plain int8"


def test_tune_needs_a_batch_and_a_known_metric():
    model = spread_network()
    with pytest.raises(ValueError, match="is empty"):
        zeropoint.tune(model, (batches()[0],), [], progress=False)
    with pytest.raises(ValueError, match="metric must be"):
        zeropoint.tune(model, (batches()[0],), batches(), "speed", progress=False)


def test_an_unknown_field_of_the_policy_is_named():
    data = batches()
    with pytest.raises(ValueError, match="unknown policy field 'bits'"):
        zeropoint.tune(spread_network(), (data[0],), data, policy={"bits": 4}, progress=False)


def test_an_unknown_algorithm_is_named():
    data = batches()
    with pytest.raises(ValueError, match="unknown algorithm 'magic'; choose from scaling, "):
        Bench(spread_network(), (data[0],), data).make(Recipe(("magic",)))


OPTIONS = (
    Option("a", "int8", 4.0, 1.0, 1), Option("a", "float", 0.0, 3.0, 4),
    Option("b", "int8", 1.0, 1.0, 1), Option("b", "float", 0.0, 5.0, 4),
)  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "ways"),
    [
        (5.0, {"a": "int8", "b": "int8"}),
        (4.0, {"a": "float", "b": "int8"}),  # both 4 + 0 (6 ms) and 0 + 1 (4 ms) fit: the quicker one is taken
        (0.5, {"a": "float", "b": "float"}),
    ],
)
def test_the_quickest_choice_within_an_error_is_exact(limit, ways):
    point = choose(OPTIONS, limit)
    assert dict(point.precisions) == ways
    assert point.error <= limit


def test_no_choice_fits_an_error_below_the_least():
    assert choose([Option("a", "int8", 1.0, 1.0, 1)], 0.5) is None


def test_the_front_has_no_point_that_another_beats():
    front = Front.of(OPTIONS, signal=100.0)
    assert [(p.milliseconds, p.error) for p in front.points] == [(2.0, 5.0), (4.0, 1.0), (8.0, 0.0)]
    assert front.sqnr(front.points[1]) == pytest.approx(20.0)


def test_every_layer_is_measured_in_every_way_it_has():
    data = batches()
    front = precision_front(Bench(spread_network(), (data[0],), data), progress=False)
    ways = {path: {o.precision for o in front.options if o.path == path} for path in ("0", "2", "4")}
    everything = {"int8", "int8 dynamic", "int8 twice", "int8 weights", "int4 weights", "float16 weights", "float"}
    assert ways == {"0": everything, "2": everything, "4": everything}
    of_second = {o.precision: o for o in front.options if o.path == "2"}
    assert of_second["float"].error == 0.0
    assert of_second["int4 weights"].error > of_second["int8 weights"].error > 0.0
    assert of_second["int8"].nbytes < of_second["float"].nbytes
    assert all(o.milliseconds > 0 for o in front.options)


def test_ranges_of_each_call_are_tried_before_what_is_slow():
    # The batch that judges is a hundred times as large as those of the calibration: no range of theirs fits it.
    data, model = (
        [*batches(3), 100 * batches(1)[0]],
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(),
    )
    found = zeropoint.tune(model, (data[0],), data, target=30.0, progress=False)
    assert found.met
    assert found.front is not None  # whether some layers need no ranges of each call
    first = next(trial for trial in found.trials if trial.metric >= 30)
    assert first.recipe.precisions == (("0", "int8 dynamic"), ("2", "int8 dynamic"))
    assert not {"gptq", "adaround"} & {*first.recipe.algorithms}
    assert torch.equal(found.program(data[3]), found.model(data[3]))


class Attention(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.all(x).chunk(3, -1)
        return self.last((query @ key.mT * 0.25).softmax(-1) @ value)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(all=nn.Linear(16, 48), last=nn.Linear(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x)


def test_products_of_attention_are_chosen_too():
    torch.manual_seed(0)
    model, data = Block().eval(), [torch.randn(2, 6, 16) for _ in range(2)]
    bench = Bench(model, (data[0],), data)
    front = precision_front(bench, progress=False)
    products = {o.precision: o for o in front.options if o.path == "attention:products"}
    assert set(products) == {"int8", "int8 dynamic", "float"}
    assert products["int8"].error > products["float"].error == 0.0
    rows = bench.make(Recipe((), (("attention:products", "float"),))).quantized.summary().rows
    assert {row.precision for row in rows if row.operator == "matmul"} == {"float32"}
    assert {row.precision for row in rows if row.operator == "linear"} == {"int8"}
    best = min(front.points, key=lambda point: point.error)
    assert dict(best.precisions)["attention:products"] == "float"


def test_advice_says_when_ranges_stop_moving():
    model = nn.Sequential(nn.Linear(4, 2)).eval()
    still = [torch.linspace(-1, 1, 64).reshape(16, 4)] * 8
    advice = zeropoint.calibration_advice(model, (still[0],), still)
    assert (advice.batches, advice.seen) == (1, 8)
    assert advice.moved[-1][1] == 0.0
    growing = [still[0] * k for k in range(1, 9)]
    advice = zeropoint.calibration_advice(model, (still[0],), iter(growing))
    assert advice.batches is None
    assert advice.moved[0][1] > 0.8  # after one batch the range is an eighth of the last
    assert "not enough" in str(advice)
    with pytest.raises(ValueError, match="is empty"):
        zeropoint.calibration_advice(model, (still[0],), [])


def test_the_page_shows_what_was_tried_and_the_front(tmp_path):
    found = tuned(target=60.0)
    findings = found.write_report(tmp_path / "report.html", batches(), title="spread", progress=False)
    page = (tmp_path / "report.html").read_text()
    assert "Tuning" in page
    assert page.count("<circle") >= len(found.front.points)
    assert findings.search.rows == tuple(found.table())
    # Values are compared with those of the graph whose channels were scaled, not with those of the model.
    assert findings.comparison.sqnr >= 60
    assert min(row.sqnr for row in findings.comparison.rows) > 20


def test_torchscript_that_is_a_straight_line_is_tuned():
    data = batches()
    scripted = torch.jit.script(spread_network())
    found = zeropoint.tune(scripted, (data[0],), data, target=plain_sqnr() + 10, progress=False)
    assert found.met
    assert "equalize" in found.recipe.algorithms
    assert torch.equal(found.program(data[1]), found.model(data[1]))


def test_the_margin_is_a_share_of_what_may_be_lost():
    assert _Goal(0.8, 1.0, 0.25).wanted == pytest.approx(0.85)
    assert _Goal(30.0, math.inf, 0.25).wanted == 30.0  # dB, of which the float model has no end
    assert _Goal(1.0, 1.0, 0.25).wanted == 1.0
    goal = _Goal(-2.0, 0.0, 0.0)
    assert goal.share(-8.0) == pytest.approx(0.25)
    assert [goal.is_far(metric) for metric in (-8.0, -3.0)] == [True, False]
    assert _Goal(1.0, 1.0, 0.0).is_far(0.99)  # where nothing may be lost, anything is far
    assert goal.share(-1.0) == pytest.approx(2.0)
    assert _Goal(40.0, math.inf, 0.0).share(20.0) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="margin must be at least 0 and less than 1, got 1"):
        zeropoint.tune(spread_network(), (batches()[0],), batches(), margin=1, progress=False)


class TwoBranches(nn.Module):
    """A layer whose input has a step a thousand times larger than the others, and one that int8 is enough for."""

    def __init__(self) -> None:
        super().__init__()
        self.hard, self.easy = nn.Linear(16, 64), nn.Linear(16, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread = torch.cat([x[..., :1] * 1000, x[..., 1:]], -1)
        return self.hard(spread).tanh() + self.easy(x).tanh()


def test_a_target_far_away_is_met_by_mixed_precision_without_what_cannot_reach_it():
    torch.manual_seed(0)
    model, data = TwoBranches().eval(), [torch.randn(64, 16) for _ in range(4)]
    with torch.no_grad():
        model.hard.weight[:, 0] *= 1e-5
    found = zeropoint.tune(model, (data[0],), data, target=40.0, progress=False)
    assert found.met
    assert dict(found.recipe.precisions)["hard"] != "int8"
    tried = {name for trial in found.trials for name in trial.recipe.algorithms}
    assert not {"ranges", "scaling", "adaround"} & tried
    assert torch.equal(found.program(data[1]), found.model(data[1]))


@pytest.mark.parametrize("way", ["int8", "int8 dynamic", "int8 weights"])
def test_errors_of_all_layers_at_once_are_those_of_one_layer_at_a_time(way):
    data, model = batches(), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    bench = Bench(model.eval(), (data[0],), data[:1])
    options = {o.path: o for o in precision_front(bench, progress=False).options if o.precision == way}
    assert set(options) == {"0", "2", "4"}
    ways = () if way == "int8" else tuple((path, way) for path in options)
    prepared = bench.calibrated(Recipe((), ways))[1]
    wanted = model(data[0]).detach()
    for node, choice in prepared.choices().items():
        if choice.operator is not None and choice.operator.heavy:
            alone = convert_layers(prepared, {node.name})(data[0])
            error = float((alone - wanted).detach().double().square().sum())
            assert options[origin(node).path].error == pytest.approx(error, rel=0.05)


def test_the_time_of_a_step_belongs_to_its_layer_whatever_is_fused_behind():
    data = [torch.randn(4, 64) for _ in range(2)]
    model = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 8), nn.Sigmoid()).eval()
    options = precision_front(Bench(model, (data[0],), data), progress=False).options
    assert all(option.milliseconds > 0 for option in options)


def test_the_time_of_a_step_is_its_least_as_a_busy_machine_only_adds_to_it(monkeypatch):
    """Only one run of ten is undisturbed; the others take a second longer in every step."""
    file, calls = importlib.import_module("zeropoint.accuracy.precision"), iter(range(1000))

    class Busy:
        def __init__(self, *given):
            self._program = zeropoint.compile(*given)
            self.nodes = self._program.nodes

        def profile(self, *inputs, runs):
            late = 0.0 if next(calls) % 10 == 4 else 1.0
            return [row._replace(seconds=row.seconds + late) for row in self._program.profile(*inputs, runs=runs)]

    monkeypatch.setattr(file, "compile", Busy)
    data = batches()
    options = precision_front(Bench(spread_network(), (data[0],), data), progress=False).options
    assert all(0 < option.milliseconds < 500 for option in options)


@torch.no_grad()
def test_steps_of_a_sequence_have_ranges_of_their_own_before_a_window_of_one():
    # Every step is ten times as large as the one before it: one range leaves the first ones nothing.
    torch.manual_seed(0)
    data = [torch.randn(2, 16, 5) * 10.0 ** torch.arange(5) for _ in range(2)]
    model = nn.Sequential(nn.Conv1d(16, 8, 1), nn.Tanh()).eval()
    quantized = Bench(model, (data[0],), data).make(Recipe((), (("0", "int8 dynamic"),))).quantized
    assert {row.operator for row in quantized.summary().rows} >= {"linear"}
    error = (quantized(data[1]) - model(data[1])).square().mean((0, 1))
    assert float(error[0]) < 1e-4 * float(model(data[1])[..., 0].square().mean())
    program = zeropoint.compile(quantized, (data[0],))
    assert torch.equal(program(data[1]), quantized(data[1]))


@torch.no_grad()
@pytest.mark.parametrize("layer", [nn.Linear(16, 8), nn.Conv1d(16, 8, 1)], ids=["linear", "pointwise"])
def test_activations_that_are_rounded_twice_lose_nothing(layer):
    torch.manual_seed(0)
    data = [torch.randn(2, 16, 16) for _ in range(2)]
    model = nn.Sequential(layer, nn.Tanh()).eval()
    bench = Bench(model, (data[0],), data)
    errors = {}
    for way in ("int8 dynamic", "int8 twice"):
        quantized = bench.make(Recipe((), (("0", way),))).quantized
        # What is left is the error of the weight, which is taken out of what is compared.
        graph = bench.calibrated(Recipe((), (("0", way),)))[0]
        rounded = next(iter(layers_of(graph, quantized, data)))
        weight = rounded.rounded().reshape(layer.weight.shape)
        wanted = torch.func.functional_call(model, {"0.weight": weight}, (data[1],))
        errors[way] = float((quantized(data[1]) - wanted).square().mean())
        program = zeropoint.compile(quantized, (data[0],))
        assert torch.equal(program(data[1]), quantized(data[1]))
    assert errors["int8 twice"] < 1e-3 * errors["int8 dynamic"]
    zeros = torch.zeros(2, 16, 16)
    assert torch.isfinite(program(zeros)).all()


def test_what_gptq_and_smooth_found_is_taken_again(monkeypatch):
    data, model = batches(), spread_network()
    bench = Bench(model, (data[0],), data)
    ways = (("0", "int8 dynamic"), ("2", "int8 dynamic"), ("4", "int8 dynamic"))
    first = bench.make(Recipe(("smooth", "gptq"), ways))
    for name in ("gptq", "smoothing"):
        file = importlib.import_module(f"zeropoint.accuracy.{name}")
        monkeypatch.setattr(file, "_rounded" if name == "gptq" else "_search", None)  # is not called again
    again = bench.make(Recipe(("smooth", "gptq"), ways))
    assert torch.equal(again.quantized(data[3]), first.quantized(data[3]))
    fewer = bench.make(Recipe(("smooth", "gptq"), (*ways[:2], ("4", "float"))))
    assert [change.path for change in fewer.changes if change.algorithm == "gptq"] == ["0", "2"]
