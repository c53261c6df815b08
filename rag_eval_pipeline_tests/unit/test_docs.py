"""The docs say what the code says: keys and defaults, metrics, gold files, examples, links, and SQL that runs."""

import inspect
import json
import re
import unicodedata
from pathlib import Path

import pytest
import yaml

from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.corpus.labels import KNOWN, split_columns
from rag_eval_pipeline.corpus.lines import GOLD_LINES, OUTPUT_LINES, DocumentLine, RunLine
from rag_eval_pipeline.corpus.outputs import KNOWN as KNOWN_OUTPUTS
from rag_eval_pipeline.corpus.predicates import OPERATORS, validate_predicate
from rag_eval_pipeline.corpus.settings import Evaluate, Gates, Ledger, Publish, Rule, Settings
from rag_eval_pipeline.release.compared import COMPARED
from rag_eval_pipeline.release.dictionary import markdown
from rag_eval_pipeline.release.evaluated import EVALUATED, metrics_of, schemas
from rag_eval_pipeline.release.redaction import TERMS
from rag_eval_pipeline.release.scorecard import Scorecard
from rag_eval_pipeline.stages.answering.transform import Answerer
from rag_eval_pipeline.stages.chunking.transform import Splitter
from rag_eval_pipeline.stages.cleaning.transform import Cleaner
from rag_eval_pipeline.stages.enriching.transform import LanguageDetector
from rag_eval_pipeline.stages.filtering.transform import Extractor
from rag_eval_pipeline.stages.fusion.transform import ConvexLane, RrfLane
from rag_eval_pipeline.stages.graph import STAGES, configure
from rag_eval_pipeline.stages.parsing.transform import Parser
from rag_eval_pipeline.stages.reranking.transform import Reranker
from rag_eval_pipeline.stages.retrieval.transform import Bm25Lane, ClassLane, DenseLane, ImportLane, Searcher
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.warehouse.manifests import Manifest
from rag_eval_pipeline.warehouse.publish import publish
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import Store
from rag_eval_pipeline.warehouse.table import conform, polars_schema

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
OURS = ("architecture", "attribution", "corpus", "measures", "sql")
FENCE = re.compile(r"^```(\S*) *(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANES = (Bm25Lane, DenseLane, ImportLane, ClassLane, RrfLane, ConvexLane)
SECTIONS = {f"pipeline.{stage.name}": stage.config for stage in STAGES if stage.name != "retrieval"}
SECTIONS |= {"evaluate": Evaluate, "ledger": Ledger, "publish": Publish}
EXAMPLES = {
    "PlainParser": (Parser, "parse"),
    "Accents": (LanguageDetector, "detect"),
    "NoFooter": (Cleaner, "clean"),
    "Paragraphs": (Splitter, "split"),
    "ByTitle": (Extractor, "extract"),
    "SharedWords": (Searcher, "search"),
    "Shortest": (Reranker, "rerank"),
    "FirstPassage": (Answerer, "answer"),
}


def page(name):
    return (DOCS / f"{name}.md").read_text("utf-8")


def plain(name):
    """A page without its code blocks."""
    return FENCE.sub("", page(name))


def fences(name, language):
    """(rest of the opening line, content) of the code blocks in a language."""
    return [(rest, body) for lang, rest, body in FENCE.findall(page(name)) if lang == language]


def section(name, title):
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", plain(name), re.MULTILINE | re.DOTALL)
    assert found, f"docs/{name}.md has no heading {title!r}"
    return found[1]


def rows(text):
    """Rows of tables whose first cell is code: name -> the other cells."""
    found = re.findall(r"^\| `([^`|]+)` \| (.*) \|$", text, re.MULTILINE)
    return {name: re.split(r" \| ", cells) for name, cells in found}


def keys_of(model):
    """Key as written -> default; `...` where it is required."""
    return {
        field.alias or name: ... if field.is_required() else field.get_default(call_default_factory=True)
        for name, field in model.model_fields.items()
    }


def plain_default(value):
    return json.loads(json.dumps(value, default=list))


def says_default(cell, default):
    """Whether a table's cell says this default. A cell in words says that it is none of the user's business."""
    if default is ...:
        return cell == "required"
    written = re.fullmatch(r"`(.*)`", cell)
    if not written:
        return False
    return written[1] == default or yaml.safe_load(written[1]) == plain_default(default)  # `off` is text in corpus.yaml


# Keys ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_of_a_section_stands_in_its_table_with_its_default(title):
    documented, model = rows(section("corpus", f"`{title}`")), SECTIONS[title]
    assert documented.keys() == keys_of(model).keys()
    wrong = {
        key: (documented[key][0], default)
        for key, default in keys_of(model).items()
        if documented[key][0] != "set by the graph" and not says_default(documented[key][0], default)
    }
    assert not wrong


def test_every_key_of_every_kind_of_lane_is_documented():
    documented = rows(section("corpus", "`pipeline.retrieval`"))
    declared = {key for lane in LANES for key in keys_of(lane)}
    assert documented.keys() == declared
    for key, cells in documented.items():
        defaults = [keys_of(lane)[key] for lane in LANES if key in keys_of(lane)]
        assert key == "kind" or any(says_default(cells[0], default) for default in defaults), (key, cells[0], defaults)


def test_gates_and_the_top_level_are_documented():
    documented = rows(section("corpus", "`gates`"))
    assert documented.keys() == keys_of(Gates).keys() | keys_of(Rule).keys()
    for key, default in (keys_of(Gates) | keys_of(Rule)).items():
        assert says_default(documented[key][0], default), (key, documented[key][0], default)
    assert rows(section("corpus", "Top level")).keys() == keys_of(Settings).keys()


def test_examples_of_settings_are_accepted():
    for name in OURS:
        for _, body in fences(name, "yaml"):
            configure(Settings(**yaml.safe_load(body)))


# Gold and outputs ------------------------------------------------------------------------------------------------------


def test_every_gold_file_is_documented():
    text = page("corpus")
    for name in KNOWN:
        assert name in text, name
    for name in set(SCHEMAS) - {"references"}:
        assert re.search(rf"\b{name}(\.jsonl|\.tsv|/)", text), name


def test_every_output_file_is_documented():
    text = page("corpus")
    assert [name for name in KNOWN_OUTPUTS if name not in text] == []


def test_every_gold_and_output_file_has_an_example_that_is_valid():
    shown = {}
    for rest, body in fences("corpus", "jsonl"):
        folder, _, file = rest.rpartition("/")
        for line in body.splitlines():
            shown.setdefault((folder, Path(file).stem), []).append(json.loads(line))
    models = {("gold", name): model for name, model in GOLD_LINES.items()}
    models |= {("outputs", name): model for name, model in OUTPUT_LINES.items()}
    models |= {("", "documents"): DocumentLine, ("outputs/runs", "mine"): RunLine}
    assert shown.keys() == models.keys()
    for key, lines in shown.items():
        for line in lines:
            models[key].model_validate(line)
    assert {rest for rest, _ in fences("corpus", "tsv")} == {"gold/qrels.tsv", "gold/chunk_qrels.tsv"}
    for _, body in fences("corpus", "tsv"):
        assert len({len(split_columns(line)) for line in body.splitlines()}) == 1


def test_forms_of_predicates_are_valid_and_complete():
    forms = re.findall(r"^\| `(\{[^…]*?\})` \|", section("corpus", "Predicates"), re.MULTILINE)
    for form in forms:
        validate_predicate(json.loads(form))
    assert all(f'"{operator}"' in " ".join(forms) for operator in OPERATORS)


# Measures and the house ------------------------------------------------------------------------------------------------


def test_every_declared_metric_is_documented_and_no_other():
    declared = {metric.name for stage in STAGES if stage.has_quality for metric in metrics_of(stage.name)}
    tables = re.findall(r"^\| metric \|.*\n\|[-| ]*\|\n((?:\|.*\n)+)", plain("measures"), re.MULTILINE)
    documented = {name for text in tables for name in rows(text)}
    assert documented == declared


def test_every_column_of_the_scorecard_and_every_stage_and_table_is_documented():
    scorecard = section("measures", "Scorecard")
    for name in polars_schema(Scorecard).keys() - {"stage", "retriever", "metric", "unit", "k", "params", "item_type"}:
        assert name in scorecard or name in {"slice_value", "better", "description"}, name
    house = page("architecture")
    for stage in STAGES:
        cells = rows(section("architecture", "The graph"))[stage.name]
        assert (cells[0], cells[1], cells[3]) == (stage.phase, ", ".join(stage.reads) or "–", ", ".join(stage.tables))
    for step in (*EVALUATED, *COMPARED):
        assert all(name in house or name.endswith("_quality") for name in step.tables), step.name
    beside = house.partition("Beside them, from")[2].partition("Below all")[0]
    assert set(re.findall(r"`(\w+)`", beside)) <= {name for step in EVALUATED for name in step.tables}


def test_the_house_says_which_rooms_lack_a_door():
    rooms = Path(inspect.getfile(Stage)).parent
    lines = rows(section("architecture", "Rooms and doors"))
    for door in ("quality", "evidence"):
        lacking = {stage.name for stage in STAGES if not (rooms / stage.name / f"{door}.py").exists()}
        told = re.search(r"[^.;]* have none", lines[f"{door}.py"][0])
        assert set(re.findall(r"`(\w+)`", told[0] if told else "")) == lacking, door


def test_the_data_dictionary_says_what_is_declared():
    assert page("tables") == markdown(), "write it anew: rag-eval tables --markdown > docs/tables.md"
    told = re.findall(r"^### (\w+)$", page("tables"), re.MULTILINE)
    quality = {name for name in schemas() if name.endswith("_quality")}
    assert sorted(told) == sorted(set(schemas()) - quality)
    assert all(f"`{name}`" in page("tables") for name in quality)


def test_own_classes_have_the_methods_of_their_protocols():
    blocks = [body for _, body in fences("architecture", "python")]
    names: dict = {}
    exec(compile("\n".join(blocks), "my_rag.py", "exec"), names)
    for name, (protocol, method) in EXAMPLES.items():
        expected = list(inspect.signature(getattr(protocol, method)).parameters)
        assert list(inspect.signature(getattr(names[name], method)).parameters) == expected, name
        assert f"my_rag:{name}" in page("architecture")


# Links -----------------------------------------------------------------------------------------------------------------


def anchors(text):
    """Anchors as GitHub makes them of headings."""
    made = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE):
        kept = "".join(c for c in heading.lower() if c in "-_ " or unicodedata.category(c)[0] in "LN")
        made.add(kept.replace(" ", "-"))
    return made


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_relative_links_resolve(path):
    text = FENCE.sub("", path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text("utf-8")), target


