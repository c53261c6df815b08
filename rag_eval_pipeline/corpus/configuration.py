"""Read corpus.yaml and lay a candidate pipeline over it; faults name file, line and the nearest known key.

What the settings are belongs in `settings`; a stage's own section is validated by the stage, with `Marks.report`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rag_eval_pipeline.corpus.checks import find_cycle
from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.corpus.faults import Faults, suggestion
from rag_eval_pipeline.corpus.jsonl import describe, report
from rag_eval_pipeline.corpus.layout import Layout, list_pipelines
from rag_eval_pipeline.corpus.settings import PIPELINE_SECTIONS, Settings
from rag_eval_pipeline.engine.plugins import is_import_path, why_no_component

LIMIT = 2**20
NODES = 100_000
LARGEST = 2**53
LANE_NAME = 100
SWITCHED_BY_NULL = frozenset({"dedup", "pii", "filtering", "reranking", "answering", "judging"})
COMPONENTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("parsing", "parser"): ("parse",),
    ("parsing", "candidates"): ("parse",),
    ("enriching", "detector"): ("detect",),
    ("metadata", "extractor"): ("name",),
    ("cleaning", "html"): ("clean",),
    ("cleaning", "candidates"): ("clean",),
    ("pii", "recognizers"): (),
    ("chunking", "splitter"): ("split",),
    ("filtering", "extractor"): ("extract",),
    ("retrieval", "kind"): ("search",),
    ("reranking", "reranker"): ("rerank", "bind"),
    ("answering", "answerer"): ("answer",),
}
"""Section and field that may hold an import path of the user's own, and the method that its class has."""

Loc = tuple[int | str, ...]


class _Loader(yaml.SafeLoader):
    """Safe YAML where `off`, `no` and dates are text, as in YAML 1.2."""


_Loader.yaml_implicit_resolvers = {
    letter: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"}
    ]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


@dataclass
class Marks:
    """File and line of every key of the settings as laid over each other."""

    lines: dict[Loc, tuple[str, int]] = field(default_factory=dict)
    fallback: str = "corpus.yaml"

    def at(self, loc: Loc) -> tuple[str, int | None]:
        """Where a key was written; for one that was not, where its nearest parent was."""
        for length in range(len(loc), 0, -1):
            if (place := self.lines.get(loc[:length])) is not None:
                return place
        return self.fallback, None

    def report(self, error: ValidationError, model: type[BaseModel], prefix: Loc, faults: Faults) -> None:
        """Turn the pydantic errors of a section's model into faults with the file and line of each key."""
        for item in error.errors(include_url=False):
            loc = (*prefix, *(part for part in item["loc"] if not (isinstance(part, str) and "[" in part)))
            file, line = self.at(loc)
            one = ValidationError.from_exception_data(error.title, [_detail(item)])
            report(one, model, file, line, faults, prefix)


def _detail(item: Any) -> Any:
    detail = {"type": item["type"], "loc": item["loc"], "input": item["input"]}
    return {**detail, "ctx": item["ctx"]} if "ctx" in item else detail


def load_settings(layout: Layout, faults: Faults) -> tuple[Settings, Marks]:
    """corpus.yaml (absent: all defaults), the version's own one laid over it, and `pipelines/<name>.yaml` over both."""
    base = layout.corpus / "corpus.yaml"
    marks = Marks(fallback=layout.name(base))
    value = _read(layout, base, marks, faults) if base.exists() or base.is_symlink() else {}
    own = layout.version / "corpus.yaml"
    if own.exists() or own.is_symlink():
        own_marks = Marks()
        value = lay_over(value, _read(layout, own, own_marks, faults))
        marks.lines.update(own_marks.lines)
    if layout.key.pipeline != "default":
        over = layout.corpus / "pipelines" / f"{layout.key.pipeline}.yaml"
        if over.is_file():
            over_marks = Marks()
            value = lay_over(value, _read(layout, over, over_marks, faults))
            marks.lines.update(over_marks.lines)
        else:
            known = list_pipelines(layout.corpora, layout.key.corpus)
            hint = suggestion(layout.key.pipeline, known)
            faults.add(layout.name(over), None, "", "no such file", "the pipeline's settings", hint)
    return _settings(value, marks, faults), marks


