"""The command `label`: a person sees proposed quotes and accepts one by key. Texts are shown as they are: labelling needs them.

What is proposed stands in `release.labelling`, how it is kept in `release.labelled`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.text import Text

from rag_eval_pipeline.cli import app, console, plain
from rag_eval_pipeline.cli.looking import KeyArgument
from rag_eval_pipeline.warehouse.home import Home

if TYPE_CHECKING:
    from rag_eval_pipeline.release.labelled import Finders, Task, Work
    from rag_eval_pipeline.release.labelling import Ask, Candidate

FIRST, MORE = 3, 9
KEYS = "1–9 or Enter: accept   e: edit and accept   m: more   s: skip   u: undo   q: quit"
WHY = {
    "propose": "no quote yet",
    "place": "this quote stands in no single document word for word",
    "mend": "the quote of this line has no place in its document",
}


@app.command()
def label(
    key: KeyArgument,
    accept_best: Annotated[
        bool, typer.Option("--accept-best", help="Ask nobody: take the best where it is sure.")
    ] = False,
    least: Annotated[float, typer.Option(help="how sure --accept-best must be", min=0, max=1)] = 0.5,
    from_file: Annotated[
        Path | None, typer.Option(help="Take quotes from JSON Lines or CSV: query_id, quote, doc_id; all or none.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Ask what was skipped, too.")] = False,
) -> None:
    """Find quotes for questions that have only an answer or a document, and mend those without a place; accepted by key."""
    from rag_eval_pipeline.release import labelled

    interactive = not accept_best and from_file is None
    if interactive and not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask: use --accept-best or --from-file FILE")
    if from_file is not None and not from_file.is_file():
        raise FileNotFoundError(f"{from_file} is no file; --from-file names JSON Lines or a CSV")
    with _progress() as progress:
        work = labelled.Work.open(Home.find(), key, progress, again, everything=from_file is not None)
    _tell_unread(work)
    if from_file is not None:
        work.by = "file"
        count = labelled.accept_file(work, from_file)
        console.print(f"{count} quotes of {plain(from_file.name)} are kept as evidence")
    elif not work.tasks:
        console.print(
            "nothing to label: every question with an answer or a document has a quote that stands in its document"
        )
    elif accept_best:
        work.by = "accept-best"
        count, left = labelled.accept_best(work, labelled.Finders(work).find, least)
        console.print(
            f"{count} best candidates are kept as evidence, unseen by anybody: look at some before you rely on them"
        )
        for task in left:
            console.print(f"  {plain(task.query_id)}: no candidate is sure enough ({least:g})")
    else:
        _Session(work, labelled.Finders(work), _key, _line).run()
    console.print(f"next: rag-eval validate {plain(key)}, rag-eval run {plain(key)}", soft_wrap=True)


class _Session:
    """One sitting: questions one after the other. Every decision is on disk before the next question is shown."""

    def __init__(self, work: Work, finders: Finders, key: Callable[[], str], line: Callable[[str, str], str]) -> None:
        self.work, self.finders, self.key, self.line = work, finders, key, line
        self.at = 0

    def run(self) -> None:
        """Ask until all is asked, or the person quits."""
        tasks = self.work.tasks
        console.print(f"{len(tasks)} to label; {KEYS}", highlight=False, soft_wrap=True)
        while self.at < len(tasks):
            if not self._ask(tasks[self.at]):
                break
        console.print(
            f"{len(self.work.done)} labelled, {len(tasks) - self.at} left; what is labelled is kept", highlight=False
        )

    def _ask(self, task: Task) -> bool:
        """Show one task and take one decision; false where the person quits."""
        candidates = self.finders.find(task.ask, MORE)
        shown = FIRST
        self._show(task, candidates[:shown])
        while True:
            pressed = self.key()
            if pressed in ("q", "\x03", "\x04"):
                return False
            if pressed == "m" and shown < len(candidates):
                shown = len(candidates)
                self._show(task, candidates)
            elif pressed == "s":
                self.work.skip(task)
                self.at += 1
                return True
            elif pressed == "u":
                return self._undo()
            elif pressed == "e":
                if self._edit(task, candidates):
                    return True
            elif (chosen := _chosen(pressed, candidates)) is not None:
                self._accept(task, chosen.doc_id, chosen.text, chosen.start)
                return True
            else:
                console.print(KEYS, style="dim", highlight=False)

    def _accept(self, task: Task, doc_id: str, quote: str, start: int | None) -> None:
        evidence_id = self.work.accept(task, doc_id, quote, start)
        console.print(
            f"  kept as {plain(task.query_id)}/{evidence_id} of {plain(doc_id)}", style="green", highlight=False
        )
        self.at += 1

    def _undo(self) -> bool:
        task = self.work.undo()
        if task is None:
            console.print("  nothing of this session can be taken back", style="yellow")
        else:
            self.at = self.work.tasks.index(task)
        return True

    def _edit(self, task: Task, candidates: list[Candidate]) -> bool:
        """Let the person change a candidate's words, or write a quote where there is none; true where it was kept."""
        from rag_eval_pipeline.release.labelling import anchored

        if candidates:
            console.print("  which? 1–9 or Enter", style="dim", highlight=False)
            chosen = _chosen(self.key(), candidates)
            if chosen is None:
                return False
            doc_id, start = chosen.doc_id, " ".join(chosen.text.split())
        else:
            doc_id, start = self.line("  document: ", next(iter(task.ask.documents), "")).strip(), task.ask.quote or ""
        quote = self.line("  quote: ", start).strip()
        why = anchored(self.work.texts, doc_id, quote, self.work.documents) if quote else "no quote"
        if why is not None:
            console.print(f"  {plain(why)}; nothing is kept, try again", style="yellow", highlight=False)
            return False
        self._accept(task, doc_id, quote, None)
        return True

    def _show(self, task: Task, candidates: list[Candidate]) -> None:
        ask = task.ask
        console.print()
        head = Text(f"{self.at + 1}/{len(self.work.tasks)} {task.query_id}: ", style="dim") + Text(
            _seen(ask.question), style="bold"
        )
        console.print(head)
        for name, text in (
            ("answer", " / ".join(ask.answers)),
            ("written", ask.quote or ""),
            ("in", ", ".join(ask.documents)),
        ):
            if text:
                console.print(Text(f"  {name}: ", style="dim") + Text(_seen(text)))
        console.print(f"  {WHY[task.kind]}", style="dim")
        if not candidates:
            console.print("  no passage is like it; e: write one, s: skip", style="yellow")
        for number, candidate in enumerate(candidates, 1):
            console.print(_panel(number, candidate, ask))


