"""Repairs of parsing, cleaning, dedup and pii on random documents with planted edits, against oracles of their own."""

import random
from itertools import combinations, pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.attribution.texts import text_tests
from rag_eval_pipeline.attribution.units import build_units
from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.predicates import visible
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.cleaning import transform as cleaning
from rag_eval_pipeline.stages.cleaning.repair import repair as repair_cleaning
from rag_eval_pipeline.stages.cleaning.tables import Cleaned
from rag_eval_pipeline.stages.dedup import transform as dedup
from rag_eval_pipeline.stages.dedup.repair import repair as repair_dedup
from rag_eval_pipeline.stages.dedup.tables import Dedup, DedupEdges
from rag_eval_pipeline.stages.parsing.reading import Reading
from rag_eval_pipeline.stages.parsing.repair import repair as repair_parsing
from rag_eval_pipeline.stages.parsing.tables import Blocks, Parsed, ParsedTables
from rag_eval_pipeline.stages.pii import transform as pii
from rag_eval_pipeline.stages.pii.repair import repair as repair_pii
from rag_eval_pipeline.stages.pii.tables import Masked, PiiSpans
from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform, polars_schema

SETTINGS = Settings()
WORDS = [
    "the",
    "valve",
    "opens",
    "after",
    "seven",
    "days",
    "when",
    "pressure",
    "of",
    "line",
    "falls",
    "below",
    "limit",
    "and",
    "niño",
    "sees",
    "él",
    "agua",
    "hot",
    "red",
    "box",
]
seeds = st.integers(0, 2**32 - 1)


def gold_of(**frames):
    made = {}
    for name, rows in frames.items():
        made[name] = pl.DataFrame(rows, schema=SCHEMAS[name], orient="row")
    return Gold(**made)


def truth_of(gold, frames=None):
    if frames is None:
        empty = build_units(Gold(), {}, SETTINGS)
        return Truth(gold, SETTINGS, empty.units, empty.anchors, empty.pieces, empty.units, empty.pieces)
    made = build_units(gold, frames, SETTINGS)
    return Truth(gold, SETTINGS, made.units, made.anchors, made.pieces, made.units.clear(), made.pieces.clear())


def frame_of(schema, rows):
    """As `conform` makes it, without the time that validation takes."""
    return pl.DataFrame(rows, schema=polars_schema(schema), orient="row")


def documents_of(doc_ids, media="pdf", **columns):
    rows = [
        {"doc_id": doc, "path": doc, "media": media, "bytes": 1, "content_hash": doc, "status": "ok", "metadata": "{}"}
        for doc in doc_ids
    ]
    for name, values in columns.items():
        for row in rows:
            row[name] = values.get(row["doc_id"])
    needed = dict.fromkeys(Documents.columns()) | {"doc_class": "none", "acl": []}
    return frame_of(Documents, [{**needed, **row} for row in rows])


def same(one, other):
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)


def held(gold, frames, stage):
    made = build_units(gold, frames, SETTINGS)
    flags, _ = text_tests(made.units, made.anchors, frames)
    return dict(zip(flags["evidence_id"], flags[stage], strict=True))


def evidence_of(quotes):
    """One query a document, asking for its quotes: evidence `<doc>-<number>`."""
    return {
        "queries": [{"query_id": f"q-{doc}", "text": "?", "split": SETTINGS.evaluate.split} for doc in quotes],
        "evidence": [
            {"query_id": f"q-{doc}", "evidence_id": f"{doc}-{number}", "doc_id": doc, "quote": quote}
            for doc, asked in quotes.items()
            for number, quote in enumerate(asked)
        ],
    }


def joined(frames):
    """Tables of several documents as one."""
    return {
        name: pl.concat([frame[name] for frame in frames]).sort("doc_id", maintain_order=True) for name in frames[0]
    }


def of(frames, doc):
    """Tables of one document."""
    return {name: frame.filter(pl.col("doc_id") == doc) for name, frame in frames.items()}


def sentence(rng, number):
    words = [rng.choice(WORDS) for _ in range(rng.randint(4, 12))]
    return f"{' '.join(words)} number {number * 17 + 3} of {rng.randint(100, 999)}.".capitalize()


# Parsing ---------------------------------------------------------------------------------------------------------------


def blocks_of(rng, count):
    """A document as its author wrote it: (kind, level, text)."""
    blocks = []
    for number in range(count):
        kind = rng.choice(["heading", "paragraph", "paragraph", "list_item", "table"])
        text = sentence(rng, number)
        if kind == "table":
            text = f"{text[:-1]}\t{number}.50\nrow {number}\t{rng.randint(10, 99)}"
        blocks.append((kind, {"heading": 2, "list_item": 1}.get(kind), text))
    return blocks


