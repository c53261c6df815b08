import pytest
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from rag_eval_pipeline.corpus.configuration import commented_default_yaml, lay_over
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.scaffold import init_corpus
from rag_eval_pipeline.corpus.settings import Settings


def test_no_corpus_yaml_means_all_defaults(corpora):
    assert corpora.load().settings == Settings()


def test_off_is_a_word_and_dates_are_text(corpora):
    corpora.put("corpus.yaml", "ledger: {entities: off}\npipeline: {parsing: {ocr: no, since: 2024-01-01, on: true}}\n")
    settings = corpora.load().settings
    assert settings.ledger.entities == "off"
    assert settings.pipeline == {"parsing": {"ocr": "no", "since": "2024-01-01", "on": True}}


def test_a_pipeline_is_laid_over_key_by_key(corpora):
    corpora.put(
        "corpus.yaml",
        "pipeline:\n  chunking: {size: 256, overlap: 32}\n  dedup: {threshold: 0.8}\nevaluate: {k: [1, 5]}\n",
    )
    corpora.put(
        "pipelines/small.yaml", "pipeline:\n  chunking: {size: 64}\n  dedup: null\nevaluate: {k: [3]}\nledger: null\n"
    )
    settings = corpora.load("c@v1#small").settings
    assert settings.pipeline == {"chunking": {"size": 64, "overlap": 32}, "dedup": None}
    assert settings.evaluate.k == (3,)
    assert corpora.load().settings.pipeline["chunking"]["size"] == 256


def test_deep_merge():
    assert lay_over({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}, "d": {"e": 1}}) == {
        "a": {"b": 1, "c": [2]},
        "d": {"e": 1},
    }
    assert lay_over({"a": {"b": 1}}, {"a": None}) == {"a": None}


def test_a_mapping_of_another_kind_replaces():
    fused = {"hybrid": {"kind": "rrf", "lanes": ["bm25", "dense"], "k": 60}}
    mixed = {"kind": "convex", "lanes": ["dense", "bm25"], "alpha": 0.9}
    assert lay_over(fused, {"hybrid": mixed}) == {"hybrid": mixed}
    assert lay_over(fused, {"hybrid": {"kind": "rrf", "k": 10}})["hybrid"] == fused["hybrid"] | {"k": 10}
    assert lay_over(fused, {"hybrid": {"k": 10}})["hybrid"] == fused["hybrid"] | {"k": 10}
    assert lay_over({"indexing": {"m": 32}}, {"indexing": {"kind": "ivf"}})["indexing"] == {"m": 32, "kind": "ivf"}


class Chunking(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 256


def test_a_stage_reports_faults_of_its_section_with_file_and_line(corpora):
    corpora.put("corpus.yaml", "pipeline:\n  chunking:\n    size: 64\n")
    corpora.put("pipelines/p.yaml", "pipeline:\n  chunking:\n    siz: 32\n    size: big\n")
    version = corpora.load("c@v1#p")
    faults = Faults()
    with pytest.raises(ValidationError) as caught:
        Chunking.model_validate(version.settings.pipeline["chunking"])
    version.marks.report(caught.value, Chunking, ("pipeline", "chunking"), faults)
    assert [(f.file, f.line, f.field, f.hint) for f in faults.errors] == [
        ("c/pipelines/p.yaml", 4, "pipeline.chunking.size", ""),
        ("c/pipelines/p.yaml", 3, "pipeline.chunking.siz", "did you mean 'size'?"),
    ]


def test_the_commented_file_says_the_defaults(corpora):
    text = commented_default_yaml()
    corpora.put("corpus.yaml", text)
    settings = corpora.load().settings
    assert settings.model_dump(exclude={"pipeline", "gates", "evaluate"}) == Settings().model_dump(
        exclude={"pipeline", "gates", "evaluate"}
    )
    assert settings.evaluate.model_copy(update={"serve": None}) == Settings().evaluate
    assert text.count("#") > 20
    assert yaml.safe_load(text)["pipeline"]["retrieval"]["hybrid"] == {
        "kind": "rrf",
        "lanes": ["bm25", "dense"],
        "k": 60,
    }


def test_a_new_corpus_is_complete_and_never_overwritten(tmp_path):
    made = init_corpus(tmp_path / "leave", languages=("es",))
    assert all(path.exists() for path in made)
    assert "languages: [es]" in (tmp_path / "leave/corpus.yaml").read_text()
    with pytest.raises(FileExistsError):
        init_corpus(tmp_path / "leave")
    with pytest.raises(ValueError, match="use 'a-b'"):
        init_corpus(tmp_path / "A b")
