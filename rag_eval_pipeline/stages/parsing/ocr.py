"""Read text from pictures: image files and scanned pages. Tesseract where installed, else a wheel with its own weights."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rag_eval_pipeline.engine.limits import Refusal
from rag_eval_pipeline.engine.worker import part_done, run_tool
from rag_eval_pipeline.stages.parsing.layout import Line, Page, write
from rag_eval_pipeline.stages.parsing.reading import Reading

if TYPE_CHECKING:
    from PIL.Image import Image

Box = tuple[float, float, float, float]
"""Left, top, right, bottom; pixels from the upper left corner."""
ERRORS = {"tesseract": (0.09, 2.5), "rapidocr": (0.13, 0.0)}
"""How wrong an engine measures letters: share of their size, and pixels at least. Tesseract's x-heights are of whole pixels; how
high rapidocr's boxes are hangs on which letters are in them."""


class Found(NamedTuple):
    """A line in a picture.

    Attributes:
        text: what it says.
        paragraph: number of its paragraph in the page.
        size: of its letters, pixels.
        box: around it on the upright page.
    """

    text: str
    paragraph: int
    size: float
    box: Box


class Sheet(NamedTuple):
    """A page as it was read from a picture.

    Attributes:
        lines: in reading order.
        height: of the upright page, pixels.
        point: points a pixel; 1 where the resolution is unknown.
    """

    lines: list[Found]
    height: float
    point: float


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
            sheets: dict[int, Sheet] = {}
            for page, frame in enumerate(ImageSequence.Iterator(image), start=1):
                width, height = frame.size
                if width * height > config.max_pixels:
                    limit = config.max_pixels
                    raise Refusal("too_large", f"{width} x {height} pixels; pipeline.parsing.max_pixels is {limit}")
                dpi = float(frame.info.get("dpi", (0, 0))[0])
                sheets[page] = read_sheet(ImageOps.exif_transpose(frame), dpi, config)
                part_done()
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError) as error:
        raise Refusal("error", f"{type(error).__name__}: the image is broken or of an unknown kind") from error
    reading = Reading(name, pages=frames)
    write(pages_of(sheets, config), reading)
    return reading


def read_sheet(image: Image, dpi: float, config: Any) -> Sheet:
    """What a picture of a page says; dpi 0: unknown."""
    if engine(config.ocr) == "tesseract":
        return Sheet(*_by_tesseract(_grey(image), config, dpi), _point(dpi))
    return Sheet(*_by_rapidocr(image), _point(dpi))


def pages_of(sheets: Mapping[int, Sheet], config: Any) -> list[Page]:
    """Pages by number, in points. Letters that may be of one size get one height: in a picture they are measured with an error."""
    share, least = ERRORS[engine(config.ocr)]
    lines = [(line, sheet.point) for sheet in sheets.values() for line in sheet.lines]
    sizes = [line.size * point for line, point in lines]
    errors = [max(share * line.size, least) * point for line, point in lines]
    heights = iter(_evened(sizes, errors, [len(line.text) for line, _ in lines]))
    return [
        Page(number, sheet.height * sheet.point, [_placed(line, sheet, next(heights)) for line in sheet.lines], True)
        for number, sheet in sheets.items()
    ]


def _placed(line: Found, sheet: Sheet, height: float) -> Line:
    left, _, right, low = line.box
    bottom = (sheet.height - low) * sheet.point
    return Line(line.text, left * sheet.point, bottom, right * sheet.point, bottom + height, paragraph=line.paragraph)


def _evened(sizes: Sequence[float], errors: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Sizes by group: what may be most of the text's is, of what is larger the largest draws those that may be as large."""
    if not sizes:
        return []
    body = float(np.median(np.repeat(np.array(sizes), np.array(weights))))
    even = [body] * len(sizes)
    groups: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        if sizes[index] - body <= errors[index]:
            break
        if groups and sizes[groups[-1][0]] - sizes[index] <= errors[index]:
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in groups:
        size = median(sizes[index] for index in group)
        for index in group:
            even[index] = size
    return even


def _point(dpi: float) -> float:
    return 72 / dpi if dpi >= KNOWN_DPI else 1.0


KNOWN_DPI = 70
"""The least that tesseract believes."""


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


def _by_tesseract(image: Image, config: Any, dpi: float) -> tuple[list[Found], float]:
    """Lines in tesseract's reading order, and the upright page's height; turned pages are turned back where it can tell."""
    _, installed = tesseract() or ("", frozenset())
    if max(image.size) > LONGEST_SIDE:
        width, height = image.size
        raise Refusal("too_large", f"{width} x {height} pixels; tesseract reads sides of up to {LONGEST_SIDE}")
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)
    command = ["tesseract", "stdin", "stdout", "-l", "+".join(languages(config))]
    command += ["--psm", "1" if "osd" in installed else "3"]
    command += ["--dpi", str(round(dpi))] if dpi >= KNOWN_DPI else []
    try:
        output = run_tool([*command, "hocr"], data.getvalue(), config.seconds).stdout
    except TimeoutError as error:
        raise Refusal("timeout", str(error)) from error
    except subprocess.CalledProcessError as error:
        width, height = image.size
        raise Refusal("error", f"tesseract cannot read a picture of {width} x {height} pixels") from error
    lines: list[Found] = []
    turns = 0
    for number, paragraph in enumerate(_of_class(_hocr(output), "ocr_par")):
        for line in paragraph:
            words = ["".join(word.itertext()).strip() for word in _of_class(line, "ocrx_word")]
            if not any(words):
                continue
            about = _properties(line.get("title", ""))
            turns = round(about.get("textangle", [0])[0] / 90) % 4
            left, top, right, bottom = _upright_box(about["bbox"], turns, image.size)
            # Height of small letters: of all that tesseract measures in a line, what varies least with its words.
            size = sum(sign * about.get(name, [0])[0] for name, sign in X_HEIGHT.items())
            lines.append(Found(" ".join(filter(None, words)), number, size, (left, top, right, bottom)))
    return lines, float(image.size[turns % 2 == 0])


