"""Pictures as SVG text: the waterfall, the flow of units, bars of shares. Frames in, markup out; nothing is computed that no table has."""

from rag_eval_pipeline.release.pictures.bars import Bar, bars_picture
from rag_eval_pipeline.release.pictures.flow import flow_picture
from rag_eval_pipeline.release.pictures.judges import costs_picture, matrix_picture
from rag_eval_pipeline.release.pictures.svg import COLOURS, STYLE, colour_of
from rag_eval_pipeline.release.pictures.waterfall import waterfall_picture

__all__ = [
    "COLOURS",
    "STYLE",
    "Bar",
    "bars_picture",
    "colour_of",
    "costs_picture",
    "flow_picture",
    "matrix_picture",
    "waterfall_picture",
]
