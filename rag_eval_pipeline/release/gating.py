"""The release gate of an evaluation: what it is compared with, what forbids a decision, and where the verdict is kept.

How a rule is decided stands in `gates`. Fails closed: without an evaluation, a baseline that a rule needs, or enough values
there is no pass.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.layout import Layout
from rag_eval_pipeline.corpus.settings import Gates
from rag_eval_pipeline.corpus.version import load_key_settings
from rag_eval_pipeline.release.comparing import Baseline, baseline
from rag_eval_pipeline.release.evaluated import MEASURED, declared
from rag_eval_pipeline.release.gates import WORST_FIRST, Decision, Measured, Verdict, decide, rules_hash
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.warehouse.home import Home
from rag_eval_pipeline.warehouse.manifests import Manifest, Manifests
from rag_eval_pipeline.warehouse.memo import digest

ALLOWANCES = ("gold", "rules", "population", "uncalibrated")
SHOWN = 5
"""Names in a refusal; the rest is counted."""
EXIT: dict[Verdict, int] = {"pass": 0, "fail": 1, "inconclusive": 2, "missing_evidence": 2}
UNIT = ["query_id", "evidence_id"]
SAME = [*UNIT, "doc_id", "kind", "n_chars", "grade", "eligible"]
"""What makes a unit of gold the same on both sides. Its quote is left out: the pipeline's own masks show in it."""


