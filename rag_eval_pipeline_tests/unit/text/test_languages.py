"""One name of a language for all rooms."""

import pytest

from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.text.sentences import sentences


@pytest.mark.parametrize("tag", ["es", "ES", "es-MX", "es_MX", "es-Latn-419"])
def test_the_primary_subtag_is_that_of_the_tag(tag):
    assert primary(tag) == "es"


@pytest.mark.parametrize("tag", [None, "", "und", "UND", "und-Latn"])
def test_what_is_undetermined_has_none(tag):
    assert primary(tag) == ""


def test_a_tag_with_an_underscore_means_the_same_language():
    text = "La Sra. Ruiz llega. El lunes no."
    assert sentences(text, "es_MX") == sentences(text, "es")
