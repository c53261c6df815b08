"""What other tools export becomes a version that validates, or outputs beside one: RAGAS, LangSmith and Phoenix in their own forms."""

import csv
import json

import polars as pl
import pytest

from rag_eval_pipeline.corpus.importers import ImportFailedError, import_corpus, import_into
from rag_eval_pipeline.corpus.importers.langsmith import traces as langsmith
from rag_eval_pipeline.corpus.importers.phoenix import nested
from rag_eval_pipeline.corpus.importers.phoenix import traces as phoenix
from rag_eval_pipeline.corpus.importers.ragas import samples
from rag_eval_pipeline.corpus.version import load_version

FEE, DAYS = "The fee for late requests is 8 USD.", "Five days may be carried over."
NEW = [
    {"user_input": "What is the fee?", "retrieved_contexts": [FEE, DAYS], "response": "8 USD", "reference": "8 USD", "reference_contexts": [FEE]},
    {"user_input": "How many days?", "retrieved_contexts": [DAYS], "response": "Five", "reference": "five", "reference_contexts": ["Five days may be carried over"]},
]  # fmt: skip
OLD = {
    "question": [row["user_input"] for row in NEW], "contexts": [row["retrieved_contexts"] for row in NEW],
    "answer": [row["response"] for row in NEW], "ground_truths": [[row["reference"]] for row in NEW],
}  # fmt: skip


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def told(asked):
    return [(a.question, a.answer, [p.text for p in a.given or ()], a.references) for a in asked]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "columns"])
def test_every_file_that_ragas_writes_is_read_alike_with_names_old_and_new(tmp_path, form):
    path = tmp_path / f"set.{'json' if form == 'columns' else form}"
    if form == "jsonl":
        write(path, NEW)
    elif form == "json":
        path.write_text(json.dumps({"samples": NEW}), "utf-8")
    elif form == "columns":
        path.write_text(json.dumps(OLD), "utf-8")
    elif form == "parquet":
        pl.DataFrame(NEW).write_parquet(path)
    else:
        with path.open("w", newline="") as stream:  # as ragas does: Python's own form of lists
            writer = csv.DictWriter(stream, list(NEW[0]))
            writer.writeheader()
            writer.writerows(NEW)
    assert told(samples(path)) == [
        ("What is the fee?", "8 USD", [FEE, DAYS], ("8 USD",)), ("How many days?", "Five", [DAYS], ("five",)),
    ]  # fmt: skip


def test_a_ragas_set_becomes_a_version_without_documents_that_says_what_was_needed(tmp_path):
    source = write(tmp_path / "set.jsonl", NEW)
    report = import_corpus("ragas", source, tmp_path / "corpora", "mine", "v1", language="en")
    version = load_version(tmp_path / "corpora", "mine@v1")
    assert (report.n_queries, report.n_units) == (2, 2)
    assert version.begin == "chunks"
    chunks = dict(version.outputs["chunks"].select("text", "chunk_id").iter_rows())
    assert set(chunks) == {FEE, DAYS}, "a text that is retrieved twice is one chunk"
    runs = version.outputs["runs"].select("query_id", "item_id", "rank").rows()
    assert runs == [("q0001", chunks[FEE], 1), ("q0001", chunks[DAYS], 2), ("q0002", chunks[DAYS], 1)]
    assert version.outputs["contexts"].select("query_id", "chunk_id").rows() == [(q, i) for q, i, _ in runs]
    assert version.outputs["answers"]["answer"].to_list() == ["8 USD", "Five"]
    docs = dict(version.outputs["chunks"].select("text", "doc_id").iter_rows())
    assert version.gold.evidence.select("query_id", "doc_id").rows() == [("q0001", docs[FEE]), ("q0002", docs[DAYS])]
    assert version.settings.evaluate.serve == "imported"


def test_reference_contexts_that_nothing_retrieved_holds_are_chunks_that_were_never_found(tmp_path):
    row = {**NEW[0], "retrieved_contexts": [DAYS]}
    report = import_corpus("ragas", write(tmp_path / "set.jsonl", [row]), tmp_path / "corpora", "mine", "v1")
    version = load_version(tmp_path / "corpora", "mine@v1")
    assert set(version.outputs["chunks"]["text"]) == {DAYS, FEE}
    assert any("became chunks of their own" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"user_input": [{"content": "Hi", "type": "human"}]}, "set.jsonl:1: user_input is a conversation"),
        ({"response": "8"}, "none of user_input, question, query holds a question"),
        ({"user_input": "Q?", "retrieved_contexts": "[not a list"}, "is a list that can't be read"),
        ({"user_input": "Q?", "retrieved_contexts": [1.5]}, "expected a list of texts"),
        (
            {"user_input": "Q?", "retrieved_contexts": ["a"], "retrieved_context_ids": ["1", "2"]},
            "1 retrieved_contexts and 2",
        ),
        ({"user_input": "Q?", "response": "A"}, "no retrieved or reference context was found"),
    ],
)
def test_a_set_of_another_form_is_refused_with_its_place(tmp_path, row, says):
    with pytest.raises(ImportFailedError) as caught:
        import_corpus("ragas", write(tmp_path / "set.jsonl", [row]), tmp_path / "corpora", "mine", "v1")
    assert says in str(caught.value)
    assert not (tmp_path / "corpora" / "mine").exists()


