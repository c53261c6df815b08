"""`python -m rag_eval_pipeline_tests.bench.verifiers [FOLDER] [--nli PATH] [--hhem PATH] [--judge URL MODEL] [--calibrate]`: verifiers against
SciFact's labels.

A pair is a claim and an abstract that it cites: SUPPORT, CONTRADICT, or none where the abstract has no rationale for it. Two kinds
of evidence: the whole `abstract`, and the `rationale` alone (for pairs that have one). Claims with an even id choose thresholds; the
figures are of the others. Prints the tables of docs/benchmarks.md.
"""

import argparse
import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path

from rag_eval_pipeline.judging.endpoint import EndpointConfig
from rag_eval_pipeline.judging.lexical import LexicalVerifier
from rag_eval_pipeline.judging.llm import LlmVerifier
from rag_eval_pipeline.judging.pairs import CrossEncoderVerifier
from rag_eval_pipeline.judging.replies import ReplyStore
from rag_eval_pipeline.judging.verifiers import Passage, ask
from rag_eval_pipeline.measures import agreement, class_scores
from rag_eval_pipeline.text.claims import Claim
from rag_eval_pipeline_tests.conftest import SHARED

LABELS = {"SUPPORT": "supported", "CONTRADICT": "contradicted"}


@dataclass(frozen=True)
class Pair:
    """A claim, one abstract, and what people said of the two."""

    claim_id: int
    claim: str
    sentences: tuple[str, ...]
    rationale: tuple[str, ...]
    label: str

    @property
    def calibrates(self):
        return self.claim_id % 2 == 0


def pairs_of(folder):
    """All pairs, by claim and abstract."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        abstracts = {document["doc_id"]: document["abstract"] for document in map(json.loads, lines)}
    found = []
    for line in (folder / "claims_train.jsonl").read_text("utf-8").splitlines():
        claim = json.loads(line)
        for doc_id in sorted(claim["cited_doc_ids"]):
            sets = claim["evidence"].get(str(doc_id), [])
            sentences = abstracts[doc_id]
            chosen = sorted({index for each in sets for index in each["sentences"]})
            label = LABELS[sets[0]["label"]] if sets else "unsupported"
            rationale = tuple(sentences[index] for index in chosen)
            found.append(Pair(claim["id"], claim["claim"], tuple(sentences), rationale, label))
    return found


def verdicts_of(verifier, pairs, evidence):
    """Labels, one a pair; None where the verifier failed."""
    made = []
    for pair in pairs:
        text = " ".join(pair.sentences if evidence == "abstract" else pair.rationale)
        made.append(ask(verifier, [Claim("c1", pair.claim)], [Passage("p1", text, "en")])[0].label)
    return made


def scores_of(verifier, pairs, evidence):
    """Scores by class, agreement with people, and the labels themselves."""
    expected, found = [pair.label for pair in pairs], verdicts_of(verifier, pairs, evidence)
    groups = [pair.claim_id for pair in pairs]
    return class_scores(expected, found, groups), agreement(found, expected, clusters=groups), found


def held_out(pairs, evidence):
    """Pairs whose figures are reported."""
    return [pair for pair in pairs if not pair.calibrates and (evidence == "abstract" or pair.rationale)]


def choose(pairs):
    """What agrees best with people (κ; of equals the stricter) on claims that calibrate."""
    chosen = [pair for pair in pairs if pair.calibrates]
    for support in (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7):
        for window in (1, 2, 3):
            scores, agreed, _ = scores_of(LexicalVerifier("en", support, window), chosen, "abstract")
            f1 = sum(each.f1.mean for each in scores) / len(scores)
            print(
                f"support {support} window {window}: macro F1 {f1:.3f}, κ {agreed.kappa:.3f}, accuracy {agreed.accuracy.mean:.3f}"
            )


def rows_of(verifier, pairs, evidence):
    """Rows of the table: one a class, and one of agreement where all three classes occur."""
    scores, agreed, _ = scores_of(verifier, pairs, evidence)
    made = [
        f"| {verifier.name} | {evidence} | {each.label} | {each.n} | {_cell(each.precision)} | {_cell(each.recall)} | {_cell(each.f1)} |"
        for each in scores
    ]
    if evidence == "abstract":
        kappa = f"{agreed.kappa:.3f} ({agreed.kappa_low:.2f}–{agreed.kappa_high:.2f})"
        made.append(
            f"| {verifier.name} | {evidence} | all | {agreed.n} | κ {kappa} | accuracy {_cell(agreed.accuracy)} | – |"
        )
    return made


def _cell(interval):
    if interval.mean is None:
        return "–"
    return f"{interval.mean:.3f} ({interval.low:.2f}–{interval.high:.2f})"


def verifiers_of(asked):
    """Those that are asked for."""
    made = [LexicalVerifier("en")]
    made += [CrossEncoderVerifier(asked.nli)] if asked.nli else []
    made += [CrossEncoderVerifier(asked.hhem, "hhem")] if asked.hhem else []
    if asked.judge:
        url, model = asked.judge
        key = "OPENAI_API_KEY" if "OPENAI_API_KEY" in os.environ else None
        store = ReplyStore(asked.replies) if asked.replies else None
        made.append(LlmVerifier(EndpointConfig(base_url=url, model=model, api_key_env=key), store))
    return made


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data" / "scifact")
    parser.add_argument("--nli", type=Path, help="a cross-encoder's folder")
    parser.add_argument("--hhem", type=Path, help="a cross-encoder's folder, with one output")
    parser.add_argument(
        "--judge", nargs=2, metavar=("URL", "MODEL"), help="an endpoint; its key in OPENAI_API_KEY, if it needs one"
    )
    parser.add_argument("--replies", type=Path, help="folder in which the judge's replies are kept")
    parser.add_argument("--calibrate", action="store_true", help="try thresholds on the calibrating claims")
    asked = parser.parse_args()
    pairs = pairs_of(asked.folder)
    if asked.calibrate:
        choose(pairs)
        return
    verifiers = verifiers_of(asked)
    print(
        "| verifier | evidence | class | pairs | precision | recall | F1 |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for verifier in verifiers:
        for evidence in ("abstract", "rationale"):
            print("\n".join(rows_of(verifier, held_out(pairs, evidence), evidence)), flush=True)


if __name__ == "__main__":
    main()