def read(blocks, *, status="ok", doc="d"):
    """What a parser makes of blocks."""
    reading = Reading("made")
    for number, (kind, level, text) in enumerate(blocks):
        span = reading.add(kind, text, level, 1 + number // 3)
        if kind == "table":
            reading.keep_table("<table></table>", span)
    rows = reading.rows()
    if status != "ok":
        rows["parsed"][0].update({"text": "", "status": status, "error": status})
        rows.update({"blocks": [], "parsed_tables": []})
    return frames_of(rows, doc)


def frames_of(rows, doc="d"):
    schemas = {"parsed": Parsed, "blocks": Blocks, "parsed_tables": ParsedTables}
    return {name: frame_of(schema, [{"doc_id": doc, **row} for row in rows[name]]) for name, schema in schemas.items()}


def damaged(rng, blocks):
    """The same blocks with faults of a parser: digits, dropped and scrambled blocks, noise."""
    blocks = list(blocks)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(blocks))
        kind, level, text = blocks[place]
        fault = rng.choice(["digit", "drop", "swap", "noise", "join"])
        if fault == "digit":
            digits = [i for i, c in enumerate(text) if c.isdigit()]
            i = rng.choice(digits)
            blocks[place] = (kind, level, f"{text[:i]}{(int(text[i]) + 1) % 10}{text[i + 1 :]}")
        elif fault == "drop" and len(blocks) > 1:
            del blocks[place]
        elif fault == "swap":
            other = rng.randrange(len(blocks))
            blocks[place], blocks[other] = blocks[other], blocks[place]
        elif fault == "noise":
            blocks.insert(place, ("paragraph", None, "|| ~ #4 qqq ;; 77"))
        elif fault == "join" and place:
            before = blocks[place - 1]
            blocks[place - 1 : place + 1] = [(before[0], before[1], f"{before[2]} {text}")]
    return blocks


def reference_of(blocks):
    return read(blocks)["parsed"]["text"][0] + "\n"


def labelled_blocks(blocks):
    return [{"doc_id": "d", "blocks": [{"kind": k, "level": v, "text": t} for k, v, t in blocks]}]


BEFORE = {"documents": documents_of(["d"])}


def without_pages(frames):
    return {"parsed": frames["parsed"].drop("seconds"), "blocks": frames["blocks"].drop("page")}


DOCS = [f"d{number:02}" for number in range(15)]


@given(seeds)
@settings(max_examples=4, deadline=None)
def test_with_structure_the_repaired_text_does_not_depend_on_what_was_read(seed):
    rng = random.Random(seed)
    written = {doc: blocks_of(rng, rng.randint(2, 9)) for doc in DOCS}
    gold = gold_of(
        references=[{"doc_id": doc, "text": reference_of(blocks)} for doc, blocks in written.items()],
        structure=[{**labelled_blocks(blocks)[0], "doc_id": doc} for doc, blocks in written.items()],
    )
    healthy = joined([read(blocks, doc=doc) for doc, blocks in written.items()])
    faulty = joined([read(damaged(rng, blocks), doc=doc) for doc, blocks in written.items()])
    truth = truth_of(gold)
    unchanged = repair_parsing({}, healthy, truth, None)
    assert all(unchanged[name] is healthy[name] for name in healthy)
    repaired = repair_parsing({}, faulty, truth, None)
    assert same(without_pages(repaired), without_pages(healthy))
    assert same(repair_parsing({}, repaired, truth, None), repaired)


@given(seeds)
@settings(max_examples=4, deadline=None)
def test_without_structure_the_reference_is_read_and_every_unit_held(seed):
    rng = random.Random(seed)
    written = {doc: blocks_of(rng, rng.randint(2, 9)) for doc in DOCS}
    references = {doc: reference_of(blocks) for doc, blocks in written.items()}
    quotes = {doc: [text for _, _, text in blocks] for doc, blocks in written.items()}
    gold = gold_of(
        references=[{"doc_id": doc, "text": text} for doc, text in references.items()], **evidence_of(quotes)
    )
    healthy = joined([read(blocks, doc=doc) for doc, blocks in written.items()])
    faulty = joined([read(damaged(rng, blocks), doc=doc) for doc, blocks in written.items()])
    truth = truth_of(gold)
    unchanged = repair_parsing({}, healthy, truth, None)
    assert all(unchanged[name] is healthy[name] for name in healthy)
    repaired = repair_parsing({}, faulty, truth, None)
    assert same(repair_parsing({}, repaired, truth, None), repaired)
    assert all(held(gold, {"documents": documents_of(DOCS), **repaired}, "parsing").values())
    for doc, text in repaired["parsed"].select("doc_id", "text").iter_rows():
        assert text.split() == references[doc].split()
        spans = of(repaired, doc)["blocks"].sort("block").select("start", "end").rows()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        covered = {index for start, end in spans for index in range(start, end)}
        assert all(character.isspace() or index in covered for index, character in enumerate(text))


def test_blocks_keep_kind_level_and_page_and_what_was_not_read_becomes_a_paragraph():
    blocks = [
        ("heading", 2, "Limits of the tank"),
        ("paragraph", None, "It holds 24 litres."),
        ("table", None, "a\t1\nb\t2"),
        ("list_item", 1, "Never fill it at night."),
    ]
    gold = gold_of(references=[{"doc_id": "d", "text": reference_of(blocks)}])
    faulty = read([blocks[0], ("paragraph", None, "It holds 21 litres."), blocks[3]])
    found = repair_parsing(BEFORE, faulty, truth_of(gold), None)["blocks"]
    assert found.select("kind", "level", "page").rows() == [
        ("heading", 2, 1), ("paragraph", None, 1), ("paragraph", None, 1), ("list_item", 1, 1),
    ]  # fmt: skip


