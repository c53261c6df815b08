"""Metadata: each source read as it is, the first usable one believed, all kept; entities and relations against their labels."""

import datetime as dt
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.metadata import naming, sources
from rag_eval_pipeline.stages.metadata.quality import METRICS, carried, measure
from rag_eval_pipeline.stages.metadata.transform import CONFIG, run
from rag_eval_pipeline.stages.parsing.tables import Blocks
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import polars_schema

HERE = "rag_eval_pipeline_tests.unit.stages.test_metadata"
FRONT = "---\ntitle: Annual leave\nauthors: [Kim, Ada]\ndate: 2026-03-01\nlang: en\n---\n\n# Leave\n\nText.\n"


class Capitals:
    """Every capitalised word is a thing, and two in a row are related."""

    def name(self, text, language):
        import re

        found = [(m.start(), m.end(), "THING") for m in re.finditer(r"\b[A-Z]\w+", text)]
        words = [text[a:b] for a, b, _ in found]
        return {"spans": found, "triples": [(a, "beside", b) for a, b in pairwise(words)]}


class Beyond:
    def name(self, text, language):
        return {"spans": [(0, len(text) + 1, "X")]}


def frames_of(folder, files, declared=None, headings=None):
    rows, parsed, blocks = [], [], []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)
        media = {"md": "md", "html": "html", "pdf": "pdf", "docx": "docx", "png": "image", "jpg": "image"}.get(
            name.rsplit(".", 1)[-1], "txt"
        )
        said = {"title": None, "published_at": None, "language": None} | (declared or {}).get(name, {})
        rows.append({"doc_id": name, "path": name, "media": media, "content_hash": "x", "status": "ok", **said})
        text = content if isinstance(content, str) else ""
        parsed.append({"doc_id": name, "text": text})
        for number, heading in enumerate((headings or {}).get(name, ())):
            start = text.index(heading)
            blocks.append({"doc_id": name, "block": number, "kind": "heading", "level": 1, "page": None, "start": start, "end": start + len(heading)})  # fmt: skip
    schema = dict.fromkeys(
        ("doc_id", "path", "media", "content_hash", "status", "title", "published_at", "language"), pl.String
    )
    return {
        "documents": pl.DataFrame(rows, schema=schema),
        "parsed": pl.DataFrame(parsed, schema={"doc_id": pl.String, "text": pl.String}),
        "blocks": pl.DataFrame(blocks, schema=polars_schema(Blocks)),
    }


def found(folder, files, config=None, **more):
    frames = frames_of(folder, files, **more)
    return frames | run(frames, CONFIG(**(config or {})), Runtime.plain(folder))


def row_of(made, name):
    return made["document_metadata"].filter(doc_id=name).row(0, named=True)


def test_front_matter_headings_and_the_files_name_are_asked_in_that_order(tmp_path):
    files = {"a.md": FRONT, "2026-05-04_travel_policy.md": "# Travel\n\nText.", "plain.txt": "nothing said"}
    made = found(tmp_path, files, headings={"a.md": ["# Leave"], "2026-05-04_travel_policy.md": ["# Travel"]})
    row = row_of(made, "a.md")
    assert (row["title"], row["title_source"]) == ("Annual leave", "front_matter")
    assert (row["author"], row["published_at"], row["language"]) == ("Kim, Ada", "2026-03-01", "en")
    row = row_of(made, "2026-05-04_travel_policy.md")
    assert (row["title"], row["title_source"]) == ("Travel", "heading")
    assert (row["published_at"], row["published_at_source"]) == ("2026-05-04", "file_name")
    assert row["author"] is None
    row = row_of(made, "plain.txt")
    assert (row["title"], row["title_source"], row["status"]) == ("plain", "file_name", "ok")
    said = made["metadata_values"].filter(doc_id="a.md", field="title")
    assert dict(said.select("source", "value").iter_rows()) == {
        "file_name": "a",
        "front_matter": "Annual leave",
        "heading": "Leave",
    }
    assert said.filter("chosen")["source"].to_list() == ["front_matter"]


