"""What a file says about itself: front matter, properties of its format, markup, its name. Readers of one source each.

Here: (field, value) as the file has them. Not here: which source is believed (`transform`), and the text (the parsing room).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from rag_eval_pipeline.corpus.decoding import decode

Said = Iterator[tuple[str, str]]
FIELDS = ("title", "author", "published_at", "modified_at", "language")
NAMES = {
    "title": ("title", "título", "titulo", "dc.title", "og:title", "headline"),
    "author": ("author", "authors", "autor", "autores", "creator", "dc.creator", "by", "byline", "article:author"),
    "published_at": (
        "published_at", "date", "published", "publishdate", "pubdate", "fecha", "created", "creationdate", "dc.date",
        "article:published_time", "datepublished", "issued", "date_published",
    ),
    "modified_at": (
        "modified_at", "updated", "modified", "lastmod", "last_modified", "moddate", "article:modified_time", "datemodified",
        "actualizado", "date_modified",
    ),
    "language": ("language", "lang", "idioma", "dc.language", "og:locale", "locale"),
}  # fmt: skip
"""Field → the names under which sources give it, best first."""
FRONT_MATTER = 20_000
"""Code points of a file in which its front matter must end."""
_YAML = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\A\+\+\+[ \t]*\n(.*?)\n\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_DATED = re.compile(r"(?<!\d)((?:19|20)\d{2})[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])(?!\d)")
_PDF_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?(Z|[+-]\d{2}'?\d{2})?'?")


def front_matter(text: str) -> Said:
    """Fields of a YAML (---) or TOML (+++) head. One that can't be read says nothing."""
    import tomllib

    import yaml

    head = text[:FRONT_MATTER]
    try:
        if match := _YAML.match(head):
            given = yaml.safe_load(match[1])
        elif match := _TOML.match(head):
            given = tomllib.loads(match[1])
        else:
            return
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError):
        return  # a rule and a line between two rules are no front matter
    if isinstance(given, Mapping):
        yield from named({str(key): value for key, value in given.items()})


def named(given: Mapping[str, Any]) -> Said:
    """The first value that a mapping has for each field, under any of its names and in any case."""
    folded = {key.strip().casefold(): value for key, value in reversed(list(given.items()))}
    for field, names in NAMES.items():
        for name in names:
            if value := _plain(folded.get(name)):
                yield field, value
                break


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return _plain(value.get("name"))
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_plain, value)))
    if isinstance(value, date):  # datetime is one
        return value.isoformat()
    return " ".join(str(value).split()) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def markup(html: str) -> Said:
    """<title>, <meta> and the page's language."""
    from lxml import html as lxml_html

    if not html.strip():
        return
    page = lxml_html.fromstring(html.encode("utf-8", "replace"), parser=lxml_html.HTMLParser(encoding="utf-8"))
    given: dict[str, str] = {}
    for meta in page.iter("meta"):
        name = meta.get("name") or meta.get("property") or meta.get("itemprop")
        if name and meta.get("content"):
            given.setdefault(name, meta.get("content"))
    title = next(page.iter("title"), None)
    if title is not None and (words := title.text_content().strip()):
        given["title"] = words
    if language := page.get("lang"):
        given["language"] = language
    yield from named(given)


def properties(path: Path, media: str) -> Said:
    """What the format's own properties say."""
    reader = {"pdf": _pdf, "docx": _docx, "image": _image}.get(media)
    return named(reader(path)) if reader else iter(())


def _pdf(path: Path) -> dict[str, Any]:
    import pypdfium2

    document = pypdfium2.PdfDocument(path)
    try:
        return dict(document.get_metadata_dict(skip_empty=True))
    finally:
        document.close()


def _docx(path: Path) -> dict[str, Any]:
    import docx

    core = docx.Document(str(path)).core_properties
    return {
        name: getattr(core, name)
        for name in ("title", "author", "created", "modified", "language")
        if getattr(core, name)
    }


def _image(path: Path) -> dict[str, Any]:
    from PIL import Image

    with Image.open(path) as image:
        exif = image.getexif()
    return {name: exif[tag] for name, tag in (("title", 270), ("author", 315), ("created", 306)) if exif.get(tag)}


def file_name(path: str) -> Said:
    """A date in the file's name, and the words of the name as the last resort for a title."""
    stem = PurePosixPath(path).stem
    if match := _DATED.search(stem):
        yield "published_at", "-".join(match.groups())
    words = " ".join(re.split(r"[\s_\-.]+", _DATED.sub(" ", stem))).strip()
    if words:
        yield "title", words


def read(path: Path, media: str) -> list[tuple[str, str, str]]:
    """(field, source, value) of everything that a file says about itself; its own name and headings excepted."""
    if media in {"md", "txt"}:
        text, _ = decode(path.read_bytes())
        return [(field, "front_matter", value) for field, value in front_matter(text)]
    if media == "html":
        text, _ = decode(path.read_bytes())
        return [(field, "markup", value) for field, value in markup(text)]
    return [(field, "property", value) for field, value in properties(path, media)]


def iso_date(value: str) -> str | None:
    """A date or time as ISO 8601: as ISO, PDF (D:…) and EXIF write it, or as `1 March 2026`, `March 1, 2026`; else None."""
    text = value.strip()
    try:
        moment = datetime.fromisoformat(text)
        return moment.date().isoformat() if len(text) <= 10 else moment.isoformat()
    except ValueError:
        pass
    if re.fullmatch(r"\d{4}:\d{2}:\d{2} \d{2}:\d{2}:\d{2}", text):  # EXIF
        return iso_date(text[:10].replace(":", "-") + text[10:])
    if (match := _PDF_DATE.fullmatch(text)) and (text.startswith("D:") or len(text) >= 8):
        year, month, day, *clock, zone = match.groups()
        parts = f"{year}-{month or '01'}-{day or '01'}"
        if clock[0]:
            parts += f"T{clock[0]}:{clock[1] or '00'}:{clock[2] or '00'}"
            parts += "+00:00" if zone == "Z" else f"{zone[:3]}:{zone[-2:]}" if zone else ""
        return iso_date(parts) if parts != text else None
    for shape in ("%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y"):
        try:
            return datetime.strptime(text, shape).date().isoformat()
        except ValueError:
            continue
    return None
