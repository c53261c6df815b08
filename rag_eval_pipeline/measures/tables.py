"""How well a table was read: tree-edit-distance similarity (TEDS) of Zhong et al. 2020, "Image-based table recognition".

Here: trees made of HTML, their distance, the assignment of several tables. Not here: finding tables in documents.

A tree has a node for the table and for each descendant outside cells; a `td` ends its branch and carries its content as
tokens (its characters, and its inner tags). Insert and delete cost 1; a rename 1 where tag, colspan or rowspan differ,
else, for two `td`, the Levenshtein distance of their tokens / the longer length. Distances are exact: Zhang & Shasha's
recurrence, which the flat trees of tables keep quadratic, compiled on first use and cached on disk.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from rag_eval_pipeline.measures.metric import Unmeasured

if TYPE_CHECKING:
    from lxml.html import HtmlElement

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class TableTree:
    """A table as arrays in post-order, as the recurrence reads it.

    Attributes:
        kinds: per node what must be equal for a free rename: (tag, colspan, rowspan).
        contents: per node its content tokens; empty where it is no `td`.
        leftmost: per node the post-order number of its leftmost leaf.
        size: descendants of the table, those inside cells included: what the distance is divided by.
        invalid_spans: colspan or rowspan that are no number, read as 1.
    """

    kinds: tuple[tuple[str, int, int], ...]
    contents: tuple[tuple[str, ...], ...]
    leftmost: np.ndarray[Any, np.dtype[np.int64]]
    size: int
    invalid_spans: int


@dataclass(frozen=True)
class TableScore:
    """Similarity of two tables, at most 1; `status` says why it is not an ordinary score.

    Attributes:
        value: 1 − distance / size of the larger; can go below 0 on odd tables.
        status: scored | both_empty | unreadable_table | missing_table, which are 0 or 1; too_large and too_deep, whose value
            means nothing (`match_tables` alone gives them).
        invalid_spans: spans that were no number, in both.
    """

    value: float
    status: str = "scored"
    invalid_spans: int = 0


MISSING = TableScore(0.0, "missing_table")
MAX_LETTERS = 10**11
"""Product of the characters of both tables' cells that are compared at most: some seconds of edit distances."""
MAX_PAIRS = 25_000_000
"""Pairs of nodes that are compared at most, since some matrices of that size are held: about 600 rows of 8 cells in both."""

MAX_STEPS = 5 * 10**9
"""Steps of the recurrence at most, again some seconds. Flat tables of `MAX_PAIRS` take a twentieth; deeply nested tags far more."""


def teds(gold_html: str, pred_html: str, structure_only: bool = False, lenient: bool = False) -> float:
    """Similarity of two tables given as HTML; see `table_score`."""
    return table_score(gold_html, pred_html, structure_only, lenient).value


def table_score(gold_html: str, pred_html: str, structure_only: bool = False, lenient: bool = False) -> TableScore:
    """TEDS of the first table in each text.

    Args:
        gold_html: the reference.
        pred_html: what was read.
        structure_only: leave the content of cells out (TEDS-Struct).
        lenient: unwrap thead, tbody and tfoot, read th as td, and compare contents after NFC with white space made one
            space and stripped.

    Returns:
        1 (`both_empty`) where neither table has a descendant; 0 (`unreadable_table`) where a text has no table.

    Raises:
        Unmeasured: `too_large`, two different tables of more than `MAX_PAIRS` pairs of nodes, `MAX_LETTERS` of characters or
            `MAX_STEPS` of the recurrence; `too_deep`, a table beyond the parser's limits.
    """
    gold, pred = (table_tree(html, structure_only, lenient) for html in (gold_html, pred_html))
    if gold is None or pred is None:
        return TableScore(0.0, "unreadable_table")
    return _compared(gold, pred)


def match_tables(
    gold: Sequence[str], pred: Sequence[str], structure_only: bool = False, lenient: bool = False
) -> tuple[list[tuple[int | None, TableScore]], list[int]]:
    """The assignment of read tables to reference tables with the largest sum of TEDS.

    A pair that is `too_large` or `too_deep` counts 0 in the sum.

    Returns:
        Per reference table (in order) the number of its counterpart and their score, or (None, `missing_table`, 0); and
        the numbers of the tables that were read but have no counterpart (`spurious`).
    """
    from scipy.optimize import linear_sum_assignment

    wanted = [_read(html, structure_only, lenient) for html in gold]
    found = [_read(html, structure_only, lenient) for html in pred]
    scores = [[_scored(w, f) for f in found] for w in wanted]
    result: list[tuple[int | None, TableScore]] = [(None, MISSING)] * len(wanted)
    if wanted and found:
        values = np.array([[score.value for score in row] for row in scores])
        for row, column in zip(*linear_sum_assignment(values, maximize=True), strict=True):
            result[row] = (int(column), scores[row][column])
    taken = {column for column, _ in result}
    return result, [number for number in range(len(found)) if number not in taken]


