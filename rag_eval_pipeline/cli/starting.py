"""The command `init`: from a folder of documents and a sheet of questions to a corpus, with what is missing and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.corpus.faults import suggestion
from rag_eval_pipeline.corpus.keys import Key
from rag_eval_pipeline.text.languages import primary
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.corpus.starting import Started

LANGUAGES = ("en", "es")
SHOWN = 10
LONGEST = 80
"""Characters of a column's name that are shown."""


@app.command()
def init(
    corpus: Annotated[str, typer.Argument(help="name of the corpus: a–z, 0–9, . _ -")],
    documents: Annotated[Path | None, typer.Option(help="folder with your documents; they are copied")] = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            help="CSV with a header: question, and any of answer, document, quote, id, language, intent, tags"
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="ROLE=NAME, where a column has another name: question=Frage 1; repeatable")
    ] = None,
    version: Annotated[str, typer.Option(help="name of its first version")] = "v1",
    language: Annotated[
        list[str] | None, typer.Option(help="language of its documents, repeatable; default en es")
    ] = None,
) -> None:
    """Make a corpus: of your own documents and a CSV of questions, or empty folders to fill."""
    home = Home.find()
    key = Key(corpus, version)  # an unfit name is refused with a slug before anything is made
    languages = tuple(language or LANGUAGES)
    if documents is None:
        if questions is not None or column:
            raise typer.BadParameter("--questions needs --documents: which folder do they speak of?")
        _empty(home, key, languages)
        return
    from rag_eval_pipeline.corpus.starting import start_corpus

    started = start_corpus(
        home.corpora, key, documents, questions, columns=_columns(column or []), languages=languages
    )  # fmt: skip
    for line in _told(home, started, languages):
        console.print(line, soft_wrap=True, highlight=False)


def _empty(home: Home, key: Key, languages: tuple[str, ...]) -> None:
    from rag_eval_pipeline.corpus.scaffold import init_corpus

    for path in init_corpus(home.corpora / key.corpus, key.version, languages):
        console.print(f"made {plain(path)}", soft_wrap=True)
    console.print(
        f"put documents into {plain(home.corpora / key.corpus / key.version / 'documents')}, then: rag-eval validate {key.subject}",
        soft_wrap=True,
    )


def _columns(given: list[str]) -> dict[str, str]:
    from rag_eval_pipeline.corpus.questions import ROLES
    from rag_eval_pipeline.corpus.questions import plain as folded

    columns: dict[str, str] = {}
    for item in given:
        role, equals, name = item.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--column {item!r}: write ROLE=NAME, such as question=Pregunta")
        if role.strip() not in ROLES:
            raise typer.BadParameter(f"--column {item!r}: {role!r} is no role; {suggestion(role, ROLES)}")
        role, name = role.strip(), name.strip()
        if role in columns:
            raise typer.BadParameter(f"--column {item!r}: {role} is {columns[role]!r} already; name one column a role")
        if twice := [other for other, known in columns.items() if folded(known) == folded(name)]:
            raise typer.BadParameter(
                f"--column {item!r}: {name!r} is the {twice[0]} already; name one role a column, or copy the column in the sheet"
            )
        columns[role] = name
    return columns


def _told(home: Home, started: Started, languages: tuple[str, ...]) -> Iterator[str]:
    """What was understood, what is missing, what the release rules need, and the next command."""
    for warning in started.warnings[:SHOWN]:
        yield f"[yellow]warning:[/] {plain(warning)}"
    if len(started.warnings) > SHOWN:
        yield f"[yellow]warning:[/] and {len(started.warnings) - SHOWN} more; rag-eval validate {started.key} says all"
    yield f"[bold]{started.key}[/] in {plain(started.made[0].parent)}"
    yield from _understood(started)
    yield from _missing(started, languages)
    yield from needed_lines(home, started.key, _labelled(started))
    yield "[bold]next[/]"
    if started.wanted:
        yield f"  rag-eval label {started.key}      proposes quotes; you accept them by key"
    yield f"  rag-eval run {started.key}        evaluates, and names the report; rag-eval doctor says what this machine lacks"


