"""Which family a model is of, by its name: judges tend to like what their own family wrote.

Here: names. Not here: how much they like it (`calibration`).
"""

from __future__ import annotations

from typing import Literal

import regex

Kinship = Literal["same", "cross", "unknown"]
_FAMILIES = {
    "openai": r"gpt|chatgpt|davinci|o[1-9](?:-mini|-pro|-preview)?",
    "anthropic": r"claude",
    "google": r"gemini|gemma|palm|bison",
    "meta": r"llama|codellama|tinyllama",
    "mistral": r"mistral|mixtral|ministral|codestral|magistral",
    "qwen": r"qwen|qwq",
    "deepseek": r"deepseek",
    "cohere": r"command|aya",
    "microsoft": r"phi|orca",
    "xai": r"grok",
    "ibm": r"granite",
    "ai2": r"olmo|tulu",
    "nvidia": r"nemotron",
    "zhipu": r"glm|chatglm",
    "moonshot": r"kimi|moonshot",
}
_NAMED = [(name, regex.compile(rf"(?i)(?<![a-z0-9])(?:{words})(?![a-z])")) for name, words in _FAMILIES.items()]


def family_of(model: str | None) -> str | None:
    """The family of a model, by the first known word in its name; None where none is known.

    A model distilled from another names both; the first one counts.
    """
    if not model:
        return None
    found = [(match.start(), name) for name, words in _NAMED if (match := words.search(model))]
    return min(found)[1] if found else None


def kinship(judge: str, answerer: str | None) -> Kinship:
    """Whether a judge and the model that answered are of one family. `llm:<model>` is the model."""
    one, other = family_of(judge.removeprefix("llm:")), family_of(answerer)
    if one is None or other is None:
        return "unknown"
    return "same" if one == other else "cross"