def _read(html: str, structure_only: bool, lenient: bool) -> TableTree | Unmeasured | None:
    try:
        return table_tree(html, structure_only, lenient)
    except Unmeasured as reason:
        return reason


def _scored(gold: TableTree | Unmeasured | None, pred: TableTree | Unmeasured | None) -> TableScore:
    for side in (gold, pred):
        if isinstance(side, Unmeasured):
            return TableScore(0.0, side.reason)
    assert not isinstance(gold, Unmeasured)
    assert not isinstance(pred, Unmeasured)
    if gold is None or pred is None:
        return TableScore(0.0, "unreadable_table")
    try:
        return _compared(gold, pred)
    except Unmeasured as reason:
        return TableScore(0.0, reason.reason)


def _compared(gold: TableTree, pred: TableTree) -> TableScore:
    flagged = gold.invalid_spans + pred.invalid_spans
    size = max(gold.size, pred.size)
    if size == 0:
        return TableScore(1.0, "both_empty", flagged)
    if _equal(gold, pred):
        return TableScore(1.0, "scored", flagged)
    letters = [sum(map(len, set(tree.contents))) for tree in (gold, pred)]
    steps = _steps(gold) * _steps(pred)
    if len(gold.kinds) * len(pred.kinds) > MAX_PAIRS or letters[0] * letters[1] > MAX_LETTERS or steps > MAX_STEPS:
        raise Unmeasured(
            "too_large", f"tables of {len(gold.kinds)} and {len(pred.kinds)} nodes are too large to compare"
        )
    return TableScore(1.0 - tree_distance(pred, gold) / size, "scored", flagged)


def _equal(a: TableTree, b: TableTree) -> bool:
    return a.kinds == b.kinds and a.contents == b.contents and np.array_equal(a.leftmost, b.leftmost)


# Trees


def table_tree(html: str, structure_only: bool = False, lenient: bool = False) -> TableTree | None:
    """The first table of a text as a tree; None where there is none.

    Raises:
        Unmeasured: `too_deep`: the text is beyond the parser's limits, so that a part of the table would be missing.
    """
    table = _first_table(html)
    if table is None:
        return None
    size = sum(1 for node in table.iterdescendants() if isinstance(node.tag, str))
    if lenient:
        size -= _flatten(table)
    return _Builder(structure_only, lenient).build(table, size)


def _first_table(html: str) -> HtmlElement | None:
    from lxml import etree
    from lxml import html as lxml_html

    # Surrogates and NUL can't be encoded for the parser; they are no content of a cell either.
    text = html.encode("utf-8", "ignore").replace(b"\0", b"")
    if not text.strip():
        return None
    parser = lxml_html.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    try:
        tables = lxml_html.document_fromstring(text, parser=parser).xpath("//table")
    except (etree.ParserError, etree.XMLSyntaxError):
        tables = []
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        raise Unmeasured(
            "too_deep", "a table whose elements are nested 255 deep, or with texts of 10 MB, cannot be read whole"
        )
    return tables[0] if tables else None


def _flatten(table: HtmlElement) -> int:
    """Unwrap the row groups of a table; returns how many there were. Groups of tables inside cells stay."""
    groups = [node for node in table if node.tag in {"thead", "tbody", "tfoot"}]
    for group in groups:
        group.text = group.tail = None  # no content of a cell, and moving it is refused where it has control characters
        group.drop_tag()
    return len(groups)


@dataclass
class _Builder:
    """Walks a table without recursion: documents may nest deeper than Python's stack."""

    structure_only: bool
    lenient: bool
    kinds: list[tuple[str, int, int]] = field(default_factory=list)
    contents: list[tuple[str, ...]] = field(default_factory=list)
    leftmost: list[int] = field(default_factory=list)
    invalid: int = 0

    def build(self, table: HtmlElement, size: int) -> TableTree:
        """Number the nodes in post-order."""
        stack: list[tuple[HtmlElement, Iterator[HtmlElement], list[int]]] = [(table, self._children(table), [])]
        while stack:
            node, children, first = stack[-1]
            child = next(children, None)
            if child is not None:
                stack.append((child, self._children(child), []))
                continue
            stack.pop()
            left = first[0] if first else len(self.kinds)
            self._add(node, left)
            if stack and not stack[-1][2]:
                stack[-1][2].append(left)
        return TableTree(
            tuple(self.kinds), tuple(self.contents), np.array(self.leftmost, dtype=np.int64), size, self.invalid
        )

    def _is_cell(self, node: HtmlElement) -> bool:
        return node.tag == "td" or (self.lenient and node.tag == "th")

    def _children(self, node: HtmlElement) -> Iterator[HtmlElement]:
        return iter(()) if self._is_cell(node) else iter(list(node))

    def _add(self, node: HtmlElement, left: int) -> None:
        self.leftmost.append(left)
        if not self._is_cell(node):
            self.kinds.append((str(node.tag), 0, 0))
            self.contents.append(())
            return
        self.kinds.append(("td", self._span(node, "colspan"), self._span(node, "rowspan")))
        self.contents.append(() if self.structure_only else self._content(node))

    def _span(self, node: HtmlElement, name: str) -> int:
        try:
            return int(node.get(name, "1"))
        except ValueError:
            self.invalid += 1
            return 1

    def _content(self, cell: HtmlElement) -> tuple[str, ...]:
        if self.lenient:
            return tuple(" ".join(unicodedata.normalize("NFC", cell.text_content()).split()))
        return tuple(_tokens(cell))


