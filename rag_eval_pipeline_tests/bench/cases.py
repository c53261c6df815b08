"""What is compared with what. Each case checks that both give the same before it times them."""

import random
import shutil
import string
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from rag_eval_pipeline.attribution import evaluate as attribution
from rag_eval_pipeline.measures import cer, rank_measures
from rag_eval_pipeline.models.ann import exact_search
from rag_eval_pipeline.stages.dedup.shingles import SCHEME, _codes, _rolled, gram_hashes, shingles_of, signature_of
from rag_eval_pipeline.text.alignment import locate
from rag_eval_pipeline_tests.bench.timing import Result, in_turn, spend
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.small import QUICK, write_corpus

TREC = {
    "recall@10": "recall_10", "recall@100": "recall_100", "precision@10": "P_10", "precision@100": "P_100",
    "hit@10": "success_10", "ndcg@10": "ndcg_cut_10", "ndcg@100": "ndcg_cut_100", "ndcg@all": "ndcg", "rr": "recip_rank",
    "ap": "map", "ap@10": "map_cut_10", "bpref": "bpref",
}  # fmt: skip
"""Twelve measures: our name, trec_eval's."""


def ranking(repeats: int, queries: int = 10_000, depth: int = 100) -> Result:
    """Ranking measures of frames; the peer's conversion to its dictionaries is part of its time."""
    import pytrec_eval

    rng = np.random.default_rng(0)
    names = [f"q{i:05d}" for i in range(queries)]
    items = np.concatenate([rng.choice(100_000, depth, replace=False) for _ in names])
    run = pl.DataFrame({"query_id": np.repeat(names, depth), "item_id": items, "score": rng.random(queries * depth)})
    run = run.with_columns(
        pl.col("item_id").cast(pl.String),
        rank=pl.col("score").rank("ordinal", descending=True).over("query_id").cast(pl.Int64),
    )
    qrels = run.filter(pl.Series(rng.random(run.height) < 0.08)).select("query_id", "item_id")
    qrels = qrels.with_columns(grade=pl.Series(rng.integers(0, 3, qrels.height)))

    def ours() -> pl.DataFrame:
        return rank_measures(run, qrels, list(TREC), ks=(), tie_policy="trec", as_trec=True)

    def theirs() -> dict[str, dict[str, float]]:
        gold: dict[str, dict[str, int]] = {}
        for query, item, grade in qrels.iter_rows():
            gold.setdefault(query, {})[item] = grade
        lists: dict[str, dict[str, float]] = {}
        for query, item, score in run.select("query_id", "item_id", "score").iter_rows():
            lists.setdefault(query, {})[item] = score
        asked = {
            "recall.10,100", "P.10,100", "success.10", "ndcg_cut.10,100", "ndcg", "recip_rank", "map", "map_cut.10", "bpref",
        }  # fmt: skip
        return pytrec_eval.RelevanceEvaluator(gold, asked).evaluate(lists)

    expected = theirs()
    label = pl.col("metric") + pl.when(pl.col("k") > 0).then(pl.format("@{}", "k")).otherwise(pl.lit(""))
    found = (
        ours().with_columns(name=label.replace({"ndcg": "ndcg@all"})).filter(pl.col("query_id").is_in(list(expected)))
    )
    apart = max(
        abs(value - expected[query][TREC[name]])
        for query, name, value in found.select("query_id", "name", "value").iter_rows()
    )
    what = f"ranking: {queries:,} queries × {depth}, 12 measures, with the band of ties"
    return in_turn(what, "pytrec_eval, with conversion", ours, theirs, f"equal to {apart:.0e}", repeats)


def error_rate(repeats: int, length: int = 10_000) -> Result:
    """Character error rate of one long text."""
    import jiwer

    rng = random.Random(0)
    reference = "".join(rng.choices(string.ascii_lowercase + "    ", k=length))
    reference = " ".join(reference.split())
    output = "".join(c if rng.random() > 0.03 else rng.choice(["", "x", c + "e"]) for c in reference)
    output = " ".join(output.split())
    apart = abs((cer(reference, output).value or 0) - jiwer.cer(reference, output))
    times = range(50)
    return in_turn(
        f"CER: {length:,} characters, 50 times",
        "jiwer",
        lambda: [cer(reference, output) for _ in times],
        lambda: [jiwer.cer(reference, output) for _ in times],
        f"equal to {apart:.0e}",
        repeats,
    )


def exact(repeats: int, vectors: int = 100_000, queries: int = 200, k: int = 100) -> Result:
    """Exact search; ours also re-scores in float64 and orders ties."""
    import faiss

    rng = np.random.default_rng(0)
    stored, asked = (rng.standard_normal((n, 384), dtype=np.float32) for n in (vectors, queries))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(384)
    index.add(stored)
    ours = exact_search(stored, asked, k)[0]
    theirs = index.search(asked, k)[1]
    shared = np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(ours, theirs, strict=True)])
    return in_turn(
        f"exact search: {vectors:,} × 384, {queries} queries, k = {k}",
        "faiss IndexFlatIP",
        lambda: exact_search(stored, asked, k),
        lambda: index.search(asked, k),
        f"{shared:.2%} of ids shared",
        repeats,
    )


