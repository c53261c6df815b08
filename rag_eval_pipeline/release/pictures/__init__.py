"""Pictures as SVG text: the waterfall and the flow of units. Frames in, markup out; nothing is computed that no table has."""

from rag_eval_pipeline.release.pictures.flow import flow_picture
from rag_eval_pipeline.release.pictures.svg import COLOURS, STYLE, colour_of
from rag_eval_pipeline.release.pictures.waterfall import waterfall_picture

__all__ = ["COLOURS", "STYLE", "colour_of", "flow_picture", "waterfall_picture"]
