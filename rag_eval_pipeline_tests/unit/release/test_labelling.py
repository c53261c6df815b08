"""Proposed quotes are cut from the texts as they are, the answering sentence first; labels are never lost."""

import itertools
import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from rag_eval_pipeline.cli import console, labelling
from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.release.labelled import Finders, Work, accept_best, accept_file
from rag_eval_pipeline.release.labelling import Ask, Finder, Texts, passages
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.sizes import FULL
from rag_eval_pipeline_tests.small import write_jsonl

LEAVE = "# Leave\n\nFive unused days may be carried over to the next year. They must be taken by 31 March.\n\nThe fee for late requests is 8 USD. It is paid at the desk.\n"
PAY = "# Pay\n\nSalaries are paid on the 25th of each month. Bonuses are paid in March.\n"
TEXTS = Texts({"leave.md": LEAVE, "pay.md": PAY}, {})


@pytest.fixture
def home(tmp_path):
    documents = tmp_path / "corpora" / "my" / "v1" / "documents"
    documents.mkdir(parents=True)
    (documents / "leave.md").write_text(LEAVE, "utf-8")
    (documents / "pay.md").write_text(PAY, "utf-8")
    gold = tmp_path / "corpora" / "my" / "gold"
    write_jsonl(gold / "queries.jsonl", [
        {"query_id": "q1", "text": "How many days may be carried over?", "language": "en"},
        {"query_id": "q2", "text": "When are bonuses paid?", "language": "en"},
        {"query_id": "q3", "text": "What is the fee?", "language": "en"},
        {"query_id": "q4", "text": "Who won the cup?", "language": "en", "answerable": False},
    ])  # fmt: skip
    write_jsonl(
        gold / "answers_gold.jsonl",
        [{"query_id": "q1", "answers": ["five"]}, {"query_id": "q4", "answers": ["nobody"]}],
    )
    (gold / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq2\tpay.md\t1\n", "utf-8")
    write_jsonl(
        gold / "evidence.jsonl",
        [
            {
                "query_id": "q3",
                "evidence_id": "e1",
                "doc_id": "leave.md",
                "quote": "The fee for late request is 8 USD",
                "grade": 2,
                "critical": ["8 USD", "request"],
            }
        ],
    )
    return Home(tmp_path, str(tmp_path / "warehouse"))


def opened(home, **options):
    return Work.open(home, "my@v1", lambda *_: None, **options)


def evidence(home):
    return [json.loads(line) for line in (home.corpora / "my/gold/evidence.jsonl").read_text("utf-8").splitlines()]


def test_the_sentence_that_says_the_answer_comes_first_and_is_cut_as_it_is():
    finder = Finder(TEXTS, "en")
    best = finder.find(Ask("How many days may be carried over?", ("five",)))[0]
    assert (best.doc_id, best.text) == ("leave.md", "Five unused days may be carried over to the next year.")
    assert LEAVE[best.start : best.end] == best.text
    assert {best.text[s:e] for s, e in best.terms} >= {"Five", "days", "carried", "over"}
    assert finder.find(Ask("What is the fee?", ("8 USD",)))[0].text == "The fee for late requests is 8 USD."


def test_candidates_stay_in_the_documents_that_are_named_and_never_overlap_by_half():
    found = Finder(TEXTS, "en").find(Ask("When is it paid?", documents=("pay.md",)), 9)
    assert {candidate.doc_id for candidate in found} == {"pay.md"}
    spans = sorted((c.start, c.end) for c in found)
    assert all(
        min(e1, e2) - max(s1, s2) <= 0.5 * min(e1 - s1, e2 - s2) for (s1, e1), (s2, e2) in itertools.pairwise(spans)
    )


def test_a_quote_that_nearly_stands_somewhere_is_placed_first_in_the_texts_own_words():
    best = Finder(TEXTS, "en").find(Ask("When?", quote="Bonuses were paid in march"))[0]
    assert (best.doc_id, best.text) == ("pay.md", "Bonuses are paid in March")
    parsed = Texts({}, {"pay.pdf": PAY.replace("25th", "2Sth")})
    kept = Finder(parsed, "en").find(Ask("When?", quote="Salaries are paid on the 25th of each month."))[0]
    assert kept.text == "Salaries are paid on the 25th of each month.", (
        "what a person wrote is truer than what the parser read"
    )


def test_passages_are_neither_too_short_nor_too_long_and_lie_in_one_paragraph():
    long = "word " * 400
    for start, end in passages(LEAVE + "\n\n" + long):
        assert 15 <= end - start <= 600
        assert "\n\n" not in (LEAVE + "\n\n" + long)[start:end]


def test_what_is_to_label_is_what_has_an_answer_or_a_document_and_lines_without_a_place(home):
    tasks = {task.query_id: task for task in opened(home).tasks}
    assert {query: task.kind for query, task in tasks.items()} == {"q1": "propose", "q2": "propose", "q3": "mend"}
    assert tasks["q2"].ask.documents == ("pay.md",)


def test_best_candidates_are_kept_and_lines_mended_in_place(home):
    count, left = accept_best(work := opened(home), Finders(work).find, 0.3)
    assert (count, left) == (3, [])
    found = {row["query_id"]: row for row in evidence(home)}
    assert found["q1"]["quote"] == "Five unused days may be carried over to the next year."
    assert found["q2"] == {
        "query_id": "q2",
        "evidence_id": "e1",
        "doc_id": "pay.md",
        "quote": "Bonuses are paid in March.",
    }
    assert found["q3"] == {
        "query_id": "q3",
        "evidence_id": "e1",
        "doc_id": "leave.md",
        "quote": "The fee for late requests is 8 USD",
        "grade": 2,
        "critical": ["8 USD", "request"],
    }
    assert opened(home).tasks == []


def test_what_is_not_sure_enough_is_left(home):
    count, left = accept_best(work := opened(home), Finders(work).find, 1.0)
    assert count + len(left) == 3
    assert left


def test_each_label_is_on_disk_at_once_and_lines_of_others_stay_as_they_are(home):
    path = home.corpora / "my/gold/evidence.jsonl"
    odd = '{"query_id":"q3", "evidence_id":"e9","doc_id":"leave.md",   "quote":"It is paid at the desk."}\r\n'
    path.write_bytes(path.read_bytes() + odd.encode())
    work = opened(home)
    task = next(task for task in work.tasks if task.query_id == "q1")
    assert work.accept(task, "leave.md", "They must be taken by 31 March.") == "e1"
    assert odd.encode() in path.read_bytes()
    assert [row["query_id"] for row in evidence(home)] == ["q3", "q3", "q1"]
    assert [t.query_id for t in opened(home).tasks] == ["q2", "q3"], "resumed where it stopped"


def test_two_people_at_work_lose_nothing_of_each_other(home):
    one, other = opened(home), opened(home)
    one.accept(one.tasks[0], "leave.md", "They must be taken by 31 March.")
    assert other.accept(other.tasks[0], "leave.md", "Five unused days may be carried over to the next year.") == "e2"
    other.accept(other.tasks[1], "pay.md", "Bonuses are paid in March.")
    assert len(evidence(home)) == 4


def test_skipped_questions_are_asked_again_only_on_demand_and_the_last_label_can_be_taken_back(home):
    work = opened(home)
    work.skip(work.tasks[0])
    work.accept(work.tasks[1], "pay.md", "Bonuses are paid in March.")
    assert [task.query_id for task in opened(home).tasks] == ["q3"]
    assert [task.query_id for task in opened(home, again=True).tasks] == ["q1", "q3"]
    assert work.undo().query_id == "q2"
    assert [task.query_id for task in opened(home).tasks] == ["q2", "q3"]
    assert work.undo() is None


def test_a_quote_that_stands_twice_says_which_place_is_meant(home):
    path = home.corpora / "my/v1/documents/pay.md"
    path.write_text(PAY + "\nBonuses are paid in March.\n", "utf-8")
    work = opened(home)
    task = next(task for task in work.tasks if task.query_id == "q2")
    candidate = Finders(work).find(task.ask)[0]
    work.accept(task, candidate.doc_id, candidate.text, candidate.start)
    assert evidence(home)[-1]["start"] == candidate.start


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_quotes_of_a_file_are_taken_all_or_none(home, tmp_path, form):
    rows = [
        {"query_id": "q1", "quote": "They must be taken by 31 March.", "doc_id": "leave"},
        {"query_id": "q2", "quote": "bonuses are paid in may", "doc_id": ""},
    ]
    path = tmp_path / f"quotes.{form}"

    def write():
        if form == "jsonl":
            write_jsonl(path, rows)
        else:
            path.write_text(
                "query_id;quote;doc_id\n" + "".join(f"{r['query_id']};{r['quote']};{r['doc_id']}\n" for r in rows),
                "utf-8",
            )

    before = evidence(home)
    write()
    with pytest.raises(CorpusError) as caught:
        accept_file(opened(home, everything=True), path)
    (fault,) = caught.value.faults
    assert (fault.file, fault.line, fault.field) == (path.name, 2 if form == "jsonl" else 3, "quote")
    assert "similarity" in fault.found
    assert evidence(home) == before
    rows[1]["quote"] = "Bonuses are paid in March."
    write()
    assert accept_file(opened(home, everything=True), path) == 2
    assert {row["query_id"] for row in evidence(home)} == {"q1", "q2", "q3"}


def test_a_file_of_quotes_with_an_open_quote_or_a_huge_cell_is_refused_whole(home, tmp_path):
    before, path = evidence(home), tmp_path / "quotes.csv"
    for body, line, field in (
        ('q1;"Bonuses;x\nq2;b;c\n', 2, ""),
        (f"q1;{'x' * 200_000};pay.md\n", 2, "quote"),
        (f"{'q' * 200_000};b;c\n", 2, "query_id"),
    ):
        path.write_text("query_id;quote;doc_id\n" + body, "utf-8")
        with pytest.raises(CorpusError) as caught:
            accept_file(opened(home, everything=True), path)
        (fault,) = caught.value.faults
        assert (fault.line, fault.field) == (line, field)
        assert len(str(caught.value)) < 1000
    assert evidence(home) == before


def sitting(home, keys, lines=()):
    """A session whose keys and lines are given beforehand; returns what was shown."""
    pressed, written = iter(keys), iter(lines)
    with console.capture() as shown:
        labelling._Session(work := opened(home), Finders(work), lambda: next(pressed), lambda *_: next(written)).run()
    return shown.get()


def test_keys_accept_skip_take_back_and_end(home):
    shown = sitting(home, ["\r", "u", "s", "1", "q"])
    assert "3 to label" in shown
    assert "1 labelled, 1 left" in shown
    assert {row["query_id"] for row in evidence(home)} == {"q2", "q3"}
    assert [task.query_id for task in opened(home).tasks] == ["q3"]


def test_an_edited_quote_is_kept_only_where_it_has_a_place(home):
    shown = sitting(
        home,
        ["x", "e", "1", "e", "1", "q"],
        ["They must be taken by May.", "They must be taken by 31 March."],
    )
    assert "similarity" in shown
    assert "1–9 or Enter: accept" in shown.split("1/3")[1], "an unknown key says which there are"
    assert [row["quote"] for row in evidence(home) if row["query_id"] == "q1"] == ["They must be taken by 31 March."]


def test_signs_that_steer_a_terminal_are_shown_and_not_obeyed(home):
    path = home.corpora / "my/v1/documents/pay.md"
    path.write_text(PAY.replace("Bonuses are", "Bonuses \x1b[31mare"), "utf-8")
    shown = sitting(home, ["s", "m", "q"])
    assert "\\x1b[31m" in shown
    assert "\x1b[31mare" not in shown


@pytest.mark.full
def test_a_person_labels_by_key_in_the_terminal(home):
    """Enter accepts, s skips, u takes back, q ends; each decision is on disk when the next question is shown."""
    master, slave = pty.openpty()
    environment = {**os.environ, "RAG_EVAL_DATA": str(home.root), "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from rag_eval_pipeline.cli import main; main()", "label", "my@v1"],
        stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True,
    )  # fmt: skip
    os.close(slave)
    screen = ""

    def until(words, seconds=180):
        nonlocal screen
        end = time.monotonic() + seconds
        while words not in screen and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                try:
                    screen += os.read(master, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert words in screen, screen
        screen = screen.split(words, 1)[1]

    def press(key, words):
        """Press until it is heard: a key before the program listens is lost, as in any terminal program."""
        for _ in range(6):
            os.write(master, key.encode())
            try:
                return until(words, 30)
            except AssertionError:
                continue
        raise AssertionError(f"{key!r} did not lead to {words!r}")

    until("carried")
    press("\r", "2/3 q2")
    assert {row["query_id"] for row in evidence(home)} == {"q3", "q1"}
    press("u", "1/3 q1")
    assert {row["query_id"] for row in evidence(home)} == {"q3"}
    press("s", "2/3 q2")
    press("1", "3/3 q3")
    press("q", "1 labelled, 1 left")
    assert process.wait(60) == 0
    os.close(master)
    assert [task.query_id for task in opened(home).tasks] == ["q3"]


@pytest.mark.parametrize("language", ["en", "es"])
def test_on_a_real_set_the_first_candidates_hold_the_answer(shared, language):
    """xquad: questions with their answer, the whole set's paragraphs as documents."""
    articles = json.loads(shared("data", "xquad", f"xquad.{language}.half.json").read_text("utf-8"))["data"]
    items = [paragraph for article in articles for paragraph in article["paragraphs"]]
    items = items if FULL else items[:25]
    texts = Texts({f"d{n:03}": item["context"] for n, item in enumerate(items)}, {})
    finder, first, among, asked = Finder(texts, language), 0, 0, 0
    for number, item in enumerate(items):
        for question in item["qas"][: None if FULL else 2]:
            answer = question["answers"][0]
            place = answer["answer_start"], answer["answer_start"] + len(answer["text"])
            found = finder.find(Ask(question["question"], (answer["text"],), language=language))
            right = [c.doc_id == f"d{number:03}" and c.start <= place[0] and place[1] <= c.end for c in found]
            first, among, asked = first + bool(right and right[0]), among + any(right), asked + 1
    assert first / asked >= (0.85 if FULL else 0.8)
    assert among / asked >= (0.95 if FULL else 0.9)
