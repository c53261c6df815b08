from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.models.encoder import ModelError, load_encoder
from rag_eval_pipeline.models.vectors import vector_matrix
from rag_eval_pipeline.stages.embedding import quality, transform
from rag_eval_pipeline.stages.embedding.transform import EmbeddingConfig
from rag_eval_pipeline.warehouse.memo import Memo
from rag_eval_pipeline.warehouse.runtime import Runtime

LONG = "one two three four five six seven eight nine ten"


def chunks(*rows: tuple[str, str, str]) -> pl.DataFrame:
    """(chunk_id, prefix, text) with the columns that the room reads."""
    return pl.DataFrame(
        [(name, name.split("::")[0], prefix, text, len(text.split()), "ok") for name, prefix, text in rows],
        schema={
            "chunk_id": pl.String,
            "doc_id": pl.String,
            "prefix": pl.String,
            "text": pl.String,
            "tokens": pl.Int64,
            "status": pl.String,
        },
        orient="row",
    )


def run(frame: pl.DataFrame, runtime: Runtime | None = None, outputs: dict | None = None, **config) -> pl.DataFrame:
    made = transform.run({"chunks": frame, **(outputs or {})}, EmbeddingConfig(**config), runtime or Runtime.plain())
    return made["embeddings"]


def measured(frame: pl.DataFrame, embeddings: pl.DataFrame, kept: list[str] | None = None, **config) -> dict:
    frames = {"chunks": frame, "embeddings": embeddings}
    if kept is not None:
        frames["dedup"] = pl.DataFrame({"doc_id": kept, "kept": [True] * len(kept)})
    rows = quality.measure(frames, Gold(), EmbeddingConfig(**config), Settings())
    return {(r["metric"], r["item_id"]): (r["value"], r["status"]) for r in rows.iter_rows(named=True)}


def test_prompt_prefix_and_text_are_encoded_in_this_order():
    made = run(chunks(("a::0", "Handbook. ", "Five days.")), document_prompt="passage: ")
    expected = load_encoder().encode(["passage: Handbook. Five days."])
    assert np.array_equal(vector_matrix(made["vector"]), expected)
    assert made["model"].to_list() == [load_encoder().name]


def test_the_row_of_a_document_that_failed_is_not_encoded():
    failed = chunks(("b::0", "", "")).with_columns(status=pl.lit("timeout"))
    made = run(pl.concat([chunks(("a::0", "", "Five days.")), failed]))
    assert made["chunk_id"].to_list() == ["a::0"]


def test_only_the_text_itself_is_counted():
    made = run(chunks(("a::0", "From it: ", LONG), ("b::0", "", "")), max_tokens=10).row(0, named=True)
    assert (made["tokens"], made["encoded_tokens"]) == (10, 5)
    assert LONG[: made["encoded_end"]] == "one two three four five"


def test_no_dense_lane_needs_no_vectors_and_no_model():
    config = {"enabled": False, "model": "/no/such/model"}
    frame = chunks(("a::0", "", "Five days."))
    assert run(frame, **config).is_empty()
    assert transform.identity(EmbeddingConfig(**config)) == {}
    assert measured(frame, run(frame, **config), **config) == {}


def test_no_chunks_give_no_vectors():
    assert run(chunks()).is_empty()


def test_the_model_and_threads_are_part_of_the_stage_s_identity():
    assert transform.identity(EmbeddingConfig())["checksum"] == load_encoder().checksum


def test_a_second_run_encodes_only_what_is_new(tmp_path, monkeypatch):
    runtime = replace(Runtime.plain(), memo=Memo(tmp_path))
    first = run(chunks(("a::0", "", "One."), ("a::1", "", "Two."), ("b::0", "", "One.")), runtime)
    encoded = []
    stream = transform.Encoder.stream
    monkeypatch.setattr(
        transform.Encoder,
        "stream",
        lambda self, texts, prompt=None: encoded.extend(texts) or stream(self, texts, prompt),
    )
    frame = chunks(("a::0", "", "One."), ("a::1", "", "Two."), ("b::0", "", "Three."))
    second = run(frame, runtime)
    assert encoded == ["Three."]
    assert second.equals(run(frame))
    assert second.filter(pl.col("chunk_id") != "b::0").equals(first.filter(pl.col("chunk_id") != "b::0"))


def test_imported_vectors_are_taken_and_stand_for_the_whole_chunk():
    given = pl.DataFrame({"id": ["a::0"], "vector": [[3.0, 4.0]], "model": ["theirs"]})
    made = run(chunks(("a::0", "", "Five days.")), outputs={"output:embeddings": given}, **{"import": True})
    assert made["vector"][0].to_list() == pytest.approx([0.6, 0.8])
    assert made.select("encoded_end", "model").row(0) == (10, "theirs")


def test_an_import_without_its_file_or_with_missing_chunks_is_refused():
    frame = chunks(("a::0", "", "x"), ("a::1", "", "y"))
    with pytest.raises(ModelError, match=r"outputs/embeddings\.parquet is absent"):
        run(frame, **{"import": True})
    given = pl.DataFrame({"id": ["a::0"], "vector": [[3.0, 4.0]], "model": ["theirs"]})
    with pytest.raises(ModelError, match=r"1 of 2 chunks have no vector, first \['a::1'\]"):
        run(frame, outputs={"output:embeddings": given}, **{"import": True})


def test_truncation_is_measured_by_document_and_every_kept_document_has_its_rows():
    frame = chunks(("a::0", "", LONG), ("a::1", "", "one two"), ("b::0", "", "one"), ("c::0", "", ""))
    found = measured(frame, run(frame, max_tokens=7), kept=["a", "b", "c", "d"])
    assert found["truncated_tokens", "a"] == (5 / 12, "scored")
    assert found["truncated_chunks", "a"] == (0.5, "scored")
    assert found["truncated_tokens", "b"] == (0.0, "scored")
    assert found["truncated_tokens", "c"] == (None, "no_tokens")
    assert found["truncated_tokens", "d"] == (None, "no_chunks")
    assert len(found) == 3 * 4


def test_a_vector_that_cannot_be_searched_is_counted():
    frame = chunks(("a::0", "", "one"), ("a::1", "", "two"))
    made = run(frame)
    broken = made.with_columns(vector=pl.when(pl.col("chunk_id") == "a::1").then(pl.lit([0.0] * 384).cast(pl.List(pl.Float32)))
                               .otherwise("vector"))  # fmt: skip
    assert measured(frame, made)["invalid_vectors", "a"] == (0.0, "scored")
    assert measured(frame, broken)["invalid_vectors", "a"] == (0.5, "scored")


def test_what_a_foreign_encoder_saw_is_unknown_and_not_zero():
    frame = chunks(("a::0", "", "one"))
    found = measured(frame, run(frame), **{"import": True})
    assert found["truncated_tokens", "a"] == (None, "unknown_encoder")
    assert found["invalid_vectors", "a"] == (0.0, "scored")
