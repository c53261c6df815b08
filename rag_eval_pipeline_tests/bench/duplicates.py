"""`python -m rag_eval_pipeline_tests.bench.duplicates PART …`: near-duplicates on labelled sets, and how fast they are found.

`licensee FIXTURES` and `deepmatcher FILE.csv …` print P, R, B³ at the default threshold and the sweep; `speed` compares with
datasketch's `update()` loop; `scale` runs 10,000 to 100,000 documents of 1 kB, each size in a process of its own, and prints the
exponent of its growth and the memory that it took.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import resource
import string
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import yaml

from rag_eval_pipeline.corpus.gold import SCHEMAS
from rag_eval_pipeline.stages.dedup.shingles import MISSED, SPURIOUS, jaccard, shingles_of
from rag_eval_pipeline.stages.dedup.sweep import sweep
from rag_eval_pipeline.stages.dedup.transform import CONFIG, run
from rag_eval_pipeline.warehouse.memo import Memo
from rag_eval_pipeline.warehouse.runtime import Runtime
from rag_eval_pipeline_tests.bench import timing

SIZES = (10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Labelled:
    """Texts and labelled pairs.

    Attributes:
        texts: by name.
        labels: (name, name, duplicate), smaller name first.
        group: what each text is, where the set says so.
    """

    texts: dict[str, str]
    labels: list[tuple[str, str, bool]]
    group: dict[str, str]

    @property
    def frame(self) -> pl.DataFrame:
        """The texts as clean documents."""
        return pl.DataFrame({"doc_id": sorted(self.texts), "text": [self.texts[name] for name in sorted(self.texts)]})

    @property
    def gold(self) -> pl.DataFrame:
        """The labels as gold."""
        return pl.DataFrame(self.labels, schema=SCHEMAS["duplicates"], orient="row")


def licensee(folder: Path) -> Labelled:
    """Fixtures with one file that says which licence it is: two of one licence are near-duplicates, all others are not.

    Left out are fixtures of several files, those whose licence is none or another kind of file, and README and package files.

    Raises:
        ValueError: no fixture that fixtures.yml names is there.
    """
    texts, group = {}, {}
    for name, said in sorted(yaml.safe_load((folder / "fixtures.yml").read_text("utf-8")).items()):
        files = sorted(path for path in (folder / name).glob("*") if path.is_file())
        if len(files) != 1 or said.get("key") in (None, "none", "other") or not _is_licence(files[0]):
            continue
        texts[name] = files[0].read_text("utf-8", errors="replace")
        group[name] = said["key"]
    if not texts:
        raise ValueError(
            f"fixtures.yml names {len(group)} fixtures of one licence file below {folder.name}; expected the set's folders"
        )
    labels = [(a, b, group[a] == group[b]) for a, b in combinations(sorted(texts), 2)]
    return Labelled(texts, labels, group)


def _is_licence(file: Path) -> bool:
    return not file.name.lower().startswith("readme") and file.suffix.lower() not in {
        ".json",
        ".gemspec",
        ".cabal",
        ".toml",
    }


def deepmatcher(paths: Iterable[Path]) -> Labelled:
    """Records of two shops, a text each of all their columns, and the pairs that are labelled.

    Raises:
        ValueError: a file lacks `label`, or the two sides have other columns.
    """
    texts: dict[str, str] = {}
    labels: dict[tuple[str, str], bool] = {}
    for path in paths:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            columns = [name.removeprefix("left_") for name in names if name.startswith("left_") and name != "left_id"]
            if "label" not in names or any(f"right_{name}" not in names for name in columns):
                raise ValueError(f"{path.name}: expected columns label, left_… and right_… alike; found {names}")
            for row in reader:
                pair = []
                for side in ("left", "right"):
                    text = " ".join(value for name in columns if (value := (row[f"{side}_{name}"] or "").strip()))
                    name = f"{path.stem}:{side}:{row.get(f'{side}_id') or text}"
                    texts[name] = text
                    pair.append(name)
                labels[min(pair), max(pair)] = row["label"] == "1"
    return Labelled(texts, [(a, b, same) for (a, b), same in sorted(labels.items())], {})


def scores(labelled: Labelled, grid: Sequence[tuple[int, float]], **options: object) -> pl.DataFrame:
    """The sweep over a labelled set."""
    return sweep(labelled.frame, labelled.gold, CONFIG(**options), grid)  # type: ignore[arg-type]


def confused(labelled: Labelled, threshold: float) -> list[tuple[str, str, str, str, float]]:
    """Pairs on the wrong side of a threshold, by exact similarity of all pairs: what and what, how alike."""
    sets = {name: shingles_of(text, CONFIG().shingle) for name, text in labelled.texts.items()}
    found = []
    for a, b, same in labelled.labels:
        similarity = jaccard(sets[a], sets[b])
        if (similarity >= threshold) != same:
            found.append((a, b, labelled.group.get(a, ""), labelled.group.get(b, ""), similarity))
    return sorted(found, key=lambda row: -row[-1])


def scores_table(frame: pl.DataFrame) -> str:
    """Markdown."""
    columns = ["num_perm", "threshold", "pairs", "pair_precision", "pair_recall", "pair_f1", "b_cubed_precision", "b_cubed_recall", "b_cubed_f1", "removed", "seconds"]  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for row in frame.select(columns).iter_rows():
        lines.append(
            "| " + " | ".join("–" if v is None else f"{v:.3f}" if isinstance(v, float) else str(v) for v in row) + " |"
        )
    return "\n".join(lines)


# Speed -----------------------------------------------------------------------------------------------------------------


def made(documents: int, seed: int = 0) -> pl.DataFrame:
    """Documents of about 1,000 characters, every tenth one its predecessor with a word changed."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(20_000)]
    texts: list[str] = []
    for number in range(documents):
        if number % 10 == 9:
            copy = texts[-1].split()
            copy[rng.randrange(len(copy))] = rng.choice(words)
            texts.append(" ".join(copy))
        else:
            texts.append(" ".join(rng.choices(words, k=155)))
    return pl.DataFrame({"doc_id": [f"d{number:06d}" for number in range(documents)], "text": texts})


