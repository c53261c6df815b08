"""Release rules that can decide nothing are refused before anything runs, each with file and line."""

import json

import pytest

from rag_eval_pipeline.corpus.faults import CorpusError
from rag_eval_pipeline.stages.subject import Subject
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline_tests.small import write_corpus

HEAD = "languages: [en]\npipeline:\n  pii: null\n  retrieval: {bm25: {kind: bm25}}\n"


@pytest.fixture
def home(tmp_path):
    write_corpus(tmp_path / "corpora", documents=2)
    return Home(tmp_path, str(tmp_path / "warehouse"))


def open_with(home, *rules):
    body = HEAD + "gates:\n  rules:\n" + "".join(f"    - {json.dumps(rule)}\n" for rule in rules)
    (home.corpora / "small" / "corpus.yaml").write_text(body, "utf-8")
    return Subject.open(home, "small@v1")


def faults(home, *rules):
    with pytest.raises(CorpusError) as caught:
        open_with(home, *rules)
    return caught.value.faults


@pytest.mark.parametrize(
    ("rule", "field", "says"),
    [
        ({"metric": "recall", "min": -3}, "min", "always holds (recall lies in 0 … 1)"),
        ({"metric": "recall", "min": 0}, "min", "always holds"),
        ({"metric": "recall", "max": 1}, "max", "always holds"),
        ({"metric": "recall", "max_drop": 1}, "max_drop", "always holds"),
        ({"metric": "recall", "min": 1.5}, "min", "never holds"),
        ({"metric": "cer", "max": -0.1}, "max", "never holds"),
        ({"metric": "recal", "min": 0.5}, "metric", "'recal', which is none"),
        ({"metric": "recall", "min": 0.5, "retriever": "bm52"}, "retriever", "'bm52', which is none"),
        ({"metric": "recall", "min": 0.5, "k": 7}, "k", "cut-off 7, which is not measured"),
        ({"metric": "recall", "min": 0.5, "slice": {"langauge": "es"}}, "slice.langauge", "did you mean 'language'?"),
        ({"metric": "recall", "min": True}, "min", "found true; expected a number"),
        ({"metric": "recall", "max_drop": False}, "max_drop", "found false; expected a number"),
        ({"metric": "recall", "min": 0.5, "k": True}, "k", "found true; expected a number"),
    ],
)  # fmt: skip
def test_a_rule_that_can_decide_nothing_is_refused_with_its_line(home, rule, field, says):
    (fault,) = faults(home, {"metric": "recall", "k": 10, "max_drop": 0.05}, rule)
    assert (fault.file, fault.line, fault.field) == ("small/corpus.yaml", 8, f"gates.rules[1].{field}")
    assert says in str(fault)


def test_all_rules_are_judged_at_once(home):
    found = faults(home, {"metric": "recall", "min": -3}, {"metric": "recal", "min": 0.1})
    assert [fault.line for fault in found] == [7, 8]


def test_rules_that_may_fail_are_accepted(home):
    open_with(
        home,
        {
            "metric": "recall",
            "k": 10,
            "unit": "evidence",
            "retriever": "bm25",
            "slice": {"intent": "lookup"},
            "min": 0.85,
        },
        {"metric": "cer", "max": 3.0},
        {"metric": "recall", "slice": {"doc_class": "md"}, "max_rise": 0.5},
    )


def test_a_slice_value_that_nothing_has_is_a_warning_and_names_the_nearest(home):
    subject = open_with(
        home,
        {"metric": "recall", "min": 0.5, "slice": {"intent": "lokup"}},
        {"metric": "cer", "max": 0.1, "slice": {"doc_class": "scan"}},
    )
    told = [str(warning) for warning in subject.version.warnings if "gates" in warning.field]
    assert len(told) == 2
    assert "did you mean 'lookup'?" in told[0]
    assert "missing_evidence" in told[1]
