"""Cross-encoders: labels by name, refusals, and a tiny model with random weights made here."""

import json

import numpy as np
import pytest

from rag_eval_pipeline.judging.pairs import CrossEncoderVerifier, label_columns, missing
from rag_eval_pipeline.judging.verifiers import Passage, VerifierError, ask
from rag_eval_pipeline.text.claims import as_claims

NAMES = {0: "contradiction", 1: "entailment", 2: "neutral"}
CLAIMS = as_claims(["the fee is 8", "it rose"])
PASSAGES = [Passage("p1", "the fee is 8"), Passage("p2", "it fell")]


def model_folder(folder, outputs):
    """A BERT of one layer, saved as sentence-transformers reads it."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fee", "is", "8", "it", "rose", "fell"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words), "utf-8")
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    names = {i: NAMES.get(i, str(i)) for i in range(outputs)}
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        id2label=names, label2id={v: k for k, v in names.items()},
    )  # fmt: skip
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def test_outputs_are_found_by_name_whatever_their_order():
    assert label_columns(NAMES) == {"contradicted": 0, "supported": 1, "unsupported": 2}
    assert label_columns({0: "ENTAILMENT", 1: "Neutral", 2: "Contradiction"})["supported"] == 0
    with pytest.raises(VerifierError, match="id2label"):
        label_columns({0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})


def test_an_absent_model_is_refused_with_what_to_do(tmp_path):
    assert "no config.json" in missing(tmp_path / "nli")
    with pytest.raises(VerifierError, match="name its folder"):
        CrossEncoderVerifier(tmp_path / "nli")
    with pytest.raises(VerifierError, match="unknown kind"):
        CrossEncoderVerifier(tmp_path, "bert")


def test_a_broken_folder_fails_closed(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}), "utf-8")
    verdicts = ask(CrossEncoderVerifier(tmp_path), CLAIMS, PASSAGES)
    assert {v.status for v in verdicts} == {"judge_error"}


@pytest.mark.parametrize(("kind", "outputs"), [("nli", 3), ("hhem", 1)])
def test_a_local_model_gives_one_verdict_a_claim_and_the_same_again(tmp_path, kind, outputs):
    verifier = CrossEncoderVerifier(model_folder(tmp_path / "model", outputs), kind, threshold=0.3)
    first = ask(verifier, CLAIMS, PASSAGES)
    assert [v.claim_id for v in first] == ["c1", "c2"]
    assert {v.status for v in first} == {"judged"}
    assert all(0 <= v.score <= 1 for v in first)
    assert first == ask(verifier, CLAIMS, PASSAGES)
    wrong = CrossEncoderVerifier(tmp_path / "model", "hhem" if kind == "nli" else "nli")
    assert {v.status for v in ask(wrong, CLAIMS, PASSAGES)} == {"judge_error"}


def test_scores_become_labels_by_the_best_passage(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    verifier = CrossEncoderVerifier(tmp_path)
    claims = as_claims(["one", "two", "three", "four"])
    scores = np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.1], [0.4, 0.3], [0.3, 0.4], [np.nan, 0], [1, 0]])
    monkeypatch.setattr(verifier, "_probabilities", lambda pairs: scores)
    found = ask(verifier, claims, PASSAGES)
    assert [(v.label, v.passages, v.status) for v in found] == [
        ("supported", ("p1",), "judged"),
        ("contradicted", ("p1",), "judged"),
        ("unsupported", (), "judged"),
        (None, (), "judge_error"),
    ]
