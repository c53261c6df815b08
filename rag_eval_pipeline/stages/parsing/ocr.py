"""Read text from pictures: image files and scanned pages. Tesseract where installed, else a wheel with its own weights."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.engine.worker import run_tool
from rag_eval_pipeline.stages.parsing.reading import Reading, join_lines

if TYPE_CHECKING:
    from PIL.Image import Image


@lru_cache(maxsize=1)
def tesseract() -> tuple[str, frozenset[str]] | None:
    """Version and installed languages of tesseract; None where it is not installed."""
    command = shutil.which("tesseract")
    if command is None:
        return None
    version = run_tool([command, "--version"], b"", 60)
    languages = run_tool([command, "--list-langs"], b"", 60).stdout.decode("utf-8", "replace").splitlines()[1:]
    first = (version.stdout or version.stderr).decode("utf-8", "replace").splitlines()[0]
    return first.strip(), frozenset(name.strip() for name in languages)


def engine(wanted: str) -> str:
    """The engine that `auto` means on this machine.

    Raises:
        ValueError: tesseract is asked for and not installed.
    """
    if wanted == "tesseract" and tesseract() is None:
        raise ValueError(
            "pipeline.parsing.ocr is tesseract, which is not installed: install tesseract-ocr or set ocr: auto"
        )
    return wanted if wanted != "auto" else "tesseract" if tesseract() else "rapidocr"


def languages(config: Any) -> list[str]:
    """The configured languages that tesseract has.

    Raises:
        ValueError: it has none of them.
    """
    _, installed = tesseract() or ("", frozenset())
    found = [name for name in config.ocr_languages if name in installed]
    if not found:
        raise ValueError(
            f"tesseract has none of pipeline.parsing.ocr_languages {list(config.ocr_languages)}; installed are "
            f"{sorted(installed)}: install tesseract-ocr-<language> or name others"
        )
    return found


def identity(config: Any) -> str:
    """Which engine reads, for the stage's fingerprint: another one reads other texts."""
    name = engine(config.ocr)
    if name != "tesseract":
        return name
    version, installed = tesseract() or ("", frozenset())
    return f"{version} {'+'.join(languages(config))} osd={'osd' in installed}"


def warm(config: Any) -> None:
    """Load the engine's models, where it has any in this process."""
    if engine(config.ocr) == "rapidocr":
        _rapidocr()


def read_image(path: Path, config: Any) -> Reading:
    """All frames of an image file.

    Raises:
        Refusal: too many pixels or frames, or no image.
    """
    from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # our own limit comes before any pixel is decoded
    name = engine(config.ocr)
    if name == "none":
        raise Refusal("unsupported", "an image, and pipeline.parsing.ocr is none")
    try:
        with Image.open(path) as image:
            frames = getattr(image, "n_frames", 1)
            if frames > config.max_pages:
                raise Refusal("too_large", f"{frames} pages; pipeline.parsing.max_pages is {config.max_pages}")
            reading = Reading(name, pages=frames)
            for page, frame in enumerate(ImageSequence.Iterator(image), start=1):
                width, height = frame.size
                if width * height > config.max_pixels:
                    limit = config.max_pixels
                    raise Refusal("too_large", f"{width} x {height} pixels; pipeline.parsing.max_pixels is {limit}")
                dpi = float(frame.info.get("dpi", (0, 0))[0])
                add_picture(reading, ImageOps.exif_transpose(frame), config, page, dpi)
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError) as error:
        raise Refusal("error", f"{type(error).__name__}: the image is broken or of an unknown kind") from error
    return reading


def add_picture(reading: Reading, image: Image, config: Any, page: int, dpi: float) -> None:
    """Write what a picture says as paragraphs; a picture that says nothing adds nothing."""
    with_tesseract = engine(config.ocr) == "tesseract"
    paragraphs = _by_tesseract(_grey(image), config, dpi) if with_tesseract else _by_rapidocr(image)
    for paragraph in paragraphs:
        reading.add("paragraph", join_lines(paragraph), page=page)


