"""Rows of tables and structure: every reference table and labelled document has one, with a value or a reason."""

import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.measures import errors
from rag_eval_pipeline.measures import tables as measures
from rag_eval_pipeline.measures.tables import teds
from rag_eval_pipeline.release.evaluated import metrics_of
from rag_eval_pipeline.stages.parsing.quality import measure
from rag_eval_pipeline.stages.parsing.spans import WORST, FidelitySpans, fidelity_spans
from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig, run
from rag_eval_pipeline.warehouse.measurement import document_of_table, table_item
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform, polars_schema, privacy_of
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import QUICK, write_corpus, write_jsonl
from rag_eval_pipeline_tests.unit.stages.test_parsing import SourceConfig, files, list_documents

TABLES = ("teds", "teds_clipped", "teds_struct", "teds_lenient")
STRUCTURE = (
    "reading_order", "block_edit_distance", "heading_f1", "heading_level_acc", "title_exact", "title_similarity",
    "list_integrity",
)  # fmt: skip


def grid(*rows, cell="td"):
    """A table of the words of each row."""
    return (
        "<table>"
        + "".join(f"<tr>{''.join(f'<{cell}>{w}</{cell}>' for w in r.split())}</tr>" for r in rows)
        + "</table>"
    )


ONE, TWO, THREE = grid("tariff A", "price 10"), grid("city Bilbao", "people 346000"), grid("x y z", "1 2 3", "4 5 6")


def measured(gold_tables=None, read=None, structure=None, blocks=None, statuses=None):
    """Rows by (metric, item). `blocks`: doc_id -> (kind, text, level) as read."""
    gold_tables, read, structure, blocks = gold_tables or {}, read or {}, structure or {}, blocks or {}
    statuses = {**dict.fromkeys([*gold_tables, *read, *structure, *blocks], "ok"), **(statuses or {})}
    texts, placed = {}, []
    for doc_id, listed in blocks.items():
        text = ""
        for number, (kind, words, level) in enumerate(listed):
            start = len(text)
            text += words + "\n\n"
            placed.append(
                {
                    "doc_id": doc_id,
                    "block": number,
                    "kind": kind,
                    "level": level,
                    "start": start,
                    "end": start + len(words),
                }
            )
        texts[doc_id] = text
    frames = {
        "documents": pl.DataFrame(
            [(doc_id, "any", "txt", 100) for doc_id in statuses],
            schema=["doc_id", "doc_class", "media", "bytes"],
            orient="row",
        ),
        "parsed": conform(
            Parsed,
            [
                {"doc_id": doc_id, "text": texts.get(doc_id, ""), "status": status, "parser": "made"}
                for doc_id, status in statuses.items()
            ],
        ),
        "blocks": conform(Blocks, placed),
        "parsed_tables": conform(
            ParsedTables,
            [{"doc_id": d, "table_no": n, "html": html} for d, listed in read.items() for n, html in enumerate(listed)],
        ),
    }
    labels = [(d, n, html) for d, listed in gold_tables.items() for n, html in enumerate(listed)]
    outlines = [
        (doc_id, [{"kind": kind, "level": level, "text": words} for kind, words, level in listed])
        for doc_id, listed in structure.items()
    ]
    gold = Gold(
        tables=pl.DataFrame(labels, schema=SCHEMAS["tables"], orient="row"),
        structure=pl.DataFrame(outlines, schema=SCHEMAS["structure"], orient="row"),
    )
    rows = measure(frames, gold, ParsingConfig(), Settings())
    return {(row["metric"], row["item_id"]): (row["value"], row["status"]) for row in rows.to_dicts()}


# Tables


def test_missing_table_is_zero(known_wrong):
    case = known_wrong["missing-table-is-zero"]["input"]
    wanted = [ONE, TWO, THREE]
    assert (len(wanted), 2) == (case["reference_tables"], case["predicted_tables"])
    for gone in range(3):
        read = [table for number, table in enumerate(wanted) if number != gone]
        for order in (read, read[::-1]):
            found = measured({"d": wanted}, {"d": order})
            for name in TABLES:
                values = {number: found[name, f"d#{number}"] for number in range(3)}
                assert values.pop(gone) == (0.0, "missing_table")
                assert set(values.values()) == {(1.0, "scored")}
            assert found["spurious_tables", "d"] == (0.0, "scored")


def test_tables_without_a_counterpart_count_apart_and_take_nothing_from_the_score():
    found = measured({"d": [ONE]}, {"d": [TWO, ONE, THREE]})
    assert found["teds", "d#0"] == (1.0, "scored")
    assert found["spurious_tables", "d"] == (2.0, "scored")


