"""No personal string leaves the working store: not by the commands, not through Dagster, not in the database or a manifest."""

import json
import re
import subprocess

import pytest

from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline_tests.integration.house import Run, home_of, rag_eval
from rag_eval_pipeline_tests.small import QUICK, write_jsonl

pytestmark = pytest.mark.integration
EMAIL, PHONE, NAME, CITY = "ines.quiroga@correo.example.org", "+34 612 345 678", "Inés Quiroga Barral", "Villamontaña"
OTHER = "petra.lindqvist@nordbank.example.org"
TEXT = f"""# Desk of {NAME}

Travel is booked by {NAME} ({EMAIL}, phone {PHONE}). The daily limit is 45 EUR.

Receipts go to {NAME}, {CITY}, before the 5th. Second contact: {OTHER}.

{"The desk keeps a record of every case in its own folder. " * 8}
"""
LABELLED = [
    (EMAIL, "EMAIL_ADDRESS"),
    (PHONE, "PHONE_NUMBER"),
    (NAME, "PERSON"),
    (CITY, "LOCATION"),
    (OTHER, "EMAIL_ADDRESS"),
]
WORDS = [EMAIL, PHONE, NAME, CITY, OTHER]


def write(home, pipeline=None):
    folder = home.corpora / "people" / "v1"
    (folder / "documents").mkdir(parents=True)
    (folder / "documents" / "desk.md").write_text(TEXT, "utf-8")
    (folder / "documents" / "plain.md").write_text("# Plain\n\nNobody is named here. Parking costs 3 EUR.\n", "utf-8")
    gold = home.corpora / "people" / "gold"
    spans = [
        {"start": m.start(), "end": m.end(), "type": kind}
        for term, kind in LABELLED
        for m in re.finditer(re.escape(term), TEXT)
    ]
    write_jsonl(gold / "pii.jsonl", [{"doc_id": "desk.md", "spans": sorted(spans, key=lambda s: s["start"])}])
    queries = [
        {"query_id": "q1", "text": f"Who is {NAME} and what is the daily limit?", "language": "en"},
        {"query_id": "q2", "text": f"May I write to {EMAIL}?", "language": "en"},
        {"query_id": "q3", "text": "What does parking cost?", "language": "en"},
    ]
    write_jsonl(gold / "queries.jsonl", queries)
    evidence = [
        {
            "query_id": "q1",
            "evidence_id": "e1",
            "doc_id": "desk.md",
            "quote": f"Travel is booked by {NAME} ({EMAIL}, phone {PHONE}).",
        },
        {
            "query_id": "q2",
            "evidence_id": "e1",
            "doc_id": "desk.md",
            "quote": f"Receipts go to {NAME}, {CITY}, before the 5th.",
        },
        {"query_id": "q3", "evidence_id": "e1", "doc_id": "plain.md", "quote": "Parking costs 3 EUR."},
    ]
    write_jsonl(gold / "evidence.jsonl", evidence)
    listed = [
        {
            "doc_id": "desk.md",
            "path": "desk.md",
            "title": f"Desk of {NAME}",
            "metadata": {"owner": NAME, "contact": [EMAIL]},
        },
        {"doc_id": "plain.md", "path": "plain.md"},
    ]
    write_jsonl(folder / "documents.jsonl", listed)
    section = {**QUICK, "pii": {"entities": ["EMAIL_ADDRESS", "PHONE_NUMBER"]}, **(pipeline or {})}
    (home.corpora / "people" / "corpus.yaml").write_text(
        json.dumps({"languages": ["en"], "pipeline": section}), "utf-8"
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The corpus, evaluated by the command in a process of its own, with Dagster's files on disk."""
    home = home_of(tmp_path_factory.mktemp("people"))
    write(home)
    done = rag_eval(home, "run", "people@v1")
    assert done.returncode == 0, done.stdout + done.stderr
    return home, done


def leaks(text: str) -> list[str]:
    """Labelled strings that stand in a text as whole tokens, in any case and with any white space, also as JSON writes them."""
    text = text + "\n" + re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    found = []
    for word in WORDS:
        pattern = r"\s+".join(re.escape(part) for part in word.split())
        if re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE):
            found.append(word)
    return found


def leaks_in(data: bytes) -> list[str]:
    forms = [form for word in WORDS for form in (word, json.dumps(word)[1:-1])]
    return [form for form in forms if form.encode() in data or form.encode("utf-16-le") in data]


def test_the_search_for_leaks_finds_them():
    assert leaks(f"x {NAME.upper()} y") == [NAME]
    assert leaks(json.dumps({"a": NAME})) == [NAME]
    assert leaks_in(json.dumps(TEXT).encode())
    assert not leaks("nothing")


def test_the_person_is_labelled_and_not_predicted(ran):
    """Else the tests below would only test the masking."""
    home, _ = ran
    subject = Subject.open(home, "people@v1")
    masked = dict(subject.frame("masked").select("doc_id", "text").iter_rows())["desk.md"]
    assert NAME in masked
    assert not leaks(masked.replace(NAME, "").replace(CITY, ""))