# LangSmith -------------------------------------------------------------------------------------------------------------


def runs_of(trace, question, documents, answer, start="2026-03-01T10:00:00Z", **root):
    return [
        {"id": f"{trace}-r", "trace_id": trace, "parent_run_id": trace, "run_type": "retriever", "name": "VectorStoreRetriever",
         "inputs": {"query": question}, "outputs": {"documents": documents}, "start_time": start, "dotted_order": "1.2"},
        {"id": f"{trace}-l", "trace_id": trace, "parent_run_id": trace, "run_type": "llm", "name": "Chat", "inputs": {"messages": []},
         "outputs": {"generations": [[{"text": answer}]]}, "total_tokens": 31, "start_time": start, "dotted_order": "1.3"},
        {"id": trace, "trace_id": trace, "parent_run_id": None, "run_type": "chain", "name": "RAG", "inputs": {"question": question},
         "outputs": {"answer": answer}, "start_time": start, "end_time": "2026-03-01T10:00:01.500000Z", "dotted_order": "1", **root},
    ]  # fmt: skip


DOCS = [
    {"page_content": FEE, "type": "Document", "metadata": {"source": "hr/leave.md", "chunk_id": "c7", "score": 0.9}},
    {
        "lc": 1,
        "type": "constructor",
        "kwargs": {"page_content": DAYS, "metadata": {"source": "hr/leave.md", "id": "c2"}},
    },
]


@pytest.mark.parametrize("form", ["jsonl", "runs", "json text", "parquet"])
def test_langsmith_runs_give_question_ranking_answer_and_cost(tmp_path, form):
    rows = runs_of("t1", "What is the fee?", DOCS, "8 USD")
    path = tmp_path / ("runs.json" if form == "runs" else "runs.parquet" if form == "parquet" else "runs.jsonl")
    if form == "runs":
        path.write_text(json.dumps({"runs": rows}), "utf-8")
    elif form == "jsonl":
        write(path, rows)
    else:
        rows = [{**row, "inputs": json.dumps(row["inputs"]), "outputs": json.dumps(row["outputs"])} for row in rows]
        write(path, rows) if form == "json text" else pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    (one,) = langsmith(path)
    assert (one.question, one.answer, one.name) == ("What is the fee?", "8 USD", "t1")
    assert [(p.id, p.doc_id, p.text, p.score) for p in one.retrieved] == [
        ("c7", "hr/leave.md", FEE, 0.9),
        ("c2", "hr/leave.md", DAYS, None),
    ]
    assert one.given == one.retrieved
    assert (one.usage, one.timings) == ({"total_tokens": 31}, {"total": 1.5})


def test_chat_messages_errors_and_bare_retrievers_are_understood(tmp_path):
    chat = runs_of("t1", "x", DOCS, "y", inputs={"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What fee?"}]}, outputs={"messages": [{"role": "assistant", "content": [{"type": "text", "text": "8 USD"}]}]})  # fmt: skip
    failed = runs_of("t2", "How many?", DOCS, "lost", error="TimeoutError")
    bare = [
        {
            "id": "t3",
            "trace_id": "t3",
            "parent_run_id": None,
            "run_type": "retriever",
            "inputs": {"query": "When?"},
            "outputs": {"documents": DOCS[:1]},
        }
    ]
    found = {one.name: one for one in langsmith(write(tmp_path / "runs.jsonl", [*chat, *failed, *bare]))}
    assert (found["t1"].question, found["t1"].answer) == ("What fee?", "8 USD")
    assert (found["t2"].answer, found["t3"].answer, found["t3"].given) == (None, None, None)
    assert len(found["t3"].retrieved) == 1


def test_of_several_traces_of_one_question_the_newest_counts(tmp_path):
    rows = runs_of("t1", "What is the fee?", DOCS, "new", start="2026-03-02") + runs_of(
        "t2", "what is  the fee?", DOCS, "old", start="2026-03-01"
    )
    report = import_corpus("langsmith", write(tmp_path / "runs.jsonl", rows), tmp_path / "corpora", "mine", "v1")
    version = load_version(tmp_path / "corpora", "mine@v1")
    assert version.outputs["answers"]["answer"].to_list() == ["new"]
    assert any("older traces" in warning for warning in report.warnings)


