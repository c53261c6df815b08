"""Two evaluations against each other, on fates made by hand: states, what changed, texts, recall."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval_pipeline.attribution.changes import PARTS, Changes
from rag_eval_pipeline.attribution.regressions import (
    STATES,
    Side,
    version_diff,
    version_recall,
    version_regressions,
)
from rag_eval_pipeline.attribution.tables import (
    EvidenceAnchors,
    EvidenceFate,
    EvidencePieces,
    EvidenceUnits,
    LossWaterfall,
)
from rag_eval_pipeline.stages.chunking.tables import Chunks
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.stages.pii.tables import Masked
from rag_eval_pipeline.stages.source.tables import Documents
from rag_eval_pipeline.warehouse.table import conform, polars_schema

UNIT = ["query_id", "evidence_id"]
BLANK = {
    pl.String: "", pl.Int64: 0, pl.Float64: 0.0, pl.Boolean: False, pl.List(pl.String): [], pl.List(pl.Int64): [],
}  # fmt: skip


def rows_of(schema, rows):
    """Rows with the columns that matter; the others are blank."""
    types, columns = polars_schema(schema), schema.columns()
    blank = {n: None if columns[n].nullable else BLANK.get(t, []) for n, t in types.items()}
    return conform(schema, [blank | row for row in rows])


def nothing_changed(**more):
    return Changes({stage.name: dict.fromkeys(PARTS, False) for stage in STAGES}, **({"gold": False, "documents": False, "measuring": ()} | more))  # fmt: skip


def side(name, fates, documents=None, units=None, pieces=(), anchors=(), masked=(), chunks=(), clusters=None):
    """`fates`: (query, evidence, retriever, k) -> stage that lost it; `served`, or `ineligible`."""
    fate = [
        {"query_id": q, "evidence_id": e, "retriever": r, "k": k, "eligible": stage != "ineligible", "served": stage == "served",
         "first_loss_stage": stage, "cause": None if stage in {"served", "ineligible"} else f"{stage} cause", "detail": "{}"}
        for (q, e, r, k), stage in fates.items()
    ]  # fmt: skip
    known = dict.fromkeys((q, e) for q, e, _, _ in fates)
    labels = {key: {"doc_id": "d", "kind": "quote", "quote": f"{key}"} | (units or {}).get(key, {}) for key in known}
    listed = [{"query_id": q, "evidence_id": e, "eligible": True} | label for (q, e), label in labels.items()]
    cells = dict.fromkeys((r, k) for _, _, r, k in fates)
    waterfall = [
        {
            "retriever": r,
            "k": k,
            "slice_name": "all",
            "slice_value": "all",
            "stage": "rank",
            "recall": _recall(fates, r, k),
        }
        for r, k in cells
    ]
    held = documents if documents is not None else {"d": {"content_hash": "1"}}
    frames = {
        "evidence_fate": rows_of(EvidenceFate, fate),
        "evidence_units": rows_of(EvidenceUnits, listed),
        "evidence_anchors": rows_of(EvidenceAnchors, list(anchors)),
        "evidence_pieces": rows_of(EvidencePieces, list(pieces)),
        "loss_waterfall": rows_of(LossWaterfall, waterfall),
        "documents": rows_of(Documents, [{"doc_id": doc, "path": doc, "media": "txt", "status": "ok"} | more for doc, more in held.items()]),
        "masked": rows_of(Masked, list(masked)),
        "chunks": rows_of(Chunks, list(chunks)),
    }  # fmt: skip
    return Side("c@" + name, "default", name, frames, clusters or {})


def _recall(fates, retriever, k):
    by_query = {}
    for (q, _, r, cut), stage in fates.items():
        if (r, cut) == (retriever, k) and stage != "ineligible":
            by_query.setdefault(q, []).append(stage == "served")
    return sum(sum(v) / len(v) for v in by_query.values()) / max(len(by_query), 1)


def one(before, now, **more):
    """The single row of one unit's two fates."""
    fates = [
        {("q", "e", "lane", 10): stage} if stage else {("x", "e", "lane", 10): "served"} for stage in (before, now)
    ]
    changes = more.pop("changes", nothing_changed())
    rows = version_regressions(
        side("1", fates[0], **more.get("was", {})), side("2", fates[1], **more.get("is_", {})), changes
    )
    return rows.filter(pl.col("query_id") == "q").row(0, named=True)


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        ("served", "served", "kept"),
        ("parsing", "served", "recovered"),
        ("served", "search", "newly_lost"),
        ("parsing", "rank", "still_lost"),
        (None, "served", "new_unit"),
        (None, "parsing", "new_unit"),
        ("ineligible", "served", "new_unit"),
        ("served", None, "removed_unit"),
        ("rank", "ineligible", "removed_unit"),
    ],
)
def test_a_unit_has_the_state_of_its_two_fates(before, now, state):
    row = one(before, now)
    assert (row["state"], row["stage_before"], row["stage_now"]) == (state, before, now)