def test_documents_without_reference_tables_have_no_value():
    found = measured({"labelled": [ONE]}, {"d": [ONE]})
    for name in TABLES:
        assert found[name, "d#-"] == (None, "no_gold")
    assert found["spurious_tables", "d"] == (None, "no_gold")


def test_a_document_that_was_not_read_has_lost_its_tables_and_says_why():
    found = measured({"d": [ONE, TWO]}, statuses={"d": "encrypted"})
    assert {found[name, f"d#{number}"] for name in TABLES for number in (0, 1)} == {(0.0, "encrypted")}
    assert found["spurious_tables", "d"] == (0.0, "encrypted")


def test_what_is_no_table_scores_zero_and_what_is_odd_is_flagged():
    found = measured(
        {"a": [ONE], "b": [ONE.replace("<td>", '<td colspan="two">', 1)], "c": ["<table></table>"]},
        {"a": ["no table"], "b": [ONE], "c": ["<table> </table>"]},
    )
    assert found["teds", "a#0"] == (0.0, "unreadable_table")
    assert found["teds", "b#0"] == (1.0, "invalid_span")
    assert found["teds", "c#0"] == (1.0, "both_empty")


def test_the_three_scores_speak_of_one_assignment():
    # By structure alone both assignments are equal; contents say which one is meant.
    wanted, read = [grid("a b", "c d"), grid("e f", "g h")], [grid("e f", "g x"), grid("a b", "c d")]
    found = measured({"d": wanted}, {"d": read})
    assert found["teds", "d#0"][0] == found["teds_struct", "d#1"][0] == 1.0
    assert found["teds", "d#1"][0] == teds(wanted[1], read[0]) < 1.0


def test_header_cells_count_in_the_strict_score_and_not_in_the_lenient_one():
    found = measured({"d": [ONE]}, {"d": [grid("tariff A", "price 10", cell="th")]})
    assert found["teds", "d#0"][0] == pytest.approx(1 - 4 / 6)
    assert found["teds_lenient", "d#0"] == (1.0, "scored")


def test_a_table_so_odd_that_it_scores_below_zero_is_clipped_beside_the_score():
    row, empty = grid("a b c d"), f"<table>{'<tr></tr>' * 5}</table>"
    found = measured({"d": [row]}, {"d": [empty]})
    assert found["teds", "d#0"] == (pytest.approx(1 - 6 / 5), "scored"), (
        "of 5 nodes a row goes, 4 cells become rows, a row comes"
    )
    assert found["teds_clipped", "d#0"] == (0.0, "scored")
    found = measured({"d": [ONE]}, {"d": [grid("tariff A", "price 11")]})
    assert found["teds_clipped", "d#0"] == found["teds", "d#0"]


def test_tables_too_large_to_compare_have_no_value_unless_they_are_equal(monkeypatch):
    monkeypatch.setattr(measures, "MAX_PAIRS", 60)
    found = measured({"a": [THREE], "b": [THREE]}, {"a": [THREE], "b": [THREE.replace("9", "8").replace("z", "q")]})
    assert found["teds", "a#0"] == (1.0, "scored")
    assert found["teds", "b#0"] == (None, "too_large")
    assert found["teds_struct", "b#0"] == (1.0, "scored")


@pytest.mark.parametrize("doc_id", ["a", "a#1", "a/b#-.pdf", "#", "a\n#2\n"])
def test_the_document_of_a_tables_item_id_is_found_again(doc_id):
    names = pl.DataFrame({"item": [table_item(doc_id, 3), table_item(doc_id, None)]})
    assert names.select(document_of_table(pl.col("item")))["item"].to_list() == [doc_id] * 2


# Structure


OUTLINE = [
    ("heading", "Annual leave", 1), ("paragraph", "Everyone has 26 days.", None), ("heading", "Asking", 2),
    ("list_item", "Three days need a week.", 1), ("list_item", "More need a month.", 1), ("table", "a\tb\n1\t2", None),
]  # fmt: skip


def test_marks_that_say_what_a_block_is_are_no_text():
    marked = [
        ("heading", "# Annual leave", 1), ("paragraph", "Everyone has 26 days.", None), ("heading", "Asking\n------", 2),
        ("list_item", "1. Three days need a week.", 1), ("list_item", "• More need a month.", 1),
        ("table", "| a | b |\n|---|:-:|\n| 1 | 2 |", None),
    ]  # fmt: skip
    found = measured(structure={"d": OUTLINE}, blocks={"d": marked})
    assert {name: found[name, "d"] for name in STRUCTURE} == {
        name: (0.0 if name == "block_edit_distance" else 1.0, "scored") for name in STRUCTURE
    }


