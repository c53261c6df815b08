"""Elements of SVG, escaped; colours of the stages. What is drawn stands in the modules beside this.

Colours come in a light and a dark set, each at least 4.5:1 against its paper (WCAG 2.2, 1.4.3). Their order keeps
neighbouring stages far apart also for people who see fewer hues; every coloured thing has its name or number beside it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from rag_eval_pipeline.attribution.order import AFTER, STAGES

COLOURS = (
    ("#2a6fb0", "#74b4ec"),
    ("#b83a2e", "#f38d80"),
    ("#6950b5", "#b4a3f2"),
    ("#0f7f73", "#4fc4b2"),
    ("#75701a", "#cdc356"),
    ("#ad3f88", "#e991c8"),
    ("#ad5d0a", "#f0a35a"),
)
"""Light and dark, of stage 0, 1, …; they repeat after seven."""
PAPER = ("#ffffff", "#14181d")

_NAMES = {
    "ink": ("#1b1f24", "#e7eaee"),
    "faint": ("#57616c", "#a3aeb9"),
    "line": ("#c9cfd6", "#3a434d"),
    "paper": PAPER,
    "kept": ("#4a6078", "#8fa6bf"),
}


def _variables(dark: int) -> str:
    named = "".join(f"--{name}:{pair[dark]};" for name, pair in _NAMES.items())
    return named + "".join(f"--c{number}:{pair[dark]};" for number, pair in enumerate(COLOURS))


STYLE = (
    f":root{{color-scheme:light dark;{_variables(0)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}"
    f"@media print{{:root{{color-scheme:light;{_variables(0)}}}}}"
    ".pic text{font:13px system-ui,sans-serif;fill:var(--ink)}"
    ".pic .faint{fill:var(--faint)}.pic .num{font-variant-numeric:tabular-nums}.pic .strong{font-weight:650}"
    ".pic .grid{stroke:var(--line);stroke-width:1}.pic .kept{fill:var(--kept)}.pic .track{fill:var(--kept);opacity:.16}"
    ".pic .stream{fill:var(--kept);opacity:.42}"
    ".pic .back{opacity:.5}.pic .hurt{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2}"
    ".pic .whisker{stroke:var(--ink);stroke-width:1.5;fill:none}.pic .band{stroke:var(--paper);stroke-width:.75}"
    + "".join(f".pic .c{number}{{fill:var(--c{number})}}" for number in range(len(COLOURS)))
)
"""Styles of the pictures, and the page's colours. Print is always light."""


def colour_of(stage: str) -> str:
    """The class of a stage's colour."""
    return f"c{(*STAGES, *AFTER).index(stage) % len(COLOURS)}"


def element(name: str, attributes: Mapping[str, object] | None = None, *children: str) -> str:
    """One element. `attributes` are escaped; `children` are markup (`text` escapes)."""
    given = "".join(f' {key}="{escape(_shown(value))}"' for key, value in (attributes or {}).items())
    return f"<{name}{given}>{''.join(children)}</{name}>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """Words at a place; `class_` is the class."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    return element("text", {"x": x, "y": y, **named}, escape(words))


def picture(width: float, height: float, title: str, about: str, name: str, *children: str, alone: bool = False) -> str:
    """A whole picture with its title and description, for eyes and for screen readers.

    Args:
        width: of the drawing.
        height: of the drawing.
        title: what it is.
        about: what it shows, in a sentence.
        name: unique in the page.
        children: markup.
        alone: carry the styles along and stand on paper of its own, to be shown outside a page.
    """
    attributes: dict[str, object] = {
        "class": "pic",
        "viewBox": f"0 0 {_shown(width)} {_shown(height)}",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-about",
    }
    if alone:
        attributes |= {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height}
    paper = element("rect", {"width": width, "height": height, "fill": "var(--paper)"})
    return element(
        "svg",
        attributes,
        element("title", {"id": f"{name}-title"}, escape(title)),
        element("desc", {"id": f"{name}-about"}, escape(about)),
        *((element("style", {}, STYLE), paper) if alone else ()),
        *children,
    )


def _shown(value: object) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