# Phoenix ---------------------------------------------------------------------------------------------------------------


def spans():
    """A trace as the REST API gives it: flat attributes."""
    at = {"start_time": "2026-03-01T10:00:00+00:00", "end_time": "2026-03-01T10:00:02+00:00"}

    def span(name, kind, parent, **attributes):
        return {
            "name": name,
            "context": {"trace_id": "t1", "span_id": name},
            "span_kind": kind,
            "parent_id": parent,
            "status_code": "OK",
            **at,
            "attributes": attributes,
        }

    return [
        span("root", "CHAIN", None, **{"input.value": '{"question": "What is the fee?"}', "input.mime_type": "application/json", "output.value": "8 USD"}),
        span("retrieve", "RETRIEVER", "root", **{
            "input.value": "What is the fee?", "retrieval.documents.0.document.content": DAYS, "retrieval.documents.0.document.id": "c2",
            "retrieval.documents.0.document.score": 0.8, "retrieval.documents.0.document.metadata": '{"file_name": "leave.md"}',
            "retrieval.documents.1.document.content": FEE, "retrieval.documents.1.document.id": "c7",
        }),
        span("rerank", "RERANKER", "root", **{"reranker.output_documents.0.document.content": FEE, "reranker.output_documents.0.document.id": "c7"}),
        span("llm", "LLM", "root", **{"output.value": "8 USD", "llm.token_count.prompt": 20, "llm.token_count.completion": 3, "llm.token_count.total": 23}),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["flat", "nested", "dataframe", "envelope", "parquet"])
def test_phoenix_spans_give_ranking_context_answer_and_cost_in_every_form(tmp_path, form):
    rows = spans()
    if form == "nested":
        rows = [nested(row) for row in rows]
    if form in {"dataframe", "parquet"}:
        rows = [
            {"context.span_id": r["context"]["span_id"], "context.trace_id": "t1", "name": r["name"], "span_kind": r["span_kind"], "parent_id": r["parent_id"],
             "start_time": r["start_time"], "end_time": r["end_time"],
             "attributes.input.value": r["attributes"].get("input.value"), "attributes.output.value": r["attributes"].get("output.value"),
             "attributes.llm.token_count.total": r["attributes"].get("llm.token_count.total"),
             "attributes.llm.token_count.prompt": r["attributes"].get("llm.token_count.prompt"),
             "attributes.llm.token_count.completion": r["attributes"].get("llm.token_count.completion"),
             "attributes.retrieval.documents": [{"document.content": DAYS, "document.id": "c2", "document.score": 0.8, "document.metadata": {"file_name": "leave.md"}}, {"document.content": FEE, "document.id": "c7", "document.score": None, "document.metadata": None}] if r["name"] == "retrieve" else None,
             "attributes.reranker.output_documents": [{"document.content": FEE, "document.id": "c7"}] if r["name"] == "rerank" else None}
            for r in rows
        ]  # fmt: skip
    path = tmp_path / ("spans.parquet" if form == "parquet" else "spans.json" if form == "envelope" else "spans.jsonl")
    if form == "parquet":
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    elif form == "envelope":
        path.write_text(json.dumps({"data": rows, "next_cursor": None}), "utf-8")
    else:
        write(path, rows)
    (one,) = phoenix(path)
    assert (one.question, one.answer) == ("What is the fee?", "8 USD")
    assert [(p.id, p.doc_id, p.text, p.score) for p in one.retrieved] == [
        ("c2", "leave.md", DAYS, 0.8),
        ("c7", None, FEE, None),
    ]
    assert [p.id for p in one.given] == ["c7"]
    assert one.usage == {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}
    assert one.timings == {"total": 2.0}


@pytest.mark.parametrize("format", ["langsmith", "phoenix"])
def test_rows_of_another_tool_are_refused(tmp_path, format):
    with pytest.raises(ImportFailedError, match=r"rows\.jsonl:1: no (LangSmith run|span)"):
        import_corpus(format, write(tmp_path / "rows.jsonl", [{"a": 1}]), tmp_path / "corpora", "mine", "v1")


# Beside documents ------------------------------------------------------------------------------------------------------


