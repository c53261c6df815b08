"""Versions are mirrored whole or not at all, go on after any interruption, and write nowhere but into their corpus."""

import contextlib
import itertools
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus import mirror as module
from rag_eval_pipeline.corpus.layout import list_corpora
from rag_eval_pipeline.corpus.mirror import mirror
from rag_eval_pipeline_tests.sizes import examples

DOCUMENTS = {f"documents/part/d{number}.md": f"Document {number}." for number in range(7)}
LABELS = {
    "gold/queries.jsonl": '{"query_id": "q1"}\n',
    "corpus.yaml": "languages: [en]\n",
    "pipelines/tiny.yaml": "{}\n",
}


class Source:
    """A folder that stands for a bucket, mirrored into a corpora folder beside it."""

    def __init__(self, root):
        self.root, self.corpora = root / "bucket", root / "corpora"
        self.root.mkdir()
        self.corpora.mkdir()

    def put(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def version(self, name="v1", corpus="c", **more):
        for path, text in (DOCUMENTS | more).items():
            self.put(f"{corpus}/{name}/{path}", text)
        for path, text in LABELS.items():
            self.put(f"{corpus}/{path}", text)

    def step(self, **options):
        return mirror(self.corpora, f"file://{self.root}", {}, **{"quiet": 0, **options})

    def until_still(self, passes=6):
        done = [self.step() for _ in range(passes)]
        assert done[-1].placed == done[-1].followed == []
        return done

    def here(self, corpus="c"):
        return tree(self.corpora / corpus)

    def there(self, corpus="c"):
        return tree(self.root / corpus)


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path)


def test_a_version_appears_whole_once_its_source_is_quiet(source):
    source.version(gold_is="no document")
    first = source.step()
    assert first.placed == []
    assert "c@v1 changed at the source; waiting until it is quiet" in " ".join(first.notes)
    assert not (source.corpora / "c").exists()
    assert source.step().placed == ["c@v1"]
    assert source.here() == source.there()
    assert list_corpora(source.corpora) == ["c"], "the mirror's own folder is no corpus"
    source.until_still()


def test_the_mark_spares_the_waiting_and_can_be_asked_for(source):
    source.version("v1", _READY="")
    source.version("v2")
    assert source.step(quiet=600).placed == ["c@v1"]
    for _ in range(3):
        done = source.step(ready="required")
        assert done.placed == []
    assert "c@v2 waits for its file _READY" in " ".join(done.notes)
    source.put("c/v2/_READY", "")
    assert source.step(ready="required").placed == ["c@v2"]


def test_a_version_that_is_still_being_copied_at_the_source_is_waited_for(source):
    source.version()
    for number in range(4):
        assert source.step().placed == []
        source.put(f"c/v1/documents/late{number}.md", "Late.")
    source.step()
    assert source.step().placed == ["c@v1"]
    assert source.here() == source.there()


def test_a_source_that_changes_while_it_is_copied_is_copied_again(source, monkeypatch):
    source.version()
    source.step()
    honest = module._Pass._get

    def meddling(self, key, folder, batch, pairs):
        honest(self, key, folder, batch, pairs)
        if "/v1" in folder:
            source.put("c/v1/documents/part/d3.md", "Another text, while you copied.")

    monkeypatch.setattr(module._Pass, "_get", meddling)
    done = source.step()
    assert done.placed == []
    assert "changed at the source while it was copied" in " ".join(done.notes)
    assert not (source.corpora / "c" / "v1").exists()
    monkeypatch.setattr(module._Pass, "_get", honest)
    source.step()
    assert source.step().placed == ["c@v1"]
    assert source.here() == source.there()


def test_a_pass_that_runs_out_of_time_goes_on_and_fetches_nothing_twice(source, monkeypatch):
    source.version()
    source.version("v2", corpus="other")
    monkeypatch.setattr(module, "BATCH_FILES", 2)
    source.step()
    fetched = []
    honest = module._Pass._get
    monkeypatch.setattr(
        module._Pass, "_get", lambda self, key, folder, batch, pairs: fetched.extend((key, path) for path in batch) or honest(self, key, folder, batch, pairs)
    )  # fmt: skip
    clock = itertools.count()
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    placed, passes = [], 0
    while len(placed) < 2:
        done = source.step(budget=1.5)
        passes += 1
        placed += done.placed
        for corpus, version in (("c", "v1"), ("other", "v2")):
            target = source.corpora / corpus / version
            assert target.exists() == (f"{corpus}@{version}" in placed), "nothing of a version is seen before all of it"
        assert passes < 60
    assert passes > 4
    assert len(fetched) == len(set(fetched))
    for corpus in ("c", "other"):
        assert source.here(corpus) == source.there(corpus)