def test_units_outside_the_books_on_both_sides_have_no_row():
    fates = {("q", "e", "lane", 1): "ineligible", ("q", "f", "lane", 1): "served"}
    rows = version_regressions(side("1", fates), side("2", fates), nothing_changed())
    assert rows["evidence_id"].to_list() == ["f"]


STAGE_NAMES = ("served", "parsing", "search", "rank", "ineligible", "absent")
FATES = st.dictionaries(
    st.tuples(st.sampled_from(["q1", "q2", "q3"]), st.sampled_from(["e1", "e2"])),
    st.lists(st.sampled_from(STAGE_NAMES), min_size=4, max_size=4),
    min_size=1,
)
LANES = [("a", 1), ("a", 5), ("b", 1), ("b", 5)]


def drawn(name, table):
    fates = {
        (q, e, *cell): stage
        for (q, e), stages in table.items()
        for cell, stage in zip(LANES, stages, strict=True)
        if stages[0] != "absent"
    }
    return side(name, {key: "rank" if stage == "absent" else stage for key, stage in fates.items()})


@given(FATES, FATES)
@settings(max_examples=20)
def test_states_partition_the_union_of_units_and_swapping_the_sides_swaps_them(before, now):
    first, second = drawn("1", before), drawn("2", now)
    rows = version_regressions(first, second, nothing_changed())
    books = [
        set(s.frames["evidence_fate"].filter("eligible").select(*UNIT, "retriever", "k").iter_rows())
        for s in (first, second)
    ]
    cells = [set(s.frames["evidence_fate"].select("retriever", "k").iter_rows()) for s in (first, second)]
    union = {key for key in books[0] | books[1] if key[2:] in cells[0] & cells[1]}
    found = rows.select(*UNIT, "retriever", "k").rows()
    assert len(found) == len(set(found))
    assert set(found) == union
    back = version_regressions(second, first, nothing_changed())
    other = {"kept": "kept", "recovered": "newly_lost", "newly_lost": "recovered", "still_lost": "still_lost", "new_unit": "removed_unit", "removed_unit": "new_unit"}  # fmt: skip
    keys = [*UNIT, "retriever", "k"]
    assert back.select(*keys, "state").rows() == rows.select(*keys, pl.col("state").replace(other)).rows()
    assert version_diff(rows)["units"].sum() == len(union)


@given(FATES, FATES)
@settings(max_examples=12)
def test_recall_of_the_same_population_moves_by_its_recovered_and_lost_units(before, now):
    first, second = drawn("1", before), drawn("2", now)
    recall = version_recall(first, second)
    rows = version_regressions(first, second, nothing_changed())
    for row in recall.filter(pl.col("status") == "paired").iter_rows(named=True):
        mine = rows.filter((pl.col("retriever") == row["retriever"]) & (pl.col("k") == row["k"]))
        both = mine.filter(pl.col("state").is_in(STATES[:4]))
        sign = {"recovered": 1, "newly_lost": -1}
        by_query = [sum(sign.get(s, 0) for s in g["state"]) / g.height for _, g in both.group_by("query_id")]
        assert row["delta"] == pytest.approx(sum(by_query) / len(by_query))
        assert row["low"] <= row["delta"] <= row["high"]
        assert row["n_units"] == both.height == row["kept"] + row["recovered"] + row["newly_lost"] + row["still_lost"]
        if not row["new_units"] and not row["removed_units"]:
            assert row["recall_now"] - row["recall_before"] == pytest.approx(row["delta"])


