"""SQuAD-style sets: a paragraph is a document, the sentence that holds the answer is the evidence, the answer critical.

Questions without an answer (SQuAD 2) become unanswerable queries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rag_eval_pipeline.corpus.importers.writer import CorpusWriter, ImportFailedError, moved, plain
from rag_eval_pipeline.corpus.keys import slug
from rag_eval_pipeline.text.sentences import sentences


def read(source: Path, writer: CorpusWriter) -> None:
    """Read one JSON file in SQuAD's form into `writer`."""
    if source.is_dir():
        raise ImportFailedError(f"{source.name} is a folder: give the .json file")
    try:
        articles = json.loads(source.read_text("utf-8-sig"))["data"]
        count = sum(len(article["paragraphs"]) for article in articles)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ImportFailedError(
            f"{source.name} isn't in SQuAD's form ({type(error).__name__}): data[].paragraphs[].qas[]"
        ) from None
    width = max(3, len(str(count - 1)))
    number = 0
    for article in articles:
        title = str(article.get("title", ""))
        for paragraph in article["paragraphs"]:
            try:
                _paragraph(paragraph, f"p{number:0{width}d}", title, writer)
            except (KeyError, TypeError, AttributeError) as error:
                raise ImportFailedError(f"{source.name}: paragraph {number} lacks {error}: see SQuAD's form") from None
            number += 1


def _paragraph(paragraph: dict[str, Any], name: str, title: str, writer: CorpusWriter) -> None:
    context = paragraph["context"]
    text = plain(context)
    doc_id = writer.add_document(name, context, title=" ".join(title.replace("_", " ").split()) or None)
    spans = sentences(text, writer.language)
    for question in paragraph["qas"]:
        answers = question.get("answers") or []
        answerable = bool(answers) and not question.get("is_impossible", False)
        query = writer.add_query(
            str(question["id"]), question["question"], answerable=answerable, cluster_id=f"{slug(title)}/{name}"
        )
        if not answerable:
            continue
        writer.add_answers(query, list(dict.fromkeys(answer["text"] for answer in answers)))
        writer.add_qrel(query, doc_id, 1, unit=False)
        _evidence(query, doc_id, context, text, spans, answers, writer)


def _evidence(
    query: str,
    doc_id: str,
    context: str,
    text: str,
    spans: list[tuple[int, int]],
    answers: list[dict[str, Any]],
    writer: CorpusWriter,
) -> None:
    """The sentences around the first answer that stands where the set says; other answers are other wordings of it."""
    for answer in answers:
        words = plain(answer["text"]).strip()
        if (start := _start(context, text, answer, words)) is None:
            continue
        end = start + len(words)
        first = max((s for s, _ in spans if s <= start), default=0)
        last = min((e for _, e in spans if e >= end), default=len(text))
        quote = text[first:last]
        first += len(quote) - len(quote.lstrip())
        last = first + len(quote.strip())
        writer.add_evidence(
            query_id=query,
            evidence_id="e1",
            doc_id=doc_id,
            quote=text[first:last],
            start=first,
            end=last,
            critical=[words],
        )
        return
    writer.note("answers do not stand in their paragraph and gave no evidence")


def _start(context: str, text: str, answer: dict[str, Any], words: str) -> int | None:
    """Where an answer starts: at the set's offset, else at its only occurrence."""
    if not words:
        return None
    raw = str(answer["text"])
    given = int(answer["answer_start"])
    start = moved(context, given) + (len(plain(raw)) - len(plain(raw).lstrip()))
    if text[start : start + len(words)] == words:
        return start
    return text.find(words) if text.count(words) == 1 else None
