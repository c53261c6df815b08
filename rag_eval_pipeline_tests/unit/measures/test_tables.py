"""TEDS against the published scores, against apted on trees built apart, and where the reference scorer fails."""

import json
import random

import pytest
from apted import APTED, Config
from hypothesis import given
from hypothesis import strategies as st
from lxml import html as lxml_html
from rapidfuzz.distance import Levenshtein

from rag_eval_pipeline.measures import tables as measures
from rag_eval_pipeline.measures.metric import Unmeasured
from rag_eval_pipeline.measures.tables import match_tables, table_score, table_tree, teds, tree_distance
from rag_eval_pipeline_tests.sizes import FULL, measured

# The oracle: nested lists and recursion, where ours has arrays and a stack.


class Node:
    def __init__(self, tag, spans=(None, None), content=(), children=()):
        self.tag, self.spans, self.content, self.children = tag, spans, list(content), list(children)


class Costs(Config):
    def rename(self, a, b):
        if a.tag != b.tag or a.spans != b.spans:
            return 1.0
        if a.tag == "td" and (a.content or b.content):
            return Levenshtein.distance(a.content, b.content) / max(len(a.content), len(b.content))
        return 0.0


def tokens_of(node, outer=True):
    inner = list(node.text or "") + [token for child in node for token in tokens_of(child, False)]
    if outer:
        return inner
    tail = [] if node.tag == "td" else list(node.tail or "")
    return [f"<{node.tag}>", *inner, f"</{node.tag}>", *tail]


def tree_of(node):
    if node.tag != "td":
        return Node(node.tag, children=[tree_of(child) for child in node])
    spans = int(node.get("colspan", "1")), int(node.get("rowspan", "1"))
    return Node("td", spans, tokens_of(node))


def reference_teds(gold, pred):
    trees = [lxml_html.document_fromstring(text).xpath("//table")[0] for text in (pred, gold)]
    size = max(len(tree.xpath(".//*")) for tree in trees)
    return 1.0 - APTED(*map(tree_of, trees), Costs()).compute_edit_distance() / size


def drawn_cell(rng):
    tag = rng.choice(["td", "td", "td", "th"])
    spans = "".join(f' {name}="{rng.randint(1, 3)}"' for name in ("colspan", "rowspan") if rng.random() < 0.2)
    text = "".join(
        rng.choice(["a", "b", "1", "é", "漢", " ", "&amp;", "&lt;", "<b>x</b>", "<i>y<b>z</b></i>t", ""])
        for _ in range(3)
    )
    nested = "<table><tr><td>n</td></tr></table>u" if rng.random() < 0.05 else ""
    return f"<{tag}{spans}>{text}{nested}</{tag}>"


def drawn_table(rng):
    rows = [
        "<tr>" + "".join(drawn_cell(rng) for _ in range(rng.randint(0, 4))) + "</tr>" for _ in range(rng.randint(0, 4))
    ]
    cut = rng.randint(0, len(rows))
    head = f"<thead>{''.join(rows[:cut])}</thead>" if cut and rng.random() < 0.7 else "".join(rows[:cut])
    body = f"<tbody>{''.join(rows[cut:])}</tbody>" if rng.random() < 0.5 else "".join(rows[cut:])
    return f"<table>{head}{body}</table>"


def changed(rng, table):
    """The same table with a few edits: alike tables try the recurrence harder than strangers."""
    for _ in range(rng.randint(0, 3)):
        old, new = rng.choice(
            [("td", "th"), (">a", ">bb"), ("</tr><tr>", ""), ("<b>x</b>", "x"), ("colspan", "rowspan")]
        )
        table = table.replace(old, new, 1)
    return table


@pytest.mark.parametrize("seed", range(20 if FULL else 1))
def test_equals_apted_on_generated_tables(seed):
    rng, compared = random.Random(seed), 0
    while compared < 500:
        gold = drawn_table(rng)
        pred = changed(rng, gold) if rng.random() < 0.5 else drawn_table(rng)
        if "<t" not in gold[1:] and "<t" not in pred[1:]:
            continue  # the reference divides by zero
        assert teds(gold, pred) == pytest.approx(reference_teds(gold, pred), abs=1e-9), (gold, pred)
        compared += 1


@pytest.mark.parametrize("structure_only", [False, True])
def test_equals_the_published_scores(shared, structure_only):
    pairs = json.loads(shared("data", "pubtabnet", "teds_pairs.json").read_text("utf-8"))
    for name, pair in pairs.items():
        expected = pair["expected"]["teds_struct" if structure_only else "teds"]
        assert teds(pair["gold"]["html"], pair["pred"], structure_only) == pytest.approx(expected, abs=1e-9), name


tables = st.integers(0, 2**32).map(lambda seed: drawn_table(random.Random(seed)))


@measured
@given(a=tables, b=tables)
def test_is_one_for_equal_tables_symmetric_and_at_most_one(a, b):
    assert teds(a, a) == teds(b, b) == 1.0
    assert teds(a, b) == pytest.approx(teds(b, a), abs=1e-12)
    assert teds(a, b) <= 1.0
    assert teds(a, b, structure_only=True) >= teds(a, b) - 1e-12