def test_a_retriever_of_one_side_alone_is_named_and_not_compared():
    first = side("1", {("q", "e", "old", 1): "served", ("q", "e", "both", 1): "served"})
    second = side("2", {("q", "e", "new", 1): "served", ("q", "e", "both", 1): "rank"})
    recall = version_recall(first, second)
    assert dict(recall.select("retriever", "status").rows()) == {
        "old": "only_before",
        "new": "only_now",
        "both": "paired",
    }
    assert recall.filter(pl.col("status") != "paired")["delta"].to_list() == [None, None]
    assert version_regressions(first, second, nothing_changed())["retriever"].to_list() == ["both"]


def test_sides_that_share_no_unit_have_no_change_of_recall():
    first, second = side("1", {("q", "e", "a", 1): "served"}), side("2", {("p", "e", "a", 1): "served"})
    row = version_recall(first, second).row(0, named=True)
    assert (row["status"], row["delta"], row["new_units"], row["removed_units"]) == ("nothing_shared", None, 1, 1)


def test_queries_of_one_cluster_count_once_in_the_interval():
    count = 60
    fates = [{(f"q{n}", "e", "a", 1): "served" if n % 4 != turn else "rank" for n in range(count)} for turn in (0, 1)]
    together = {f"q{n}": f"c{n // 20}" for n in range(count)}
    alone = version_recall(side("1", fates[0]), side("2", fates[1])).row(0, named=True)
    clustered = version_recall(side("1", fates[0]), side("2", fates[1], clusters=together)).row(0, named=True)
    assert alone["delta"] == clustered["delta"]
    assert clustered["high"] - clustered["low"] > alone["high"] - alone["low"]


@pytest.mark.parametrize(
    ("was", "is_", "change", "declared", "points_at"),
    [
        ({"d": {"content_hash": "1"}}, {"d": {"content_hash": "1"}}, "unchanged", False, "nothing"),
        ({"d": {"content_hash": "1"}}, {"d": {"content_hash": "2"}}, "edited", False, "document"),
        ({"d": {"content_hash": "1"}}, {}, "removed", False, "document"),
        ({}, {"d": {"content_hash": "1"}}, "added", False, "document"),
        ({}, {}, "absent", False, "nothing"),
        ({"d": {"content_hash": "1", "locale": "en-US"}}, {"d": {"content_hash": "1", "locale": "es-ES"}}, "unchanged", True, "document"),
    ],
)  # fmt: skip
def test_a_document_changes_by_its_bytes_and_by_what_is_declared_of_it(was, is_, change, declared, points_at):
    row = one("served", "parsing", was={"documents": was}, is_={"documents": is_})
    assert (row["document_change"], row["metadata_changed"], row["points_at"]) == (change, declared, points_at)


def changed(room, part, **more):
    found = nothing_changed(**more)
    return Changes(
        found.stages | {room: found.stages[room] | {part: True}}, found.gold, found.documents, found.measuring
    )


def test_a_change_counts_for_losses_that_its_room_can_have_caused():
    late = one("served", "parsing", changes=changed("chunking", "config"))
    assert (late["config_changed"], late["changed_stages"], late["points_at"]) == (False, [], "nothing")
    search = one("served", "search", changes=changed("chunking", "config"))
    assert (search["config_changed"], search["points_at"]) == (True, "config")
    assert search["changed_stages"] == ["chunking: config"]
    recovered = one("parsing", "served", changes=changed("parsing", "code"))
    assert (recovered["code_changed"], recovered["points_at"]) == (True, "code")
    model = one("served", "rank", changes=changed("embedding", "model"))
    assert (model["model_changed"], model["config_changed"], model["points_at"]) == (True, False, "model")


def test_what_a_manifest_does_not_say_is_unknown_and_never_unchanged():
    row = one(
        "served",
        "search",
        changes=Changes(
            {"chunking": {"config": False, "code": None, "model": None, "inputs": None}}, False, False, None
        ),
    )
    assert (row["config_changed"], row["code_changed"], row["model_changed"]) == (False, None, None)
    assert row["points_at"] == "unknown"


