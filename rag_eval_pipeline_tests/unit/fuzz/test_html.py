"""Any bytes read as html, and any two texts compared as tables: the invariants of the long runs, on hypothesis's inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.stages.parsing.markup import read_html
from rag_eval_pipeline_tests.fuzz.invariants import check_page, check_tables
from rag_eval_pipeline_tests.sizes import examples

TAGS = [
    "table",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "td",
    "th",
    "caption",
    "col",
    "li",
    "ul",
    "ol",
    "h1",
    "h3",
    "p",
    "pre",
    "br",
    "nav",
    "main",
    "svg",
    "template",
    "script",
    "b",
    "i",
    "unk",
    "select",
    "noscript",
]
PIECE = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
    st.sampled_from(
        ["<td colspan=2>", "<td rowspan='x'>", "<td colspan=99999999999999999999>", "<td colspan='-1'>", "<p hidden>", "&amp;", "&#0;",
         "&#xD800;", "&lt;b&gt;", "<!--", "-->", "<![CDATA[", "]]>", "<?xml version='1.0' encoding='utf-16'?>", "<meta charset='x'>", "\0",
         "\r\n", "\t", "\u00ad", "\u202e", "<p style='display:none'>", "<p class='cookie-banner'>"]
    ),
    st.text(max_size=6),
)  # fmt: skip
TEXT = st.lists(PIECE, max_size=40).map("".join)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("html") / "page.html"


@examples(150, 5_000)
@given(st.one_of(TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=200)))
def test_any_page_is_refused_or_read_into_sound_rows(page, data):
    check_page(data, page)


UTF16 = "<?xml version='1.0' encoding='utf-16'"


@pytest.mark.parametrize("before", [f"{UTF16}?>" * 2, f"\n{UTF16}?>\n {UTF16}?>", f"{UTF16}>"])
def test_declarations_of_an_encoding_are_passed_over(page, before):
    data = f"{before}<p>Seven days.</p>".encode()
    check_page(data, page)
    assert read_html(page, None).rows()["parsed"][0]["text"].strip() == "Seven days."


@examples(150, 5_000)
@given(TEXT, TEXT)
def test_any_two_texts_compare_within_bounds(a, b):
    check_tables(a, b)
    check_tables(f"<table>{a}</table>", f"<table>{b}")