def lay_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Deep merge: mappings key by key, anything else (lists and null too) replaces.

    A mapping that names another `kind` replaces as well: what an HNSW index or a rank fusion is told means nothing to another
    kind.
    """
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, dict) and isinstance(value, dict) and not _other_kind(below, value):
            value = lay_over(below, value)
        merged[name] = value
    return merged


def _other_kind(below: dict[str, Any], value: dict[str, Any]) -> bool:
    return "kind" in below and value.get("kind", below["kind"]) != below["kind"]


def _settings(value: dict[str, Any], marks: Marks, faults: Faults) -> Settings:
    before = len(faults.errors)
    _check_values(value, (), marks, faults)
    _check_pipeline(value.get("pipeline"), marks, faults)
    # A section set to null is the section by its defaults.
    given = {
        name: section for name, section in value.items() if section is not None or name not in Settings.model_fields
    }
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        marks.report(error, Settings, (), faults)
        return Settings()
    return settings if len(faults.errors) == before else Settings()


def _check_values(value: Any, loc: Loc, marks: Marks, faults: Faults) -> None:
    """Only what JSON knows: whole numbers that every table holds, finite ones, text without halves of characters."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_values(inner, (*loc, name), marks, faults)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check_values(inner, (*loc, number), marks, faults)
    elif isinstance(value, str):
        if any(unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t" for character in value):
            faults.add(*marks.at(loc), dotted_loc(loc), "control characters or half of a surrogate pair", "plain text")
    elif isinstance(value, int | float):
        if not (math.isfinite(value) and abs(value) <= LARGEST):
            faults.add(*marks.at(loc), dotted_loc(loc), "a number out of range", "a finite one within ±2^53")
    elif value is not None:
        found = f"a YAML value of type {type(value).__name__}"
        faults.add(*marks.at(loc), dotted_loc(loc), found, "text, number, true, false, null, list or mapping")


def _check_pipeline(pipeline: Any, marks: Marks, faults: Faults) -> None:
    """Each section is a known mapping or null, and the components that it names by import path can be found."""
    for name, section in pipeline.items() if isinstance(pipeline, dict) else ():
        loc = ("pipeline", name)
        if name not in PIPELINE_SECTIONS:
            faults.add(
                *marks.at(loc), dotted_loc(loc), "an unknown stage", "a known one", suggestion(name, PIPELINE_SECTIONS)
            )
        elif section is not None and not isinstance(section, dict):
            hint = f"write `{name}: null` to switch it off" if section is False and name in SWITCHED_BY_NULL else ""
            faults.add(*marks.at(loc), dotted_loc(loc), describe(section), "a mapping of settings, or null", hint)
        elif name == "retrieval":
            _check_lanes(section or {}, marks, faults)
        elif name == "reranking":
            _check_names((section or {}).get("lanes"), (*loc, "lanes"), marks, faults)
    _check_components(pipeline, ("pipeline",), marks, faults)


def _check_lanes(lanes: dict[str, Any], marks: Marks, faults: Faults) -> None:
    """The form of the lanes, so that what they name can be followed: each has a kind, and none reads itself."""
    reads: dict[str, list[str]] = {}
    for name, lane in lanes.items():
        loc: Loc = ("pipeline", "retrieval", name)
        if not name.strip() or len(name) > LANE_NAME or not name.isprintable():
            faults.add(*marks.at(loc), dotted_loc(loc), "a lane's name", f"1 to {LANE_NAME} characters on one line")
        if not isinstance(lane, dict):
            hint = "such as {kind: bm25}"
            faults.add(*marks.at(loc), dotted_loc(loc), describe(lane), "a mapping with `kind`", hint)
            continue
        if not isinstance(lane.get("kind"), str):
            found = describe(lane["kind"]) if "kind" in lane else "no such field"
            known = "bm25, dense, import, rrf, convex or package.module:Class"
            faults.add(*marks.at((*loc, "kind")), dotted_loc((*loc, "kind")), found, known)
        elif _check_names(lane.get("lanes"), (*loc, "lanes"), marks, faults):
            reads[name] = [inner for inner in lane.get("lanes") or () if inner in lanes]
    if cycle := find_cycle(reads):
        place = ("pipeline", "retrieval", cycle[0], "lanes")
        faults.add(
            *marks.at(place), dotted_loc(place), f"a lane that reads itself: {' → '.join(cycle)}", "no cycle",
            "remove one of these lanes",
        )  # fmt: skip


def _check_names(value: Any, loc: Loc, marks: Marks, faults: Faults) -> bool:
    """Whether a list of lanes' names, where it is given, is one."""
    sound = value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))
    if not sound:
        faults.add(*marks.at(loc), dotted_loc(loc), describe(value), "a list of lanes' names")
    return sound


