"""Settings that an import writes: the default pipeline, or the one that published figures of such sets were made with.

`default` leaves `pipeline` out, so that every stage has its default. `paper` is BM25 over whole documents as in the
papers: nothing removed, nothing masked, k1 0.9, b 0.4. Each import can be evaluated both ways, since the other one is
written to pipelines/ where it can be laid over.
"""

from __future__ import annotations

from rag_eval_pipeline.text.languages import primary

PRESETS = ("default", "paper")

_PAPER = """\
pipeline:
  dedup: null
  pii: null
  chunking: {splitter: none}
  retrieval:
    bm25: {kind: bm25, k1: 0.9, b: 0.4, stemming: auto, stop_words: auto, depth: 100, depth_unit: documents}
    dense: {kind: dense, depth: 100, depth_unit: documents}
"""


def corpus_yaml(preset: str, language: str | None, ks: tuple[int, ...]) -> str:
    """The text of corpus.yaml for an imported set."""
    languages = f"[{primary(language)}]" if language else "[en, es]"
    head = f"# Written by rag-eval import ({preset} preset). `rag-eval init` writes a file with every key and its default.\n"
    paper = preset == "paper"
    serve = "  serve: bm25\n" if paper else ""
    evaluate = f"evaluate:\n  k: {list(ks)}\n  tie_policy: trec\n{serve}"
    return f"{head}languages: {languages}\n{_PAPER if paper else ''}{evaluate}"


def preset_yamls(preset: str) -> dict[str, str]:
    """Candidate pipelines written beside corpus.yaml, by name."""
    if preset == "paper":
        return {}
    return {"paper": f"# The pipeline of published figures, laid over corpus.yaml.\n{_PAPER}evaluate:\n  serve: bm25\n"}