@given(
    text=st.text()
    | st.lists(
        st.sampled_from(
            ["<table>", "<tr>", "<td>", "</td>", "x", "<", "&#0;", "</table>", "\0", "<td colspan='²'>", "<!--", "<?"]
        )
    ).map("".join)
)
def test_any_text_has_a_score(text):
    for score in (
        table_score(text, "<table><tr><td>1</td></tr></table>"),
        table_score("<table></table>", text),
        table_score(text, text, lenient=True),
    ):
        assert score.value <= 1.0
        assert score.status in {"scored", "both_empty", "unreadable_table"}


def test_says_what_is_no_ordinary_score():
    one = "<table><tr><td>1</td></tr></table>"
    assert table_score("<table></table>", "<table> </table>").status == "both_empty"
    assert table_score("<table></table>", "<table></table>").value == 1.0
    assert table_score(one, "no table here") == table_score("", one)
    assert (table_score(one, "").value, table_score(one, "").status) == (0.0, "unreadable_table")
    odd = table_score('<table><tr><td colspan="2px">1</td></tr></table>', one)
    assert (odd.value, odd.invalid_spans) == (1.0, 1)


def test_content_of_header_cells_costs_nothing_and_inner_tags_count_in_the_size():
    assert teds("<table><tr><th>a</th></tr></table>", "<table><tr><th>zzz</th></tr></table>") == 1.0
    bold, plain = "<table><tr><td><b>a</b></td></tr></table>", "<table><tr><td>a</td></tr></table>"
    assert teds(bold, plain) == pytest.approx(1 - (2 / 3) / 3)


def test_the_lenient_score_forgives_groups_header_cells_forms_and_spaces():
    gold = "<table><thead><tr><th>Tarifa  a\u00f1o</th></tr></thead><tbody><tr><td><b>1</b> </td></tr></tbody></table>"
    pred = "<table><tr><td>Tarifa an\u0303o</td></tr><tr><td>1</td></tr></table>"
    assert teds(gold, pred) < 0.8
    assert teds(gold, pred, lenient=True) == 1.0
    assert teds(gold, pred.replace("1", "2"), lenient=True) < 1.0


def test_several_tables_are_matched_best_and_none_is_shifted_by_a_missing_one():
    first, second, third = (
        f"<table><tr><td>{word}</td><td>{word}</td></tr></table>" for word in ("alpha", "beta", "gamma")
    )
    matched, spurious = match_tables([first, second, third], [third, first])
    assert [number for number, _ in matched] == [1, None, 0]
    assert [score.value for _, score in matched] == [1.0, 0.0, 1.0]
    assert matched[1][1].status == "missing_table"
    assert spurious == []
    assert match_tables([first], [second, first])[1] == [0]
    assert match_tables([], [first]) == ([], [0])


def test_a_table_nested_deeper_than_the_stack_is_read():
    deep = "<table>" + "<tr><td>x" * 3000
    assert table_score(deep, deep).value == 1.0
    rows = "<table>" + "".join(f"<tr>{'<td>x</td>' * 5}</tr>" for _ in range(300)) + "</table>"
    tree = table_tree(rows)
    assert tree is not None
    assert tree_distance(tree, tree) == 0.0


def test_two_deeply_nested_tables_of_few_nodes_are_too_large_and_said_to_be():
    deep = "".join(f"<tr>{'<b><i></i>' * 100}{'</b>' * 100}</tr>" for _ in range(10))
    with pytest.raises(Unmeasured, match="too large") as told:
        teds(f"<table>{deep}</table>", f"<table>{deep}<tr></tr></table>")
    assert told.value.reason == "too_large"
    flat = "".join(f"<tr>{'<td></td>' * 8}</tr>" for _ in range(550))
    trees = [measures.table_tree(f"<table>{flat}{more}</table>") for more in ("", "<tr></tr>")]
    assert measures._steps(trees[0]) * measures._steps(trees[1]) < measures.MAX_STEPS / 20


def test_two_different_cells_of_megabytes_are_too_large_and_said_to_be():
    cells = [f"<table><tr><td>{letter * 1_000_000}</td></tr></table>" for letter in "ab"]
    with pytest.raises(Unmeasured, match="too large"):
        teds(*cells)
    assert teds(cells[0], cells[0]) == 1.0


def test_a_table_nested_beyond_the_parsers_limit_has_a_status_and_no_score():
    deep = "<table><tr><td>" * 300 + "x" + "</td></tr></table>" * 300
    flat = "<table><tr><td>x</td></tr></table>"
    for a, b in ((deep, flat), (flat, deep), (deep, deep)):
        with pytest.raises(Unmeasured) as told:
            table_score(a, b)
        assert told.value.reason == "too_deep"
    matched, spurious = match_tables([flat, flat], [deep, flat])
    assert [(place, score.status) for place, score in matched if score.value == 1.0] == [(1, "scored")]
    assert [score.status for place, score in matched if place == 0] == ["too_deep"]
    assert spurious == []
    shallow = "<table><tr><td>" * 60 + "x" + "</td></tr></table>" * 60
    assert table_score(shallow, shallow).value == 1.0