def test_nothing_of_its_own_changed_points_at_the_other_documents_or_at_the_measuring():
    assert one("served", "rank", changes=nothing_changed(documents=True))["points_at"] == "other documents"
    assert one("served", "rank", changes=nothing_changed(measuring=("ledger",)))["points_at"] == "measuring"
    assert one("served", "served", changes=changed("parsing", "code"))["points_at"] == ""


@pytest.mark.parametrize(
    ("was", "is_", "gold"),
    [
        ({"quote": "18 days"}, {"quote": "18 days"}, False),
        ({"quote": "18 days"}, {"quote": "19 days"}, True),
        ({"quote": "call <PHONE_NUMBER>"}, {"quote": "call 555 1234"}, False),
        ({"quote": "call <PHONE_NUMBER>", "n_chars": 11}, {"quote": "call 555 12345", "n_chars": 12}, True),
        ({"doc_id": "d"}, {"doc_id": "e"}, True),
        ({"critical_from": [0]}, {"critical_from": [3]}, True),
    ],
)
def test_a_label_that_changed_is_told_from_one_that_is_masked_otherwise(was, is_, gold):
    row = one("served", "search", was={"units": {("q", "e"): was}}, is_={"units": {("q", "e"): is_}})
    assert row["gold_changed"] is gold
    assert ("gold" in row["points_at"]) is gold


def anchor(doc_id, positions, **more):
    return {
        "query_id": "q",
        "evidence_id": "e",
        "layer": "masked",
        "doc_id": doc_id,
        "present": True,
        "kept": True,
        "positions": positions,
    } | more


def test_a_newly_lost_unit_shows_the_masked_text_around_it_on_both_sides():
    text = "a" * 150 + "the limit is 18 days" + "b" * 150
    broken = text.replace("18", "1B")
    places = [150 + n for n, c in enumerate("the limit is 18 days") if c != " "]
    was = {"masked": [{"doc_id": "d", "text": text, "status": "ok"}], "anchors": [anchor("d", places, held=True)]}
    now = {
        "masked": [{"doc_id": "d", "text": broken, "status": "ok"}],
        "anchors": [anchor("x", [], carrier=0), anchor("d", [-1, *places[1:]], carrier=1)],
    }
    row = one("served", "parsing", was=was, is_=now)
    assert row["text_before"] == "…" + text[50:270] + "…"
    assert (row["text_doc_before"], row["start_before"], row["end_before"]) == ("d", 150, 170)
    assert "1B days" in row["text_now"]
    assert (row["start_now"], row["end_now"]) == (151, 170)
    kept = one("served", "served", was=was, is_=now)
    assert {kept[name] for name in kept if name.startswith(("text_", "start_", "end_", "chunk_"))} == {None}


def test_without_a_place_in_a_masked_text_the_chunk_that_has_most_of_it_is_shown():
    piece = {"query_id": "q", "evidence_id": "e", "doc_id": "d"}
    pieces = [piece | {"chunk_id": "d::0", "chars": [0]}, piece | {"chunk_id": "d::1", "chars": [1, 2, 3]}]
    chunks = [{"chunk_id": f"d::{n}", "doc_id": "d", "text": f"chunk {n}", "status": "ok"} for n in (0, 1)]
    row = one("served", "rank", was={"pieces": pieces, "chunks": chunks})
    assert (row["text_before"], row["chunk_before"], row["text_doc_before"]) == ("chunk 1", "d::1", "d")
    assert (row["text_now"], row["chunk_now"]) == (None, None)


def test_the_first_table_of_an_engineer_groups_by_state_stage_cause_and_document():
    before = {("q", e, "a", 1): "served" for e in "uvwx"} | {("p", "y", "a", 1): "search"}
    now = {("q", e, "a", 1): "parsing" for e in "uvw"} | {("q", "x", "a", 1): "served", ("p", "y", "a", 1): "served"}
    rows = version_regressions(
        side("1", before), side("2", now, documents={"d": {"content_hash": "2"}}), nothing_changed()
    )
    diff = version_diff(rows)
    assert diff.select("state", "stage", "cause", "document_change", "units", "queries", "documents").rows() == [
        ("newly_lost", "parsing", "parsing cause", "edited", 3, 1, 1),
        ("recovered", "search", "search cause", "edited", 1, 1, 1),
        ("kept", "served", None, "edited", 1, 1, 1),
    ]
