"""Language of documents: detected, declared, short and empty."""

import polars as pl
import pytest
from pydantic import ValidationError
from sklearn.metrics import precision_recall_fscore_support

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.enriching.quality import measure
from rag_eval_pipeline.stages.enriching.transform import CONFIG, prepare, run
from rag_eval_pipeline.warehouse.runtime import Runtime

TEXTS = {
    "en": "Employees may carry over up to five days of unused leave into the next calendar year.",
    "es": "Los empleados pueden trasladar hasta cinco días de vacaciones no disfrutados al año siguiente.",
    "empty": "  \n",
    "short": "OK",
    "digits": "12345 67890",
}


def frames(texts=TEXTS, declared=None):
    return {
        "parsed": pl.DataFrame({"doc_id": list(texts), "text": list(texts.values())}),
        "documents": pl.DataFrame(
            {"doc_id": list(texts), "language": [(declared or {}).get(doc_id) for doc_id in texts]},
            schema={"doc_id": pl.String, "language": pl.String},
        ),
    }


def languages(**config):
    declared = config.pop("declared", None)
    made = run(frames(declared=declared), CONFIG(**config), Runtime.plain())["languages"]
    return {row["doc_id"]: row for row in made.iter_rows(named=True)}


def test_english_and_spanish_are_told_apart_and_poor_texts_are_flagged():
    found = languages()
    assert (found["en"]["language"], found["en"]["status"]) == ("en", "ok")
    assert (found["es"]["language"], found["es"]["status"]) == ("es", "ok")
    assert (found["empty"]["language"], found["empty"]["status"]) == ("und", "empty")
    assert found["short"]["status"] == "short"
    assert (found["digits"]["language"], found["digits"]["status"]) == ("und", "short")
    assert 0 <= found["en"]["score"] <= 1


def test_only_plausible_languages_are_chosen():
    assert {languages(languages=("en", "es"))[name]["detected"] for name in ("en", "es", "short")} <= {"en", "es"}


def test_the_declared_language_is_always_visible_and_wins_only_where_preferred():
    declared = {"en": "es-MX", "digits": "en-US"}
    detected_first = languages(declared=declared)
    assert detected_first["en"]["language"] == "en"
    assert detected_first["en"]["declared"] == "es"
    assert detected_first["digits"]["language"] == "en", "nothing detected: the declaration is all there is"
    declared_first = languages(declared=declared, prefer="declared")
    assert declared_first["en"]["language"] == "es"
    assert declared_first["en"]["detected"] == "en"


def test_an_unknown_detector_or_language_is_refused():
    with pytest.raises(ValidationError, match="unknown detector"):
        CONFIG(detector="magic")
    with pytest.raises(ValueError, match="does not know"):
        prepare(CONFIG(languages=("xx",)))


def gold(labels):
    return Gold(
        languages=pl.DataFrame(
            {"doc_id": list(labels), "language": list(labels.values()), "sections": [None] * len(labels)},
            schema=SCHEMAS["languages"],
        )
    )


def test_scores_equal_sklearn_and_unlabelled_documents_have_no_value():
    texts = {
        **TEXTS,
        "b": "The quick brown fox jumps over the lazy dog near the river bank.",
        "c": TEXTS["es"] + " Gracias.",
    }
    labels = {"en": "en", "es": "es-ES", "b": "es", "c": "es"}
    made = run(frames(texts), CONFIG(languages=("en", "es")), Runtime.plain())
    rows = measure({**frames(texts), **made}, gold(labels), CONFIG(), Settings())
    accuracy = {r["item_id"]: r for r in rows.filter(metric="language_accuracy").iter_rows(named=True)}
    assert set(accuracy) == set(texts)
    assert accuracy["empty"]["value"] is None
    assert accuracy["empty"]["status"] == "no_gold"
    assert accuracy["es"]["value"] == 1.0
    assert accuracy["b"]["value"] == 0.0
    truth, found = ["en", "es", "es", "es"], ["en", "es", "en", "es"]
    precision, recall, f1, _ = precision_recall_fscore_support(truth, found, labels=["en", "es"])
    normal = rows.filter(params='{"length": "normal"}')
    for index, language in enumerate(("en", "es")):
        for metric, values in (("precision", precision), ("recall", recall), ("f1", f1)):
            row = normal.filter(metric=f"language_{metric}", item_id=language)
            assert row["value"][0] == pytest.approx(values[index])
    assert normal.filter(metric="language_macro_f1")["value"][0] == pytest.approx(f1.mean())


def test_an_unrecognised_document_with_a_label_is_wrong_not_missing():
    made = run(frames(), CONFIG(), Runtime.plain())
    rows = measure({**frames(), **made}, gold({"empty": "en"}), CONFIG(), Settings())
    row = rows.filter(metric="language_accuracy", item_id="empty").row(0, named=True)
    assert (row["value"], row["status"]) == (0.0, "empty")


def test_labelled_sentences_of_many_languages_are_mostly_right(shared):
    folder = shared("data", "langid") / "sentences"
    texts = {
        f"{path.stem}{i}": line
        for path in sorted(folder.glob("*.txt"))
        for i, line in enumerate(path.read_text("utf-8").splitlines()[:20])
        if line.strip()
    }
    made = run(frames(texts), CONFIG(), Runtime.plain())["languages"]
    right = made.filter(pl.col("doc_id").str.slice(0, 2) == pl.col("language"))
    assert len(right) / len(made) > 0.8