def test_a_block_out_of_order_goes_to_its_place_with_its_kind():
    rng = random.Random(4)
    blocks = (
        [("heading", 1, "One heading alone")]
        + [("paragraph", None, sentence(rng, n)) for n in range(4)]
        + [("code", None, "run --now 7; stop --later 8")]
    )
    gold = gold_of(references=[{"doc_id": "d", "text": reference_of(blocks)}])
    faulty = read([blocks[5], *blocks[:5]])
    found = repair_parsing(BEFORE, faulty, truth_of(gold), None)["blocks"].sort("block")
    assert found["kind"].to_list() == ["heading", *["paragraph"] * 4, "code"]


@pytest.mark.parametrize("structured", [False, True])
def test_a_document_that_failed_gets_the_reference_text(structured):
    blocks = [("heading", 1, "Title here"), ("paragraph", None, "It says 5 EUR.")]
    labels = {"structure": labelled_blocks(blocks)} if structured else {}
    gold = gold_of(references=[{"doc_id": "d", "text": reference_of(blocks)}], **labels)
    repaired = repair_parsing(BEFORE, read(blocks, status="timeout"), truth_of(gold), None)
    assert repaired["parsed"].select("text", "status", "error").row(0) == ("Title here\n\nIt says 5 EUR.", "ok", None)
    assert repaired["blocks"]["kind"].to_list() == ["heading" if structured else "paragraph", "paragraph"]


def test_a_document_without_a_reference_stays():
    faulty = read([("paragraph", None, "It says S EUR.")])
    repaired = repair_parsing(BEFORE, faulty, truth_of(gold_of()), None)
    assert all(repaired[name] is faulty[name] for name in faulty)


def test_tables_move_with_their_text_and_lose_a_place_that_is_not_there():
    faulty = read([("paragraph", None, "Intro wrong 1."), ("table", None, "a\t1\nb\t2"), ("table", None, "zz\tqq")])
    gold = gold_of(references=[{"doc_id": "d", "text": "A longer intro, right: 2.\n\na\t1\nb\t2\n"}])
    repaired = repair_parsing(BEFORE, faulty, truth_of(gold), None)
    text, places = repaired["parsed"]["text"][0], repaired["parsed_tables"].select("start", "end").rows()
    assert text[places[0][0] : places[0][1]] == "a\t1\nb\t2"
    assert places[1] == (None, None)


def test_markdown_marks_belong_to_the_labelled_block_beside_them():
    text = "# Title of it\n\n- first item\n- second item\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nLast words.\n"
    structure = [
        ("heading", 1, "Title of it"),
        ("list_item", 1, "first item"),
        ("list_item", 1, "second item"),
        ("table", None, "a\tb\n1\t2"),
        ("paragraph", None, "Last words."),
    ]
    gold = gold_of(references=[{"doc_id": "d", "text": text}], structure=labelled_blocks(structure))
    before = {"documents": documents_of(["d"], media="md")}
    repaired = repair_parsing(before, read([("paragraph", None, "nothing of it")]), truth_of(gold), None)
    assert repaired["parsed"]["text"][0] == text
    found = [text[start:end] for start, end in repaired["blocks"].sort("block").select("start", "end").rows()]
    assert found == ["# Title of it", "- first item", "- second item", "| a | b |\n|---|---|\n| 1 | 2 |", "Last words."]


