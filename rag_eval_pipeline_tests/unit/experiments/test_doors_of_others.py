"""What planted faults need of other floors: a version's own settings, the page of an imported text, a reranker's chunks."""

import polars as pl

from rag_eval_pipeline.corpus.outputs import OUTPUTS
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.stages.parsing.transform import ParsingConfig
from rag_eval_pipeline.stages.parsing.transform import run as parse
from rag_eval_pipeline.stages.reranking.transform import RerankingConfig, scorer
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.small import write_corpus

HARMFUL = "rag_eval_pipeline.experiments.injector.reranker:Harmful"


def test_a_versions_settings_lie_over_the_corpuss_and_a_pipeline_over_both(tmp_path):
    folder = write_corpus(tmp_path, documents=2)
    (folder / "corpus.yaml").write_text("pipeline: {chunking: {size: 40}, dedup: {threshold: 0.7}}", "utf-8")
    (tmp_path / "small" / "pipelines").mkdir()
    (tmp_path / "small" / "pipelines" / "p.yaml").write_text("pipeline: {chunking: {size: 20}}", "utf-8")
    own = load_version(tmp_path, "small@v1").settings.pipeline
    assert (own["chunking"]["size"], own["chunking"]["unit"], own["dedup"]["threshold"]) == (40, "words", 0.7)
    over = load_version(tmp_path, "small@v1#p").settings.pipeline
    assert (over["chunking"]["size"], over["dedup"]["threshold"]) == (20, 0.7)


def test_an_imported_text_keeps_its_page():
    documents = pl.DataFrame({"doc_id": ["a", "b"], "status": ["ok", "ok"]})
    rows = [
        {"doc_id": "a", "text": "Text.", "blocks": [], "tables": [], "html": "<p>Text.</p>"},
        {"doc_id": "b", "text": "Other.", "blocks": [], "tables": [], "html": None},
    ]
    given = pl.DataFrame(rows, schema=OUTPUTS["parsed"], orient="row")
    frames = {"documents": documents, "output:parsed": given}
    parsed = parse(frames, ParsingConfig(imported=True), Runtime.plain())["parsed"]
    assert dict(parsed.select("doc_id", "html").iter_rows()) == {"a": "<p>Text.</p>", "b": None}


def test_a_wrapped_reranker_scores_as_it_does_alone_but_for_the_harmed_query():
    chunks = pl.DataFrame(
        {"text": ["red car", "blue car", "red boat"], "prefix": ["", "", ""], "language": ["en", "en", "en"]}
    )
    passages = [(text, "en") for text in chunks["text"]]
    alone = scorer(chunks, RerankingConfig(reranker="lexical"))
    options = {"inner": {"reranker": "lexical"}, "harmed": ["red boat"]}
    wrapped = scorer(chunks, RerankingConfig(reranker=HARMFUL, options=options))
    assert wrapped("blue car", "en", passages) == alone("blue car", "en", passages)

    def order(scores):
        return sorted(range(3), key=lambda i: (-scores[i], i))

    assert order(wrapped("red boat", "en", passages)) == order(alone("red boat", "en", passages))[::-1]