def test_what_is_declared_is_believed_first_and_the_order_is_the_users(tmp_path):
    declared = {"a.md": {"title": "Leave of 2026", "published_at": "2026-01-02", "language": "en-GB"}}
    row = row_of(found(tmp_path, {"a.md": FRONT}, declared=declared), "a.md")
    assert (row["title"], row["title_source"], row["published_at"]) == ("Leave of 2026", "declared", "2026-01-02")
    config = {"prefer": ["front_matter"]}
    row = row_of(found(tmp_path, {"a.md": FRONT}, config, declared=declared), "a.md")
    assert (row["title"], row["published_at"]) == ("Annual leave", "2026-03-01")


def test_properties_of_pdf_docx_and_image_and_the_markup_of_a_page(tmp_path):
    import docx
    from PIL import Image
    from reportlab.pdfgen import canvas

    page = canvas.Canvas(str(tmp_path / "made.pdf"))
    page.setTitle("Price list")
    page.setAuthor("Sales")
    page.drawString(72, 700, "x")
    page.save()
    word = docx.Document()
    word.core_properties.title, word.core_properties.author = "Tarifa", "Ventas"
    word.core_properties.created = dt.datetime(2025, 4, 5, 6, 7, 8)
    word.save(str(tmp_path / "made.docx"))
    image = Image.new("L", (8, 8))
    exif = image.getexif()
    exif[315], exif[306] = "Photographer", "2024:03:02 01:02:03"
    image.save(tmp_path / "made.jpg", exif=exif)
    html = (
        '<html lang="es"><head><title>Aviso</title><meta name="author" content="Ana"><meta property="article:published_time" '
        'content="2026-02-03T04:05:06Z"></head><body><h1>Otro</h1></body></html>'
    )
    files = {name: (tmp_path / name).read_bytes() for name in ("made.pdf", "made.docx", "made.jpg")} | {"p.html": html}
    made = found(tmp_path, files)
    pdf = row_of(made, "made.pdf")
    assert (pdf["title"], pdf["author"], pdf["title_source"]) == ("Price list", "Sales", "property")
    assert pdf["published_at"][:4] >= "2026"
    word_row = row_of(made, "made.docx")
    assert (word_row["title"], word_row["author"], word_row["published_at"][:10]) == ("Tarifa", "Ventas", "2025-04-05")
    assert row_of(made, "made.jpg")["published_at"] == "2024-03-02T01:02:03"
    web = row_of(made, "p.html")
    assert (web["title"], web["author"], web["language"]) == ("Aviso", "Ana", "es")
    assert web["published_at"].startswith("2026-02-03")


def test_a_broken_file_is_a_row_with_its_status_and_the_other_sources_are_asked(tmp_path):
    row = row_of(found(tmp_path, {"broken.pdf": b"%PDF-1.7 nothing"}), "broken.pdf")
    assert (row["status"], row["title"], row["title_source"]) == ("error", "broken", "file_name")
    assert "while properties were read" in row["error"]


def test_titles_that_programs_write_are_kept_and_not_believed(tmp_path):
    import docx

    word = docx.Document()
    word.core_properties.title = "Microsoft Word - draft.doc"
    word.save(str(tmp_path / "x.docx"))
    made = found(tmp_path, {"x.docx": (tmp_path / "x.docx").read_bytes()})
    assert row_of(made, "x.docx")["title_source"] == "file_name"
    said = made["metadata_values"].filter(field="title", source="property").row(0, named=True)
    assert (said["valid"], said["chosen"]) == (False, False)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("---\ntitle: [unclosed\n---\nx", {}),
        ("---\njust words\n---\nx", {}),
        ("+++\ntitle = 'T'\ndate = 2026-01-02\n+++\nx", {"title": "T", "published_at": "2026-01-02"}),
        ("text\n---\ntitle: no\n---", {}),
        ("---\nTitle: A\nauthor: {name: Ann}\nupdated: 2026-02-03 04:05:06\n...\n", {"title": "A", "author": "Ann", "modified_at": "2026-02-03T04:05:06"}),
        ("---\ndate: 2026-02-31\n---\n", {}),
    ],
)  # fmt: skip
def test_front_matter_says_what_it_says_or_nothing(text, fields):
    assert dict(sources.front_matter(text)) == fields


