import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.keys import NAME, Key, KeyNameError, slug


def test_a_key_is_read_and_written_back():
    key = Key.parse("leave@2026.1#small-chunks")
    assert (key.corpus, key.version, key.pipeline) == ("leave", "2026.1", "small-chunks")
    assert key.subject == "leave@2026.1"
    assert key.text == "leave@2026.1#small-chunks"
    assert Key.parse("leave@v1").text == "leave@v1"
    assert Key.parse("leave@v1").pipeline == "default"


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("Leave Policy@v1", "'leave-policy@v1'"),
        ("leave", "'leave@v1'"),
        ("leave@gold", "'leave@gold-1'"),
        ("leave@pipelines", "'leave@pipelines-1'"),
        ("leave@v1#Größe 2", "'leave@v1#groe-2'"),
        ("leave@v1#", "'leave@v1'"),
        ("leave@v1#default", "'leave@v1'"),
        ("../x@v1", "'x@v1'"),
        ("a@b@c", "'a@b-c'"),
        ("a/b@v1", "'a-b@v1'"),
        ("a" * 64 + "@v1", f"'{'a' * 63}@v1'"),
        ("", "'corpus@v1'"),
    ],
)
def test_another_name_is_refused_with_a_slug(text, offered):
    with pytest.raises(KeyNameError) as caught:
        Key.parse(text)
    assert offered in str(caught.value)


@given(st.text(max_size=100))
def test_a_slug_is_always_an_allowed_name(text):
    assert NAME.fullmatch(slug(text))


@given(st.text(max_size=40))
def test_any_text_is_a_key_or_refused_with_a_key_that_is_one(text):
    try:
        Key.parse(text)
    except KeyNameError as error:
        offered = str(error).split("such as " if "such as " in str(error) else "as a whole: ")[-1].strip("'")
        assert Key.parse(offered)