def _understood(started: Started) -> Iterator[str]:
    kinds = ", ".join(f"{count} {plain(kind)}" for kind, count in started.kinds.items())
    yield "[bold]understood[/]"
    yield f"  documents  {sum(started.kinds.values())} ({kinds}; {_size(started.bytes)})"
    sheet = started.sheet
    if sheet is None:
        return
    columns = ", ".join(name if name == role else f"{name} → {role}" for name, role in sheet.columns.items())
    yield f"  questions  {len(sheet.questions)} of {sheet.rows} rows ({plain(sheet.file)}: {sheet.encoding}, {sheet.separator})"
    yield f"  columns    {plain(columns)}" + (
        f"; not used: {plain(', '.join(name[:LONGEST] for name in sheet.unused))}" if sheet.unused else ""
    )
    answered = sum(bool(question.answers) for question in sheet.questions)
    out = sum(not question.answerable for question in sheet.questions)
    yield (
        f"  labels     {answered} questions with an answer, {started.n_judged} with a document, {started.n_evidence} quotes with a place"
        + (f"; {out} are not answerable" if out else "")
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def _missing(started: Started, languages: tuple[str, ...]) -> Iterator[str]:
    from rag_eval_pipeline.stages.source.transform import BY_EXTENSION

    told = []
    strange = {kind: count for kind, count in started.kinds.items() if kind not in BY_EXTENSION and kind != "none"}
    if strange:
        told.append(
            f"{sum(strange.values())} files of kinds that no reader knows (.{', .'.join(strange)}): save them as pdf or docx, or hand their "
            "text in by outputs/parsed.jsonl"
        )
    if started.sheet is None:
        told.append("questions: without them nothing but parsing and cleaning can be judged; --questions takes a CSV")
    else:
        placeless = [wanted for wanted in started.wanted if wanted.quote is not None]
        quoteless = len(started.wanted) - len(placeless)
        bare = sum(q.answerable and not q.answers and not q.documents and not q.quotes for q in started.sheet.questions)
        if placeless:
            lines = ", ".join(str(wanted.line) for wanted in placeless[:SHOWN])
            told.append(
                f"a place for {len(placeless)} quotes: no single document holds them word for word (lines {lines})"
            )
        if quoteless:
            told.append(
                f"quotes: {quoteless} questions have none; until then they count by document, or not at all where none is named"
            )
        if bare:
            told.append(
                f"labels: {bare} questions have neither answer, document nor quote, so nothing can be measured on them"
            )
    if others := [language for language in languages if primary(language) != "en"]:
        told.append(
            f"an encoder for {', '.join(others)}: the bundled one is English, so they rest on bm25 alone until pipeline.embedding.model "
            "names a multilingual one"
        )
    if told:
        yield "[bold]missing[/]"
        yield from (f"  {plain(line)}" for line in told)


def _labelled(started: Started) -> int:
    """Questions on which retrieval can be measured once everything that is wanted is labelled."""
    if started.sheet is None:
        return 0
    return sum(q.answerable and bool(q.answers or q.documents or q.quotes) for q in started.sheet.questions)


def needed_lines(home: Home, key: str, there: int | None = None, known: Collection[int] = ()) -> Iterator[str]:
    """What each release rule of a key needs by a guess, beside how many labelled questions there are; not of rules in `known`."""
    from rag_eval_pipeline.corpus.version import load_key_settings
    from rag_eval_pipeline.release.evaluated import declared
    from rag_eval_pipeline.release.planning import POWER, needs

    rules = load_key_settings(home.corpora, key).gates.rules
    found = [need for need in needs(rules, {metric.name: metric for metric in declared()}) if need.rule not in known]
    if not found:
        return
    yield f"[bold]release rules[/] (n for a pass in {POWER:.0%} of the releases that deserve one)"
    for need in found:
        size = "n is known after the first run" if need.n is None else f"needs about {need.n} labelled questions"
        short = there is not None and need.n is not None and there < need.n
        have = f"; there are {there}, so the gate will rather say inconclusive" if short else ""
        yield f"  {need.rule}. {plain(need.label)} {need.limit} {need.allowed:g}: {size} ({need.guess}){have}"
