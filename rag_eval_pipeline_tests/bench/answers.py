"""`python -m rag_eval_pipeline_tests.bench.answers [FOLDER]`: the extractive answerer on XQuAD, where it can answer and where it can't.

Each question is asked twice: with all paragraphs of its article as context, and without the one that answers it. Articles with an even
number choose thresholds; the figures are of the others. Prints the table of docs/benchmarks.md.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from rag_eval_pipeline.measures.intervals import confidence_interval
from rag_eval_pipeline.stages.answering import extractive
from rag_eval_pipeline.stages.answering.said import Source
from rag_eval_pipeline.stages.answering.transform import AnsweringConfig
from rag_eval_pipeline_tests.conftest import SHARED


def questions(folder, language, half):
    """(question, its answers, paragraphs of the article, number of the one that answers)."""
    articles = json.loads((folder / f"xquad.{language}.half.json").read_text("utf-8"))["data"]
    for number, article in enumerate(articles):
        texts = [paragraph["context"] for paragraph in article["paragraphs"]]
        for place, paragraph in enumerate(article["paragraphs"]) if number % 2 == half else ():
            for asked in paragraph["qas"]:
                yield asked["question"], [answer["text"] for answer in asked["answers"]], texts, place


def counts(folder, language, half=1):
    """How often it answers, holds the answer, and refuses: with the paragraph, and without."""
    config = AnsweringConfig()
    found: Counter = Counter()
    for question, right, texts, place in questions(folder, language, half):
        for given in ("with", "without"):
            sources = [
                Source(n, f"p{n}", "article", text, language)
                for n, text in enumerate(texts, 1)
                if given == "with" or n - 1 != place
            ]
            said = extractive.answer(
                question, language, sources, least=config.least, alone=config.alone, most=config.sentences
            )
            found[given] += 1
            found[given, "refused"] += bool(said.refused)
            found[given, "holds"] += not said.refused and any(answer in said.text for answer in right)
    return found


def share(count, total):
    """A share with its interval."""
    interval = confidence_interval([1.0] * count + [0.0] * (total - count), low=0.0, high=1.0, binary=True)
    return f"{count / total:.3f} ({interval.low:.3f}–{interval.high:.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data" / "xquad" if SHARED else None)
    folder = parser.parse_args().folder
    print(
        "| language | questions | holds the answer | refuses though it is there | refuses where it is not |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for language in ("en", "es"):
        found = counts(folder, language)
        cells = (
            share(found["with", "holds"], found["with"]),
            share(found["with", "refused"], found["with"]),
            share(found["without", "refused"], found["without"]),
        )
        print(f"| {language} | {found['with']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
