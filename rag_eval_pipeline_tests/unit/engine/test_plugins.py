"""Import paths: what can't be a class of the user's own is told before a run, without running any of it; all else passes."""

import sys

import pytest

from rag_eval_pipeline.engine.plugins import why_no_component

SOURCE = """
raise RuntimeError("nobody runs this")
from functools import cached_property as borrowed
made = assigned = type("Made", (), {})

class Right:
    def answer(self, query, passages):
        return ""

class Other:
    def reply(self, query, passages):
        return ""

class Inherits(Right):
    pass

@made
class Decorated:
    pass

class Makes:
    def __new__(cls):
        return Right()

class Assigns:
    answer = lambda self, query, passages: ""

def answer(query, passages):
    return ""

try:
    import nothing_of_this_name
except ImportError:
    class Late:
        if made:
            def answer(self, query, passages):
                return ""
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "my_own_parts.py").write_text(SOURCE, "utf-8")
    (tmp_path / "my_open_parts.py").write_text("from my_own_parts import *\n", "utf-8")
    (tmp_path / "my_broken_parts.py").write_text("class Right(:\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", ["Right", "Inherits", "Decorated", "Makes", "Assigns", "Late", "borrowed", "assigned"])
def test_what_may_be_a_component_passes_and_nothing_is_imported(name):
    assert why_no_component(f"my_own_parts:{name}", ("answer",)) is None
    assert "my_own_parts" not in sys.modules


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("os:system", "a part of Python itself"), ("json.decoder:JSONDecoder", "a part of Python itself"),
        ("sys:exit", "a part of Python itself"), ("no_such_module:Right", "whose module is not found"),
        ("my_own_parts.below:Right", "whose module is not found"), ("yaml._yaml:Mark", "no source"),
        ("my_own_parts:Wrong", "but its module has no `Wrong`"), ("my_own_parts:answer", "a function, no class"),
        ("my_own_parts:Other", "a class without a method `answer`"), ("my_broken_parts:Right", "no Python"),
    ],
)  # fmt: skip
def test_what_can_not_be_one_is_told_with_the_reason(path, why):
    assert why in why_no_component(path, ("answer",))


@pytest.mark.usefixtures("modules")
def test_a_module_that_may_define_anything_passes_and_one_of_several_methods_is_enough():
    assert why_no_component("my_open_parts:Anything", ("answer",)) is None
    assert why_no_component("my_own_parts:Other", ("answer", "reply")) is None
    assert why_no_component("my_own_parts:Other") is None