def test_a_document_read_as_plain_paragraphs_keeps_its_order_and_loses_the_rest():
    flat = [("paragraph", words, None) for _, words, _ in OUTLINE]
    found = measured(structure={"d": OUTLINE}, blocks={"d": flat})
    assert found["reading_order", "d"] == (1.0, "scored")
    assert found["heading_f1", "d"] == (0.0, "scored")
    assert found["heading_level_acc", "d"] == (None, "none_matched")
    assert found["title_exact", "d"] == (0.0, "missing_title")
    assert found["list_integrity", "d"] == (0.0, "scored")


def test_structure_of_a_document_that_was_not_read_or_has_none():
    found = measured(
        structure={"gone": OUTLINE, "plain": [("paragraph", "a", None)]},
        blocks={"plain": [("paragraph", "a", None)], "unlabelled": OUTLINE},
        statuses={"gone": "crashed"},
    )
    assert found["heading_f1", "gone"] == found["list_integrity", "gone"] == (0.0, "crashed")
    assert found["title_exact", "gone"] == (0.0, "crashed")
    assert found["block_edit_distance", "gone"] == (1.0, "crashed")
    assert found["reading_order", "gone"] == (None, "crashed")
    assert {found[name, "unlabelled"] for name in STRUCTURE} == {(None, "no_gold")}
    assert [found[name, "plain"][1] for name in ("heading_f1", "title_exact", "list_integrity")] == [
        "no_heading", "no_title", "no_list",
    ]  # fmt: skip
    assert found["reading_order", "plain"] == (None, "too_few_matched")


def test_tables_and_structure_come_out_of_html_markdown_and_csv(tmp_path):
    (tmp_path / "a.html").write_text(
        "<html><body><nav><ul><li>Home</li></ul></nav><h1>Rates</h1><p>Per day.</p><ul><li>one thing</li><li>other thing"
        "</li></ul><table><thead><tr><th>City</th><th>Rate</th></tr></thead><tbody><tr><td>Bilbao</td><td>40 &lt; 50"
        "</td></tr></tbody></table></body></html>"
    )
    (tmp_path / "b.md").write_text(
        "# Rates\n\nPer day.\n\n- one thing\n- other thing\n\n| City | Rate |\n|---|---|\n| Bilbao | 40 < 50 |\n"
    )
    (tmp_path / "c.csv").write_text("City,Rate\nBilbao,40 < 50\n")
    table = grid("City Rate", "Bilbao X").replace("X", "40 &lt; 50")
    outline = [
        {"kind": "heading", "level": 1, "text": "Rates"}, {"kind": "paragraph", "level": None, "text": "Per day."},
        {"kind": "list_item", "level": 1, "text": "one thing"}, {"kind": "list_item", "level": 1, "text": "other thing"},
        {"kind": "table", "level": None, "text": "City\tRate\nBilbao\t40 < 50"},
    ]  # fmt: skip
    runtime = Runtime(files=tmp_path, workers=1)
    documents = list_documents({"files": files(tmp_path)}, SourceConfig(), runtime)["documents"]
    frames = {"documents": documents, **run({"documents": documents}, ParsingConfig(ocr="none"), runtime)}
    gold = Gold(
        tables=pl.DataFrame([(d, 0, table) for d in documents["doc_id"]], schema=SCHEMAS["tables"], orient="row"),
        structure=pl.DataFrame([("a.html", outline), ("b.md", outline)], schema=SCHEMAS["structure"], orient="row"),
    )
    rows = measure(frames, gold, ParsingConfig(), Settings())
    values = {(row["metric"], row["item_id"]): row["value"] for row in rows.to_dicts()}
    for doc_id in documents["doc_id"]:
        assert values["teds_lenient", f"{doc_id}#0"] == 1.0
    for doc_id in ("a.html", "b.md"):
        assert [values[name, doc_id] for name in STRUCTURE] == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


# The house


