"""What gold says, as far as a stage's repair may use it.

Here: the one argument that every `repair` door is given beside the stage's own input and output. Not here: how units,
anchors and pieces are found (attribution), what a repair does with them (each room's `repair`).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rag_eval_pipeline.corpus.gold import Gold
from rag_eval_pipeline.corpus.settings import Settings


@dataclass(frozen=True)
class Truth:
    """What gold says, as far as a repair may use it.

    Attributes:
        gold: the gold of the corpus version.
        settings: the settings of the corpus version.
        units: `evidence_units` of the measured split.
        anchors: `evidence_anchors` computed on the texts of this very run, layers as far as they are made (with the
            stage's own output before its repair).
        pieces: `evidence_pieces` on the chunks of this very run; empty before chunking.
        dev_units: as `units`, for split dev (fusion alone uses it); empty where there are no dev queries.
        dev_pieces: as `pieces`, for split dev.
        k: the depth that fusion is repaired for; None for every other stage.
    """

    gold: Gold
    settings: Settings
    units: pl.DataFrame
    anchors: pl.DataFrame
    pieces: pl.DataFrame
    dev_units: pl.DataFrame
    dev_pieces: pl.DataFrame
    k: int | None = None
