"""An edit in an imported helper changes the fingerprint; a docstring's, a comment's or an unrelated module's does not."""

import sys

import pytest

from rag_eval_pipeline.warehouse import fingerprint as module
from rag_eval_pipeline.warehouse.fingerprint import code_fingerprint, plugin_fingerprint


def forget():
    """What a new process starts with: code is read once a process."""
    module._read.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / "pack"
    (root / "inner").mkdir(parents=True)
    files = {
        "__init__.py": "from pack.unrelated import other\n",
        "main.py": '"""Doc."""\nfrom pack.helper import f\n\ndef run():\n    """Doc."""\n    from pack.inner import late\n    return f() + late.g()\n',
        "helper.py": "def f():\n    return 1\n",
        "unrelated.py": "def other():\n    return 1\n",
        "inner/__init__.py": "",
        "inner/late.py": "def g():\n    return 2\n",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [n for n in sys.modules if n == "pack" or n.startswith("pack.")]:
        del sys.modules[name]


def edit(path, old, new):
    before = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace(old, new))
    assert path.stat().st_mtime_ns != before


def fingerprint():
    forget()
    return code_fingerprint(["pack.main"], package="pack")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("main.py", "return f()", "return 2 * f()"), ("helper.py", "1", "3"), ("inner/late.py", "2", "5")],
)
def test_an_edit_that_can_change_a_result_is_noticed(package, file, old, new):
    before = fingerprint()
    edit(package / file, old, new)
    assert fingerprint() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.py", '"""Doc."""', '"""Other words."""'),
        ("helper.py", "    return 1", "    # a comment\n    return 1"),
        ("unrelated.py", "1", "2"),
    ],
)
def test_an_edit_that_cannot_is_not(package, file, old, new):
    before = fingerprint()
    edit(package / file, old, new)
    assert fingerprint() == before


def test_what_was_read_is_kept_beside_the_bytecode_and_a_broken_or_older_copy_is_read_anew(package, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    before = fingerprint()
    kept = sorted(package.rglob("*.fingerprint"))
    assert {path.name.split(".")[0] for path in kept} == {"main", "helper", "late"}
    with monkeypatch.context() as patched:
        patched.setattr(module, "_analysed", None)  # nothing is parsed
        assert fingerprint() == before
    for path, text in zip(kept, ['{"source": [1', "[]", of_another_form(kept[2])], strict=True):
        path.write_text(text)
    assert fingerprint() == before


def of_another_form(path):
    return path.read_text().replace(f'"source": [{module.FORM},', '"source": [0,').replace('"code": "', '"code": "x')


def test_a_package_that_may_not_be_written_to_is_read_all_the_same(package, monkeypatch):
    before = fingerprint()
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for path in package.rglob("*.fingerprint"):
        path.unlink()
    monkeypatch.setattr(module.Path, "write_text", refuse)
    assert fingerprint() == before
    assert not list(package.rglob("*.fingerprint"))


def refuse(*_arguments):
    raise PermissionError


def test_an_edit_while_a_process_runs_does_not_rename_what_its_loaded_code_computes(package):
    before = fingerprint()
    edit(package / "main.py", "return f()", "return 2 * f()")
    assert code_fingerprint(["pack.main"], package="pack") == before


def test_a_users_class_counts_with_its_whole_package(package):
    before = plugin_fingerprint("pack.main:run")
    edit(package / "unrelated.py", "1", "2")
    forget()
    assert plugin_fingerprint("pack.main:run") != before


def test_no_stage_hangs_on_measures_ledger_or_orchestration():
    from rag_eval_pipeline.stages.graph import STAGES

    for stage in STAGES:
        seen, queue = set(), [f"rag_eval_pipeline.stages.{stage.name}.transform"]
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue.extend(module._imports(module._source(name), "rag_eval_pipeline"))
        above = {
            n
            for n in seen
            if any(part in n for part in (".quality", ".attribution", ".release", ".orchestration", ".evidence"))
        }
        assert not above, f"{stage.name} is computed anew when {above} change"