X_HEIGHT = {"x_size": 1, "x_ascenders": -1, "x_descenders": -1}


def _hocr(output: bytes) -> Any:
    """What tesseract wrote; nothing in it where it could not read the picture."""
    from lxml import html

    return html.document_fromstring(output or b"<html/>", parser=html.HTMLParser(encoding="utf-8", huge_tree=True))


def _of_class(element: Any, name: str) -> list[Any]:
    return element.xpath(".//*[@class=$name]", name=name)


def _properties(title: str) -> dict[str, list[float]]:
    """Properties of an element, as hOCR writes them: name and numbers."""
    properties = (entry.split() for entry in title.split(";") if entry.strip())
    return {name: [float(value) for value in values] for name, *values in properties}


def _upright_box(box: Sequence[float], turns: int, size: tuple[int, int]) -> Box:
    """A box after so many quarter turns against the clock are undone."""
    left, top, right, bottom = box
    width, height = size
    if turns == 1:
        return height - bottom, left, height - top, right
    if turns == 2:
        return width - right, height - bottom, width - left, height - top
    return (top, width - right, bottom, width - left) if turns == 3 else (left, top, right, bottom)


LONGEST_SIDE = 2**15 - 1
"""Pixels: tesseract refuses pictures beyond."""


@lru_cache(maxsize=1)
def _rapidocr() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.log_level": "critical"})


def _level(boxes: Any) -> Any:
    """Corners of boxes (from the upper left one, clockwise) as on a page that lies level: most of the long ones do, then."""
    edges = np.array([box[1] - box[0] for box in boxes])
    order = np.argsort(np.hypot(edges[:, 0], edges[:, 1]))[len(edges) // 2 :]
    slope = float(np.median(np.arctan2(edges[order, 1], edges[order, 0])))
    turn = np.array([[np.cos(slope), -np.sin(slope)], [np.sin(slope), np.cos(slope)]])
    return [box @ turn for box in boxes]


def _upright(image: Image) -> tuple[Any, float]:
    """What rapidocr reads, and the height of the page on which.

    Of a turned page it reads each line and not their order, so the page is turned back and read again.
    """
    from PIL import ImageOps

    # It makes the shorter side as long as it needs, whatever becomes of the other one.
    least = max(image.size) // THINNEST
    image = ImageOps.pad(image.convert("RGB"), (max(image.width, least), max(image.height, least)), color="white")
    pixels, ocr = np.asarray(image), _rapidocr()
    found = ocr(pixels)
    if turns := _quarter_turns(ocr, pixels, found) if found.txts else 0:
        pixels = np.ascontiguousarray(np.rot90(pixels, turns))
        found = ocr(pixels)
    return found, float(pixels.shape[0])


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


THINNEST = 30
"""How many times as long as wide a picture may be for rapidocr; thinner ones get a margin."""
_SURE = 0.9
"""Score from which rapidocr itself turns a line around."""


def _by_rapidocr(image: Image) -> tuple[list[Found], float]:
    """Boxes sorted into lines, and the page's height; a gap of more than a line's height starts a paragraph."""
    found, height = _upright(image)
    boxes = [
        (*map(float, (box[:, 1].min(), box[:, 1].max(), box[:, 0].min(), box[:, 0].max())), text)
        for box, text in (zip(_level(found.boxes), found.txts, strict=True) if found.txts else ())
    ]
    lines: list[list[tuple[float, float, float, float, str]]] = []
    for box in sorted(boxes):
        middle = (box[0] + box[1]) / 2
        if lines and lines[-1][0][0] <= middle <= lines[-1][0][1]:
            lines[-1].append(box)
        else:
            lines.append([box])
    made: list[Found] = []
    paragraph, last = 0, math.inf
    for line in lines:
        top, low = min(box[0] for box in line), max(box[1] for box in line)
        paragraph += top - last > 0.8 * (low - top)
        text = " ".join(box[4] for box in sorted(line, key=lambda box: box[2]))
        size = median(box[1] - box[0] for box in line)
        made.append(Found(text, paragraph, size, (min(box[2] for box in line), top, max(box[3] for box in line), low)))
        last = low
    return made, height