def _check_components(value: Any, loc: Loc, marks: Marks, faults: Faults) -> None:
    """The user's own components exist, as far as one can tell without importing them."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    ):
        place = (*loc, name)
        methods = COMPONENTS.get((str(place[1]), str(loc[-1] if isinstance(name, int) else name)))
        if methods is not None and isinstance(inner, str) and is_import_path(inner):
            _check_component(inner, methods, place, marks, faults)
        _check_components(inner, place, marks, faults)


def _check_component(path: str, methods: tuple[str, ...], loc: Loc, marks: Marks, faults: Faults) -> None:
    if (why := why_no_component(path, methods)) is not None:
        wanted = f"a class with a method `{methods[0]}`" if methods else "a class"
        hint = "write package.module:Class; its module must be installed in this environment, or its folder be on PYTHONPATH"
        faults.add(*marks.at(loc), dotted_loc(loc), f"{path!r}, {why}", wanted, hint)


def _read(layout: Layout, path: Path, marks: Marks, faults: Faults) -> dict[str, Any]:
    file = layout.name(path)
    if not layout.stays(path):
        faults.add(file, None, "", "a link that leaves the corpus", "a file of the corpus", "copy it into the corpus")
        return {}
    if not path.is_file():
        faults.add(file, None, "", "no file", "a YAML file", "remove it or write one")
        return {}
    if path.stat().st_size > LIMIT:
        faults.add(
            file, None, "", f"{path.stat().st_size:,} bytes", f"at most {LIMIT:,}", "keep data out of the settings"
        )
        return {}
    try:
        loader = _Loader(decode(path.read_bytes())[0])
        node = loader.get_single_node()
        if node is None:
            return {}
        if not _walk(node, (), file, marks, faults, [0]):
            return {}
        value = loader.construct_document(node)
    except RecursionError:
        faults.add(file, None, "", "YAML nested too deep, or an alias inside of itself", "a few levels of mappings")
        return {}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:  # PyYAML's own tags raise all of these
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
        at = getattr(error, "position", None)
        hint = (
            "see that line" if mark else f"see character {at + 1} of the file" if at is not None else "see its values"
        )
        faults.add(file, mark.line + 1 if mark else None, "", f"invalid YAML ({problem})", "valid YAML", hint)
        return {}
    if not isinstance(value, dict):
        faults.add(file, 1, "", describe(value), "a mapping of sections")
        return {}
    return value


def _walk(node: yaml.Node, loc: Loc, file: str, marks: Marks, faults: Faults, count: list[int]) -> bool:
    """Note the line of every key; false where the file can't be read as plain settings."""
    count[0] += 1
    # Aliases are walked as often as they are used: the bound stops files that unfold without end.
    if count[0] > NODES:
        if count[0] == NODES + 1:
            faults.add(file, node.start_mark.line + 1, "", "aliases that unfold too far", f"at most {NODES:,} values")
        return False
    sound = True
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                if key.tag == "tag:yaml.org,2002:merge":
                    sound = _walk(value, loc, file, marks, faults, count) and sound
                    continue
                faults.add(file, line, dotted_loc((*loc, name)), "a key that is no text", "a name", "quote it")
                sound = False
                continue
            if name in seen:
                faults.add(file, line, dotted_loc((*loc, name)), "the key twice", "once", "remove one of them")
                sound = False
            seen.add(name)
            marks.lines[*loc, name] = file, line
            sound = _walk(value, (*loc, name), file, marks, faults, count) and sound
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            marks.lines[*loc, number] = file, item.start_mark.line + 1
            sound = _walk(item, (*loc, number), file, marks, faults, count) and sound
    return sound


