"""`python -m rag_eval_pipeline_tests.bench.pii MEDDOCAN_FOLDER PRESIDIO_RESEARCH_JSON`: PII on labelled sets, by type, with intervals.

Patterns were written looking at the notes `built on` only. Meddocan is halved by the order of its files, presidio-research by its
templates, since rows of one template are alike. Prints the tables of docs/benchmarks.md: strict and partial (overlap) scores, what is
mapped and what is not, and the leak–damage curve. Also `speed`, against presidio's own loop.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from rag_eval_pipeline.engine.limits import Limits
from rag_eval_pipeline.engine.pool import map_items
from rag_eval_pipeline.measures.intervals import Interval, confidence_interval
from rag_eval_pipeline.measures.spans import Counts, span_scores
from rag_eval_pipeline.stages.pii.quality import sweep
from rag_eval_pipeline.stages.pii.transform import CONFIG, find, one
from rag_eval_pipeline.text.entities import EXTRA_MODEL
from rag_eval_pipeline_tests.bench import timing

Placed = tuple[int, int, str]

MEDDOCAN = {
    "FECHAS": "DATE_TIME",
    "CORREO_ELECTRONICO": "EMAIL_ADDRESS",
    "NUMERO_TELEFONO": "PHONE_NUMBER",
    "NUMERO_FAX": "PHONE_NUMBER",
    "ID_SUJETO_ASISTENCIA": "ES_PATIENT_ID",
    "ID_ASEGURAMIENTO": "ES_SOCIAL_SECURITY",
    "ID_TITULACION_PERSONAL_SANITARIO": "ES_MEDICAL_LICENSE",
    "ID_CONTACTO_ASISTENCIAL": "ES_EPISODE_ID",
    "CALLE": "ES_ADDRESS",
    "TERRITORIO (five digits)": "ES_POSTAL_CODE",
}
"""Label → our type. Of TERRITORIO only postal codes are ours; place names need a model."""
RESEARCH = {
    "EMAIL_ADDRESS": "EMAIL_ADDRESS",
    "PHONE_NUMBER": "PHONE_NUMBER",
    "CREDIT_CARD": "CREDIT_CARD",
    "IBAN_CODE": "IBAN_CODE",
    "IP_ADDRESS": "IP_ADDRESS",
    "US_SSN": "US_SSN",
    "US_DRIVER_LICENSE": "US_DRIVER_LICENSE",
    "DOMAIN_NAME": "URL",
    "DATE_TIME": "DATE_TIME",
}
WORLD = ("US", "GB", "DE", "FR", "IL", "IN", "CA", "BR")
"""Countries of phone numbers: presidio's own default."""


@dataclass(frozen=True)
class Labelled:
    """A text with its labels.

    Attributes:
        name: of the text.
        group: what it must not be parted from: its own name, or the template that it was made of.
        text: as labelled.
        spans: (start, end, label), code points.
    """

    name: str
    group: str
    text: str
    spans: tuple[Placed, ...]


@dataclass(frozen=True)
class Score:
    """Counts of a type over a set of texts, with intervals over groups."""

    counts: Counts
    precision: Interval
    recall: Interval


def meddocan(folder: Path) -> list[Labelled]:
    """Brat files `*.txt` and `*.ann`, in order of their names.

    Raises:
        ValueError: a label whose offsets do not give its text.
    """
    found = []
    for path in sorted(folder.glob("*.ann")):
        with path.with_suffix(".txt").open(encoding="utf-8", newline="") as file:
            text = file.read()
        spans = []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.startswith("T"):
                continue
            _, place, value = line.split("\t")
            label, start, end = place.split(" ")
            if text[int(start) : int(end)] != value:
                raise ValueError(
                    f"{path.name}:{number}: the offsets do not give the labelled text; read without newline conversion"
                )
            label = f"{label} (five digits)" if label == "TERRITORIO" and re.fullmatch(r"\d{5}", value) else label
            spans.append((int(start), int(end), label))
        found.append(Labelled(path.stem, path.stem, text, tuple(sorted(spans))))
    return found


def presidio_research(path: Path) -> list[Labelled]:
    """The generated sentences, in their order.

    Raises:
        ValueError: a label whose offsets do not give its text.
    """
    found = []
    for number, row in enumerate(json.loads(path.read_text("utf-8"))):
        text = row["full_text"]
        spans = [(s["start_position"], s["end_position"], s["entity_type"]) for s in row["spans"]]
        if any(text[a:b] != s["entity_value"] for (a, b, _), s in zip(spans, row["spans"], strict=True)):
            raise ValueError(f"{path.name}: row {number}: the offsets do not give the labelled text")
        found.append(Labelled(f"{number}", f"{row['template_id']}", text, tuple(sorted(spans))))
    return found


def halves(texts: Sequence[Labelled]) -> tuple[list[Labelled], list[Labelled]]:
    """Built on, and held out: every second group, in order of first appearance."""
    groups = list(dict.fromkeys(text.group for text in texts))
    first = set(groups[::2])
    return [text for text in texts if text.group in first], [text for text in texts if text.group not in first]