def test_a_source_whose_listing_takes_all_the_time_still_comes_over(source, monkeypatch):
    source.version()
    monkeypatch.setattr(module, "BATCH_FILES", 2)
    clock = [0.0]
    honest = module._Pass._listing

    def slow(self, folder):
        clock[0] += 100
        return honest(self, folder)

    monkeypatch.setattr(module._Pass, "_listing", slow)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    placed = [key for _ in range(8) for key in source.step(budget=10).placed]
    assert placed == ["c@v1"], "each pass gets at least one batch"
    assert source.here() == source.there()


class Killed(BaseException):
    """What ends a process."""


@examples(5, 60)
@given(st.lists(st.integers(1, 9), max_size=8), st.booleans())
def test_a_kill_at_any_place_loses_and_doubles_nothing(tmp_path_factory, kills, mark):
    source = Source(tmp_path_factory.mktemp("kill"))
    source.version(**({"_READY": ""} if mark else {}), **{"outputs/runs/a.trec": "x", "documents.jsonl": "{}"})
    patched = pytest.MonkeyPatch()
    patched.setattr(module, "BATCH_FILES", 2)
    placed = []
    with patched.context():
        for kill in kills:
            count = itertools.count(1)

            def dying(honest, count=count, kill=kill):
                def step(*arguments, **named):
                    if next(count) == kill:
                        raise Killed
                    return honest(*arguments, **named)

                return step

            with pytest.MonkeyPatch.context() as once:
                once.setattr(module.Path, "replace", dying(module.Path.replace))
                once.setattr(module.Path, "rename", dying(module.Path.rename))
                once.setattr(module._Pass, "_get", dying(module._Pass._get))
                with contextlib.suppress(Killed):
                    placed += source.step().placed
            seen = source.corpora / "c" / "v1"
            assert not seen.exists() or tree(seen) == tree(source.root / "c" / "v1")
        placed += [key for done in source.until_still() for key in done.placed]
    patched.undo()
    assert source.here() == source.there()
    assert len(placed) <= 1, "a version is placed once; a kill just after it only leaves it untold"


def test_a_large_file_is_fetched_in_blocks_and_goes_on_within_it(source, monkeypatch):
    source.version()
    monkeypatch.setattr(module, "BLOCK", 1000)
    whole = bytes(range(256)) * 40
    (source.root / "c" / "v1" / "documents" / "large.pdf").write_bytes(whole)
    source.step()
    asked = []
    honest = module._Pass._block
    monkeypatch.setattr(
        module._Pass, "_block", lambda self, name, start, end: asked.append(start) or honest(self, name, start, end)
    )
    clock = itertools.count()
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    for _ in range(40):
        if source.step(budget=1.5).placed:
            break
    assert (source.corpora / "c" / "v1" / "documents" / "large.pdf").read_bytes() == whole
    assert asked == list(range(0, len(whole), 1000))


def test_labels_and_settings_follow_and_documents_do_not(source):
    source.version(**{"gold/pii.jsonl": "{}\n", "outputs/runs/a.trec": "1"})
    source.until_still()
    source.put("c/gold/queries.jsonl", "more\n")
    source.put("c/gold/evidence.jsonl", "new\n")
    source.put("c/v1/outputs/runs/a.trec", "22")
    (source.root / "c" / "v1" / "gold" / "pii.jsonl").unlink()
    (source.root / "c" / "pipelines" / "tiny.yaml").unlink()
    (source.corpora / "c" / "gold" / "mine.jsonl").write_text("made here", "utf-8")
    done = source.until_still()
    assert sorted(key for each in done for key in each.followed) == ["c", "c@v1"]
    gone = sorted(name for each in done for name in each.removed)
    assert gone == ["gold/pii.jsonl of c@v1", "pipelines/tiny.yaml of c"]
    assert source.here() == source.there() | {"gold/mine.jsonl": b"made here"}
    source.put("c/v1/documents/part/d0.md", "Edited at the source.")
    notes = " ".join(note for each in source.until_still() for note in each.notes)
    assert "the documents of c@v1 changed at the source after they were mirrored" in notes
    assert source.here()["v1/documents/part/d0.md"] == b"Document 0."


