"""Render html pages with the furniture that real sites have, and the visible text with its boilerplate marked.

A page is a list of segments; `boilerplate` says whether a segment is furniture. The transcript is the visible text of all
segments in reading order.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from nimbara.plaintext import block_text
from nimbara.sources import Block, Document, plain

_TEXTS = {
    "en": {
        "cookies": "We use cookies to remember your language and to count visits. You can change your choice at any time.",
        "accept": "Accept all", "reject": "Only necessary", "skip": "Skip to content", "home": "Home",
        "nav": ["Products", "Solutions", "Help centre", "Downloads", "Company", "Log in"],
        "related": "Related pages",
        "links": ["Choosing a sensor", "Firmware downloads", "Training dates", "Find a dealer near you"],
        "footer": "© 2026 Nimbara. All rights reserved.",
        "legal": ["Imprint", "Privacy", "Cookies", "Accessibility", "Terms of use"],
        "news": "Subscribe to our newsletter and hear about new sensors four times a year.",
        "helpful": "Was this page helpful? Yes No",
    },
    "es": {
        "cookies": "Usamos cookies para recordar tu idioma y contar visitas. Puedes cambiar tu elección cuando quieras.",
        "accept": "Aceptar todas", "reject": "Solo las necesarias", "skip": "Saltar al contenido", "home": "Inicio",
        "nav": ["Productos", "Soluciones", "Centro de ayuda", "Descargas", "Empresa", "Entrar"],
        "related": "Páginas relacionadas",
        "links": ["Cómo elegir un sensor", "Descargas de firmware", "Fechas de formación", "Busca un distribuidor"],
        "footer": "© 2026 Nimbara. Todos los derechos reservados.",
        "legal": ["Aviso legal", "Privacidad", "Cookies", "Accesibilidad", "Condiciones de uso"],
        "news": "Suscríbete al boletín y entérate de los sensores nuevos cuatro veces al año.",
        "helpful": "¿Te ha resultado útil esta página? Sí No",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """A piece of visible text."""

    text: str
    boilerplate: bool


def render(document: Document) -> str:
    """The page. `style: {template: consent}` is the site's broken template: the article stands in the consent box."""
    words = _TEXTS[document.language]
    broken = document.style.get("template") == "consent"
    before, after = _halves(document.blocks)
    article = f'<article class="content">\n{_body(before)}\n{_body(after)}\n</article>'
    main = f'<main id="main">\n{article}\n<p class="feedback">{words["helpful"]}</p>\n</main>'
    if broken:
        main = (
            f'<main id="main">\n<article class="content">\n{_body(before)}\n</article>\n'
            f'<p class="feedback">{words["helpful"]}</p>\n</main>\n'
            f'<aside class="cookie-banner consent-layer" role="complementary">\n{_body(after)}\n</aside>'
        )
    links = "".join(f'<li><a href="#">{escape(link)}</a></li>' for link in words["links"])
    legal = " ".join(f'<a href="#">{escape(link)}</a>' for link in words["legal"])
    menu = "".join(f'<li><a href="#">{escape(entry)}</a></li>' for entry in words["nav"])
    title = escape(plain(document.title))
    return f"""<!DOCTYPE html>
<html lang="{document.locale}">
<head>
<meta charset="utf-8">
<title>{title} | Nimbara</title>
<style>.cookie-banner{{position:fixed;bottom:0}} nav li{{display:inline}}</style>
<script>window.siteData = {{"page": "{document.doc_id}", "version": 7}};</script>
</head>
<body>
<a class="skip-link" href="#main">{words["skip"]}</a>
<div class="cookie-banner" role="alertdialog">
<p>{words["cookies"]}</p>
<button>{words["accept"]}</button> <button>{words["reject"]}</button>
</div>
<header class="site-header">
<nav class="main-menu"><ul>{menu}</ul></nav>
</header>
<div class="breadcrumb"><a href="#">{words["home"]}</a> / <span>{title}</span></div>
{main}
<aside class="related sidebar">
<h2>{words["related"]}</h2>
<ul>{links}</ul>
</aside>
<footer class="site-footer">
<p>{words["news"]}</p>
<p>{legal}</p>
<p>{words["footer"]}</p>
</footer>
</body>
</html>
"""


def segments(document: Document) -> list[Segment]:
    """Visible text in reading order; the article is main text in every template."""
    words = _TEXTS[document.language]
    before, after = _halves(document.blocks)
    main = [Segment(block_text(block, "html"), False) for block in before]
    rest = [Segment(block_text(block, "html"), False) for block in after]
    helpful = [Segment(words["helpful"], True)]
    broken = document.style.get("template") == "consent"
    return [
        Segment(words["skip"], True),
        Segment(words["cookies"], True),
        Segment(f"{words['accept']} {words['reject']}", True),
        *(Segment(entry, True) for entry in words["nav"]),
        Segment(f"{words['home']} / {document.title}", True),
        *main,
        *([*helpful, *rest] if broken else [*rest, *helpful]),
        Segment(words["related"], True),
        *(Segment(link, True) for link in words["links"]),
        Segment(words["news"], True),
        Segment(" ".join(words["legal"]), True),
        Segment(words["footer"], True),
    ]


def _halves(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """The article before and from its third heading of level 2: what the broken template tears apart."""
    headings = [index for index, block in enumerate(blocks) if block.kind == "heading" and block.level == 2]
    cut = headings[2] if len(headings) > 2 else len(blocks)
    return blocks[:cut], blocks[cut:]


def _body(blocks: list[Block]) -> str:
    parts: list[str] = []
    open_list = ""
    for block in blocks:
        wanted = ("ol" if block.number else "ul") if block.kind == "list_item" else ""
        if wanted != open_list:
            parts += [f"</{open_list}>"] * bool(open_list) + [f"<{wanted}>"] * bool(wanted)
            open_list = wanted
        parts.append(_element(block))
    return "\n".join([*parts, *[f"</{open_list}>"] * bool(open_list)])


def _element(block: Block) -> str:
    if block.kind == "table":
        return table(block)
    tag = {"heading": f"h{block.level}", "list_item": "li"}.get(block.kind, "p")
    return f"<{tag}>{escape(plain(block.text), quote=False)}</{tag}>"


def table(block: Block) -> str:
    """A table as html; also the reference form of tables in other formats."""
    rows = []
    for number, row in enumerate(block.rows):
        tag = "td" if number else "th"
        cells = "".join(f"<{tag}>{escape(plain(cell), quote=False)}</{tag}>" for cell in row)
        rows.append(f"<tr>{cells}</tr>")
    return "<table>\n<thead>" + rows[0] + "</thead>\n<tbody>\n" + "\n".join(rows[1:]) + "\n</tbody>\n</table>"