@dataclass(frozen=True)
class Gated:
    """A decision with what it speaks of.

    Attributes:
        key: corpus@version[#pipeline].
        evaluation_id: the evaluation decided on.
        baseline: what it was compared with, in a sentence.
        evaluation_before: the baseline's id, if there is one.
        rules_hash: of the rules and the minimum coverage.
        allowed: differences that were allowed.
        decision: verdict and findings.
        made: when.
    """

    key: str
    evaluation_id: str
    baseline: str
    evaluation_before: str | None
    rules_hash: str
    allowed: tuple[str, ...]
    decision: Decision
    made: str

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 inconclusive or missing evidence."""
        return EXIT[self.decision.verdict]

    @property
    def gate_id(self) -> str:
        """What decides the verdict."""
        return digest([self.evaluation_id, self.evaluation_before, self.rules_hash, sorted(self.allowed)])[:16]

    def record(self) -> dict[str, Any]:
        """As JSON says it."""
        return {**asdict(self), "gate_id": self.gate_id, "exit_code": self.exit_code}


class AllowanceError(ValueError):
    """There is no such allowance."""


def gate(
    home: Home, key: str, against: str | None = None, allow: Collection[str] = (), evaluation_id: str | None = None
) -> Gated:
    """Decide as `judge` does, and keep the verdict."""
    gated = judge(home, key, against, allow, evaluation_id)
    if gated.evaluation_id:
        Manifests(home.manifests).keep_gate(gated.gate_id, gated.record())
    return gated


def judge(
    home: Home, key: str, against: str | None = None, allow: Collection[str] = (), evaluation_id: str | None = None
) -> Gated:
    """Decide on an evaluation of a key; nothing is written.

    Args:
        home: where data lives.
        key: corpus@version[#pipeline].
        against: another baseline than `gates.baseline`: `previous`, `accepted`, or a version[#pipeline] of the corpus.
        allow: differences between the two sides that don't forbid a decision: `gold`, `rules`, `population`; and
            figures of `uncalibrated` judges.
        evaluation_id: which evaluation; by default the newest, failed or not.

    Raises:
        AllowanceError: an allowance that there is none of.
        KeyNameError: the key is none.
        CorpusError: corpus.yaml is there and wrong, so nobody knows the rules.
    """
    if unknown := sorted(set(allow) - set(ALLOWANCES)):
        raise AllowanceError(f"{unknown[0]!r} cannot be allowed; what can is {', '.join(ALLOWANCES)}")
    known = Manifests(home.manifests).of(Key.parse(key).text)
    found = [m for m in known if evaluation_id in (None, m.evaluation_id)]
    if not found:
        return _without_evaluation(key, allow)
    now = found[-1]
    rules = _rules(home, now)
    if now.status != "complete":
        reason = f"its evaluation {now.evaluation_id} failed at {now.stopped_at}: mend that and run it again"
        return _gated(now, Baseline(None, "not looked for"), rules, allow, Decision("fail", (), (reason,)))
    chosen = _baseline(home, now, rules, against)
    return _gated(now, chosen, rules, allow, _decided(home, now, chosen, rules, allow))


def _without_evaluation(key: str, allow: Collection[str]) -> Gated:
    reason = f"{key} has no evaluation; make one by `rag-eval run {key}`"
    decision = Decision("missing_evidence", (), (reason,))
    return Gated(key, "", "none", None, "", tuple(sorted(allow)), decision, _now())


def _rules(home: Home, manifest: Manifest) -> Gates:
    """The rules of corpus.yaml as it is now; where the version's folder is not here, those of the evaluation."""
    if Layout(home.corpora, Key.parse(manifest.key)).version.is_dir():
        return load_key_settings(home.corpora, manifest.key).gates
    return _rules_of(manifest)


def _rules_of(manifest: Manifest) -> Gates:
    return Gates(**manifest.config.get("gates", {}))


def _baseline(home: Home, now: Manifest, rules: Gates, against: str | None) -> Baseline:
    named = {**now.config, "gates": {**now.config.get("gates", {}), "baseline": against or rules.baseline}}
    return baseline(home, Manifest(**{**asdict(now), "config": named}))


def _decided(home: Home, now: Manifest, chosen: Baseline, rules: Gates, allow: Collection[str]) -> Decision:
    here = Evaluation(home, now)
    there = Evaluation(home, chosen.manifest) if chosen.manifest is not None else None
    refusals = _split_refusals(now) + _rule_refusals(rules, now, chosen.manifest, allow)
    if there is not None:
        refusals += _gold_refusals(there, here, allow) + _population_refusals(there, here, allow)
    metrics = {metric.name: metric for metric in declared()}
    return decide(
        rules, metrics, _measured(here), _measured(there) if there else None,
        no_baseline=chosen.sentence, refusals=refusals, other_population="population" in allow,
        uncalibrated="uncalibrated" in allow,
    )  # fmt: skip


def _measured(evaluation: Evaluation) -> Measured:
    tables = [f"{stage.name}_quality" for stage in MEASURED]
    rows = [evaluation.frame(name) for name in tables if name in evaluation.manifest.tables]
    return Measured(pl.concat(rows), evaluation.served, evaluation.manifest.clusters)


def _split_refusals(now: Manifest) -> list[str]:
    split = now.config.get("evaluate", {}).get("split", "test")
    if split == "test":
        return []
    return [
        f"it was measured on split {split}; a release is decided on test alone: set evaluate.split and run it again"
    ]


def _rule_refusals(rules: Gates, now: Manifest, before: Manifest | None, allow: Collection[str]) -> list[str]:
    """Rules that were written after what they decide on was measured, or after the baseline was."""
    if "rules" in allow:
        return []
    asked = rules_hash(rules)
    if rules_hash(_rules_of(now)) != asked:
        return [
            f"the rules of corpus.yaml changed since {now.evaluation_id} was made: run `rag-eval run {now.key}` again (nothing is "
            "computed twice), or, if that is meant, allow it: --allow rules"
        ]
    if before is not None and rules_hash(_rules_of(before)) != asked:
        return [
            f"the rules of corpus.yaml are not those under which the baseline {before.evaluation_id} was made; if that is meant, "
            "allow it: --allow rules"
        ]
    return []


def _gold_refusals(before: Evaluation, now: Evaluation, allow: Collection[str]) -> list[str]:
    """Pieces of evidence and judged documents that the two sides don't share, named.

    Compared whatever the hashes of gold say: a reference that came with a new document changes these and no label, and who may
    see a document changes labels and not these.
    """
    if "gold" in allow:
        return []
    refusals = []
    old, new = (side.frame("evidence_units").select(SAME) for side in (before, now))
    units = _apart(old, new, SAME).select(UNIT).unique().sort(UNIT)
    if units.height:
        named = _named([f"{query}/{evidence}" for query, evidence in units.iter_rows()])
        refusals.append(
            f"gold or what callers may see changed for {units.height} pieces of evidence ({named}); if that is meant, allow it: "
            "--allow gold"
        )
    old_judged, new_judged = before.manifest.judged, now.manifest.judged
    both = _queries(before) & _queries(now)
    queries = sorted(query for query in both if old_judged.get(query) != new_judged.get(query))
    if queries:
        refusals.append(
            f"judged documents or chunks changed for {len(queries)} queries ({_named(queries)}); if that is meant, allow it: --allow gold"
        )
    return refusals


def _population_refusals(before: Evaluation, now: Evaluation, allow: Collection[str]) -> list[str]:
    """Queries that only one side measures: an absolute rule would speak of others than the baseline's. Named."""
    if "population" in allow:
        return []
    sides = [_queries(side) for side in (before, now)]
    lines = [
        f"{len(gone)} queries are measured {when} only ({_named(sorted(gone))})"
        for gone, when in ((sides[0] - sides[1], "on the baseline"), (sides[1] - sides[0], "now"))
        if gone
    ]
    return [f"{line}; measure both on the same ones, or allow it: --allow population" for line in lines]


def _queries(evaluation: Evaluation) -> set[str]:
    """Queries that an evaluation measures."""
    rows = evaluation.frame("retrieval_quality").filter(pl.col("item_type") == "query")
    return set(rows["item_id"].unique())


def _apart(old: pl.DataFrame, new: pl.DataFrame, on: list[str]) -> pl.DataFrame:
    """Rows that only one of two frames has."""
    return pl.concat(
        [old.join(new, on=on, how="anti", nulls_equal=True), new.join(old, on=on, how="anti", nulls_equal=True)]
    )


def _named(names: list[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + rest


def _gated(now: Manifest, chosen: Baseline, rules: Gates, allow: Collection[str], decision: Decision) -> Gated:
    before = chosen.manifest.evaluation_id if chosen.manifest else None
    return Gated(
        now.key, now.evaluation_id, chosen.sentence, before, rules_hash(rules), tuple(sorted(allow)), decision, _now()
    )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def sentence(gated: Gated) -> str:
    """Verdict, the limits that decide it, and what to do, for a check's one description."""
    decision = gated.decision
    deciding = [f for f in decision.findings if f.verdict == decision.verdict and f.verdict != "pass"]
    told = [f"rule {f.rule}, {f.label} {f.limit} {f.allowed:g}: {f.reason}" for f in deciding[:3]]
    if decision.verdict == "missing_evidence" or not told:
        told = [*decision.refusals, *told]
    more = f" (and {len(deciding) - 3} more limits)" if len(deciding) > 3 else ""
    n = sum(f.verdict == "pass" for f in decision.findings)
    said = "; ".join(told) + more or f"all {n} limits hold"
    beside = "" if gated.baseline in said else f" {gated.baseline}"  # a rule without a baseline has said it
    return f"{decision.verdict}: {said.removesuffix('.')}.{beside}"


def what_to_do(gated: Gated) -> list[str]:
    """Next steps, one sentence each; the first is the one that matters most."""
    decision, key = gated.decision, gated.key
    said = {finding.verdict for finding in decision.findings}
    steps = []
    if decision.verdict == "pass":
        return [f"Release it, and make it the baseline of the next one: `rag-eval accept {key} {gated.evaluation_id}`."]
    if "fail" in said:
        steps.append(
            f"Look what got worse: the asset `version_regressions`, `release_delta`, or `rag-eval waterfall {key}`; mend it and run it again."
        )
    steps += [f"Refused: {reason}." for reason in decision.refusals]
    if "missing_evidence" in said:
        steps.append(
            "Where evidence is missing, the finding's reason names what to add; a first evaluation has no baseline yet."
        )
    if "inconclusive" in said:
        most = max((f.n_needed or 0) for f in decision.findings if f.verdict == "inconclusive")
        enough = f": about {most} items settle the last one" if most else ""
        steps.append(f"Where it is inconclusive, label more queries{enough}, or allow more.")
    return steps


def findings(gated: Gated) -> pl.DataFrame:
    """Findings as a table for people, those that decide the verdict first."""
    order = {verdict: place for place, verdict in enumerate(WORST_FIRST)}
    rows = [
        {
            "rule": f.rule, "figure": f.label, "limit": f"{f.limit} {f.allowed:g}", "verdict": f.verdict, "found": f.found,
            "low": f.low, "high": f.high, "n": f"{f.n}/{f.n_expected}", "n needed": f.n_needed, "why": f.reason,
        }
        for f in sorted(gated.decision.findings, key=lambda f: (order[f.verdict], f.rule))
    ]  # fmt: skip
    schema = {
        "rule": pl.Int64, "figure": pl.String, "limit": pl.String, "verdict": pl.String, "found": pl.Float64,
        "low": pl.Float64, "high": pl.Float64, "n": pl.String, "n needed": pl.Int64, "why": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def junit(gated: Gated) -> str:
    """The verdict as JUnit XML: a test case a finding. `fail` is a failure, what can't be decided an error."""
    cases = [
        (f"rule {f.rule}: {f.label} {f.limit} {f.allowed:g}", f.verdict, f.reason) for f in gated.decision.findings
    ]
    cases += [("may be decided", "missing_evidence", reason) for reason in gated.decision.refusals]
    bad = [verdict for _, verdict, _ in cases if verdict != "pass"]
    failures = sum(verdict == "fail" for verdict in bad)
    suite = ET.Element(
        "testsuite", name=f"rag-eval gate {gated.key}", tests=str(len(cases)),
        failures=str(failures), errors=str(len(bad) - failures), timestamp=gated.made,
    )  # fmt: skip
    for name, verdict, reason in cases:
        case = ET.SubElement(suite, "testcase", classname=gated.key, name=name)
        if verdict != "pass":
            ET.SubElement(case, "failure" if verdict == "fail" else "error", type=verdict, message=reason)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def write(path: Path, text: str) -> None:
    """Write a file of the user's choice, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", "utf-8")
