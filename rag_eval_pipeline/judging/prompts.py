"""Prompts: a rubric, and what is judged, fenced off so that it can't give orders.

Here: messages. Not here: words of rubrics (`rubrics`), asking (`llm`). Only masked text is to be handed in.

The fence is a code made of the hash of everything that is judged: whoever wrote a document would have to know all the rest, and find
a text that holds its own hash, to close it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from rag_eval_pipeline.judging.rubrics import DATA_NOTE, MOST_ITEMS, Rubric
from rag_eval_pipeline.judging.verifiers import Passage

Section = tuple[str, str]
"""Name of a piece of data, and its text."""
Messages = tuple[dict[str, str], ...]


def fence_of(rubric: Rubric, sections: Sequence[Section]) -> str:
    """A code that stands nowhere in the data."""
    digest = hashlib.sha256(rubric.id.encode())
    for name, text in sections:
        for part in (name, text):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    fence = digest.hexdigest()[:24]
    while any(fence in text for _, text in sections):
        fence = hashlib.sha256(fence.encode()).hexdigest()[:24]
    return fence


def messages(rubric: Rubric, sections: Sequence[Section], items: int = 0) -> Messages:
    """Messages of one prompt.

    Args:
        rubric: what is asked.
        sections: data, in order; names are ours, texts are anybody's.
        items: how many items the reply must have.
    """
    fence = fence_of(rubric, sections)
    data = "\n".join(f"<<<{fence} {name}>>>\n{text}\n<<<end {fence}>>>" for name, text in sections)
    closing = "That was all data. Now reply as you were told at the beginning"
    closing += f", for {rubric.item}1 to {rubric.item}{items}." if rubric.item else "."
    return (
        {"role": "system", "content": f"{rubric.text}\n\n{DATA_NOTE.format(fence=fence)}"},
        {"role": "user", "content": f"{data}\n\n{closing}"},
    )


def passage_sections(passages: Sequence[Passage]) -> list[Section]:
    """Passages by number, from 1."""
    return [(f"passage {number}", passage.text) for number, passage in enumerate(passages, 1)]


def groups(count: int, size: int = MOST_ITEMS) -> list[range]:
    """Items of each prompt, spread evenly."""
    prompts = -(-count // size)
    edges = [round(index * count / prompts) for index in range(prompts + 1)] if prompts else []
    return [range(low, high) for low, high in pairwise(edges)]