@given(st.text(max_size=200))
def test_no_text_breaks_a_reader(text):
    for reader in (sources.front_matter, sources.markup, sources.file_name):
        for field, value in reader(text):
            assert field in sources.FIELDS
            assert value.strip()
    dict(sources.front_matter(f"---\n{text}\n---\n"))
    made = sources.iso_date(text)
    assert made is None or sources.iso_date(made) == made


@given(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)).map(lambda d: d.replace(microsecond=0)))
def test_a_moment_is_read_in_each_notation(moment):
    day = moment.date()
    for text in (day.isoformat(), f"{day:%d %B %Y}", f"{day:%B} {day.day}, {day.year}", f"{day:%Y%m%d}"):
        assert sources.iso_date(text) == day.isoformat(), text
    assert sources.iso_date(f"{moment:D:%Y%m%d%H%M%S}") == moment.isoformat()
    assert sources.iso_date(f"{moment:D:%Y%m%d%H%M%S}+01'00'") == f"{moment.isoformat()}+01:00"
    assert sources.iso_date(f"{moment:%Y:%m:%d %H:%M:%S}") == moment.isoformat()


# Entities --------------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there_is_refused_and_off_needs_none():
    assert CONFIG().extractor is None
    with pytest.raises(ValidationError, match=r"spacy-en.*pipeline\.metadata\.models\.es"):
        CONFIG(extractor="spacy", models={"es": "no_such_model_here"})
    with pytest.raises(ValidationError, match="unknown extractor"):
        CONFIG(extractor="regex")


@given(st.text(st.sampled_from("ab \n"), max_size=300), st.integers(1, 40))
def test_pieces_cover_a_text_once(text, size):
    ranges = list(naming.pieces(text, size))
    assert "".join(text[a:b] for a, b in ranges) == text
    assert all(0 < b - a <= size for a, b in ranges)


@pytest.mark.parametrize(
    ("words", "pos", "heads", "deps", "ents", "expected"),
    [
        (
            ("Apple", "acquired", "Beats", "in", "2014"), ("PROPN", "VERB", "PROPN", "ADP", "NUM"), (1, 1, 1, 1, 3),
            ("nsubj", "ROOT", "dobj", "prep", "pobj"), ("B-ORG", "O", "B-ORG", "O", "B-DATE"),
            [("Apple", "acquire", "Beats"), ("Apple", "acquire in", "2014")],
        ),
        (
            ("Apple", "was", "acquired", "by", "Beats"), ("PROPN", "AUX", "VERB", "ADP", "PROPN"), (2, 2, 2, 2, 3),
            ("nsubjpass", "auxpass", "ROOT", "agent", "pobj"), ("B-ORG", "O", "O", "O", "B-ORG"),
            [("Apple", "acquire by", "Beats")],
        ),
    ],
)  # fmt: skip
def test_a_parse_gives_who_does_what_to_whom(words, pos, heads, deps, ents, expected):
    from spacy.lang.en import English
    from spacy.tokens import Doc

    lemmas = ["acquire" if word == "acquired" else word for word in words]
    document = Doc(English().vocab, words, pos=pos, heads=heads, deps=deps, ents=ents, lemmas=lemmas)
    assert naming._triples(document) == expected


def gold_of(entities=(), relations=(), structure=(), references=()):
    given_frames = {"entities": entities, "relations": relations, "structure": structure, "references": references}
    return Gold(**{n: pl.DataFrame(list(rows), schema=SCHEMAS[n], orient="row") for n, rows in given_frames.items()})


def measured(made, gold, config=None):
    rows = measure(made, gold, CONFIG(**(config or {})), Settings())
    assert set(rows["metric"]) <= {metric.name for metric in METRICS}
    return {(r["metric"], r["item_id"], r["params"]): (r["value"], r["status"]) for r in rows.iter_rows(named=True)}