def test_every_predicted_span_is_masked_in_every_masked_column_of_the_store(ran):
    """By offsets in the clean text: what stands there is in no masked text and no chunk."""
    home, _ = ran
    subject = Subject.open(home, "people@v1")
    clean = dict(subject.frame("cleaned").select("doc_id", "text").iter_rows())
    spans = subject.frame("pii_spans").select("doc_id", "start", "end", "type").rows()
    predicted = {clean[doc][start:end] for doc, start, end, _ in spans}
    assert {EMAIL, PHONE, OTHER} <= predicted
    masked = subject.frame("masked")
    for doc, text, offsets in masked.select("doc_id", "text", "offsets").iter_rows():
        for mine, start, end, _ in spans:
            if mine != doc:
                continue
            over = [s for s in offsets if s["src_start"] < end and s["src_end"] > start]
            assert all(not s["exact"] for s in over if s["out_end"] > s["out_start"]), (
                "a predicted span is copied as it is"
            )
        assert not any(term in text for term in predicted)
    for text in subject.frame("chunks")["text"]:
        assert not any(term in text for term in predicted)


def test_the_database_holds_none(ran):
    import duckdb

    home, _ = ran
    assert leaks_in(home.database.read_bytes()) == []
    with duckdb.connect(str(home.database), read_only=True) as con:
        names = [row[0] for row in con.sql("SELECT table_name FROM information_schema.tables").fetchall()]
        assert len(names) > 40
        for name in names:
            rows = con.sql(f'SELECT * FROM "{name}"').fetchall()
            assert leaks(repr(rows)) == [], name
        shown = con.sql("SELECT text FROM current_chunks WHERE doc_id = 'desk.md'").fetchall()
    assert "<PII>" in repr(shown)
    assert "The daily limit is 45 EUR." in repr(shown)


def test_dagster_and_manifests_hold_none(ran):
    from rag_eval_pipeline.orchestration import running

    home, _ = ran
    files = [
        p
        for root in (home.dagster, home.manifests / "_evaluations", home.manifests / "_subjects")
        for p in root.rglob("*")
        if p.is_file()
    ]
    assert any(p.suffix == ".db" for p in files)
    for file in files:
        assert leaks_in(file.read_bytes()) == [], file
    with running.instance(home) as instance:
        (run,) = instance.get_runs()
        events = instance.all_logs(run.run_id)
        assert len(events) > 200
        assert leaks("\n".join(repr(event) for event in events)) == []
        assert leaks(repr(run)) == []


def test_reports_hold_none(ran):
    home, _ = ran
    reports = [path for path in home.root.rglob("*.html") if path.is_file() and home.corpora not in path.parents]
    assert reports
    for path in reports:
        assert leaks(path.read_text("utf-8")) == [], path
        assert leaks_in(path.read_bytes()) == [], path


def test_the_commands_show_none(ran):
    home, done = ran
    assert leaks(done.stdout + done.stderr) == []
    asks = [
        ("fate", "people@v1", "q1"), ("fate", "people@v1", "q2"), ("losses", "people@v1"), ("waterfall", "people@v1"),
        ("show", "people@v1", "desk.md"), ("show", "people@v1", "desk.md", "--stage", "parsed"), ("show", "people@v1", "desk.md", "--stage", "cleaned"),
        ("sql", "SELECT * FROM current_chunks"), ("sql", "SELECT * FROM queries"), ("sql", "SELECT * FROM documents"),
        ("validate", "people@v1"), ("plan", "people@v1"), ("evaluations",),
    ]  # fmt: skip
    code = "import sys, shlex, json\nfrom rag_eval_pipeline.cli import main\nfor a in json.load(sys.stdin):\n    sys.argv = ['rag-eval', *a]\n    print('$', a)\n    try: main()\n    except SystemExit as e: print('exit', e.code)\n"
    import sys

    from rag_eval_pipeline_tests.integration.house import environment

    said = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(asks),
        env=environment(home, COLUMNS="200"),
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    assert leaks(said.stdout + said.stderr) == []
    assert said.stdout.count("<PII>") >= 4
    assert "Traceback" not in said.stdout + said.stderr


def test_errors_and_failed_runs_hold_none(home):
    """A run that stops before its personal strings are collected is listed, and shows no text that nothing would redact."""
    import duckdb

    from rag_eval_pipeline.orchestration.sensors import record_failure
    from rag_eval_pipeline.stages.graph import STAGES

    write(home)
    subject = Subject.open(home, "people@v1", workers=0)
    for stage in STAGES[:-3]:
        subject.run(stage)
    assert record_failure("people@v1", "fusion_room") is None
    assert leaks_in(home.database.read_bytes()) == []
    with duckdb.connect(str(home.database), read_only=True) as con:
        assert con.sql("SELECT status, stopped_at FROM evaluations").fetchall() == [("failed", "fusion_room")]


@pytest.mark.full
def test_a_label_that_was_missing_hides_its_string_when_it_is_added(home):
    import duckdb

    write(home)
    labels = home.corpora / "people" / "gold" / "pii.jsonl"
    given = labels.read_text("utf-8")
    labels.write_text("", "utf-8")
    Run(home, "people@v1", database=True)
    assert CITY in leaks(home.database.read_bytes().decode("utf-8", "replace")), "nobody said that it is personal"
    labels.write_text(given, "utf-8")
    Run(home, "people@v1", database=True)
    assert leaks_in(home.database.read_bytes()) == []
    with duckdb.connect(str(home.database), read_only=True) as con:
        assert con.sql("SELECT count(*) FROM evaluations").fetchall() == [(2,)]
