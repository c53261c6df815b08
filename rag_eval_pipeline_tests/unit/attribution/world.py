"""Random small pipelines: gold and every stage table, made directly, consistent with one another and full of faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.attribution.order import RetrieverInfo
from rag_eval_pipeline.corpus.gold import SCHEMAS, Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.stages.answering.tables import AnswerCitations, AnswerClaims, Answers
from rag_eval_pipeline.stages.judging.tables import ClaimVerdicts
from rag_eval_pipeline.text.offsets import OffsetMap, Segment
from rag_eval_pipeline.warehouse.table import polars_schema

WORDS = [
    "limit",
    "salary",
    "report",
    "annual",
    "leave",
    "policy",
    "staff",
    "manager",
    "contract",
    "travel",
    "refund",
    "claim",
    "approve",
    "budget",
    "office",
    "device",
    "battery",
    "screen",
    "warranty",
    "return",
    "customer",
    "order",
    "invoice",
    "delivery",
    "month",
    "notice",
    "period",
    "support",
]
LIST_COLUMNS = {
    "query_id": pl.String, "retriever": pl.String, "rank": pl.Int64, "chunk_id": pl.String, "doc_id": pl.String,
    "score": pl.Float64,
}  # fmt: skip
RANKED = LIST_COLUMNS | {"rank_before": pl.Int64, "input_size": pl.Int64}


def gold_frame(name: str, rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame([{c: r.get(c) for c in SCHEMAS[name]} for r in rows], schema=SCHEMAS[name], orient="row")


@dataclass
class World:
    gold: Gold
    frames: dict[str, pl.DataFrame]
    settings: Settings
    retrievers: dict[str, RetrieverInfo]


def sentence(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(4, 10))]
    if rng.random() < 0.6:
        words.insert(rng.randrange(len(words)), str(rng.randint(2, 999)))
    if rng.random() < 0.2:
        words.insert(rng.randrange(len(words)), "not")
    return " ".join(words).capitalize() + "."


def kept_map(text: str, removed: list[tuple[int, int]]) -> tuple[str, OffsetMap]:
    ranges, at = [], 0
    for start, end in sorted(removed):
        if start > at:
            ranges.append((at, start))
        at = max(at, end)
    ranges.append((at, len(text)))
    return "".join(text[a:b] for a, b in ranges), OffsetMap.keep(ranges)


def masked_map(text: str, spans: list[tuple[int, int, str]]) -> tuple[str, OffsetMap]:
    out, segments, at, parts = 0, [], 0, []
    for start, end, kind in sorted(spans):
        if start < at:
            continue
        if start > at:
            parts.append(text[at:start])
            segments.append(Segment(out, out + start - at, at, start))
            out += start - at
        mask = f"<{kind}>"
        parts.append(mask)
        segments.append(Segment(out, out + len(mask), start, end, False))
        out, at = out + len(mask), end
    if at < len(text):
        parts.append(text[at:])
        segments.append(Segment(out, out + len(text) - at, at, len(text)))
    return "".join(parts), OffsetMap(segments)


def damage(rng: random.Random, text: str, level: float) -> str:
    lines = text.split("\n")
    if rng.random() < level and len(lines) > 2:
        i, j = rng.sample(range(len(lines)), 2)
        lines[i], lines[j] = lines[j], lines[i]
    if rng.random() < level:
        del lines[rng.randrange(len(lines))]
    if rng.random() < level and len(lines) > 1:  # interleaved columns: a foreign line inside a sentence
        i = rng.randrange(len(lines))
        words = lines[i].split(" ")
        middle = len(words) // 2
        lines[i : i + 1] = [" ".join(words[:middle]), sentence(rng), " ".join(words[middle:])]
    characters = list("\n".join(lines))
    for _ in range(rng.choice((0, 0, 1, 3, 6)) if characters and rng.random() < level * 2 else 0):
        place = rng.randrange(len(characters))
        characters[place] = rng.choice(["", "x", " ", "7", characters[place] * 2])
    return "".join(characters)


@dataclass(frozen=True)
class Knobs:
    """What the pipelines of one run have in common."""

    settings: Settings
    depth: int
    unit: str
    approximate: bool
    fusion_depth: int
    input_size: int


def make_knobs(seed: int) -> Knobs:
    rng = random.Random(seed)
    settings = Settings.model_validate(
        {
            "evaluate": {"k": rng.choice(([1, 3], [2, 5], [1, 2, 4])), "serve_k": rng.choice((2, 3)),
                         "slices": ["intent", "doc_class", "tags", "answerable"]},
            "ledger": {"hold": rng.choice((0.9, 0.9, 0.6, 1.0))},
        }
    )  # fmt: skip
    unit = rng.choice(("chunks", "chunks", "documents"))
    return Knobs(settings, rng.choice((2, 4, 12)), unit, rng.random() < 0.7, rng.choice((3, 12)), rng.choice((2, 3, 6)))


def make_worlds(knobs: int, seeds: range) -> World:
    """Many small pipelines under one roof: each with its own documents, queries and faults, all measured at once."""
    worlds = [make_world(seed, knobs) for seed in seeds]
    gold = Gold(
        **{
            name: pl.concat([getattr(world.gold, name) for world in worlds]) for name in SCHEMAS if name != "principals"
        },
        principals=worlds[0].gold.principals,
    )
    frames = {name: pl.concat([world.frames[name] for world in worlds]) for name in worlds[0].frames}
    return World(gold, frames, worlds[0].settings, worlds[0].retrievers)


def make_world(seed: int, knobs_seed: int | None = None) -> World:
    rng = random.Random(seed)
    knobs = make_knobs(seed if knobs_seed is None else knobs_seed)
    level = rng.choice((0.0, 0.1, 0.3))
    doc_ids = [f"w{seed}d{i}" for i in range(rng.randint(3, 7))]
    references, documents, duplicates, supersedes = {}, [], [], {}
    for i, doc_id in enumerate(doc_ids):
        if i and rng.random() < 0.35:
            origin = rng.choice(doc_ids[:i])
            lines = references[origin].split("\n")
            if rng.random() < 0.5:
                lines[rng.randrange(len(lines))] = sentence(rng)
            if rng.random() < 0.3:
                lines.append(sentence(rng))
            references[doc_id] = "\n".join(lines)
            label = rng.random()
            if label < 0.4:
                duplicates.append({"doc_a": origin, "doc_b": doc_id, "duplicate": label < 0.3})
            elif label < 0.5:
                supersedes[doc_id] = origin
        else:
            lines = [sentence(rng) for _ in range(rng.randint(3, 9))]
            if rng.random() < 0.3:
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            references[doc_id] = "\n".join(lines)
    absent = {doc_id for doc_id in doc_ids if rng.random() < 0.06}
    unreferenced = {doc_id for doc_id in doc_ids if rng.random() < 0.15}
    for doc_id in doc_ids:
        if doc_id not in absent:
            documents.append(
                {
                    "doc_id": doc_id,
                    "tenant": rng.choice((None, "a", "b")) if rng.random() < 0.3 else None,
                    "acl": [],
                    "supersedes": supersedes.get(doc_id),
                    "doc_class": rng.choice(("policy", "sheet")),
                    "language": "en",
                }
            )
    principals = [{"principal": "ann", "tenant": "a", "groups": []}, {"principal": "bob", "tenant": "b", "groups": []}]
    queries, evidence, qrels = _gold_rows(rng, seed, doc_ids, references, unreferenced)
    pii_labels = _pii_labels(rng, {d: t for d, t in references.items() if d not in unreferenced})
    gold = Gold(
        queries=gold_frame("queries", queries),
        principals=gold_frame("principals", principals),
        evidence=gold_frame("evidence", evidence),
        qrels=gold_frame("qrels", qrels),
        duplicates=gold_frame("duplicates", duplicates),
        pii=gold_frame("pii", [{"doc_id": d, "spans": s} for d, s in pii_labels.items()]),
        references=gold_frame(
            "references", [{"doc_id": d, "text": t} for d, t in references.items() if d not in unreferenced]
        ),
    )
    frames: dict[str, pl.DataFrame] = {
        "documents": pl.DataFrame(
            documents,
            schema={
                "doc_id": pl.String, "tenant": pl.String, "acl": pl.List(pl.String), "supersedes": pl.String,
                "doc_class": pl.String, "language": pl.String,
            },
            orient="row",
        )
    }  # fmt: skip
    _texts(rng, frames, references, level)
    _chunk(rng, frames)
    retrievers = _search(rng, seed, frames, queries, knobs)
    return World(gold, frames, knobs.settings, retrievers)


def _gold_rows(rng, seed, doc_ids, references, unreferenced):
    queries, evidence, qrels = [], [], []
    for number in range(rng.randint(2, 6)):
        query = f"w{seed}q{number}"
        queries.append(
            {
                "query_id": query, "text": "?", "split": "dev" if rng.random() < 0.1 else "test", "answerable": True,
                "intent": rng.choice(("fact", "how", None)), "principal": rng.choice((None, None, "ann", "bob")),
                "tags": rng.choice((None, ["x"], ["x", "y"])),
            }
        )  # fmt: skip
        if rng.random() < 0.25:
            for doc_id in rng.sample(doc_ids, min(len(doc_ids), rng.randint(1, 3))):
                qrels.append({"query_id": query, "doc_id": doc_id, "grade": rng.choice((0, 1, 2))})
            continue
        for e in range(rng.choice((0, 1, 1, 2, 3))):
            doc_id = rng.choice(doc_ids)
            text = references[doc_id]
            lines = text.split("\n")
            first = rng.randrange(len(lines))
            quote = " ".join(lines[first : first + rng.choice((1, 1, 2))])
            if rng.random() < 0.3:
                words = quote.split(" ")
                low = rng.randrange(len(words))
                quote = " ".join(words[low : low + rng.randint(1, 5)])
            row = {"query_id": query, "evidence_id": f"e{e}", "doc_id": doc_id, "quote": quote, "grade": 1}
            if (seed + number) % 3 == 0:  # a multi-hop question
                row["hop"] = e + 1
            flat = text.replace("\n", " ")
            if doc_id not in unreferenced and rng.random() < 0.3:
                row["start"] = flat.index(quote)
                row["end"] = row["start"] + len(quote)
            elif rng.random() < 0.1:
                row["occurrence"] = 1
            evidence.append(row)
    return queries, evidence, qrels


def _pii_labels(rng, references):
    labels = {}
    for doc_id, text in references.items():
        spans = []
        for _ in range(rng.choice((0, 0, 1))):
            start = rng.randrange(max(1, len(text) - 8))
            spans.append({"start": start, "end": start + 8, "type": "CODE"})
        labels[doc_id] = spans
    return labels


def _texts(rng, frames, references, level):
    parsed, cleaned, dedup, masked, spans = [], [], [], [], []
    present = frames["documents"]["doc_id"].to_list()
    for doc_id in present:
        text, status = damage(rng, references[doc_id], level), "ok"
        if rng.random() < level / 4:
            text, status = "", rng.choice(("timeout", "empty"))
        parsed.append({"doc_id": doc_id, "text": text, "status": status})
        removed = []
        if rng.random() < level * 1.5 and len(text) > 12:
            start = rng.randrange(len(text) - 10)
            removed.append((start, start + rng.choice((1, 4, 30))))
        clean, offsets = kept_map(text, [(a, min(b, len(text))) for a, b in removed])
        cleaned.append({"doc_id": doc_id, "text": clean, "offsets": offsets.rows(), "status": "ok", "cleaner": "toy"})
    survivors = dict(zip(present, present, strict=True))
    for doc_id in present[1:]:
        if rng.random() < level:
            target = rng.choice(present[: present.index(doc_id)])
            survivors[doc_id] = survivors[target]
    for doc_id in present:
        dedup.append(
            {"doc_id": doc_id, "kept": survivors[doc_id] == doc_id, "survivor": survivors[doc_id], "status": "ok"}
        )
    for row in cleaned:
        if survivors[row["doc_id"]] != row["doc_id"]:
            continue
        found = []
        text = row["text"]
        for _ in range(rng.choice((0, 1, 2)) if rng.random() < level * 2 and len(text) > 12 else 0):
            start = rng.randrange(len(text) - 10)
            found.append((start, start + rng.choice((2, 5, 10)), rng.choice(("CODE", "PHONE"))))
        out, offsets = masked_map(text, found)
        spans += [{"doc_id": row["doc_id"], "start": a, "end": b, "type": t, "score": 1.0} for a, b, t in set(found)]
        masked.append({"doc_id": row["doc_id"], "text": out, "offsets": offsets.rows(), "status": "ok"})
    segment = pl.List(
        pl.Struct(
            {
                "out_start": pl.Int64,
                "out_end": pl.Int64,
                "src_start": pl.Int64,
                "src_end": pl.Int64,
                "exact": pl.Boolean,
            }
        )
    )
    text_columns = {"doc_id": pl.String, "text": pl.String, "status": pl.String}
    frames["parsed"] = pl.DataFrame(parsed, schema=text_columns, orient="row")
    frames["cleaned"] = pl.DataFrame(cleaned, schema=text_columns | {"offsets": segment, "cleaner": pl.String})
    frames["masked"] = pl.DataFrame(masked, schema=text_columns | {"offsets": segment})
    frames["dedup"] = pl.DataFrame(
        dedup, schema={"doc_id": pl.String, "kept": pl.Boolean, "survivor": pl.String, "status": pl.String}
    )
    frames["dedup_edges"] = pl.DataFrame(
        schema={"doc_a": pl.String, "doc_b": pl.String, "similarity": pl.Float64, "removed": pl.String}
    )
    frames["pii_spans"] = pl.DataFrame(
        spans,
        schema={"doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "type": pl.String, "score": pl.Float64},
    )


def _chunk(rng, frames):
    size = rng.choice((25, 50, 90, 400))
    overlap = rng.choice((0, 0, size // 4))
    rows = []
    for doc_id, text in frames["masked"].select("doc_id", "text").iter_rows():
        start, ordinal = 0, 0
        while start < len(text):
            end = min(len(text), start + size)
            if rng.random() > 0.03:
                placed = rng.random() > 0.02
                rows.append(
                    {
                        "chunk_id": f"{doc_id}::{ordinal}", "doc_id": doc_id, "start": start if placed else None,
                        "end": end if placed else None, "text": text[start:end],
                    }
                )  # fmt: skip
            ordinal += 1
            if end == len(text):
                break
            start = end - overlap
    frames["chunks"] = pl.DataFrame(
        rows,
        schema={"chunk_id": pl.String, "doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "text": pl.String},
    )
    limit = rng.choice((20, 60, 500))
    frames["embeddings"] = frames["chunks"].select(
        "chunk_id",
        pl.lit(0, pl.Int64).alias("window"),
        pl.lit(0, pl.Int64).alias("encoded_start"),
        pl.col("text").str.len_chars().cast(pl.Int64).alias("tokens"),
        pl.min_horizontal(pl.col("text").str.len_chars().cast(pl.Int64), pl.lit(limit)).alias("encoded_tokens"),
        pl.min_horizontal(pl.col("text").str.len_chars().cast(pl.Int64), pl.lit(limit)).alias("encoded_end"),
    )


def _rrf(lists):
    scores: dict = {}
    for items in lists:
        for rank, item in enumerate(items, 1):
            scores[item] = scores.get(item, 0) + 1 / (60 + rank)
    return sorted(scores, key=lambda item: (-scores[item], item))


def _search(rng, seed, frames, queries, knobs):
    chunks = frames["chunks"].select("chunk_id", "doc_id").rows()
    present = frames["documents"].select("doc_id", "tenant").rows()
    tenant = {"ann": "a", "bob": "b"}
    filters, scopes = [], {}
    tables: dict[str, list] = {
        "runs": [],
        "exact_runs": [],
        "fused_runs": [],
        "exact_fused_runs": [],
        "ranked_runs": [],
    }
    depth, unit, approximate = knobs.depth, knobs.unit, knobs.approximate
    contexts = []

    def add(table, query, name, items, **more):
        for rank, (chunk, doc) in enumerate(items, 1):
            row = {
                "query_id": query,
                "retriever": name,
                "rank": rank,
                "chunk_id": chunk,
                "doc_id": doc,
                "score": 1 / rank,
            }
            tables[table].append(row | {key: value(chunk) for key, value in more.items()})

    def cut(items):
        if unit == "chunks":
            return items[:depth]
        seen, out = [], []
        for item in items:
            if item[1] not in seen:
                seen.append(item[1])
            if len(seen) > depth:
                break
            out.append(item)
        return out

    for query in queries:
        q, who = query["query_id"], query["principal"]
        admitted = [d for d, t in present if who is None or t is None or t == tenant[who]]
        if rng.random() < 0.25:
            admitted = [d for d in admitted if rng.random() < 0.6]
        scope = f"w{seed}:" + ",".join(admitted)
        everything = len(admitted) == len(present)
        scopes[scope] = {"scope_id": scope, "everything": everything, "doc_ids": [] if everything else admitted}
        filters.append({"query_id": q, "scope_id": scope, "producer": "gold", "mode": "hard"})
        pool = [c for c in chunks if c[1] in admitted]
        exact_dense, bm25 = rng.sample(pool, len(pool)), rng.sample(pool, rng.randint(0, len(pool)))
        dense = exact_dense
        if approximate:
            dense = [item for item in exact_dense if rng.random() > 0.2]
        bm25, exact_dense, dense = cut(bm25), cut(exact_dense), cut(dense)
        if rng.random() < 0.05:
            dense = [*dense, ("gone::0", "gone")]
        add("runs", q, "bm25", bm25)
        add("runs", q, "dense", dense)
        fused = _rrf([bm25, dense])[: knobs.fusion_depth]
        add("fused_runs", q, "hybrid", fused)
        if approximate:
            add("exact_runs", q, "dense", exact_dense)
            add("exact_fused_runs", q, "hybrid", _rrf([bm25, exact_dense])[: knobs.fusion_depth])
        head = fused[: knobs.input_size]
        final = rng.sample(head, len(head)) + fused[knobs.input_size :]
        none = {"rank_before": lambda c: None, "input_size": lambda c: None}
        add("ranked_runs", q, "bm25", bm25, **none)
        add("ranked_runs", q, "dense", dense, **none)
        order = {chunk: rank for rank, (chunk, _) in enumerate(fused, 1)}
        add("ranked_runs", q, "hybrid", final, rank_before=order.get, input_size=dict.fromkeys(order, len(head)).get)
        places = {row["chunk_id"]: row for row in frames["chunks"].iter_rows(named=True)}
        budget = rng.choice((60, 2000))
        for position, (chunk, doc) in enumerate(final[: knobs.settings.evaluate.serve_k], 1):
            if chunk in places and places[chunk]["start"] is not None and budget > 0:
                start = places[chunk]["start"]
                end = min(places[chunk]["end"], start + budget)
                budget -= end - start
                contexts.append(
                    {
                        "query_id": q, "position": position, "retriever": "hybrid", "chunk_id": chunk, "doc_id": doc,
                        "start": start, "end": end, "tokens": 1,
                    }
                )  # fmt: skip
    for name, rows in tables.items():
        frames[name] = pl.DataFrame(rows, schema=RANKED if name == "ranked_runs" else LIST_COLUMNS, orient="row")
    frames["applied_filters"] = pl.DataFrame(
        filters, schema=dict.fromkeys(("query_id", "scope_id", "producer", "mode"), pl.String)
    )
    frames["scopes"] = pl.DataFrame(
        list(scopes.values()),
        schema={"scope_id": pl.String, "everything": pl.Boolean, "doc_ids": pl.List(pl.String)},
    )
    frames["contexts"] = pl.DataFrame(
        contexts,
        schema={
            "query_id": pl.String, "position": pl.Int64, "retriever": pl.String, "chunk_id": pl.String,
            "doc_id": pl.String, "start": pl.Int64, "end": pl.Int64, "tokens": pl.Int64,
        },
    )  # fmt: skip
    frames |= _answers(frames["contexts"], sorted({row["query_id"] for row in tables["runs"]}))
    return {
        "bm25": RetrieverInfo((), dense=False, depth=depth, depth_unit=unit),
        "dense": RetrieverInfo((), dense=True, depth=depth, depth_unit=unit),
        "hybrid": RetrieverInfo(("bm25", "dense"), dense=True, depth=knobs.fusion_depth, reranked=True),
    }


def _answers(contexts: pl.DataFrame, queries: list[str]) -> dict[str, pl.DataFrame]:
    """Answers that cite some of their context, claim things that verifiers judge, refuse, are empty, or are missing.

    Of each query a second answer, which cites and claims everything, must not count.
    """
    rng = random.Random(contexts.height)
    given: dict[str, list[tuple[int, str, str]]] = {}
    for query, *piece in contexts.select("query_id", "position", "chunk_id", "doc_id").iter_rows():
        given.setdefault(query, []).append((piece[0], piece[1], piece[2]))
    rows: dict[str, list[dict]] = {"answers": [], "answer_claims": [], "answer_citations": [], "claim_verdicts": []}
    for query in queries:
        outcome = rng.choice(["answered"] * 5 + ["hedged", "refused", "empty", None])
        pieces = given.get(query, [])
        _answer(rng, rows, query, query, 1, outcome, pieces)
        _answer(rng, rows, f"{query} again", query, 2, "answered", pieces)
    tables = {
        "answers": Answers, "answer_claims": AnswerClaims, "answer_citations": AnswerCitations, "claim_verdicts": ClaimVerdicts,
    }  # fmt: skip
    return {name: pl.DataFrame(rows[name], schema=polars_schema(table)) for name, table in tables.items()}


def _answer(rng, rows, answer, query, sample, outcome, pieces):
    said = outcome in ("answered", "hedged")
    rows["answers"].append(
        {"answer_id": answer, "query_id": query, "sample": sample, "answer": "It is so." if said else "", "language": "en",
         "outcome": outcome, "refused": None if outcome is None else outcome == "refused", "answerer": "import",
         "status": "missing" if outcome is None else "ok"}
    )  # fmt: skip
    claims = [f"c{number}" for number in range(rng.choice((0, 1, 1, 2, 3)))] if said else []
    for number, claim in enumerate(claims):
        rows["answer_claims"].append(
            {
                "answer_id": answer,
                "claim_id": claim,
                "position": number + 1,
                "text": f"Claim {number}.",
                "origin": "given",
            }
        )
        for verifier in ("hhem", "lexical", "nli"):
            label = rng.choice(("supported", "supported", "unsupported", "contradicted", None))
            some = rng.sample(pieces, min(len(pieces), 1)) if sample == 1 else pieces
            held = label == "supported"
            rows["claim_verdicts"].append(
                {"answer_id": answer, "claim_id": claim, "verifier": verifier, "label": label,
                 "status": "judged" if label else "judge_error", "passages": [str(p) for p, _, _ in some] if held else []}
            )  # fmt: skip
    # What refuses or is empty may still cite: it stands on nothing for that.
    for number in range(rng.randint(0, 2)):
        some = rng.sample(pieces, min(len(pieces), 1)) if sample == 1 else pieces
        kind = rng.choice(("passage", "document"))
        if some and kind == "document":
            some = [piece for piece in pieces if piece[2] == some[0][2]]
        status = "resolved" if some else rng.choice(("dangling", "not_given"))
        rows["answer_citations"].append(
            {"answer_id": answer, "position": number + 1, "cited": "x", "kind": kind, "status": status,
             "chunk_id": some[0][1] if some else None, "doc_id": some[0][2] if some else None,
             "passages": [place for place, _, _ in some], "claim_id": rng.choice([None, *claims])}
        )  # fmt: skip