def _panel(number: int, candidate: Candidate, ask: Ask) -> Panel:
    shown = _seen(candidate.text)
    body = Text(shown)
    if len(shown) == len(candidate.text):  # else nothing stands where it stood
        for start, end in candidate.terms:
            body.stylize("bold yellow", start, end)
    where = plain(candidate.doc_id) + (f", page {candidate.page}" if candidate.page else "")
    share = f"{candidate.confidence:.0%}"
    sure = f"{share} like it" if ask.quote else f"says {share} of the {'answer' if ask.answers else 'question'}"
    return Panel(body, title=f"{number}  {where}  {sure}", title_align="left")


def _seen(text: str) -> str:
    """Text without signs that steer a terminal; cells of a table are parted by a space."""
    from rag_eval_pipeline.corpus.faults import printable

    return "\n".join(printable(line.replace("\t", " ")) for line in text.split("\n"))


def _chosen(pressed: str, candidates: list[Candidate]) -> Candidate | None:
    if pressed in ("\r", "\n", "a") and candidates:
        return candidates[0]
    return candidates[int(pressed) - 1] if pressed.isdigit() and 0 < int(pressed) <= len(candidates) else None


def _key() -> str:
    return typer.getchar()


def _line(prompt: str, start: str) -> str:
    """A line that begins as `start`, to be changed; Ctrl-D gives none."""
    import readline

    readline.set_startup_hook(lambda: readline.insert_text(_seen(start)))
    try:
        return input(prompt)
    except EOFError:
        return ""
    finally:
        readline.set_startup_hook()


def _tell_unread(work: Work) -> None:
    for doc_id, status in sorted(work.texts.unread.items()):
        console.print(
            f"[yellow]warning:[/] {plain(doc_id)} has no text (status {status}): nothing can be quoted from it",
            soft_wrap=True,
            highlight=False,
        )


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        tasks = {}

        def listen(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"reading ({stage})", total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield listen
