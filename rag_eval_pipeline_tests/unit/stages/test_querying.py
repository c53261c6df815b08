import numpy as np
import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.models.encoder import ModelError, load_encoder
from rag_eval_pipeline.models.vectors import vector_matrix
from rag_eval_pipeline.stages.embedding.transform import EmbeddingConfig
from rag_eval_pipeline.stages.querying import transform
from rag_eval_pipeline.stages.querying.transform import QueryEncoder, QueryingConfig, detect
from rag_eval_pipeline.warehouse.runtime import Runtime


def queries(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(
        [{name: row.get(name) for name in SCHEMAS["queries"]} for row in rows], schema=SCHEMAS["queries"], orient="row"
    )


def run(frame: pl.DataFrame | None, outputs: dict | None = None, **config) -> dict[str, pl.DataFrame]:
    frames = {} if frame is None else {"queries": frame}
    return transform.run(frames | (outputs or {}), QueryingConfig(**config), Runtime.plain())


OFF = {"embedding": {"enabled": False}}


def test_a_declared_language_stays_and_an_undeclared_one_is_detected():
    frame = queries(
        {"query_id": "q1", "text": "How many vacation days may I carry over?", "language": "de", "principal": "ana"},
        {"query_id": "q2", "text": "¿Cuántos días de vacaciones puedo trasladar?"},
        {"query_id": "q3", "text": "How many vacation days may I carry over?"},
    )
    made = run(frame, **OFF)["prepared_queries"]
    assert made["language"].to_list() == ["de", "es", "en"]
    assert made["principal"].to_list() == ["ana", None, None]
    assert made["text"].to_list() == frame["text"].to_list()


def test_detection_stays_among_the_corpus_languages_and_names_them_as_the_corpus_does():
    text = "¿Cuántos días de vacaciones puedo trasladar?"
    assert detect(text, ("en", "es-MX")) == "es-MX"
    assert detect(text, ("en", "de")) in {"en", "de"}
    assert detect(text, ()) == "es"
    assert detect(text, ("x-klingon",)) == "es"  # nothing to choose from that the detector knows


def test_a_text_without_letters_has_no_language():
    assert detect("42 %", ("en", "es")) is None
    assert detect("", ("en", "es")) is None


def test_vectors_are_those_of_the_chunks_model_with_the_query_prompt():
    made = run(queries({"query_id": "q", "text": "moons"}), embedding={"query_prompt": "query: "})["query_embeddings"]
    assert np.array_equal(vector_matrix(made["vector"]), load_encoder().encode(["query: moons"]))
    assert made["model"][0] == load_encoder().name


def test_no_queries_and_no_dense_lane_give_empty_tables():
    assert all(frame.is_empty() for frame in run(None).values())
    made = run(queries({"query_id": "q", "text": "moons"}), **OFF)
    assert made["query_embeddings"].is_empty()
    assert made["prepared_queries"].height == 1


def test_imported_vectors_are_taken_where_either_side_imports():
    given = {"output:query_embeddings": pl.DataFrame({"id": ["q"], "vector": [[0.0, 2.0]], "model": ["theirs"]})}
    frame = queries({"query_id": "q", "text": "moons"})
    for config in ({"import": True}, {"embedding": {"import": True}}):
        made = run(frame, given, **config)["query_embeddings"]
        assert made["vector"][0].to_list() == [0, 1]
        with pytest.raises(ModelError, match=r"outputs/query_embeddings\.parquet is absent"):
            run(frame, **config)
        assert transform.identity(QueryingConfig(**config)) == {}


def test_the_section_embedding_fits_as_it_is_and_its_document_prompt_changes_no_query():
    whole = EmbeddingConfig(document_prompt="passage: ", query_prompt="query: ").model_dump(by_alias=True)
    assert set(QueryEncoder.model_fields) == set(EmbeddingConfig.model_fields)
    config = QueryingConfig(embedding=whole)
    assert config.embedding.query_prompt == "query: "
    other = QueryingConfig(embedding={**whole, "document_prompt": ""})
    assert config.model_dump(mode="json", by_alias=True) == other.model_dump(mode="json", by_alias=True)