def test_traces_are_laid_beside_documents_and_queries_that_are_there(corpora, tmp_path):
    corpora.lines(
        "gold/queries.jsonl",
        {"query_id": "q1", "text": "What is the fee?"},
        {"query_id": "q2", "text": "How many days?"},
    )
    documents = [
        {"page_content": FEE, "metadata": {"source": "/srv/share/leave.txt"}},
        {"page_content": DAYS, "metadata": {"source": "elsewhere.pdf"}},
    ]
    rows = runs_of("t1", "what is the fee?", documents, "8 USD") + runs_of("t2", "Who won?", documents, "Nobody")
    source = write(tmp_path / "runs.jsonl", rows)
    report = import_into("langsmith", source, corpora.root, "c", "v1", run="production")
    assert (report.n_queries, report.pipeline) == (1, "production")
    assert any("are no query of this corpus" in w or "ask what is no query" in w for w in report.warnings)
    assert any("name no document" in w for w in report.warnings)
    version = corpora.load("c@v1#production")
    assert version.outputs["runs"].select("run", "query_id", "item_id").rows() == [("production", "q1", "leave.txt")]
    assert version.outputs["contexts"]["text"].to_list() == [FEE, DAYS]
    assert version.settings.evaluate.serve == "production"
    with pytest.raises(ImportFailedError, match="pass --overwrite"):
        import_into("langsmith", source, corpora.root, "c", "v1", run="production")
    import_into("langsmith", source, corpora.root, "c", "v1", run="production", overwrite=True)


def test_traces_that_ask_nothing_of_the_corpus_change_nothing(corpora, tmp_path):
    source = write(tmp_path / "runs.jsonl", runs_of("t1", "Who won?", DOCS, "Nobody"))
    with pytest.raises(ImportFailedError, match="no question of the import is a query"):
        import_into("langsmith", source, corpora.root, "c", "v1")
    assert not (corpora.root / "c" / "v1" / "outputs").exists()


# What exports hold that nobody expects ----------------------------------------------------------------------------------

STRANGE = [
    "",
    " ",
    "\0",
    "x\0y",
    "\ud800",
    "\x1b[31m",
    "a\x85b",
    "\u2028",
    "..",
    "/",
    "https://a/b/",
    "C:\\a.pdf",
    "²",
    "n" * 5000,
]
HUGE, DEEP = 10**400, "[" * 5000


@pytest.mark.parametrize("name", STRANGE)
def test_ids_and_sources_of_any_form_make_a_version_that_validates(tmp_path, name):
    trace = runs_of(
        "t1", "What is the fee?", [{"page_content": FEE, "metadata": {"source": name, "chunk_id": name}}], "8 USD"
    )
    for run in trace:
        run["trace_id"] = name or "t1"
    told = json.dumps({"source": name})
    attributes = {"retrieval.documents.0.document.content": FEE, "retrieval.documents.0.document.metadata": told}
    span = {
        "context": {"trace_id": name or "t", "span_id": "r"},
        "span_kind": "RETRIEVER",
        "attributes": {"input.value": "Q?", **attributes},
    }
    sample = {**NEW[0], "id": name, "retrieved_context_ids": [name or "c", "d"]}
    for tool, rows in (("langsmith", trace), ("phoenix", [span]), ("ragas", [sample])):
        path = tmp_path / f"{tool}.jsonl"
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows), "utf-8"
        )  # escaped: halves of pairs are ASCII here
        try:
            import_corpus(tool, path, tmp_path / "corpora", tool, "v1")
        except ImportFailedError:
            assert not (tmp_path / "corpora" / tool).exists(), "a refusal writes nothing"
            continue
        assert load_version(tmp_path / "corpora", f"{tool}@v1").begin == "chunks"


def test_numbers_and_json_beyond_bounds_are_left_out(tmp_path):
    source = {"0": "a", "²": DEEP}
    rows = runs_of(
        "t1",
        "Fee?",
        [{"page_content": FEE, "metadata": {"source": "a.md", "score": HUGE}}],
        "8",
        total_cost=HUGE,
        tags=DEEP,
    )
    (asked,) = langsmith(write(tmp_path / "l.jsonl", [{**row, "total_tokens": float("nan")} for row in rows]))
    assert (asked.usage, [passage.score for passage in asked.retrieved]) == ({}, [None])
    span = {
        "context": {"trace_id": "t"},
        "attributes": {"input": {"value": "Fee?"}, "output": {"value": DEEP}, "metadata": source},
    }
    (asked,) = phoenix(write(tmp_path / "p.jsonl", [span]))
    assert (asked.question, asked.answer) == ("Fee?", DEEP)
    assert nested({"a.²": 1, "a.0": 2}) == {"a": {"²": 1, "0": 2}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('user_input,response\nFirst?,a\n"Second?,b\nThird?,c\n', 3),
        ('user_input,response\nFirst?,a\n"Second?,b\nThird?,"c"\n', 3),
        ("user_input,response,response\nFirst?,a,b\n", 1),
        ("user_input,response\nFirst?,a,b\n", 2),
    ],
)
def test_a_broken_csv_is_refused_with_its_line_and_swallows_no_rows(tmp_path, text, line):
    (tmp_path / "set.csv").write_text(text, "utf-8")
    with pytest.raises(ImportFailedError, match=f"set.csv:{line}: "):
        import_corpus("ragas", tmp_path / "set.csv", tmp_path / "corpora", "mine", "v1")
    assert not (tmp_path / "corpora" / "mine").exists()
