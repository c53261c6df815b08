"""Cleaning: what is kept keeps its place, character by character."""

import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.cleaning.findings import LARGEST, cleaning_findings
from rag_eval_pipeline.stages.cleaning.quality import measure
from rag_eval_pipeline.stages.cleaning.signs import broken_encodings, compatibility
from rag_eval_pipeline.stages.cleaning.transform import CONFIG, main_lines, nfkc_with_map, one, run, strip_invisible
from rag_eval_pipeline.text.offsets import OffsetMap
from rag_eval_pipeline.warehouse.runtime import Runtime

CHARS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        "\u00ad\u200b\u200c\u200d\ufeff\u0301\u0327\u1100\u1161\u11a8\uff9e\uff8a\u0344e\u0645\u06cc\u0915\u094d👩👧\ufb01²\n \t"
    ),
)
TEXT = st.text(CHARS, max_size=60)
PARA = (
    "Employees get 22 days of leave per year, and unused days move over to the next year until March. "
    "Managers approve requests within five working days."
)
PAGE = f"""<html><body><nav><a href="/">Home</a> <a href="/p">Products</a></nav><main><h1>Leave policy</h1><p>{PARA}</p>
<table><tr><th>Kind</th><th>Days</th></tr><tr><td>Sick</td><td>10</td></tr></table></main>
<footer>© 2026 ACME. All rights reserved. Privacy | Cookies</footer></body></html>"""
PARSED = f"Home Products\n\nLeave policy\n\n{PARA}\n\nKind\tDays\nSick\t10\n\n© 2026 ACME. All rights reserved. Privacy | Cookies"


def item(text, html=None, boilerplate=None, clean=None):
    return {"text": text, "html": html, "boilerplate": boilerplate, "clean": clean}


def check(row, source):
    """The room's invariant: segments follow each other on both sides, and exact ones hold equal characters."""
    out_at = src_at = 0
    for s in OffsetMap(row["offsets"]).segments:
        assert s.out_start >= out_at
        assert s.src_start >= src_at
        if s.exact:
            assert row["text"][s.out_start : s.out_end] == source[s.src_start : s.src_end]
        out_at, src_at = s.out_end, s.src_end
    assert out_at == len(row["text"])
    assert src_at <= len(source)


def clean(text, **config):
    extra = {name: config.pop(name) for name in ("html_page", "hints") if name in config}
    return one(item(text, extra.get("html_page"), extra.get("hints")), CONFIG(**config))["cleaned"][0]


@given(TEXT, st.sampled_from(["none", "nfc", "nfkc"]), st.sampled_from(["strip", "keep"]))
def test_every_clean_character_has_its_place_in_the_parsed_text(text, form, invisible):
    row = clean(text, unicode=form, invisible=invisible)
    check(row, text)
    if form == "none" and invisible == "keep":
        assert row["text"] == text
    if form != "none" and invisible == "keep":
        assert row["text"] == unicodedata.normalize(form.upper(), text)


@given(TEXT)
def test_nfkc_with_its_map_is_nfkc(text):
    result, _ = nfkc_with_map(text)
    assert result == unicodedata.normalize("NFKC", text)


@given(TEXT)
def test_cleaning_is_idempotent(text):
    once = clean(text)["text"]
    assert clean(once)["text"] == once


@given(TEXT)
def test_removed_chars_counts_what_is_gone(text):
    stripped, offsets = strip_invisible(text)
    gone = [c for c in text if not c.isspace()]
    left = [c for c in stripped if not c.isspace()]
    assert clean(text, unicode="none")["removed_chars"] == len(gone) - len(left)
    assert offsets.segments == OffsetMap.keep([(s.src_start, s.src_end) for s in offsets.segments]).segments


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("zero\u200bwidth", "zerowidth"),
        ("co\u00adop\u00aderate", "cooperate"),
        ("\ufeffstart", "start"),
        ("bell\x07", "bell"),
        ("lat\u200din", "latin"),
        ("line\nend\ttab", "line\nend\ttab"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष", "क्\u200dष"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("left\u200eright\u202e", "leftright"),
    ],
)
def test_invisible_characters_go_unless_a_script_needs_them(dirty, expected):
    assert clean(dirty)["text"] == expected