def _tokens(cell: HtmlElement) -> list[str]:
    """Characters and tags inside a cell, as the reference scorer has them: no tail of a nested `td`."""
    tokens = list(cell.text or "")
    stack: list[HtmlElement | str] = list(reversed(cell))
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            tokens.append(node)
            continue
        tokens.append(f"<{node.tag}>")
        tokens += node.text or ""
        tail = [] if node.tag == "td" else list(node.tail or "")
        end = [] if node.tag == "unk" else [f"</{node.tag}>"]
        stack += [*reversed([*end, *tail])]
        stack += list(reversed(node))
    return tokens


# Distance


def tree_distance(a: TableTree, b: TableTree) -> float:
    """Least cost of making one tree the other: insert and delete 1, rename as the module says."""
    rename = _rename_costs(a, b)
    return float(_kernel()(a.leftmost, b.leftmost, _keyroots(a.leftmost), _keyroots(b.leftmost), rename))


def _keyroots(leftmost: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Per leftmost leaf the highest node above it, in post-order."""
    _, last = np.unique(leftmost[::-1], return_index=True)
    return np.sort(len(leftmost) - 1 - last).astype(np.int64)


def _steps(tree: TableTree) -> int:
    """Nodes below all keyroots: the product of two trees' is what the recurrence goes through."""
    roots = _keyroots(tree.leftmost)
    return int((roots - tree.leftmost[roots] + 1).sum())


def _rename_costs(a: TableTree, b: TableTree) -> Matrix:
    """Costs of each node of `a` against each of `b`; distinct contents are compared once."""
    kinds: dict[tuple[str, int, int], int] = {}
    kind_a, kind_b = (np.array([kinds.setdefault(k, len(kinds)) for k in tree.kinds]) for tree in (a, b))
    letters: dict[str, str] = {}
    (texts_a, index_a), (texts_b, index_b) = (_distinct(tree.contents, letters) for tree in (a, b))
    if len(texts_a) == len(texts_b) == 1 and not texts_a[0] and not texts_b[0]:
        content = np.zeros((1, 1))
    else:
        content = cdist(texts_a, texts_b, scorer=Levenshtein.normalized_distance, dtype=np.float64)
    return np.where(kind_a[:, None] == kind_b[None, :], content[np.ix_(index_a, index_b)], 1.0)


def _distinct(
    contents: Sequence[tuple[str, ...]], letters: dict[str, str]
) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int64]]]:
    """Distinct contents as strings of one code point a token, and each node's place among them."""
    places: dict[tuple[str, ...], int] = {}
    index = np.array([places.setdefault(content, len(places)) for content in contents], dtype=np.int64)
    return ["".join(letters.setdefault(t, _letter(len(letters))) for t in content) for content in places], index


def _letter(number: int) -> str:
    """A code point for a token's number, past the surrogates."""
    return chr(number + 1 if number < 0xD000 else number + 0x1000)


@lru_cache(maxsize=1)
def _kernel() -> Callable[..., float]:
    """The recurrence, compiled; numba is loaded here and not with the package."""
    from numba import njit

    return njit(cache=True)(_zhang_shasha)


def _zhang_shasha(left_a: Any, left_b: Any, roots_a: Any, roots_b: Any, rename: Any) -> float:
    """Zhang & Shasha 1989 over post-order arrays; unit cost of insert and delete."""
    n, m = len(left_a), len(left_b)
    tree = np.zeros((n, m))
    forest = np.zeros((n + 1, m + 1))
    for i in roots_a:
        for j in roots_b:
            li, lj = left_a[i], left_b[j]
            rows, columns = i - li + 1, j - lj + 1
            forest[0, 0] = 0.0
            for x in range(1, rows + 1):
                forest[x, 0] = forest[x - 1, 0] + 1.0
            for y in range(1, columns + 1):
                forest[0, y] = forest[0, y - 1] + 1.0
            for x in range(1, rows + 1):
                node_a = li + x - 1
                whole_a = left_a[node_a] == li
                for y in range(1, columns + 1):
                    node_b = lj + y - 1
                    best = min(forest[x - 1, y], forest[x, y - 1]) + 1.0
                    if whole_a and left_b[node_b] == lj:
                        best = min(best, forest[x - 1, y - 1] + rename[node_a, node_b])
                        tree[node_a, node_b] = best
                    else:
                        above = forest[left_a[node_a] - li, left_b[node_b] - lj]
                        best = min(best, above + tree[node_a, node_b])
                    forest[x, y] = best
    return float(tree[n - 1, m - 1])