def configured(mapping: Mapping[str, str], **options: Any) -> CONFIG:
    """What looks for all mapped types, otherwise as by default."""
    return CONFIG(entities=tuple(dict.fromkeys(mapping.values())), **options)


def expected(text: Labelled, mapping: Mapping[str, str]) -> list[Placed]:
    """Labels under our names; unmapped ones are left out."""
    return [(start, end, mapping[label]) for start, end, label in text.spans if label in mapping]


def unmapped(texts: Iterable[Labelled], mapping: Mapping[str, str]) -> dict[str, int]:
    """Labels that nothing looks for, with their number."""
    return dict(sorted(Counter(label for text in texts for *_, label in text.spans if label not in mapping).items()))


def evaluate(texts: Sequence[Labelled], mapping: Mapping[str, str], config: CONFIG) -> dict[tuple[str, str], Score]:
    """Scores by (mode, type)."""
    by_group: dict[tuple[str, str], dict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
    for text in texts:
        found = [(span.start, span.end, span.type) for span in find(text.text, config)]
        for key, counts in span_scores(expected(text, mapping), found).items():
            by_group[key][text.group] += counts
    return {key: _score(groups) for key, groups in sorted(by_group.items())}


def _score(groups: Mapping[str, Counts]) -> Score:
    """Each span is a hit or not; spans of one group are drawn together."""
    total = sum(groups.values(), Counts())
    precision = [(name, hit) for name, c in groups.items() for hit in [1.0] * c.tp + [0.0] * c.fp]
    recall = [(name, hit) for name, c in groups.items() for hit in [1.0] * c.tp + [0.0] * c.fn]
    made = [
        confidence_interval([hit for _, hit in hits], clusters=[name for name, _ in hits], low=0, high=1)
        for hits in (precision, recall)
    ]
    return Score(total, *made)


def scores_table(scores: Mapping[str, Mapping[tuple[str, str], Score]], mapping: Mapping[str, str]) -> str:
    """Markdown: a row a type and half."""
    names: dict[str, list[str]] = defaultdict(list)
    for label, kind in mapping.items():
        names[kind].append(label)
    lines = [
        "| type (label) | half | labelled | found | partial P | partial R | partial F1 | strict P / R / F1 |",
        "|" + " --- |" * 8,
    ]
    for kind, labels in names.items():
        for half, by_key in scores.items():
            partial, strict = by_key.get(("overlap", kind)), by_key.get(("strict", kind))
            if partial is None or strict is None:
                continue
            shown = "" if labels == [kind] else f" ({', '.join(labels)})"
            counts = partial.counts
            exact = " / ".join(_number(v) for v in (strict.counts.precision, strict.counts.recall, strict.counts.f1))
            cells = [f"{kind}{shown}", half, counts.gold, counts.predicted, _interval(partial.precision), _interval(partial.recall), _number(counts.f1), exact]  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return _number(interval.mean)
    return f"{_number(interval.mean)} ({interval.low:.2f}–{interval.high:.2f})"


def curve(texts: Sequence[Labelled], mapping: Mapping[str, str]) -> list[tuple[float, int, int]]:
    """Leaked and over-redacted characters by threshold: one run at threshold 0, the rest from its scores."""
    config = configured(mapping, score_threshold=0.0)
    judged = {text.name: expected(text, mapping) for text in texts}
    predicted = {
        text.name: [((s.start, s.end, s.type), 1.0 if s.score is None else s.score) for s in find(text.text, config)]
        for text in texts
    }
    return sweep(judged, predicted)


def curve_table(points: Iterable[tuple[float, int, int]]) -> str:
    """Markdown; runs of equal points are one row."""
    rows: list[tuple[list[float], int, int]] = []
    for threshold, leaked, damaged in points:
        if rows and rows[-1][1:] == (leaked, damaged):
            rows[-1][0].append(threshold)
        else:
            rows.append(([threshold], leaked, damaged))
    lines = ["| threshold | leaked characters | over-redacted characters |", "| --- | --- | --- |"]
    spans = [(f"{t[0]:.2f}–{t[-1]:.2f}" if len(t) > 1 else f"{t[0]:.2f}", a, b) for t, a, b in rows]
    return "\n".join(lines + [f"| {t} | {leaked} | {damaged} |" for t, leaked, damaged in spans])


# Speed ----------------------------------------------------------------------------------------------------------------


KINDS = ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IP_ADDRESS")
NAMES = ("PERSON", "LOCATION")


def speed(texts: Sequence[str], repeats: int, model: str | None = None) -> timing.Result:
    """Documents with our analyser and with presidio's `AnalyzerEngine`, one by one, English, the same spaCy pipeline on both sides.

    Args:
        texts: documents.
        repeats: of each side, in turn.
        model: installed spaCy model, with which names are looked for too; None: a blank pipeline.
    """
    from rag_eval_pipeline.stages.pii import transform

    config, peer = _sides(model)
    engine = transform._engine(transform._engine_key(config))

    def theirs() -> list[Any]:
        return [peer.analyze(text, language="en", score_threshold=config.score_threshold) for text in texts]

    def ours() -> list[Any]:
        return [engine.analyze(text) for text in texts]

    spans = differ = 0
    for mine, found in zip(ours(), theirs(), strict=True):
        kept = {(r.start, r.end, r.entity_type) for r in found if r.entity_type in config.entities}
        spans, differ = spans + len(kept), differ + ({tuple(row[:3]) for row in mine} != kept)
    what = f"{_sizes(texts)}, {len(config.entities)} types, {model or 'no model'}"
    return timing.in_turn(
        what,
        "presidio's loop, its defaults",
        ours,
        theirs,
        f"{spans} spans of the types kept; {differ} texts differ in them",
        repeats,
    )


def throughput(texts: Sequence[str], repeats: int, model: str | None, workers: int) -> str:
    """Documents a second in worker processes, as a run reads them (they mask, too), against presidio's loop in one process.

    Both sides have their models loaded: ours is timed from the moment in which as many texts again are done.
    """
    config, peer = _sides(model)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        items = ({"text": text, "spans": None} for text in (*texts, *texts))
        began = 0.0
        for number, _done in enumerate(map_items(one, items, config, limits=Limits(), workers=workers), start=1):
            began = time.perf_counter() if number == len(texts) else began
        rates[0].append(len(texts) / (time.perf_counter() - began))
        began = time.perf_counter()
        for text in texts:
            peer.analyze(text, language="en", score_threshold=config.score_threshold)
        rates[1].append(len(texts) / (time.perf_counter() - began))
    ratios = [ours / theirs for ours, theirs in zip(*rates, strict=True)]
    return (
        f"{_sizes(texts)}, {model or 'no model'}, {workers} workers: {median(rates[0]):.1f} a second, presidio's loop "
        f"{median(rates[1]):.1f}: {median(ratios):.2g} ({min(ratios):.2g}–{max(ratios):.2g})"
    )


def _sizes(texts: Sequence[str]) -> str:
    return f"{len(texts)} texts of {sum(map(len, texts)) // len(texts)} characters"


def _sides(model: str | None) -> tuple[CONFIG, Any]:
    """Our settings, and presidio's analyser with its defaults over the same spaCy pipeline."""
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine
    from tldextract import TLDExtract, tldextract

    from rag_eval_pipeline.stages.pii import transform

    # Neither side may wait for the network: presidio's own recogniser would fetch a list of suffixes.
    tldextract.TLD_EXTRACTOR = TLDExtract(suffix_list_urls=(), cache_dir=None)
    kinds = KINDS if model is None else (*KINDS, *NAMES)
    config = CONFIG(entities=kinds, languages=("en",), regions=WORLD, models={"en": model} if model else {})
    registry = RecognizerRegistry(supported_languages=["en"])
    registry.load_predefined_recognizers(languages=["en"])
    if model is None:
        registry.remove_recognizer("SpacyRecognizer")
        nlp = transform._nlp_engine("en", None)
    else:
        nlp = SpacyNlpEngine(models=[{"lang_code": "en", "model_name": model}])
        nlp.load()
    return config, AnalyzerEngine(registry=registry, nlp_engine=nlp, supported_languages=["en"])


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.bench.pii", description=__doc__)
    parser.add_argument("meddocan", type=Path, help="folder with *.txt and *.ann")
    parser.add_argument("research", type=Path, help="synth_dataset_v2.json")
    parser.add_argument("--only", choices=["scores", "curve", "speed"], help="one of the parts")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    sets = {
        "meddocan": (meddocan(asked.meddocan), MEDDOCAN),
        "presidio-research": (presidio_research(asked.research), RESEARCH),
    }
    for name, (texts, mapping) in sets.items():
        built, held = halves(texts)
        if asked.only in (None, "scores"):
            config = configured(mapping)
            scores = {"built on": evaluate(built, mapping, config), "held out": evaluate(held, mapping, config)}
            print(f"{name}: {len(built)} + {len(held)} texts\n\n{scores_table(scores, mapping)}\n")
            print(
                "Not mapped: " + ", ".join(f"{label} {n}" for label, n in unmapped(texts, mapping).items()), end="\n\n"
            )
        if asked.only in (None, "curve"):
            print(f"{name}, all texts\n\n{curve_table(curve(texts, mapping))}\n", flush=True)
    if asked.only in (None, "speed"):
        research = [text.text for text in sets["presidio-research"][0]]
        notes = [text.text for text in sets["meddocan"][0]]
        installed = EXTRA_MODEL if find_spec(EXTRA_MODEL) else None
        rows = [
            speed(texts, asked.repeats, model)
            for model in dict.fromkeys((None, installed))
            for texts in (research[:300], notes[:40])
        ]
        print(timing.table(rows), end="\n\n")
        for texts in (research, notes):
            print(throughput(texts, asked.repeats, installed, os.cpu_count() or 1), flush=True)
        if installed is None:
            print("no English model is installed (extra `spacy-en`), so nothing was measured with one")


if __name__ == "__main__":
    main()