def test_boilerplate_of_a_page_goes_and_the_rest_stays_where_it_was():
    row = clean(PARSED, html_page=PAGE)
    check(row, PARSED)
    assert row["cleaner"] == "trafilatura"
    for kept in ("Leave policy", PARA, "Kind\tDays", "Sick\t10"):
        assert kept in row["text"]
    for gone in ("Home", "Products", "Cookies", "rights"):
        assert gone not in row["text"]


def test_a_page_without_main_text_is_kept_whole_and_says_so():
    row = clean("Home", html_page="<html><body></body></html>")
    assert row["text"] == "Home"
    assert "kept" in row["error"]


def test_parser_hints_are_used_where_asked_for_and_only_then():
    hints = [{"start": 0, "end": 6}]
    assert clean("navbar main text", html="blocks", hints=hints)["text"] == " main text"
    assert clean("navbar main text", html="none", hints=hints)["text"] == "navbar main text"


@given(st.lists(st.tuples(st.text("abcdefghij ", min_size=1, max_size=30), st.booleans()), max_size=12))
def test_lines_that_the_extractor_returned_are_kept(lines):
    text = "\n".join(line for line, _ in lines)
    extracted = "\n".join(line for line, main in lines if main)
    kept = "".join(text[start:end] for start, end in main_lines(text, extracted))
    assert len(kept.split()) >= len(extracted.split())


def test_a_menu_entry_that_is_also_a_word_of_the_text_goes():
    text = "Home\nProducts\n\nOur products are made at home by people.\n\nHome"
    kept = "".join(text[a:b] for a, b in main_lines(text, "Our products are made at home by people."))
    assert kept.strip() == "Our products are made at home by people."


def frames(**texts):
    return {
        "parsed": pl.DataFrame(
            {"doc_id": list(texts), "text": list(texts.values()), "html": [None] * len(texts)},
            schema_overrides={"html": pl.String},
        ),
        "blocks": pl.DataFrame(schema={"doc_id": pl.String, "kind": pl.String, "start": pl.Int64, "end": pl.Int64}),
    }


def test_imported_clean_text_is_mapped_to_the_parsed_text_by_alignment():
    given_frames = frames(a="Menu\nThe fee is 8 EUR per day.\nFooter", b="kept out")
    given_frames["output:cleaned"] = pl.DataFrame({"doc_id": ["a"], "text": ["The fee is 8 EUR per day!"]})
    made = run(given_frames, CONFIG(**{"import": True}), Runtime.plain())["cleaned"]
    row = made.filter(doc_id="a").row(0, named=True)
    assert OffsetMap(row["offsets"]).source(11, 16) == [(16, 21)]
    assert made.filter(doc_id="b")["status"][0] == "empty"
    assert made.filter(doc_id="b")["error"][0] == "no row in outputs/cleaned.jsonl"
    with pytest.raises(ValueError, match=r"outputs/cleaned\.jsonl is absent"):
        run(frames(a="x"), CONFIG(**{"import": True}), Runtime.plain())


class Upper:
    def clean(self, text, html):
        return text.replace("junk ", "")


def test_a_users_own_cleaner_runs():
    row = clean("some junk text", html=f"{__name__}:Upper")
    assert row["text"] == "some text"
    check(row, "some junk text")


def gold(**fields):
    return Gold(**{name: pl.DataFrame(rows, schema=SCHEMAS[name]) for name, rows in fields.items()})


