"""The report in a browser: search, sort, stories, keyboard, print, light and dark, and axe-core finds no serious fault."""

import json
import re

import pytest

from rag_eval_pipeline.release.comparing import compare
from rag_eval_pipeline.release.reading import Evaluation
from rag_eval_pipeline.release.report import LARGEST, write_report
from rag_eval_pipeline_tests.integration.house import Run, home_of
from rag_eval_pipeline_tests.integration.test_gate import configure
from rag_eval_pipeline_tests.small import write_mixed
from rag_eval_pipeline_tests.ui.conftest import watched

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.browser]

PIPELINE = {
    "retrieval": {
        "bm25": {"kind": "bm25"},
        "again": {"kind": "bm25", "b": 0.3},
        "both": {"kind": "rrf", "lanes": ["bm25", "again"]},
    },
    "chunking": {"splitter": "recursive", "size": 12, "overlap": 2, "unit": "words"},
    "pii": None,
}
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with everything on it: losses at several stages, a baseline, changes, a gate that fails."""
    home = home_of(tmp_path_factory.mktemp("page"))
    write_mixed(
        home.corpora, PIPELINE, ledger={"repairs": "single"}, evaluate={"serve": "both", "serve_k": 3, "k": [1, 3]}
    )
    configure(home, {"metric": "recall", "k": 3, "min": 0.9}, corpus="mixed")
    before = Run(home, "mixed@v1").manifest
    settings = home.corpora / "mixed" / "corpus.yaml"
    body = json.loads(settings.read_text("utf-8"))
    body["pipeline"]["chunking"]["size"] = 6
    settings.write_text(json.dumps(body), "utf-8")
    now = Run(home, "mixed@v1").manifest
    compare(home, before, now)
    path = write_report(Evaluation.of(home, "mixed@v1", now.evaluation_id))
    assert path.stat().st_size < LARGEST
    return path


@pytest.fixture
def page(browser, report):
    with watched(browser) as opened:
        opened.goto(report.as_uri())
        yield opened
        assert opened.faults == []
        assert [url for url in opened.requests if url.split("#")[0] != report.as_uri()] == []


def shown(page):
    return page.locator("#scorecard-table tbody tr:visible")


def column(page, number):
    cells = page.locator(f"#scorecard-table tbody tr:visible > :nth-child({number})")
    return [cell.get_attribute("data-value") for cell in cells.all()]


def test_search_leaves_the_rows_that_hold_every_word(page):
    every = shown(page).count()
    assert page.locator("#scorecard-count").inner_text() == f"{every} of {every} rows"
    page.get_by_label("Search").fill("RETRIEVAL recall")
    found = shown(page).count()
    assert 0 < found < every
    assert page.locator("#scorecard-count").inner_text() == f"{found} of {every} rows"
    for row in shown(page).all():
        told = (row.inner_text() + (row.get_attribute("data-about") or "")).lower()
        assert "retrieval" in told
        assert "recall" in told
    page.get_by_label("Search").fill("no such measure")
    assert shown(page).count() == 0
    page.get_by_label("Search").fill("")
    assert shown(page).count() == every


def test_sort_orders_by_number_both_ways_with_missing_ones_last(page):
    head = page.locator("#scorecard-table thead th").nth(5)
    assert head.inner_text().startswith("mean")
    for direction, reverse in (("ascending", False), ("descending", True)):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        values = column(page, 6)
        numbers = [float(value) for value in values if value]
        assert len(numbers) > 5
        assert numbers == sorted(numbers, reverse=reverse)
        assert not any(values[len(numbers) :]), "rows without a value stand last"


def test_the_keyboard_alone_reaches_content_search_and_sort(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_label("Search").focus()
    page.keyboard.type("recall")
    assert shown(page).count() > 0
    page.keyboard.press("Tab")  # the region that scrolls, or the first head
    for _ in range(3):
        if page.evaluate("document.activeElement.tagName") == "BUTTON":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#scorecard-table th[aria-sort=ascending]").count() == 1
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "whoever tabs sees where they are"


def test_a_lost_query_leads_to_its_story_and_back(page):
    link = page.locator("section[aria-labelledby=losses] tbody a").first
    name = link.inner_text()
    link.click()
    target = page.locator("article:target")
    assert target.count() == 1
    assert name in target.locator("h3").inner_text()
    page.wait_for_function(  # it scrolls there, and takes a moment
        "() => { const r = document.querySelector('article:target').getBoundingClientRect(); return r.top >= -1 && r.top < innerHeight }"
    )
    assert target.locator("li.first").count() >= 1
    target.get_by_role("link", name=re.compile("^Back to the list")).click()
    assert page.evaluate("location.hash") == "#losses"


def test_every_link_of_the_page_has_its_place(page):
    missing = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1)).filter(id => !document.getElementById(id))"
    )
    assert missing == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_printed_it_is_light_whole_and_without_controls(browser, report, tmp_path, scheme):
    import pypdfium2

    with watched(browser, color_scheme=scheme) as page:
        page.goto(report.as_uri())
        rows = page.locator("#scorecard-table tbody tr").count()
        metrics = [cell.inner_text().split()[0] for cell in page.locator("#scorecard-table tbody th").all()]
        target = tmp_path / "report.pdf"
        page.pdf(path=str(target), format="A4", print_background=True)
    document = pypdfium2.PdfDocument(target)
    pages = [document[number] for number in range(len(document))]
    text = "\n".join(p.get_textpage().get_text_range() for p in pages)
    assert len(metrics) == rows > 20
    for heading in (
        "Verdict",
        "Where recall was lost",
        "What changed",
        "Stories of lost queries",
        "Scorecard",
        "Provenance",
    ):
        assert heading in text
    plain = re.sub(r"\s+", "", text)
    assert all(metric in plain for metric in metrics), "no row of the scorecard is cut off"
    assert "content_hash" in plain or "Storedtables" in plain, "what is folded on the screen is open on paper"
    assert "Skip to the content" not in text
    assert "Search" not in text
    pixel = pages[0].render(scale=0.5).to_pil().convert("RGB").getpixel((3, 3))
    assert min(pixel) > 240, f"paper is white in the {scheme} scheme"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1500, 400])
def test_axe_finds_no_serious_fault(browser, report, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    with watched(browser, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True) as page:
        page.goto(report.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found = Axe().run(page).response
        assert found["passes"], "axe ran"
        grave = {
            f"{fault['id']} ({fault['impact']}): {fault['nodes'][0]['html'][:200]}"
            for fault in found["violations"]
            if fault["impact"] in GRAVE
        }
        assert grave == set()
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"the page scrolls sideways by {wider} px at {width} px"
        assert [url for url in page.requests if not url.startswith("file:")] == []


def test_dark_and_light_differ_and_both_are_its_own_colours(browser, report):
    papers = {}
    for scheme in ("light", "dark"):
        with watched(browser, color_scheme=scheme) as page:
            page.goto(report.as_uri())
            papers[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert papers == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}
