"""What the encoder should have seen: all of each chunk, window by window. How a text becomes a vector is `transform`'s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from rag_eval_pipeline.models.encoder import Encoder, load_encoder
from rag_eval_pipeline.stages.embedding.tables import Embeddings
from rag_eval_pipeline.stages.embedding.transform import EmbeddingConfig, encoded
from rag_eval_pipeline.stages.truth import Truth
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline.warehouse.table import conform

REACH = 12
"""Code points looked at for each token that the encoder may see: more than a token has in any language but by accident."""
SHARES = (0.95, 0.8, 0.6)
"""How much of the window before it the last one may be long, the first that fits."""
WORD = 40
"""A window begins with a whole word, if one begins within so many code points."""


@dataclass(frozen=True)
class _Window:
    """A range of a chunk's text that is encoded as one text, with the chunk's prefix or without."""

    chunk: int
    prefix: str
    start: int
    end: int


def repair(
    before: Mapping[str, pl.DataFrame],
    after: Mapping[str, pl.DataFrame],
    truth: Truth,
    config: EmbeddingConfig,
    *,
    runtime: Runtime | None = None,
) -> dict[str, pl.DataFrame]:
    """Further windows for each chunk of which the encoder has not seen all; the vector that it has stays its window 0.

    So a chunk's best score can only rise. Windows may share text: each begins with a whole word, and the last one is
    moved back to be about as long as the others, because the vector of a few words says little. Windows have the chunk's
    prefix, unless that leaves no room. Without an over-long chunk no model is loaded. Gold is not asked.

    Args:
        before: `chunks`.
        after: `embeddings`.
        truth: nothing is read.
        config: the stage's own.
        runtime: remembers vectors of windows by their text; without it they are encoded anew.
    """
    unseen = _unseen(before["chunks"], after["embeddings"])
    if unseen.is_empty():
        return dict(after)
    encoder = load_encoder(config.model, config.max_tokens)
    windows = list(_windows(encoder, unseen, config.document_prompt))
    if not windows:
        return dict(after)
    made = _encoded(windows, unseen, config, runtime or Runtime.plain())
    return {**after, "embeddings": conform(Embeddings, pl.concat([after["embeddings"], made]))}


def _unseen(chunks: pl.DataFrame, embeddings: pl.DataFrame) -> pl.DataFrame:
    """Over-long chunks: chunk_id, prefix, text, tokens, `seen` (code points), `windows` (that they have)."""
    last = (
        embeddings.filter((pl.col("encoded_tokens") < pl.col("tokens")).any().over("chunk_id"))
        .group_by("chunk_id")
        .agg(pl.col("tokens").max(), seen=pl.col("encoded_end").max(), windows=pl.col("window").max() + 1)
    )
    texts = chunks.select("chunk_id", "text", pl.col("prefix").fill_null(""))
    return last.join(texts, on="chunk_id").filter(pl.col("seen") < pl.col("text").str.len_chars()).sort("chunk_id")


def _encoded(
    windows: Sequence[_Window], unseen: pl.DataFrame, config: EmbeddingConfig, runtime: Runtime
) -> pl.DataFrame:
    texts = unseen["text"].to_list()
    rows = pl.DataFrame(
        {
            "chunk": [window.chunk for window in windows],
            "prefix": [window.prefix for window in windows],
            "text": [texts[window.chunk][window.start : window.end] for window in windows],
            "begin": [window.start for window in windows],
        }
    ).join(unseen.select("chunk_id", "tokens", "windows").with_row_index("chunk"), on="chunk", maintain_order="left")
    made = encoded(rows, config, runtime).with_columns(rows["tokens"], rows["begin"], first=rows["windows"])
    return made.with_columns(
        window=pl.col("first") + pl.int_range(pl.len()).over("chunk_id"),
        encoded_start="begin",
        encoded_end=pl.col("begin") + pl.col("encoded_end"),
    ).select(list(Embeddings.columns()))


# Where to cut ----------------------------------------------------------------------------------------------------------


def _windows(encoder: Encoder, unseen: pl.DataFrame, prompt: str) -> Iterator[_Window]:
    """Windows that together see what was not seen, by chunk and place. A prompt that leaves no room gives none."""
    texts, prefixes = unseen["text"].to_list(), unseen["prefix"].to_list()
    waiting = [
        _Window(chunk, prefixes[chunk], _word_start(texts[chunk], seen, 0), seen)
        for chunk, seen in enumerate(unseen["seen"])
    ]
    reach = dict.fromkeys(range(len(texts)), REACH * encoder.max_tokens)
    length = dict(enumerate(unseen["seen"].to_list()))
    furthest = dict(length)
    found: list[_Window] = []
    last: list[_Window] = []
    while waiting:
        asked = [
            replace(window, end=min(len(texts[window.chunk]), window.start + reach[window.chunk])) for window in waiting
        ]
        waiting = []
        for window, seen in zip(asked, _seen(encoder, asked, texts, prompt), strict=True):
            text = texts[window.chunk]
            if seen == window.end and seen == len(text):
                last.append(window)
            elif seen == window.end:
                reach[window.chunk] *= 2
                waiting.append(window)
            elif seen > furthest[window.chunk]:
                found.append(window)
                length[window.chunk], furthest[window.chunk] = seen - window.start, seen
                waiting.append(replace(window, start=_word_start(text, seen, window.start)))
            elif window.start < furthest[window.chunk]:  # a word longer than the window is cut after all
                waiting.append(replace(window, start=furthest[window.chunk]))
            elif window.prefix:
                waiting.append(replace(window, prefix=""))
    found += _moved_back(encoder, last, texts, length, prompt)
    yield from sorted(found, key=lambda window: (window.chunk, window.start))


def _seen(encoder: Encoder, windows: Sequence[_Window], texts: Sequence[str], prompt: str) -> list[int]:
    """Where in its chunk's text the encoder stops in each window."""
    parts = [texts[window.chunk][window.start : window.end] for window in windows]
    ends = encoder.tokens(parts, prompt, [window.prefix for window in windows]).encoded_end
    return [window.start + int(end) for window, end in zip(windows, ends, strict=True)]


def _moved_back(
    encoder: Encoder, windows: Sequence[_Window], texts: Sequence[str], length: Mapping[int, int], prompt: str
) -> list[_Window]:
    """Last windows, begun as early as they still fit."""
    waiting, done = list(windows), []
    for share in SHARES:
        tried = [replace(w, start=_earlier(texts[w.chunk], w, int(share * length[w.chunk]))) for w in waiting]
        fits = [seen == window.end for seen, window in zip(_seen(encoder, tried, texts, prompt), tried, strict=True)]
        done += [window for window, fit in zip(tried, fits, strict=True) if fit]
        waiting = [window for window, fit in zip(waiting, fits, strict=True) if not fit]
    return done + waiting


def _earlier(text: str, window: _Window, length: int) -> int:
    """A place, a word's start if one is near, from which at most `length` code points lead to the window's end."""
    start = min(max(0, window.end - length), window.start)
    words = (place for place in range(start, min(start + WORD, window.start)) if _begins(text, place))
    return next(words, start)


def _word_start(text: str, place: int, after: int) -> int:
    """Start of the word that stands at a place, if it is near and behind `after`; else the place."""
    for start in range(place, max(after, place - WORD), -1):
        if _begins(text, start):
            return start
    return place


def _begins(text: str, place: int) -> bool:
    """Whether no word is cut at a place."""
    return place == 0 or not (text[place - 1 : place + 1].isalnum() and place < len(text))