@given(
    st.lists(st.tuples(st.text("abc", min_size=1, max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=12)
)
def test_boilerplate_scores_equal_sklearn_on_character_masks(words):
    text = " ".join(word for word, _, _ in words)
    spans, cuts, at = [], [], 0
    truth, found = [], []
    for word, boilerplate, cut in words:
        spans += [{"start": at, "end": at + len(word), "type": None}] if boilerplate else []
        cuts += [(at, at + len(word))] if cut else []
        truth += [boilerplate] * len(word)
        found += [cut] * len(word)
        at += len(word) + 1
    kept, position = [], 0
    for start, end in [*cuts, (len(text), len(text))]:
        kept.append((position, start))
        position = end
    offsets = OffsetMap.keep(kept)
    cleaned = pl.DataFrame(
        {"doc_id": ["d"], "text": ["".join(text[a:b] for a, b in kept)], "offsets": [offsets.rows()], "status": ["ok"]}
    )
    labels = gold(
        main_text=[{"doc_id": "d", "text": None, "boilerplate": spans}], references=[{"doc_id": "d", "text": text}]
    )
    rows = measure({**frames(d=text), "cleaned": cleaned}, labels, CONFIG(), Settings())
    value = dict(rows.filter(item_id="d", unit="char").unique("metric").select("metric", "value").iter_rows())
    assert value["false_removals_chars"] == sum(f and not t for t, f in zip(truth, found, strict=True))
    assert value["missed_boilerplate_chars"] == sum(t and not f for t, f in zip(truth, found, strict=True))
    listed = cleaning_findings({**frames(d=text), "cleaned": cleaned}, labels, None)
    sizes = dict(listed.filter(pl.col("in_all") <= LARGEST).group_by("kind").agg(pl.col("size").sum()).iter_rows())
    for kind, metric in (("over_removal", "false_removals_chars"), ("under_removal", "missed_boilerplate_chars")):
        if listed.filter(pl.col("kind") == kind, pl.col("in_all") > LARGEST).is_empty():
            assert sizes.get(kind, 0) == value[metric]
    if not any(truth):
        assert value["boilerplate_recall"] is None
        return
    p, r, f1, _ = precision_recall_fscore_support(np.array(truth), np.array(found), average="binary", zero_division=0)
    assert value["boilerplate_precision"] == (pytest.approx(p) if any(found) else None)
    assert value["boilerplate_recall"] == pytest.approx(r)
    assert value["boilerplate_f1"] == pytest.approx(f1)


def test_main_text_labels_unicode_figures_and_unlabelled_documents():
    page = {**frames(a=PARSED, b="ﬁne Ρaypal Ã©\u200b"), "blocks": frames()["blocks"]}
    page["parsed"] = page["parsed"].with_columns(pl.Series("html", [PAGE, None]))
    made = run(page, CONFIG(), Runtime.plain())
    labels = gold(
        main_text=[{"doc_id": "a", "text": f"Leave policy\n\n{PARA}\n\nKind Days Sick 10", "boilerplate": None}]
    )
    rows = measure({**page, **made}, labels, CONFIG(), Settings())
    get = {(r["metric"], r["item_id"], r["params"]): r for r in rows.iter_rows(named=True)}
    assert get["boilerplate_f1", "a", "{}"]["value"] == pytest.approx(1.0)
    assert get["main_text_f1", "a", "{}"]["value"] == pytest.approx(1.0)
    assert get["false_removals_chars", "a", "{}"]["value"] == 0
    assert get["boilerplate_f1", "b", "{}"]["status"] == "no_gold"
    assert get["nfkc_stable", "b", "{}"]["value"] == 0.0
    assert get["mixed_script_words", "b", "{}"]["value"] == 1.0
    assert get["mojibake", "b", "{}"]["value"] == 1.0
    assert get["invisible_chars", "b", '{"kind": "zero_width", "text": "parsed"}']["value"] == 1.0
    assert get["invisible_chars", "b", '{"kind": "zero_width", "text": "clean"}']["value"] == 0.0


@pytest.mark.parametrize("cleaner", ["trafilatura", "justext", "resiliparse"])
def test_extractors_only_choose_lines_of_the_parsed_text(cleaner):
    if cleaner == "resiliparse":
        pytest.importorskip("resiliparse")
    long = PAGE.replace(PARA, f"{PARA} {PARA} {PARA}")
    text = PARSED.replace(PARA, f"{PARA} {PARA} {PARA}")
    row = one(item(text, html=long), CONFIG(html=cleaner))["cleaned"][0]
    check(row, text)
    assert (row["status"], row["cleaner"]) == ("ok", cleaner)
    assert PARA in row["text"]
    assert "Cookies" not in row["text"]


@pytest.mark.parametrize("cleaner", ["justext", "resiliparse"])
@pytest.mark.parametrize(
    "page", ["", "<html>", "\x00", "<p>", "<table>" * 300, "&#0;", "<html><body><nav>Home</nav></body></html>"]
)
def test_an_extractor_that_finds_no_main_text_leaves_the_page_whole(cleaner, page):
    if cleaner == "resiliparse":
        pytest.importorskip("resiliparse")
    row = one(item("Home", html=page or " "), CONFIG(html=cleaner))["cleaned"][0]
    assert row["text"] == "Home"
    assert row["status"] == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "El año pasado la compañía pagó más.",
        "Über den Fluß",
        "« déjà vu » — œuvre",
        "20 °C ± 5 %",
        "naïve café “quoted” … €",
    ],
)
def test_wrong_decodings_are_flagged_and_right_ones_are_not(text):
    assert broken_encodings(text) == []
    for wrong in ("latin-1", "cp1252"):
        broken = text.encode("utf-8").decode(wrong, "replace")
        spans = broken_encodings(broken)
        assert spans
        assert all(0 <= start < end <= len(broken) for start, end in spans)


