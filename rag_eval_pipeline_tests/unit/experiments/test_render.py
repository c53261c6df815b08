"""Printed corpora: the transcript is what was printed, gold stands in it, and pages can be read back."""

import json

import pytest

from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.version import load_version
from rag_eval_pipeline.experiments.render import RenderError, render
from rag_eval_pipeline_tests.small import write_corpus


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    root = tmp_path_factory.mktemp("print")
    write_corpus(root, documents=6)
    return root


@pytest.mark.parametrize("medium", ["pdf", "html"])
def test_gold_of_a_printed_version_stands_in_its_transcripts(corpora, medium):
    target = Key(f"out-{medium}", "v1")
    documents, queries = render(corpora, Key("small", "v1"), target, medium, chars=600)
    version = load_version(corpora, target)
    assert (version.files.height, version.gold.queries.height) == (documents, queries)
    texts = dict(version.gold.references.iter_rows())
    assert documents >= 6
    assert queries > 0
    for row in version.gold.evidence.iter_rows(named=True):
        assert texts[row["doc_id"]][row["start"] : row["end"]] == row["quote"]
    filters = [json.loads(text) for text in version.gold.queries["filter"]]
    shelves = {json.loads(text)["shelf"] for text in version.files["metadata"]}
    assert {value["shelf"] for value in filters} <= shelves


def test_a_printed_pdf_has_pages_that_read_as_the_transcript(corpora):
    import pypdfium2

    render(corpora, Key("small", "v1"), Key("pages", "v1"), "pdf", chars=9000)
    version = load_version(corpora, "pages@v1")
    texts = dict(version.gold.references.iter_rows())
    for doc_id, path in version.files.select("doc_id", "path").iter_rows():
        pdf = pypdfium2.PdfDocument(version.folder / "documents" / path)
        read = " ".join(page.get_textpage().get_text_bounded() for page in pdf)
        assert read.split() == texts[doc_id].split()
        pdf.close()


def test_a_scan_has_no_text_layer(corpora):
    import pypdfium2

    render(corpora, Key("small", "v1"), Key("scans", "v1"), "scan", documents=1, dpi=72)
    [path] = (corpora / "scans" / "v1" / "documents").iterdir()
    pdf = pypdfium2.PdfDocument(path)
    assert len(pdf) >= 1
    assert "".join(page.get_textpage().get_text_bounded() for page in pdf).strip() == ""
    pdf.close()


def test_the_same_seed_prints_the_same(corpora):
    for name in ("same-a", "same-b"):
        render(corpora, Key("small", "v1"), Key(name, "v1"), "pdf", seed=5)
    a, b = (load_version(corpora, f"{name}@v1") for name in ("same-a", "same-b"))
    assert a.documents_hash == b.documents_hash
    assert a.gold.hash == b.gold.hash


def test_what_cannot_be_printed_is_refused(corpora):
    with pytest.raises(RenderError, match="pdf, scan, html"):
        render(corpora, Key("small", "v1"), Key("x", "v1"), "docx")
    with pytest.raises(FileExistsError):
        render(corpora, Key("small", "v1"), Key("small", "v1"), "pdf")


@pytest.mark.parametrize("wrong", [{"chars": -5}, {"chars": 0}, {"documents": 0}, {"queries": -1}, {"dpi": 0}])
def test_numbers_below_one_are_refused_before_anything_is_printed(corpora, wrong):
    (name,) = wrong
    with pytest.raises(RenderError, match=f"{name}: found {wrong[name]}; .* at least 1"):
        render(corpora, Key("small", "v1"), Key("none", "v1"), "html", **wrong)
    assert not (corpora / "none").exists()