PAGE = """<html><head><title>T</title></head><body><nav><ul><li>Home</li><li>Log in</li></ul></nav><main><article>
<h1>Warranty of the pump</h1><p>The warranty of every pump that we sell begins on the day of the invoice and covers parts.</p>
<p>It ends after 24 months for pumps of series A, and after 36 months for pumps of the series B and C.</p>
<table><tr><th>Series</th><th>Months</th></tr><tr><td>A</td><td>24</td></tr></table>
<p>Claims are sent to the service desk with the number of the invoice and a photo of the defect.</p></article></main>
<footer><p>All rights reserved by nobody.</p></footer></body></html>"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("after 24 months", "after 21 months"),
        (
            "<p>It ends after 24 months for pumps of series A, and after 36 months for pumps of the series B and C.</p>",
            "",
        ),
        ("<table><tr><th>Series</th><th>Months</th></tr><tr><td>A</td><td>24</td></tr></table>", ""),
        ("<tr><td>A</td><td>24</td></tr>", ""),
    ],
)
def test_cleaning_keeps_what_was_put_back_into_a_page(tmp_path, right, wrong):
    from rag_eval_pipeline.stages.parsing import transform as parsing

    def parsed(page):
        path = tmp_path / "page.html"
        path.write_text(page, "utf-8")
        return frames_of(parsing.one({"file": str(path), "media": "html"}, parsing.CONFIG()))

    healthy, faulty = parsed(PAGE), parsed(PAGE.replace(right, wrong))
    gold = gold_of(references=[{"doc_id": "d", "text": healthy["parsed"]["text"][0]}])
    before, truth = {"documents": documents_of(["d"], media="html")}, truth_of(gold)
    repaired = repair_parsing(before, faulty, truth, None)
    runtime = Runtime.plain(files=tmp_path)
    clean = [cleaning.run(frames, cleaning.CONFIG(), runtime)["cleaned"]["text"][0] for frames in (healthy, repaired)]
    assert clean[0] == clean[1]
    assert "24 months" in clean[1]
    assert "Log in" not in clean[1]
    assert same(repair_parsing(before, repaired, truth, None), repaired)


# Cleaning --------------------------------------------------------------------------------------------------------------

KEEP_ALL = cleaning.CONFIG(html="none")


def parsed_of(lines, doc="d"):
    """Lines as paragraphs, with offsets."""
    text, spans = "", []
    for line in lines:
        text += "\n\n" if text else ""
        spans.append((len(text), len(text) + len(line)))
        text += line
    row = {"text": text, "status": "ok", "error": None, "parser": "p", "pages": None, "seconds": None, "html": None}
    blocks = [
        {"block": n, "kind": "paragraph", "level": None, "page": None, "start": s, "end": e}
        for n, (s, e) in enumerate(spans)
    ]
    return frames_of({"parsed": [row], "blocks": blocks, "parsed_tables": []}, doc), spans


def cleaned_of(parsed, keep):
    """Clean text of whole lines with their line ends."""
    text = parsed["parsed"]["text"][0]
    starts = [*parsed["blocks"].sort("block")["start"].to_list(), len(text)]
    ranges = []
    for n in range(len(starts) - 1):
        if keep[n] and n and keep[n - 1]:
            ranges[-1] = (ranges[-1][0], starts[n + 1])
        elif keep[n]:
            ranges.append((starts[n], starts[n + 1]))
    offsets = OffsetMap.keep(ranges)
    clean = "".join(text[s:e] for s, e in ranges)
    removed = sum(not c.isspace() for c in text) - sum(not c.isspace() for c in clean)
    row = {
        "doc_id": parsed["parsed"]["doc_id"][0], "text": clean, "offsets": offsets.rows(), "removed_chars": removed, "cleaner": "some",
        "status": "ok" if clean.strip() else "empty", "error": None,
    }  # fmt: skip
    return {"cleaned": frame_of(Cleaned, [row])}


@given(seeds)
@settings(max_examples=5, deadline=None)
def test_labelled_main_text_is_kept_and_labelled_boilerplate_removed(seed):
    rng = random.Random(seed)
    labels, parsed, healthy, faulty = [], [], [], []
    for doc in DOCS:
        lines = [sentence(rng, n) for n in range(rng.randint(2, 8))]
        main = [rng.random() < 0.6 for _ in lines]
        frames, spans = parsed_of(lines, doc)
        boilerplate = [
            {"start": s, "end": e, "type": None} for (s, e), kept in zip(spans, main, strict=True) if not kept
        ]
        wanted = "\n".join(line for line, kept in zip(lines, main, strict=True) if kept)
        by_span = rng.random() < 0.5 or not any(main)
        labels.append(
            {"doc_id": doc, "boilerplate": boilerplate if by_span else None, "text": None if by_span else wanted}
        )
        parsed.append(frames)
        healthy.append(cleaned_of(frames, main))
        faulty.append(cleaned_of(frames, [rng.random() < 0.5 for _ in lines]))
    before, healthy, faulty = joined(parsed), joined(healthy), joined(faulty)
    gold = gold_of(references=before["parsed"].select("doc_id", "text").to_dicts(), main_text=labels)
    truth = truth_of(gold)
    unchanged = repair_cleaning(before, healthy, truth, KEEP_ALL)
    assert unchanged["cleaned"] is healthy["cleaned"]
    repaired = repair_cleaning(before, faulty, truth, KEEP_ALL)
    assert same(repaired, healthy)
    assert same(repair_cleaning(before, repaired, truth, KEEP_ALL), repaired)


def test_a_misread_character_of_a_main_line_stays_and_one_of_boilerplate_goes():
    parsed, _ = parsed_of(["Menu Horne Log in", "The limit is 2l EUR."])
    reference = "Menu Home Log in\n\nThe limit is 21 EUR."
    label = {"doc_id": "d", "text": None, "boilerplate": [{"start": 0, "end": 16, "type": None}]}
    gold = gold_of(references=[{"doc_id": "d", "text": reference}], main_text=[label])
    repaired = repair_cleaning(parsed, cleaned_of(parsed, [True, False]), truth_of(gold), KEEP_ALL)
    assert repaired["cleaned"]["text"][0] == "The limit is 2l EUR."
    assert repaired["cleaned"]["cleaner"][0] == "some"


@given(seeds)
@settings(max_examples=4, deadline=None)
def test_without_a_label_the_blocks_of_lost_evidence_come_back_and_no_others(seed):
    rng = random.Random(seed)
    quotes, expected, parsed, after = {}, {}, [], []
    for doc in DOCS:
        lines = [sentence(rng, n) for n in range(rng.randint(2, 8))]
        asked = [rng.random() < 0.4 for _ in lines]
        keep = [rng.random() < 0.5 for _ in lines]
        frames, _ = parsed_of(lines, doc)
        quotes[doc] = [line for line, wanted in zip(lines, asked, strict=True) if wanted]
        expected[doc] = [line for line, k, a in zip(lines, keep, asked, strict=True) if k or a]
        parsed.append(frames)
        after.append(cleaned_of(frames, keep))
    before, after = joined(parsed), joined(after)
    gold = gold_of(references=before["parsed"].select("doc_id", "text").to_dicts(), **evidence_of(quotes))
    frames = {"documents": documents_of(DOCS), **before, **after}
    truth = truth_of(gold, frames)
    repaired = repair_cleaning(before, after, truth, KEEP_ALL)
    assert same(repair_cleaning(before, repaired, truth, KEEP_ALL), repaired)
    assert all(held(gold, frames | repaired, "cleaning").values())
    source = dict(before["parsed"].select("doc_id", "text").iter_rows())
    for row in repaired["cleaned"].iter_rows(named=True):
        assert [line for line in row["text"].split("\n") if line] == expected[row["doc_id"]]
        covered = 0
        for segment in OffsetMap(row["offsets"]).segments:
            there = source[row["doc_id"]][segment.src_start : segment.src_end]
            assert row["text"][segment.out_start : segment.out_end] == there
            covered += len(there)
        assert covered == len(row["text"])


def test_a_block_comes_back_into_a_text_that_a_cleaner_wrote_anew():
    parsed, _ = parsed_of(["Once: the first words.", "The limit is 21 EUR a day.", "Last words of all."])
    text = parsed["parsed"]["text"][0]
    clean = "ONCE the first words. Last words of all."
    from rag_eval_pipeline.text.derivation import derive

    row = {
        "doc_id": "d",
        "text": clean,
        "offsets": derive(clean, text).rows(),
        "removed_chars": 5,
        "cleaner": "import",
        "status": "ok",
        "error": None,
    }
    after = {"cleaned": conform(Cleaned, [row])}
    gold = gold_of(references=[{"doc_id": "d", "text": text}], **evidence_of({"d": ["The limit is 21 EUR a day."]}))
    frames = {**BEFORE, **parsed, **after}
    truth = truth_of(gold, frames)
    config = cleaning.CONFIG(imported=True)
    repaired = repair_cleaning(parsed, after, truth, config)
    assert repaired["cleaned"]["text"][0].split() == [
        "ONCE",
        "the",
        "first",
        "words.",
        "The",
        "limit",
        "is",
        "21",
        "EUR",
        "a",
        "day.",
        "Last",
        "words",
        "of",
        "all.",
    ]
    assert held(gold, frames | repaired, "cleaning") == {"d-0": True}
    assert same(repair_cleaning(parsed, repaired, truth, config), repaired)


@pytest.mark.parametrize("labelled", [False, True])
def test_a_document_that_cleaning_failed_on_is_kept_where_gold_needs_it(labelled):
    parsed, _ = parsed_of(["The limit is 21 EUR.", "More words."])
    text = parsed["parsed"]["text"][0]
    row = {
        "doc_id": "d",
        "text": "",
        "offsets": [],
        "removed_chars": 26,
        "cleaner": "none",
        "status": "timeout",
        "error": "x",
    }
    after = {"cleaned": conform(Cleaned, [row])}
    label = {"main_text": [{"doc_id": "d", "text": None, "boilerplate": []}]} if labelled else {}
    gold = gold_of(references=[{"doc_id": "d", "text": text}], **label, **evidence_of({"d": ["The limit is 21 EUR."]}))
    repaired = repair_cleaning(parsed, after, truth_of(gold, {**BEFORE, **parsed, **after}), KEEP_ALL)["cleaned"]
    assert repaired.select("text", "status", "error", "removed_chars").row(0) == (text, "ok", None, 0)


def test_cleaning_strips_invisible_characters_of_what_comes_back():
    parsed, _ = parsed_of(["Kept line.", "The li\u00admit is 21 EUR."])
    text = parsed["parsed"]["text"][0]
    gold = gold_of(
        references=[{"doc_id": "d", "text": text.replace("\u00ad", "")}], **evidence_of({"d": ["The limit is 21 EUR."]})
    )
    after = cleaned_of(parsed, [True, False])
    repaired = repair_cleaning(parsed, after, truth_of(gold, {**BEFORE, **parsed, **after}), KEEP_ALL)
    assert repaired["cleaned"]["text"][0] == "Kept line.\n\nThe limit is 21 EUR."


# Dedup -----------------------------------------------------------------------------------------------------------------


def cleaned_texts(texts):
    rows = [
        {"doc_id": doc, "text": text, "offsets": OffsetMap.identity(len(text)).rows(), "removed_chars": 0, "cleaner": "none", "status": "ok", "error": None}
        for doc, text in texts.items()
    ]  # fmt: skip
    return frame_of(Cleaned, rows).sort("doc_id")


def parsed_texts(texts):
    empty = {"status": "ok", "error": None, "parser": "p", "pages": None, "seconds": None, "html": None}
    return frame_of(Parsed, [{"doc_id": doc, "text": text, **empty} for doc, text in texts.items()])


def dedup_of(texts, clusters, survivors, edges=True):
    rows, pairs = [], []
    for members, kept in zip(clusters, survivors, strict=True):
        for doc in members:
            rows.append(
                {
                    "doc_id": doc,
                    "kept": doc == kept,
                    "cluster_id": min(members),
                    "survivor": kept,
                    "status": "ok" if texts[doc] else "empty",
                }
            )
            if doc != kept and edges:
                pairs.append(
                    {
                        "doc_a": min(doc, kept),
                        "doc_b": max(doc, kept),
                        "similarity": 0.9,
                        "verified": "exact",
                        "relation": "duplicate",
                        "kept": kept,
                        "removed": doc,
                    }
                )
    return {
        "dedup": frame_of(Dedup, rows).sort("doc_id"),
        "dedup_edges": frame_of(DedupEdges, pairs).sort("doc_a", "doc_b"),
    }


def random_clusters(rng, worlds):
    """Clusters of documents that are all of one world: worlds are small, and many at once are quick."""
    found = []
    for docs in worlds:
        places = [rng.randrange(max(1, len(docs) - 1)) for _ in docs]
        found += [[d for d, p in zip(docs, places, strict=True) if p == place] for place in sorted(set(places))]
    return found


def worlds_of(rng, most=7):
    return [[f"w{world:02}-{n}" for n in range(rng.randint(2, most))] for world in range(20)]


def partition(frames):
    found = {}
    for doc, cluster in frames["dedup"].select("doc_id", "cluster_id").iter_rows():
        found.setdefault(cluster, set()).add(doc)
    return sorted(map(sorted, found.values()))


def assert_consistent(frames):
    """Every removed document has a kept survivor of its cluster and an edge that says so."""
    rows = {row["doc_id"]: row for row in frames["dedup"].iter_rows(named=True)}
    edges = {(r["doc_a"], r["doc_b"]): r["removed"] for r in frames["dedup_edges"].iter_rows(named=True)}
    for doc, row in rows.items():
        assert row["kept"] == (row["survivor"] == doc)
        assert rows[row["survivor"]]["kept"]
        assert rows[row["survivor"]]["cluster_id"] == row["cluster_id"]
        if not row["kept"]:
            assert edges[min(doc, row["survivor"]), max(doc, row["survivor"])] == doc
    assert all(rows[a]["cluster_id"] == rows[b]["cluster_id"] for a, b in edges)


@given(seeds, st.sampled_from(["newest", "longest", "first"]))
@settings(max_examples=6, deadline=None)
def test_complete_labels_decide_the_clusters_and_keep_decides_the_survivors(seed, keep):
    rng = random.Random(seed)
    worlds = worlds_of(rng)
    docs = [doc for world in worlds for doc in world]
    texts = {doc: sentence(rng, n) for n, doc in enumerate(docs)}
    dates = {doc: f"2026-01-{rng.randint(1, 28):02}" for doc in docs}
    before = {"cleaned": cleaned_texts(texts), "documents": documents_of(docs, published_at=dates)}
    true = random_clusters(rng, worlds)
    group = {doc: number for number, members in enumerate(true) for doc in members}
    labels = [
        {"doc_a": a, "doc_b": b, "duplicate": group[a] == group[b]}
        for world in worlds
        for a, b in combinations(world, 2)
    ]
    truth = truth_of(gold_of(duplicates=labels))
    config = dedup.CONFIG(keep=keep)
    best = {
        "newest": lambda doc: (-int(dates[doc][-2:]), doc),
        "longest": lambda doc: (-len(texts[doc]), doc),
        "first": lambda doc: doc,
    }[keep]
    healthy = dedup_of(texts, true, [min(members, key=best) for members in true])
    found = random_clusters(rng, worlds)
    with_edges = rng.random() < 0.7
    faulty = dedup_of(texts, found, [rng.choice(members) for members in found], edges=with_edges)
    repaired = repair_dedup(before, faulty, truth, config)
    assert repaired["dedup"].equals(healthy["dedup"])
    if with_edges:
        assert_consistent(repaired)
    assert same(repair_dedup(before, repaired, truth, config), repaired)
    unchanged = repair_dedup(before, healthy, truth, config)
    assert all(unchanged[name] is healthy[name] for name in healthy)


def labels_of(rng, worlds):
    """Some labelled pairs without contradiction, and each document's labelled group."""
    pairs = [(a, b, rng.random() < 0.5) for world in worlds for a, b in combinations(world, 2) if rng.random() < 0.3]
    groups = {doc: {doc} for world in worlds for doc in world}
    for a, b, duplicate in pairs:
        if duplicate:
            union = groups[a] | groups[b]
            groups |= dict.fromkeys(union, union)
    rows = [{"doc_a": a, "doc_b": b, "duplicate": d} for a, b, d in pairs if d or b not in groups[a]]
    return rows, groups


