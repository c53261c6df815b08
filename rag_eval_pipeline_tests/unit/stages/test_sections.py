"""Languages of parts: they cover the text, mixed documents keep theirs, and chunks are analysed accordingly."""

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.chunking.transform import CONFIG as CHUNKING
from rag_eval_pipeline.stages.chunking.transform import run as cut
from rag_eval_pipeline.stages.enriching.quality import measure
from rag_eval_pipeline.stages.enriching.sections import LETTERS, sections
from rag_eval_pipeline.stages.enriching.transform import CONFIG, run
from rag_eval_pipeline.stages.retrieval.lexical import Bm25
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.runtime import Runtime

ENGLISH = "Employees may carry over up to five days of unused leave into the next calendar year, and no more than that."
SPANISH = "Los empleados pueden trasladar hasta cinco días de vacaciones no disfrutados al año siguiente, y no más."
MIXED = f"# Leave\n\n{ENGLISH}\n\n{ENGLISH[::1]}\n\n# Vacaciones\n\n{SPANISH}\n\nSí.\n\n{ENGLISH}"


def enriched(texts, declared=None, **config):
    frames = {
        "parsed": pl.DataFrame({"doc_id": list(texts), "text": list(texts.values())}),
        "documents": pl.DataFrame(
            {"doc_id": list(texts), "language": [(declared or {}).get(doc_id) for doc_id in texts]},
            schema={"doc_id": pl.String, "language": pl.String},
        ),
    }
    return run(frames, CONFIG(**config), Runtime.plain())


def spoken(made, doc_id, text):
    rows = made["section_languages"].filter(doc_id=doc_id).sort("section").iter_rows(named=True)
    return [(row["language"], text[row["start"] : row["end"]]) for row in rows]


def test_a_mixed_document_keeps_the_languages_of_its_parts():
    made = enriched({"mixed": MIXED})
    found = spoken(made, "mixed", MIXED)
    assert [language for language, _ in found] == ["en", "es", "en"]
    assert found[1][1].strip() == f"# Vacaciones\n\n{SPANISH}\n\nSí.".strip(), "short parts go with their neighbours"
    assert "".join(text for _, text in found) == MIXED
    assert made["languages"]["language"].to_list() == ["en"]


def test_a_document_in_one_language_is_one_part_whatever_its_names_and_figures():
    text = f"{ENGLISH}\n\nSan José de Gracia, Guanajuato, México\n\n12 345,60\n\n{ENGLISH}\n\nC'est la vie\n\n{ENGLISH}"
    assert [language for language, _ in spoken(enriched({"one": text}), "one", text)] == ["en"]
    assert spoken(enriched({"tiny": "OK"}), "tiny", "OK")[0][1] == "OK"
    assert spoken(enriched({"none": "12 34"}), "none", "12 34") == [("und", "12 34")]
    assert enriched({"empty": " "})["section_languages"].is_empty()


def test_sections_can_be_off_and_a_declared_language_holds_for_the_parts_that_agree():
    assert [language for language, _ in spoken(enriched({"m": MIXED}, sections=False), "m", MIXED)] == ["en"]
    declared = enriched({"m": MIXED}, declared={"m": "gl"}, prefer="declared")
    assert [language for language, _ in spoken(declared, "m", MIXED)] == ["gl", "es", "gl"]


BLOCK = st.tuples(st.integers(0, 150), st.integers(0, 150), st.sampled_from(["paragraph", "heading", "code", "table"]))


@given(
    st.text("ab c\n", max_size=200), st.lists(BLOCK, max_size=6),
    st.sampled_from([("xx", 1.0), ("yy", 0.5), ("yy", None), ("und", 0.99)]),
)  # fmt: skip
def test_parts_cover_the_text_in_order_and_neighbours_differ(text, spans, told):
    blocks = [{"start": min(a, b, len(text)), "end": min(max(a, b), len(text)), "kind": kind} for a, b, kind in spans]
    found = sections(text, blocks, "xx", lambda _part: told)
    assert found[0].start == 0
    assert found[-1].end == len(text)
    for first, second in itertools.pairwise(found):
        assert first.end == second.start
        assert first.language != second.language
    speaks = any(section.language != "xx" for section in found)
    assert not speaks or (sum(map(str.isalpha, text)) >= LETTERS and told[1] in (None, 1.0, 0.99))


def chunked(texts, made):
    base = pl.DataFrame(
        {
            "doc_id": list(texts),
            "text": list(texts.values()),
            "offsets": [OffsetMap.identity(len(text)).rows() for text in texts.values()],
        }
    )
    blocks = pl.DataFrame(
        schema={"doc_id": pl.String, "block": pl.Int64, "kind": pl.String, "level": pl.Int64, "page": pl.Int64, "start": pl.Int64, "end": pl.Int64}
    )  # fmt: skip
    frames = {"masked": base, "cleaned": base, "blocks": blocks, **made}
    return cut(frames, CHUNKING(splitter="recursive", size=25, overlap=0, unit="words"), Runtime.plain())["chunks"]


def test_each_chunk_has_the_language_and_the_analyser_of_its_part():
    texts = {"mixed": MIXED, "plain": ENGLISH}
    chunks = chunked(texts, enriched(texts))
    found = {row["text"]: row["language"] for row in chunks.iter_rows(named=True)}
    assert {found[text] for text in found if "vacaciones no" in text} == {"es"}
    assert {found[text] for text in found if "unused leave" in text and "empleados" not in text} == {"en"}
    index = Bm25(chunks, k1=1.2, b=0.75, stemming="auto", stop_words="auto")
    scores = dict(zip(chunks["text"], index.scores("trasladando la vacación disfrutada", "es"), strict=True))
    best = max(scores, key=lambda text: scores[text])
    assert "vacaciones no disfrutados" in best
    assert scores[best] > 0, "only stems of the chunk's own language meet these words"


def test_labelled_parts_are_judged_character_by_character():
    english, spanish = f"{ENGLISH}\n\n", f"{SPANISH}\n"
    text = english + spanish
    spans = [
        {"start": 0, "end": len(english), "language": "en-GB"},
        {"start": len(english), "end": len(text), "language": "pt"},
    ]
    gold = Gold(
        languages=pl.DataFrame([{"doc_id": "m", "language": "en", "sections": spans}], schema=SCHEMAS["languages"]),
        references=pl.DataFrame([{"doc_id": "m", "text": text}], schema=SCHEMAS["references"]),
    )
    texts = {"m": text, "other": ENGLISH}
    frames = {**enriched(texts), "parsed": pl.DataFrame({"doc_id": list(texts), "text": list(texts.values())})}
    rows = measure(frames, gold, CONFIG(), Settings())
    accuracy = {row["item_id"]: row for row in rows.filter(metric="section_language_accuracy").iter_rows(named=True)}
    assert accuracy["m"]["value"] == pytest.approx(len(english) / len(text))
    assert (accuracy["other"]["value"], accuracy["other"]["status"]) == (None, "no_gold")
    f1 = dict(rows.filter(metric="language_f1", unit="section").select("item_id", "value").iter_rows())
    assert f1["en"] == 1.0
    assert f1["pt"] == 0.0
    assert rows.filter(metric="language_macro_f1", unit="section")["value"].to_list() == [0.5]