def test_no_page_names_a_place_on_somebodys_machine():
    for name in OURS:
        assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users)/", page(name)), name


# SQL -------------------------------------------------------------------------------------------------------------------


def statements():
    return [body for _, body in fences("sql", "sql")]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Every table, declared and without rows, as a run publishes it."""
    root = tmp_path_factory.mktemp("docs")
    store, tables = Store(root / "store"), {}
    made_by_stages = {name for stage in STAGES for name in stage.tables}
    for name, schema in schemas().items():
        kind = "pipeline_id" if name in made_by_stages else "evaluation_id"
        stored = store.write(schema, conform(schema, []), "nimbara@2026-10", "x", kind)
        entry = {"path": store.url(stored), "content_hash": stored.content_hash, "rows": 0, "kind": kind, "id": "x"}
        tables[name] = entry
    shown = {name: schema for name, schema in schemas().items() if name != TERMS}
    manifest = Manifest("nimbara@2026-10", "x", "complete", tables, {}, {}, "g", "d", "2026-01-01")
    publish(root / "docs.duckdb", [manifest], {}, shown, store, lambda _subject: Redactor([]))
    return root / "docs.duckdb"


def ask(path, statement):
    import duckdb

    with duckdb.connect(str(path), read_only=True) as con:
        return con.sql(statement).pl()


def test_there_are_questions_and_each_has_one_statement():
    assert len(statements()) >= 12
    assert all(body.count(";") == 1 for body in statements())


@pytest.mark.parametrize("statement", statements(), ids=lambda text: " ".join(text.split())[:40])
def test_statements_run_on_the_declared_tables(database, statement):
    assert ask(database, statement).width > 0


def test_every_object_that_the_page_lists_is_there(database):
    there = set(ask(database, "SELECT table_name FROM information_schema.tables")["table_name"])
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", plain("sql"), re.MULTILINE)))
    assert {name for name in named if not name.startswith("evidence_")} <= there


@pytest.mark.full
@pytest.mark.integration
def test_statements_run_on_a_real_evaluation(tmp_path):
    from rag_eval_pipeline_tests.integration.house import Run, home_of
    from rag_eval_pipeline_tests.small import write_corpus

    write_corpus(tmp_path / "corpora", corpus="nimbara", version="2026-10")
    home = home_of(tmp_path)
    Run(home, "nimbara@2026-10", database=True)
    found = {}
    for number, _, body in re.findall(
        r"^## (\d+)\. (.*?)\n.*?^```sql\n(.*?)^```$", page("sql"), re.MULTILINE | re.DOTALL
    ):
        found[int(number)] = ask(home.database, body.replace("'hybrid'", "'both'")).height
    assert found.keys() == set(range(1, len(statements()) + 1))
    assert found[3] == 0, "the books balance"
    # Nothing is lost in the small corpus at the k of the questions, so questions about losses have no rows.
    assert all(found[number] for number in (1, 2, 6, 9, 10, 12, 15)), found