@given(seeds)
@settings(max_examples=6, deadline=None)
def test_some_labels_some_callers_and_units_are_all_obeyed(seed):
    rng = random.Random(seed)
    worlds = worlds_of(rng, 8)
    docs = [doc for world in worlds for doc in world]
    texts = {doc: sentence(rng, n) for n, doc in enumerate(docs)}
    supersedes = {doc: rng.choice([None, None, rng.choice(world)]) for world in worlds for doc in world}
    documents = documents_of(
        docs,
        tenant={doc: rng.choice([None, "red", "blue"]) for doc in docs},
        supersedes={doc: other if other != doc else None for doc, other in supersedes.items()},
    )
    before = {"cleaned": cleaned_texts(texts), "documents": documents}
    principals = [{"principal": name[0], "tenant": name, "groups": []} for name in ("red", "blue")]
    labels, groups = labels_of(rng, worlds)
    gold = gold_of(
        duplicates=labels,
        principals=principals if rng.random() < 0.7 else [],
        references=[{"doc_id": doc, "text": text} for doc, text in texts.items()],
        **evidence_of({doc: [texts[doc]] for doc in rng.sample(docs, len(docs) // 2)}),
    )
    found = random_clusters(rng, worlds)
    after = dedup_of(texts, found, [rng.choice(members) for members in found])
    frames = {"documents": documents, "parsed": parsed_texts(texts), "cleaned": before["cleaned"], **after}
    truth = truth_of(gold, frames)
    config = dedup.CONFIG()
    repaired = repair_dedup(before, after, truth, config)
    assert_consistent(repaired)
    assert same(repair_dedup(before, repaired, truth, config), repaired)
    survivor = dict(repaired["dedup"].select("doc_id", "survivor").iter_rows())
    cluster = dict(repaired["dedup"].select("doc_id", "cluster_id").iter_rows())
    assert all(cluster[row["doc_a"]] != cluster[row["doc_b"]] for row in labels if not row["duplicate"])
    for principal in gold.principals["principal"]:
        seen = dict(zip(documents["doc_id"], visible(documents, principal, gold.principals), strict=True))
        assert all(seen[kept] for doc, kept in survivor.items() if seen[doc])
    for unit, survives in held(gold, frames | repaired, "dedup").items():
        doc = unit.rsplit("-", 1)[0]
        assert survives or survivor[doc] in groups[doc]


def test_dedup_is_left_alone_where_gold_is_silent_or_the_stage_is_off():
    texts = {"a": "one two three", "b": "one two four"}
    before = {"cleaned": cleaned_texts(texts), "documents": documents_of(["a", "b"])}
    after = dedup_of(texts, [["a", "b"]], ["b"])
    unchanged = repair_dedup(before, after, truth_of(gold_of()), dedup.CONFIG())
    assert all(unchanged[name] is after[name] for name in after)
    gold = gold_of(duplicates=[{"doc_a": "a", "doc_b": "b", "duplicate": False}])
    off = repair_dedup(before, after, truth_of(gold), dedup.CONFIG(enabled=False))
    assert all(off[name] is after[name] for name in after)
    assert repair_dedup(before, after, truth_of(gold), dedup.CONFIG())["dedup"]["kept"].to_list() == [True, True]


def test_a_chain_over_an_unlabelled_document_is_cut_at_its_weaker_pair():
    texts = {"a": "alpha text", "b": "beta text", "c": "gamma text"}
    before = {"cleaned": cleaned_texts(texts), "documents": documents_of(list(texts))}
    after = dedup_of(texts, [["a", "b", "c"]], ["b"], edges=False)
    pairs = [("a", "b", 0.81), ("b", "c", 0.95)]
    after["dedup_edges"] = conform(
        DedupEdges,
        [
            {"doc_a": a, "doc_b": b, "similarity": s, "verified": "exact", "relation": "duplicate", "removed": None}
            for a, b, s in pairs
        ],
    )
    gold = gold_of(duplicates=[{"doc_a": "a", "doc_b": "c", "duplicate": False}])
    repaired = repair_dedup(before, after, truth_of(gold), dedup.CONFIG(keep="first"))
    assert partition(repaired) == [["a"], ["b", "c"]]


def test_an_empty_document_is_nobody_s_duplicate_whatever_the_label_says():
    texts = {"a": "", "b": "some text"}
    before = {"cleaned": cleaned_texts(texts), "documents": documents_of(["a", "b"])}
    after = dedup_of(texts, [["a"], ["b"]], ["a", "b"])
    gold = gold_of(duplicates=[{"doc_a": "a", "doc_b": "b", "duplicate": True}])
    assert same(repair_dedup(before, after, truth_of(gold), dedup.CONFIG()), after)


# PII -------------------------------------------------------------------------------------------------------------------


def masked_of(text, spans, config, doc="d"):
    given_spans = [{"start": s, "end": e, "type": kind, "score": 0.5} for s, e, kind in spans]
    made = pii.one({"text": text, "spans": given_spans}, config)
    return {
        "masked": frame_of(Masked, [{"doc_id": doc, **row} for row in made["masked"]]),
        "pii_spans": frame_of(PiiSpans, [{"doc_id": doc, **row} for row in made["pii_spans"]]),
    }


def random_spans(rng, text, count):
    spans = []
    for _ in range(count):
        start = rng.randrange(len(text))
        spans.append((start, min(len(text), start + rng.randint(1, 12)), rng.choice(["PHONE_NUMBER", "EMAIL_ADDRESS"])))
    return sorted(set(spans))


def personal_text(rng):
    parts, spans = [], []
    for number in range(rng.randint(1, 6)):
        parts.append(sentence(rng, number) + " ")
        if rng.random() < 0.6:
            value = f"p{rng.randint(100, 999)}@box{number}.example"
            start = sum(map(len, parts))
            parts.append(value)
            spans.append((start, start + len(value), "EMAIL_ADDRESS"))
            parts.append(". ")
    return "".join(parts), spans


PII = {action: pii.CONFIG(action=action, salt="s") for action in ("mask", "replace", "hash")}


@given(seeds, st.sampled_from(sorted(PII)))
@settings(max_examples=6, deadline=None)
def test_of_a_labelled_document_just_the_labels_are_masked(seed, action):
    rng = random.Random(seed)
    config = PII[action]
    texts, labels, healthy, faulty = {}, [], [], []
    for doc in DOCS:
        text, spans = personal_text(rng)
        texts[doc] = text
        labels.append({"doc_id": doc, "spans": [{"start": s, "end": e, "type": kind} for s, e, kind in spans]})
        healthy.append(masked_of(text, spans, config, doc))
        faulty.append(masked_of(text, random_spans(rng, text, rng.randint(0, 4)), config, doc))
    healthy, faulty = joined(healthy), joined(faulty)
    gold = gold_of(references=[{"doc_id": doc, "text": text} for doc, text in texts.items()], pii=labels)
    before, truth = {"cleaned": cleaned_texts(texts)}, truth_of(gold)
    unchanged = repair_pii(before, healthy, truth, config)
    assert all(unchanged[name] is healthy[name] for name in healthy)
    repaired = repair_pii(before, faulty, truth, config)
    assert repaired["masked"].equals(healthy["masked"])
    assert repaired["pii_spans"].drop("score").equals(healthy["pii_spans"].drop("score"))
    assert same(repair_pii(before, repaired, truth, config), repaired)


@given(seeds)
@settings(max_examples=5, deadline=None)
def test_without_a_label_masks_that_broke_a_unit_go_and_the_others_stay(seed):
    rng = random.Random(seed)
    config = PII["mask"]
    written = {doc: [sentence(rng, n) for n in range(rng.randint(2, 6))] for doc in DOCS}
    texts = {doc: "\n".join(lines) for doc, lines in written.items()}
    quotes = {doc: rng.sample(lines, rng.randint(0, len(lines))) for doc, lines in written.items()}
    predicted = {doc: random_spans(rng, text, rng.randint(0, 5)) for doc, text in texts.items()}
    after = joined([masked_of(texts[doc], predicted[doc], config, doc) for doc in DOCS])
    gold = gold_of(references=[{"doc_id": doc, "text": text} for doc, text in texts.items()], **evidence_of(quotes))
    frames = {"documents": documents_of(DOCS), "parsed": parsed_texts(texts), "cleaned": cleaned_texts(texts)}
    frames["dedup"] = dedup_of(texts, [[doc] for doc in DOCS], DOCS)["dedup"]
    truth = truth_of(gold, {**frames, **after})
    repaired = repair_pii(frames, after, truth, config)
    assert all(held(gold, {**frames, **repaired}, "pii").values())
    assert same(repair_pii(frames, repaired, truth, config), repaired)
    was = held(gold, {**frames, **after}, "pii")
    for doc, text in texts.items():
        asked = [quote for number, quote in enumerate(quotes[doc]) if not was[f"{doc}-{number}"]]
        marks = {text.index(q) + i for q in asked for i, character in enumerate(q) if not character.isspace()}
        expected = [span for span in predicted[doc] if marks.isdisjoint(range(span[0], span[1]))]
        assert of(repaired, doc)["pii_spans"].select("start", "end", "type").rows() == expected


def test_labels_follow_their_text_through_cleaning_and_normalisation():
    reference = "Menu\n\nWrite to jose\u0301@box.example today, or call."
    clean = "Write to jos\u00e9@box.example today, or call."
    start = reference.index("jose")
    spans = [
        {"start": start, "end": start + len("jose\u0301@box.example"), "type": "EMAIL_ADDRESS"},
        {"start": 0, "end": 4, "type": "PERSON"},
    ]
    gold = gold_of(references=[{"doc_id": "d", "text": reference}], pii=[{"doc_id": "d", "spans": spans}])
    repaired = repair_pii(
        {"cleaned": cleaned_texts({"d": clean})}, masked_of(clean, [], PII["mask"]), truth_of(gold), PII["mask"]
    )
    assert repaired["masked"]["text"][0] == "Write to <EMAIL_ADDRESS> today, or call."


def test_a_document_that_pii_failed_on_is_masked_by_label_and_stays_empty_without_one():
    text = "Write to a1@box.example now."
    row = {"doc_id": "d", "text": "", "offsets": [], "status": "timeout", "error": "too slow"}
    after = {"masked": conform(Masked, [row]), "pii_spans": conform(PiiSpans, [])}
    before = {"cleaned": cleaned_texts({"d": text})}
    gold = gold_of(
        references=[{"doc_id": "d", "text": text}],
        pii=[{"doc_id": "d", "spans": [{"start": 9, "end": 23, "type": "EMAIL_ADDRESS"}]}],
    )
    repaired = repair_pii(before, after, truth_of(gold), PII["mask"])
    assert repaired["masked"].select("text", "status", "error").row(0) == ("Write to <EMAIL_ADDRESS> now.", "ok", None)
    frames = {
        **BEFORE,
        "parsed": parsed_texts({"d": text}),
        **before,
        "dedup": dedup_of({"d": text}, [["d"]], ["d"])["dedup"],
    }
    unlabelled = gold_of(references=[{"doc_id": "d", "text": text}], **evidence_of({"d": [text]}))
    kept = repair_pii(frames, after, truth_of(unlabelled, {**frames, **after}), PII["mask"])
    assert all(kept[name] is after[name] for name in after)


def test_pii_that_is_off_stays_off():
    text = "Write to a1@box.example now."
    gold = gold_of(
        references=[{"doc_id": "d", "text": text}],
        pii=[{"doc_id": "d", "spans": [{"start": 9, "end": 23, "type": "X"}]}],
    )
    config = pii.CONFIG(enabled=False)
    after = masked_of(text, [], config)
    assert (
        repair_pii({"cleaned": cleaned_texts({"d": text})}, after, truth_of(gold), config)["masked"] is after["masked"]
    )