def frames_of(cleaned: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What the stage reads."""
    empty = {name: pl.lit(None, pl.String) for name in ("published_at", "committed_at", "supersedes")}
    return {"cleaned": cleaned, "documents": cleaned.select("doc_id", path=pl.col("doc_id"), **empty)}


def speed(repeats: int, documents: int = 400) -> timing.Result:
    """The stage in one process, from texts to pairs and survivors, against datasketch's loop and LSH with the same verification."""
    from datasketch import MinHash, MinHashLSH

    cleaned = made(documents)
    frames, config = frames_of(cleaned), CONFIG()
    texts = cleaned["text"].to_list()

    def ours() -> set[tuple[int, int]]:
        edges = run(frames, config, Runtime.plain())["dedup_edges"]
        return {(int(a[1:]), int(b[1:])) for a, b in edges.select("doc_a", "doc_b").iter_rows()}

    def theirs() -> set[tuple[int, int]]:
        index = MinHashLSH(threshold=config.threshold, num_perm=config.num_perm, weights=(SPURIOUS, MISSED))
        sets, sketches = [], []
        for number, text in enumerate(texts):
            grams = shingles_of(text, config.shingle)
            sketch = MinHash(num_perm=config.num_perm)
            for gram in grams:
                sketch.update(gram.encode())
            index.insert(number, sketch)
            sets.append(grams)
            sketches.append(sketch)
        near = {(min(i, j), max(i, j)) for i, sketch in enumerate(sketches) for j in index.query(sketch) if i != j}
        return {(i, j) for i, j in near if jaccard(sets[i], sets[j]) >= config.threshold}

    mine, found = ours(), theirs()
    note = f"{len(mine)} pairs, {len(mine ^ found)} differ"
    what = f"near-duplicates of {documents} documents of 1 kB, 128 hash functions, one process"
    return timing.in_turn(
        what, "datasketch `update()` loop, MinHashLSH, the same exact verification", ours, theirs, note, repeats
    )


def one_size(documents: int, workers: int) -> tuple[float, float, int]:
    """Seconds, megabytes of the largest resident size beyond what the texts' own process had, and pairs found."""
    frames = frames_of(made(documents))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with TemporaryDirectory() as folder:
        runtime = Runtime(files=Path(), workers=workers, memo=Memo(Path(folder)))
        started = time.perf_counter()
        pairs = run(frames, CONFIG(), runtime)["dedup_edges"].height
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seconds, (peak - before) / 1024, pairs


def scale(sizes: Sequence[int], workers: int) -> str:
    """Markdown, and the exponent between the smallest and the largest size."""
    lines = [
        "| documents | seconds | documents/s | memory of the main process beyond the texts, MB | pairs |",
        "|" + " --- |" * 5,
    ]
    seconds: list[float] = []
    for size in sizes:
        command = [
            sys.executable,
            "-m",
            __spec__.name if __spec__ else __name__,
            "one-size",
            str(size),
            "--workers",
            str(workers),
        ]
        taken, memory, pairs = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        seconds.append(float(taken))
        lines.append(f"| {size:,} | {float(taken):.1f} | {size / float(taken):.0f} | {float(memory):.0f} | {pairs} |")
        print(lines[-1], file=sys.stderr, flush=True)
    exponent = math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
    return "\n".join([*lines, "", f"seconds grow as documents^{exponent:.2f} from {sizes[0]:,} to {sizes[-1]:,}"])


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m rag_eval_pipeline_tests.bench.duplicates", description=__doc__)
    parser.add_argument("part", choices=["licensee", "deepmatcher", "speed", "scale", "one-size"])
    parser.add_argument("arguments", nargs="*", help="folder, files, or sizes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    if asked.part == "speed":
        print(timing.table([speed(asked.repeats)]))
    elif asked.part == "scale":
        print(scale([int(size) for size in asked.arguments] or SIZES, asked.workers))
    elif asked.part == "one-size":
        print(*one_size(int(asked.arguments[0]), asked.workers))
    else:
        paths = [Path(name) for name in asked.arguments]
        labelled = licensee(paths[0]) if asked.part == "licensee" else deepmatcher(paths)
        same = sum(same for *_, same in labelled.labels)
        print(
            f"{asked.part}: {len(labelled.texts)} texts, {same} duplicates of {len(labelled.labels)} labelled pairs\n"
        )
        thresholds = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        grid = [(perm, threshold) for perm in (64, 128, 256) for threshold in thresholds]
        print(scores_table(scores(labelled, grid, revisions="merge")))
        for threshold in (0.7, 0.8):
            for a, b, what, other, similarity in confused(labelled, threshold)[:25] if asked.part == "licensee" else ():
                print(f"at {threshold}: {a} ({what}) and {b} ({other}) are {similarity:.2f} alike")


if __name__ == "__main__":
    main()