def dotted_loc(loc: Loc) -> str:
    """`pipeline.pii.entities[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def commented_default_yaml(languages: tuple[str, ...] = ("en", "es"), rules: Sequence[str] | None = None) -> str:
    """The text of a corpus.yaml that says every default and what it means; with other release rules, if any are given."""
    text = _DEFAULT.replace("[en, es]", f"[{', '.join(languages)}]")
    if rules is None:
        return text
    lines = "".join(f"    - {rule}\n" for rule in rules)
    none = "  rules: []                      # such as {metric: recall, k: 10, max_drop: 0.05}\n"
    return text.replace(_RULES, f"  rules:\n{lines}" if rules else none)


_RULES = """\
  rules:
    - {metric: recall, k: 10, unit: evidence, max_drop: 0.05}
    - {metric: filter_false_exclusion_rate, max: 0.10}
    - {metric: cer, slice: {doc_class: scan}, max: 0.08}
"""
_DEFAULT = """\
# What is evaluated, how, and when a release passes. Every key has a default: what you leave out is as written here.
# A candidate pipeline is a file pipelines/<name>.yaml with any of these sections, laid over this one
# (mappings merge unless their `kind` differs, everything else replaces, null switches off): rag-eval run <corpus>@<version>#<name>

languages: [en, es]              # of documents and queries: analysers, stop words, sentence splitters

pipeline:                        # a component is a built-in name or an import path package.module:Class of your own
  parsing:                       # import: true takes outputs/parsed.jsonl instead of running a parser
    parser: pypdfium2
    ocr: auto                    # auto | tesseract | rapidocr | none
  cleaning:
    html: trafilatura
    unicode: nfc
  dedup:                         # null: nothing is removed
    shingle: 5                   # characters
    num_perm: 128
    threshold: 0.8               # Jaccard
    verify: exact                # exact | minhash | none
    keep: newest
  pii:                           # null: nothing is masked
    entities: [EMAIL_ADDRESS, PHONE_NUMBER]   # PERSON needs a model: see the extra spacy-en
    action: mask
  chunking:
    splitter: structural         # structural | recursive | fixed | none (the whole document) | import path
    size: 256
    overlap: 32
    unit: tokens
  embedding:
    model: bundled               # bundled | a local path | a hub name
  indexing:
    kind: hnsw                   # flat | hnsw | ivf
    m: 32
    ef_construction: 200
    ef_search: 64
  filtering: null                # entitlement alone, or {extractor: gold | rules | import, mode: hard | soft, boost: 0.1}
  retrieval:                     # lanes, named as you like
    bm25: {kind: bm25, k1: 1.2, b: 0.75, stemming: auto, stop_words: auto, depth: 100}
    dense: {kind: dense, depth: 100}
    hybrid: {kind: rrf, lanes: [bm25, dense], k: 60}
  reranking: null
  context:
    budget_tokens: 1500
  answering:                     # null: nothing is answered
    answerer: extractive         # extractive (quotes and cites, no model) | import (outputs/answers.jsonl) | openai | import path

evaluate:
  k: [1, 3, 5, 10]
  serve: hybrid                  # the lane that users get
  serve_k: 10
  split: test                    # dev | calibration | test | monitor
  leakage: warn                  # refuse: a document or cluster on both sides of a split refuses the version
  tokenizer: bundled             # in which recall@B counts its budget
  slices: [intent, language, doc_class]

ledger:                          # when an output holds a piece of evidence
  min_similarity: 0.6
  hold: 0.9                      # share of a quote's characters, beside all its critical tokens
  normalise: nfc+ws
  entities: off                  # spacy: named entities are critical tokens too

gates:                           # what a release must keep
  baseline: previous             # previous | accepted | <version>[#pipeline]
  min_coverage: 0.9
{rules}
publish:
  source_text: false             # true puts unmasked text into the DuckDB file: your explicit choice
""".replace("{rules}", _RULES)
