"""What people write as a verdict on a claim, and what it means here.

Here: words. Not here: who wrote them and how several annotators become one (judging).
"""

from __future__ import annotations

from typing import Literal

Label = Literal["supported", "contradicted", "unsupported"]

WORDS: dict[str, Label] = {
    **dict.fromkeys(
        ("supported", "support", "supports", "yes", "true", "correct", "entailed", "entailment"), "supported"
    ),
    **dict.fromkeys(
        ("contradicted", "contradict", "contradicts", "refuted", "refutes", "contradiction"), "contradicted"
    ),
    **dict.fromkeys(
        ("unsupported", "not_supported", "no", "false", "incorrect", "none", "neutral", "not_enough_info", "nei"),
        "unsupported",
    ),
}
"""A person's word, and what it means."""


def label_of(word: str) -> Label:
    """A person's word as a label.

    Raises:
        ValueError: it is none of the known words.
    """
    key = word.strip().casefold().replace(" ", "_").replace("-", "_")
    if key not in WORDS:
        raise ValueError(f"unknown verdict {word!r}; write one of {', '.join(sorted(WORDS))}")
    return WORDS[key]