def test_entities_and_relations_of_a_users_own_class_are_scored(tmp_path):
    text = "Acme has an office in Leeds."
    config = {"extractor": f"{HERE}:Capitals"}
    made = found(tmp_path, {"a.txt": text}, config)
    assert made["entities"].select("start", "end", "type").rows() == [(0, 4, "THING"), (22, 27, "THING")]
    gold = gold_of(
        entities=[("a.txt", [{"start": 0, "end": 4, "type": "THING"}, {"start": 12, "end": 27, "type": "THING"}])],
        relations=[("a.txt", [["acme", "beside", "LEEDS"], ["Acme", "owns", "Leeds"]])],
    )
    value = measured(made, gold, config)
    assert value["entity_f1", "all", '{"scheme": "strict"}'] == (0.5, "scored")
    assert value["entity_f1", "THING", '{"scheme": "partial"}'] == (0.75, "scored")
    assert value["entity_recall", "all", '{"scheme": "type"}'] == (1.0, "scored")
    assert value["relation_precision", "all", "{}"] == (1.0, "scored")
    assert value["relation_recall", "all", "{}"] == (0.5, "scored")


def test_without_labels_or_extractor_nothing_is_scored(tmp_path):
    made = found(tmp_path, {"a.txt": "Acme"})
    assert measured(made, gold_of())["entity_f1", "all", '{"scheme": "strict"}'] == (None, "no_gold")
    labelled = gold_of(entities=[("a.txt", [])], relations=[("a.txt", [])])
    value = measured(made, labelled)
    assert value["entity_recall", "all", '{"scheme": "exact"}'] == (None, "off")
    assert value["relation_f1", "all", "{}"] == (None, "off")


def test_a_labelled_entity_that_parsing_lost_is_missed(tmp_path):
    assert carried([(0, 4, "X"), (9, 14, "X")], "Acme and Leeds", "Acme") == ([(0, 4, "X")], [(9, 14, "X")])
    config = {"extractor": f"{HERE}:Capitals"}
    made = found(tmp_path, {"a.txt": "Acme"}, config)
    spans = [{"start": 0, "end": 4, "type": "THING"}, {"start": 9, "end": 14, "type": "PLACE"}]
    value = measured(made, gold_of(entities=[("a.txt", spans)], references=[("a.txt", "Acme and Leeds")]), config)
    assert value["entity_recall", "all", '{"scheme": "strict"}'] == (0.5, "scored")
    assert value["entity_recall", "PLACE", '{"scheme": "strict"}'] == (0.0, "scored")


def test_a_class_that_gives_a_span_beyond_the_text_is_a_row_with_its_error(tmp_path):
    made = found(tmp_path, {"a.txt": "Acme"}, {"extractor": f"{HERE}:Beyond"})
    row = row_of(made, "a.txt")
    assert row["status"] == "error"
    assert "ValueError" in row["error"]
    assert made["entities"].is_empty()


def test_titles_by_source_and_fields_against_what_is_declared(tmp_path):
    declared = {"a.md": {"title": "Annual leave", "published_at": "2026-03-01T00:00:00Z", "language": "en-GB"}}
    made = found(tmp_path, {"a.md": FRONT, "b.txt": "x"}, headings={"a.md": ["# Leave"]}, declared=declared)
    gold = gold_of(structure=[("a.md", [{"kind": "heading", "level": 1, "text": "Leave"}])])
    value = measured(made, gold)
    assert value["source_title_exact", "a.md", '{"source": "heading"}'] == (1.0, "scored")
    assert value["source_title_exact", "a.md", '{"source": "chosen"}'][0] == 0.0
    assert 0 < value["source_title_similarity", "a.md", '{"source": "front_matter"}'][0] < 1
    assert value["source_title_exact", "b.txt", '{"source": "chosen"}'] == (None, "no_gold")
    for field in ("title", "published_at", "language"):
        params = f'{{"field": "{field}", "source": "front_matter"}}'
        assert value["field_agrees", "a.md", params] == (1.0, "scored")
        assert value["field_found", "b.txt", params] == (0.0, "scored")
        assert value["field_agrees", "b.txt", params] == (None, "not_declared")
    assert value["field_agrees", "a.md", '{"field": "author", "source": "front_matter"}'] == (None, "not_declared")
