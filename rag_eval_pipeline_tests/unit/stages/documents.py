"""Small documents in every format, and broken ones, written for the tests."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

ENGLISH = "Employees receive 23 days of paid leave. Unused days don't carry over."
SPANISH = "El año pasado la compañía pagó 1.250,50 € por la garantía de los ñandúes."
ROWS = [["Model", "Price"], ["Río 200", "45,00 €"], ["Niño & Co", "<9>"]]


def text_pdf(path: Path, pages: int = 1, table: bool = True, header: str | None = None) -> Path:
    from reportlab.lib import colors
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table, TableStyle

    styles = getSampleStyleSheet()
    story = []
    for number in range(pages):
        story += [Paragraph("Leave policy", styles["Title"]), Paragraph("Días libres", styles["Heading2"])]
        story += [Paragraph(f"{ENGLISH} " * 4, styles["BodyText"]), Paragraph(SPANISH, styles["BodyText"])]
        if table:
            ruled = Table([[cell.replace("€", "EUR") for cell in row] for row in ROWS])
            ruled.setStyle(TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black)]))
            story.append(ruled)
        story.append(Paragraph("After the table comes this line.", styles["BodyText"]))
        if number < pages - 1:
            story.append(PageBreak())

    def draw(canvas, document):
        if header:
            canvas.drawString(72, A4[1] - 30, f"{header} {document.page}")

    SimpleDocTemplate(str(path), pagesize=A4).build(story, onFirstPage=draw, onLaterPages=draw)
    return path


def encrypted_pdf(path: Path) -> Path:
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), encrypt=StandardEncryption("secret", canPrint=0))
    canvas.drawString(72, 700, ENGLISH)
    canvas.save()
    return path


def picture(lines: list[str], size: int = 40):
    """A page image with black text on white."""
    import reportlab
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(
        Path(reportlab.__file__).parent / "fonts" / "Vera.ttf", size
    )  # Pillow's own lacks accents
    image = Image.new("L", (1500, 120 + 2 * size * len(lines)), 255)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((60, 60 + 2 * size * number), line, fill=0, font=font)
    return image


def scanned_pdf(path: Path, lines: list[str]) -> Path:
    picture(lines).convert("RGB").save(path, "PDF", resolution=200)
    return path


def docx(path: Path) -> Path:
    import docx as library

    document = library.Document()
    document.add_heading("Leave policy", 0)
    document.add_heading("Días libres", 2)
    document.add_paragraph(ENGLISH)
    document.add_paragraph("First point", style="List Bullet")
    document.add_paragraph("Segundo punto", style="List Bullet 2")
    table = document.add_table(rows=0, cols=2)
    for row in ROWS:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    merged = table.add_row().cells
    merged[0].merge(merged[1]).text = "both"
    document.add_paragraph(SPANISH)
    document.save(path)
    return path


def zip_bomb_docx(path: Path, size_mb: int = 160, declared: int | None = None) -> Path:
    """A docx whose document part is many spaces, packed a thousand to one; it may declare another size."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    block, crc = b" " * (1 << 20), 0
    with zipfile.ZipFile(docx(path)) as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if name != "word/document.xml"}
    packed = io.BytesIO()
    for _ in range(size_mb):
        packed.write(compressor.compress(block))
        crc = zlib.crc32(block, crc)
    packed.write(compressor.flush())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name, data in kept.items():
            bomb.writestr(name, data)
        info = zipfile.ZipInfo("word/document.xml")
        info.compress_type = zipfile.ZIP_DEFLATED
        _append_raw(bomb, info, packed.getvalue(), crc, declared or size_mb << 20)
    return path


def _append_raw(archive: zipfile.ZipFile, info: zipfile.ZipInfo, packed: bytes, crc: int, size: int) -> None:
    info.header_offset = archive.fp.tell()
    info.CRC, info.compress_size, info.file_size = crc, len(packed), size
    archive.fp.write(info.FileHeader(zip64=False))
    archive.fp.write(packed)
    archive.filelist.append(info)
    archive.NameToInfo[info.filename] = info
    archive.start_dir = archive.fp.tell()
    archive._didModify = True


def huge_png(path: Path, side: int = 20_000) -> Path:
    """A valid grey PNG of side × side pixels that is small on disk."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    compressor = zlib.compressobj(9)
    packed = b"".join(compressor.compress(b"\0" * (side // 8 + 1)) for _ in range(side)) + compressor.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    path.write_bytes(data)
    return path


HTML = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html><html><head><title>unseen title</title><style>.unseen{}</style><script>unseen()</script></head>
<body>
<div id="cookie-banner"><p>We use cookies</p></div>
<header><h1>Site name</h1></header>
<nav><ul><li>Home</li><li>Products</li></ul></nav>
<main><article>
<header><h1>Leave   policy</h1></header>
<!-- unseen comment -->
<p>Employees receive <b>23</b> days of<br>paid leave.</p>
<p style="display: none">unseen style</p><p hidden>unseen attribute</p>
<ul><li>First point<ul><li>Segundo punto</li></ul></li></ul>
<pre>code
  stays</pre>
<table><caption>Prices</caption><thead><tr><th>Model</th><th>Price</th></tr></thead>
<tbody><tr><td>R\u00edo 200</td><td>45,00 \u20ac</td></tr><tr><td colspan="2">Ni\u00f1o &amp; Co &lt;9&gt;</td></tr></tbody></table>
after the table
</article></main>
<footer>Imprint</footer>
</body></html>
"""

MARKDOWN = """# Leave policy

Employees receive **23** days.
They don't carry over.

- First point
- Segundo punto
  1. Más

```python
code = 1
```

| Model | Price |
| --- | --- |
| Río 200 | 45,00 € |
| Niño & Co | `<9>` |

Setext
------
"""