@given(st.text(CHARS, max_size=80))
def test_signs_that_drift_are_those_whose_forms_differ(text):
    spans = list(compatibility(text))
    covered = {place for start, end in spans for place in range(start, end)}
    for place, sign in enumerate(text):
        alone = unicodedata.normalize("NFC", sign) != unicodedata.normalize("NFKC", sign)
        assert alone or place not in covered
    if unicodedata.normalize("NFC", text) == unicodedata.normalize("NFKC", text):
        assert not spans


def test_findings_show_a_place_with_personal_data_masked():
    text = "Write to Ana Ruiz.\n\nHome Products\n\nThe Ρaypal p\u00adrice\u202e is Ã© here."
    cleaned = one(item(text), CONFIG(html="none", invisible="keep"))["cleaned"][0]
    frame = pl.DataFrame([{"doc_id": "d", **cleaned}])
    labels = gold(
        main_text=[{"doc_id": "d", "text": text.replace("Home Products\n\n", ""), "boilerplate": None}],
        references=[{"doc_id": "d", "text": text}],
    )
    places = pl.DataFrame(
        {"doc_id": ["d"] * 2, "layer": ["parsed", "clean"], "start": [9, 9], "end": [17, 17], "type": ["PERSON"] * 2}
    )
    found = cleaning_findings({**frames(d=text), "cleaned": frame}, labels, places)
    by_kind = {row["kind"]: row for row in found.iter_rows(named=True)}
    assert by_kind.keys() == {"under_removal", "mixed_script", "mojibake", "soft_hyphen", "direction"}
    left = by_kind["under_removal"]
    assert text[left["start"] : left["end"]] == "Home Products"
    assert left["size"] == 12
    assert "[Home Products]" in left["context"]
    assert all("Ana" not in row["context"] and "Ruiz" not in row["context"] for row in by_kind.values())
    assert "<PERSON>" in left["context"]
    assert "[Ρaypal]" in by_kind["mixed_script"]["context"]
    assert "[\\u202e]" in by_kind["direction"]["context"]