def signatures(repeats: int, documents: int = 40) -> Result:
    """MinHash signatures of texts of about 1,500 characters, from the text on both sides."""
    from datasketch import MinHash

    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(3000)]
    texts = [" ".join(rng.choices(words, k=220)) for _ in range(documents)]

    def theirs(hashfunc: Callable[[bytes], int] | None = None) -> list[np.ndarray]:
        made = []
        for text in texts:
            sketch = MinHash(num_perm=128, seed=1, scheme=SCHEME, hashfunc=hashfunc)
            for gram in shingles_of(text, 5):
                sketch.update(gram.encode())
            made.append(sketch.hashvalues)
        return made

    def ours() -> list[np.ndarray]:
        return [signature_of(gram_hashes(text, 5), 128, 1) for text in texts]

    # The peer hashes shingles by SHA-1; with our hashes it gives our signatures.
    ours_of = theirs(lambda gram: int(_rolled(_codes(gram.decode()).astype(np.uint64), 5)[0]) >> 32)
    same = all(np.array_equal(a, b) for a, b in zip(ours(), ours_of, strict=True))
    mean = sum(len(shingles_of(text, 5)) for text in texts) / documents
    what = f"MinHash signatures: {documents} documents × {mean:.0f} shingles"
    note = "equal, given the same hashes of shingles" if same else "DIFFERENT"
    return in_turn(what, "datasketch update()", ours, theirs, note, repeats)


def anchoring(repeats: int, quotes: int = 40, length: int = 20_000) -> Result:
    """Quotes of about 150 characters, misread at 3 % of them, in a text of 20,000."""
    from rapidfuzz import fuzz

    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(2000)]
    text = " ".join(rng.choices(words, k=length // 6))[:length]
    starts = [rng.randrange(0, length - 160) for _ in range(quotes)]
    cut = [(at + len(part) - len(part.lstrip()), part.strip()) for at in starts for part in [text[at : at + 150]]]
    noisy = [(at, "".join(c if rng.random() > 0.03 else rng.choice("xyz1") for c in quote)) for at, quote in cut]

    def ours() -> list[int]:
        return [found.start if (found := locate(quote, text)) else -1 for _, quote in noisy]

    def theirs() -> list[int]:
        return [found.dest_start if (found := fuzz.partial_ratio_alignment(quote, text)) else -1 for _, quote in noisy]

    right = [
        sum(abs(start - at) <= 3 for start, (at, _) in zip(found, noisy, strict=True)) / quotes
        for found in (ours(), theirs())
    ]
    return in_turn(
        f"anchoring: {quotes} misread quotes in {length:,} characters",
        "rapidfuzz partial_ratio_alignment",
        ours,
        theirs,
        f"within 3 characters of the truth: {right[0]:.0%}, peer {right[1]:.0%}",
        repeats,
    )


def memoised(repeats: int, documents: int = 24) -> list[Result]:
    """A corpus run by the default pipeline cold, again from the memo alone, and again from the store."""
    cold, memo, store = [], [], []
    _run(6, {})  # imports and models are loaded before anything is timed
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            home = home_of(Path(folder))
            write_corpus(home.corpora, documents=documents, pipeline={})
            cold.append(spend(lambda home=home: Run(home, "small@v1")))
            store.append(spend(lambda home=home: Run(home, "small@v1")))
            shutil.rmtree(home.store)
            memo.append(spend(lambda home=home: Run(home, "small@v1")))
    what = f"second run of {documents} documents, default pipeline"
    return [
        Result(f"{what}, from the store", "the cold run", store, cold, "same evaluation"),
        Result(f"{what}, from the memo alone", "the cold run", memo, cold, "same evaluation"),
    ]


def _run(documents: int, pipeline: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = home_of(Path(folder))
        write_corpus(home.corpora, documents=documents, pipeline=pipeline)
        Run(home, "small@v1")


def ledger(repeats: int, documents: int = 500) -> list[Result]:
    """Units, anchors, pieces, ledger, fate and waterfall of one unit a document under three retrievers; no peer."""
    with tempfile.TemporaryDirectory() as folder:
        home = home_of(Path(folder))
        write_corpus(home.corpora, documents=documents, pipeline=QUICK)
        whole = spend(lambda: Run(home, "small@v1"))
        subject = Run(home, "small@v1").subject

        def both() -> None:
            attribution.evidence(subject)
            attribution.attribute(subject)

        times = [spend(both) for _ in range(repeats)]
    per = [type(s)(s.wall * 1000 / documents, s.cpu * 1000 / documents) for s in times]
    share = min(s.cpu for s in times) / whole.cpu
    note = f"measured on {documents} units; {share:.0%} of the CPU time of a cold run without encoder"
    return [Result("whole ledger, 1,000 units × 3 retrievers × 4 cut-offs", "none", per, [], note)]