def test_tables_have_the_slices_of_their_document_and_a_line_in_the_scorecard(tmp_path):
    home = home_of(tmp_path)
    folder = write_corpus(home.corpora, documents=2, pipeline=QUICK)
    for path in sorted((folder / "documents").iterdir()):
        path.write_text(path.read_text("utf-8") + "\n| a | b |\n|---|---|\n| 1 | 2 |\n", "utf-8")
    names = sorted(path.name for path in (folder / "documents").iterdir())
    write_jsonl(
        folder / "documents.jsonl",
        [{"doc_id": name, "path": name, "doc_class": f"class {name}", "language": "en"} for name in names],
    )
    tables = home.corpora / "small" / "gold" / "tables"
    tables.mkdir(parents=True)
    (tables / f"{names[0]}.html").write_text(grid("a b", "1 2") + grid("c d", "3 4"), "utf-8")
    subject = Run(home, "small@v1").subject
    rows = subject.kept("parsing_quality").filter(pl.col("metric") == "teds_lenient").sort("item_id")
    assert rows.select("item_id", "doc_class", "language", "value", "status").rows() == [
        (f"{names[0]}#0", f"class {names[0]}", "en", 1.0, "scored"),
        (f"{names[0]}#1", f"class {names[0]}", "en", 0.0, "missing_table"),
        (f"{names[1]}#-", f"class {names[1]}", "en", None, "no_gold"),
    ]
    card = subject.kept("scorecard").filter(pl.col("metric") == "teds_lenient", pl.col("slice_name") == "doc_class")
    assert dict(card.select("slice_value", "mean").iter_rows()) == {f"class {names[0]}": 0.5, f"class {names[1]}": None}


def test_every_metric_of_tables_and_structure_is_declared():
    assert {*TABLES, *STRUCTURE, "spurious_tables"} <= {metric.name for metric in metrics_of("parsing")}


# Spans


def test_worst_spans_are_ranked_with_their_page_and_masked_words_around_them(monkeypatch):
    text = "Secret of page one.\n\nSecond pagge here."
    parsed = conform(
        Parsed,
        [{"doc_id": d, "text": t, "status": "ok", "parser": "made"} for d, t in (("a", text), ("b", "not labelled"))],
    )
    marks = [(0, 0, 19, 1), (1, 21, len(text), 2)]
    blocks = conform(
        Blocks,
        [{"doc_id": "a", "block": n, "kind": "paragraph", "page": p, "start": s, "end": e} for n, s, e, p in marks],
    )
    reference = "Secret of page one.\n\nSecond page, all of it, here."
    references = pl.DataFrame([("a", reference), ("gone", "x")], schema=SCHEMAS["references"], orient="row")
    frames = {"parsed": parsed, "blocks": blocks}
    row = fidelity_spans(frames, references).row(0, named=True)
    assert (row["doc_id"], row["rank"], row["kind"], row["page"]) == ("a", 1, "replaced", 2)
    assert text[row["start"] : row["end"]] == "pagge"
    assert reference[row["reference_start"] : row["reference_end"]] == "page, all of it,"
    assert row["expected"] == "Secret of page one. Second [page, all of it,] here."
    assert row["found"] == "Secret of page one. Second [pagge] here."
    pii = pl.DataFrame([{"doc_id": "a", "spans": [{"start": 0, "end": 6, "type": "WORD"}]}], schema=SCHEMAS["pii"])
    places = pl.DataFrame({"doc_id": ["a"], "layer": ["parsed"], "start": [10], "end": [14], "type": ["PLACE"]})
    masked = fidelity_spans(frames, references, pii, places).row(0, named=True)
    assert masked["expected"].startswith("<WORD> of page")
    assert masked["found"].startswith("Secret of <PLACE> one.")
    texts = {name for name, dtype in polars_schema(FidelitySpans).items() if dtype == pl.String}
    assert {name: privacy_of(FidelitySpans.columns()[name]) for name in texts} == {
        "doc_id": "none", "kind": "none", "expected": "masked", "found": "masked",
    }  # fmt: skip
    monkeypatch.setattr(errors, "MAX_PAIRS", 5)
    large = fidelity_spans(frames, references).rows(named=True)
    assert [(r["kind"], r["errors"], r["end"], r["found"]) for r in large] == [("too_large", None, len(text), None)]


def test_no_more_than_the_worst_spans_are_kept():
    words = [f"word{number}" for number in range(100)]
    read = [word if number % 2 else word + "x" * (number // 2 + 1) for number, word in enumerate(words)]
    parsed = conform(Parsed, [{"doc_id": "a", "text": " ".join(read), "status": "ok", "parser": "made"}])
    references = pl.DataFrame([("a", " ".join(words))], schema=SCHEMAS["references"], orient="row")
    found = fidelity_spans({"parsed": parsed, "blocks": conform(Blocks, [])}, references)
    assert found["rank"].to_list() == list(range(1, WORST + 1))
    assert found["errors"].to_list() == list(range(50, 50 - WORST, -1))
    assert found["page"].to_list() == [None] * WORST
