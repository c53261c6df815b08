"""The verifiers `nli` and `hhem`: a cross-encoder from a local folder that reads a passage and a claim together.

Here: loading it, and its scores as labels. Not here: which model is good (docs/benchmarks.md says what was measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rag_eval_pipeline.judging.verifiers import JUDGE_ERROR, Label, Passage, Verdict, VerifierError
from rag_eval_pipeline.text.claims import Claim

Kind = Literal["nli", "hhem"]
THRESHOLD = 0.5
BATCH = 16
_PREFIXES: Mapping[str, Label] = {"entail": "supported", "contradict": "contradicted", "neutral": "unsupported"}


class CrossEncoderVerifier:
    """Each claim against each passage; the passage that supports most decides, else the one that contradicts most.

    Args:
        path: the model's folder; nothing is downloaded.
        kind: `nli`: three outputs named entailment, contradiction and neutral in its config; `hhem`: one output, the
            probability that the claim is supported (which can't tell contradicted from unsupported).
        threshold: least probability of a label other than unsupported.

    Raises:
        VerifierError: the folder, sentence-transformers, or the labels that the kind needs are not there.
    """

    def __init__(self, path: str | Path, kind: Kind = "nli", threshold: float = THRESHOLD) -> None:
        self.name, self.path, self.kind, self.threshold = kind, Path(path), kind, threshold
        if kind not in ("nli", "hhem"):
            raise VerifierError(f"unknown kind {kind!r}; use nli or hhem")
        if why := missing(self.path):
            raise VerifierError(why)

    def verify(self, claims: Sequence[Claim], evidence: Sequence[Passage]) -> list[Verdict]:
        """One verdict a claim. A score that is no number is the claim's `judge_error`.

        Raises:
            VerifierError: the model's labels don't fit the kind.
        """
        pairs = [(passage.text, claim.text) for claim in claims for passage in evidence]
        scores = self._probabilities(pairs).reshape(len(claims), len(evidence), -1)
        ids = [passage.passage_id for passage in evidence]
        return [self._verdict(claim.claim_id, scores[row], ids) for row, claim in enumerate(claims)]

    def _verdict(self, claim_id: str, scores: np.ndarray, ids: Sequence[str]) -> Verdict:
        """Scores: passages × (supported, contradicted)."""
        if not np.isfinite(scores).all():
            return Verdict(claim_id, None, JUDGE_ERROR, reason="not_a_number")
        labels: tuple[Label, Label] = ("supported", "contradicted")
        for column, label in enumerate(labels):
            best = float(scores[:, column].max())
            if best >= self.threshold:
                chosen = tuple(name for name, s in zip(ids, scores[:, column], strict=True) if s >= self.threshold)
                return Verdict(claim_id, label, score=best, passages=chosen)
        return Verdict(claim_id, "unsupported", score=float(scores[:, 0].max()))

    def _probabilities(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Pairs × (supported, contradicted)."""
        model = _load(str(self.path))
        import torch

        logits = model.predict(pairs, batch_size=BATCH, show_progress_bar=False, activation_fn=torch.nn.Identity())
        found = np.asarray(logits, dtype=np.float64)
        if self.kind == "hhem":
            if found.ndim == 2 and found.shape[1] != 1:
                raise VerifierError(f"hhem needs a model with one output, found {found.shape[1]}; use kind nli")
            supported = 1 / (1 + np.exp(-found.reshape(-1)))
            return np.column_stack([supported, np.zeros_like(supported)])
        columns = label_columns(model.config.id2label)
        if found.ndim != 2 or found.shape[1] <= max(columns.values()):
            raise VerifierError("nli needs a model with outputs entailment, contradiction and neutral")
        raised = np.exp(found - found.max(axis=1, keepdims=True))
        shares = raised / raised.sum(axis=1, keepdims=True)
        return shares[:, [columns["supported"], columns["contradicted"]]]


def label_columns(names: Mapping[int, str]) -> dict[Label, int]:
    """Label → output of a model, by the names in its config.

    Raises:
        VerifierError: one of the three is not named, so that nobody knows which output is which.
    """
    columns: dict[Label, int] = {}
    for index, name in names.items():
        for prefix, label in _PREFIXES.items():
            if str(name).casefold().startswith(prefix):
                columns[label] = int(index)
    if len(columns) < len(_PREFIXES):
        raise VerifierError(
            "the model's config names no outputs entailment, contradiction and neutral; set id2label in its config.json"
        )
    return columns


def missing(path: Path) -> str | None:
    """Why a model can't be loaded, and what to do; None where it is there. Nothing is loaded."""
    if not (path / "config.json").is_file():
        return f"{path.name!r} is no folder of a cross-encoder (no config.json); download one and name its folder"
    if find_spec("sentence_transformers") is None:
        return "sentence-transformers is not installed; pip install sentence-transformers"
    return None


@lru_cache(maxsize=2)
def _load(path: str) -> Any:
    from sentence_transformers import CrossEncoder

    try:
        return CrossEncoder(path, device="cpu", local_files_only=True)
    except Exception as error:  # whatever a broken folder makes the library raise
        raise VerifierError(
            f"the cross-encoder can't be loaded ({type(error).__name__}); is its folder whole?"
        ) from error