def _grey(image: Image) -> Image:
    """Grey on white: transparent pixels are paper, not ink."""
    from PIL import Image as Images

    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        low, high = image.getextrema()
        scale = 255.0 / max(float(high) - float(low), 1.0)  # type: ignore[arg-type]
        return image.convert("F").point(lambda value: (value - float(low)) * scale).convert("L")  # type: ignore[arg-type]
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Images.new("RGBA", image.size, "white")
        paper.alpha_composite(image)
        image = paper
    return image.convert("L")


def _by_tesseract(image: Image, config: Any, dpi: float) -> Iterator[list[str]]:
    """Paragraphs as lists of lines, in tesseract's reading order; turned pages are turned back where it can tell."""
    _, installed = tesseract() or ("", frozenset())
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)
    command = ["tesseract", "stdin", "stdout", "-l", "+".join(languages(config))]
    command += ["--psm", "1" if "osd" in installed else "3"]
    command += ["--dpi", str(round(dpi))] if dpi >= 70 else []
    try:
        output = run_tool([*command, "tsv"], data.getvalue(), config.seconds).stdout
    except TimeoutError as error:
        raise Refusal("timeout", str(error)) from error
    words = []
    for line in output.decode("utf-8", "replace").split("\n")[1:]:
        cells = line.rstrip("\r").split("\t")
        if len(cells) == 12 and cells[0] == "5" and cells[11].strip():
            words.append(((cells[2], cells[3]), cells[4], cells[11]))
    for _, paragraph in groupby(words, key=lambda word: word[0]):
        yield [" ".join(word[2] for word in line) for _, line in groupby(paragraph, key=lambda word: word[1])]


@lru_cache(maxsize=1)
def _rapidocr() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.log_level": "critical"})


def _upright(image: Image) -> Any:
    """What rapidocr reads. Of a turned page it reads each line and not their order, so the page is turned back and read again."""
    pixels, ocr = np.asarray(image.convert("RGB")), _rapidocr()
    found = ocr(pixels)
    turns = _quarter_turns(ocr, pixels, found) if found.txts else 0
    return ocr(np.ascontiguousarray(np.rot90(pixels, turns))) if turns else found


def _quarter_turns(ocr: Any, pixels: Any, found: Any) -> int:
    """Quarter turns against the clock after which most of the text stands upright.

    Lines of a page that lies on its side are taller than wide; which side is up, rapidocr's classifier of lines tells. Texts of
    one or two characters are as tall as wide, and tell nothing.
    """
    lines = [(box, len(text)) for box, text in zip(found.boxes, found.txts, strict=True) if len(text) > 2]
    if not lines:
        return 0
    # As the classifier was made for: tall lines are turned a quarter against the clock.
    labels = ocr.text_cls(ocr.crop_text_regions(pixels, [box for box, _ in lines])).cls_res
    tall = upside_down = 0
    for (box, length), (label, score) in zip(lines, labels, strict=True):
        width, height = np.ptp(box, axis=0)
        tall += length * (height >= 1.5 * width)
        upside_down += length * (label == "180" and score > _SURE)
    half = sum(length for _, length in lines) / 2
    return (1 if tall > half else 0) + (2 if upside_down > half else 0)


_SURE = 0.9
"""Score from which rapidocr itself turns a line around."""


def _by_rapidocr(image: Image) -> Iterator[list[str]]:
    """Boxes sorted into lines; a gap of more than a line's height starts a paragraph."""
    found = _upright(image)
    if not found.txts:
        return
    boxes = [
        (float(box[:, 1].min()), float(box[:, 1].max()), float(box[:, 0].min()), text)
        for box, text in zip(found.boxes, found.txts, strict=True)
    ]
    lines: list[list[tuple[float, float, float, str]]] = []
    for box in sorted(boxes):
        middle = (box[0] + box[1]) / 2
        if lines and lines[-1][0][0] <= middle <= lines[-1][0][1]:
            lines[-1].append(box)
        else:
            lines.append([box])
    paragraph: list[str] = []
    bottom: float | None = None
    for line in lines:
        top, low = min(box[0] for box in line), max(box[1] for box in line)
        if bottom is not None and top - bottom > 0.8 * (low - top):
            yield paragraph
            paragraph = []
        paragraph.append(" ".join(box[3] for box in sorted(line, key=lambda box: box[2])))
        bottom = low
    yield paragraph