def test_a_version_renamed_or_deleted_at_the_source_stays_here_and_the_new_name_comes(source):
    source.version()
    source.until_still()
    (source.root / "c" / "v1").rename(source.root / "c" / "v2")
    source.until_still()
    assert {path.name for path in (source.corpora / "c").iterdir()} == {"v1", "v2", "gold", "pipelines", "corpus.yaml"}
    shutil.rmtree(source.root / "c")
    source.until_still()
    assert (source.corpora / "c" / "v1").is_dir()


def test_a_corpus_or_version_that_somebody_made_here_is_not_touched(source):
    source.version()
    (source.corpora / "c" / "gold").mkdir(parents=True)
    (source.corpora / "c" / "corpus.yaml").write_text("mine: true", "utf-8")
    before = source.here()
    notes = " ".join(note for done in source.until_still() for note in done.notes)
    assert "a corpus c is here already and came from elsewhere" in notes
    assert source.here() == before
    source.version(corpus="other")
    source.until_still()
    (source.corpora / "other" / "v2").mkdir()
    source.version("v2", corpus="other")
    notes = " ".join(note for done in source.until_still() for note in done.notes)
    assert "other@v2: not mirrored: a version of this name is here already" in notes
    assert list((source.corpora / "other" / "v2").iterdir()) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda v, out: (v / "documents" / "link.md").symlink_to(out), "a link"),
        (lambda v, out: (v / "documents" / "all").symlink_to(out.parent), "lies elsewhere|a link"),
        (lambda v, _: (v / "documents" / "a\\b.md").write_text("x"), "a path with a backslash"),
        (lambda v, _: (v / "documents" / "a\nb.md").write_text("x"), "a path with control characters"),
    ],
)
def test_what_would_leave_its_corpus_is_refused_by_name_and_the_rest_goes_on(source, tmp_path, make, said):
    outside = tmp_path / "elsewhere" / "secret.txt"
    outside.parent.mkdir()
    outside.write_text("not yours", "utf-8")
    source.version()
    source.version(corpus="good")
    make(source.root / "c" / "v1", outside)
    notes = " ".join(note for done in source.until_still() for note in done.notes)
    assert any(part in notes for part in said.split("|")), notes
    assert "\n" not in notes
    assert not (source.corpora / "c" / "v1").exists()
    assert source.here("good") == source.there("good")
    assert b"not yours" not in tree(source.corpora).values()


def test_a_link_that_stands_in_the_corpus_here_is_not_written_through(source, tmp_path):
    source.version()
    source.until_still()
    outside = tmp_path / "outside"
    shutil.move(source.corpora / "c" / "gold", outside)
    (source.corpora / "c" / "gold").symlink_to(outside)
    source.put("c/gold/queries.jsonl", "changed at the source\n")
    notes = " ".join(note for done in source.until_still() for note in done.notes)
    assert "would leave the corpus through a link" in notes
    assert (outside / "queries.jsonl").read_text("utf-8") == LABELS["gold/queries.jsonl"]


def test_names_that_no_key_can_have_are_told(source):
    source.version(corpus="My Corpus")
    source.version("Version 1", corpus="c")
    notes = " ".join(source.step().notes)
    assert "My Corpus at the source is no name of a corpus or version" in notes
    assert "Version 1 at the source" in notes
    assert list_corpora(source.corpora) == []


def test_a_source_that_is_not_there_is_a_sentence(tmp_path):
    for url, said in {
        f"file://{tmp_path}/nowhere": "can't be listed",
        "nosuch://bucket": "fsspec knows no such kind of URL",
    }.items():
        (note,) = mirror(tmp_path / "corpora", url, {}).notes
        assert said in note


def test_no_room_is_told_before_anything_is_copied(source, monkeypatch):
    source.version()
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 3))
    notes = " ".join(note for done in source.until_still() for note in done.notes)
    assert "make room" in notes
    assert not (source.corpora / "c").exists()
