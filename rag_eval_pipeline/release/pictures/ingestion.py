"""Pictures of ingestion: the leak–damage curve, the grid of dedup's sweep, sizes of its clusters, misreading by class.

Here: drawings of rows that tables have. Not here: bars of shares (`bars`), what any figure means (docs/measures.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from rag_eval_pipeline.release.pictures.svg import element, picture, text

WIDTH = 640.0
LEFT, TOP, PLOT = 84.0, 44.0, 210.0
CLASSES = 16
"""Classes of documents, or sizes of clusters, that are drawn; the largest."""


def quality_pictures(
    room: str, frame: pl.DataFrame, read: Mapping[str, pl.DataFrame] | None = None
) -> dict[str, tuple[str, str]]:
    """Name → (SVG, what it shows in words), for rooms that have a picture of their own and figures for it.

    Args:
        room: parsing, dedup or pii; others have none.
        frame: the room's quality table.
        read: `dedup`, for the sizes of its clusters.
    """
    drawn: dict[str, tuple[str, str]] = {}
    if room == "parsing":
        drawn["cer_by_class"] = (class_picture(frame), "character error rate by class of document")
    if room == "pii":
        drawn["leak_damage"] = (leak_damage_picture(frame), "characters leaked against characters masked in vain")
    if room == "dedup" and read and "dedup" in read:
        drawn["cluster_sizes"] = (sizes_picture(read["dedup"]), "sizes of clusters of near-duplicates")
    return {name: made for name, made in drawn.items() if made[0]}


def leak_damage_picture(frame: pl.DataFrame) -> str:
    """The curve of `swept_leaked_chars` over `swept_over_redacted_chars`; a point a threshold. Empty without figures."""
    points = sweep_points(frame)
    if not points:
        return ""
    most_leaked = max(leaked for _, leaked, _ in points) or 1.0
    most_damage = max(damage for *_, damage in points) or 1.0
    width = WIDTH - LEFT - 40

    def place(leaked: float, damage: float) -> tuple[float, float]:
        return LEFT + width * damage / most_damage, TOP + PLOT * (1 - leaked / most_leaked)

    places = [place(leaked, damage) for _, leaked, damage in points]
    drawn = [*_axes(width, "masked in vain, characters", "leaked, characters", most_damage, most_leaked)]
    drawn.append(element("polyline", {"class": "whisker", "points": " ".join(f"{x:.1f},{y:.1f}" for x, y in places)}))
    shown: list[tuple[float, float]] = []
    for (x, y), (threshold, leaked, damage) in zip(places, points, strict=True):
        about = f"score ≥ {threshold:g}: {leaked:,.0f} leaked, {damage:,.0f} masked in vain"
        drawn.append(element("circle", {"class": "c0", "cx": x, "cy": y, "r": 4}, element("title", {}, about)))
        if all(abs(x - a) + abs(y - b) > 30 for a, b in shown):
            drawn.append(text(x + 7, y - 6, f"{threshold:g}", class_="faint num"))
            shown.append((x, y))
    about = "; ".join(f"{t:g}: {leaked:,.0f} leaked, {damage:,.0f} in vain" for t, leaked, damage in points)
    title = "Leak and damage by score threshold"
    return picture(
        WIDTH, TOP + PLOT + 56, title, about, "leak-damage", text(12, 24, title, class_="strong"), *drawn, alone=True
    )


def sweep_points(frame: pl.DataFrame) -> list[tuple[float, float, float]]:
    """(threshold, leaked, masked in vain) of a quality table, by threshold."""
    threshold = pl.col("params").str.json_path_match("$.threshold").cast(pl.Float64)
    wide = {
        name: dict(
            frame.filter(pl.col("metric") == name, pl.col("value").is_not_null()).select(threshold, "value").iter_rows()
        )
        for name in ("swept_leaked_chars", "swept_over_redacted_chars")
    }
    leaked, damage = wide["swept_leaked_chars"], wide["swept_over_redacted_chars"]
    return [(step, leaked[step], damage[step]) for step in sorted(leaked) if step in damage]


def _axes(width: float, below: str, beside: str, most_x: float, most_y: float) -> list[str]:
    bottom = TOP + PLOT
    return [
        element("line", {"class": "grid", "x1": LEFT, "y1": bottom, "x2": LEFT + width, "y2": bottom}),
        element("line", {"class": "grid", "x1": LEFT, "y1": TOP, "x2": LEFT, "y2": bottom}),
        text(LEFT, bottom + 18, "0", class_="faint num", text_anchor="middle"),
        text(LEFT + width, bottom + 18, f"{most_x:,.0f}", class_="faint num", text_anchor="end"),
        text(LEFT + width / 2, bottom + 36, below, class_="faint", text_anchor="middle"),
        text(LEFT - 8, TOP + 5, f"{most_y:,.0f}", class_="faint num", text_anchor="end"),
        text(LEFT - 8, bottom + 4, "0", class_="faint num", text_anchor="end"),
        text(LEFT + 6, TOP - 6, beside, class_="faint"),
    ]


def grid_picture(rows: pl.DataFrame) -> str:
    """`dedup_sweep` as a grid: a cell a number of hash functions and threshold, with B³ F1, else pairs found. What is in use is framed."""
    rows = rows.filter(pl.col("status") == "ok")
    if rows.is_empty():
        return ""
    scored = rows["b_cubed_f1"].null_count() == 0
    name, told = ("b_cubed_f1", "B³ F1") if scored else ("pairs", "pairs found")
    most = float(rows[name].max() or 0) or 1.0  # type: ignore[arg-type]
    perms, steps = sorted(set(rows["num_perm"])), sorted(set(rows["threshold"]))
    wide, high = min(84.0, (WIDTH - LEFT - 20) / len(steps)), 38.0
    drawn = [
        text(LEFT + wide * (n + 0.5), TOP + 16, f"≥ {step:g}", class_="faint num", text_anchor="middle")
        for n, step in enumerate(steps)
    ]
    for line, perm in enumerate(perms):
        y = TOP + 24 + high * line
        drawn.append(text(LEFT - 8, y + 24, f"{perm} hashes", class_="faint num", text_anchor="end"))
        for row in rows.filter(num_perm=perm).iter_rows(named=True):
            x = LEFT + wide * steps.index(row["threshold"])
            value = float(row[name])
            shown = f"{value:.3f}" if scored else f"{value:,.0f}"
            about = f"{perm} hash functions, threshold {row['threshold']:g}: {told} {shown}, {row['pairs']:,} pairs, {row['removed']:,} removed"
            shade = {"class": "c0", "opacity": round(0.08 + 0.42 * value / most, 3), "x": x + 2, "y": y + 2, "width": wide - 4, "height": high - 4}  # fmt: skip
            drawn.append(element("rect", shade, element("title", {}, about)))
            if row["in_use"] == "yes":
                drawn.append(
                    element("rect", {"class": "hurt", "x": x + 2, "y": y + 2, "width": wide - 4, "height": high - 4})
                )
            drawn.append(text(x + wide / 2, y + 24, shown, class_="num", text_anchor="middle"))
    title = f"{told} by hash functions and threshold; in use is framed"
    about = "; ".join(f"{p} at {t:g}: {v:.4g}" for p, t, v in rows.select("num_perm", "threshold", name).iter_rows())
    height = TOP + 36 + high * len(perms)
    return picture(WIDTH, height, title, about, "dedup-sweep", text(12, 24, title, class_="strong"), *drawn, alone=True)


def sizes_picture(dedup: pl.DataFrame) -> str:
    """How many clusters of near-duplicates have how many documents. Empty where there is none of at least two."""
    sizes = dedup.group_by("cluster_id").len().filter(pl.col("len") > 1)
    if sizes.is_empty():
        return ""
    counts = (
        sizes.group_by("len").agg(pl.len().alias("clusters")).sort("len", descending=True).head(CLASSES).sort("len")
    )
    rows = [(f"{size} documents", float(n), f"{n:,}") for size, n in counts.iter_rows()]
    removed = int(sizes["len"].sum()) - sizes.height
    return _bars(rows, f"{sizes.height:,} clusters of near-duplicates, {removed:,} documents removed", "cluster-sizes")


def class_picture(frame: pl.DataFrame) -> str:
    """Mean CER (`nfc+ws`) by class of document, worst first. Empty without figures."""
    form = pl.col("params").str.json_path_match("$.form")
    means = (
        frame.filter(pl.col("metric") == "cer", pl.col("value").is_not_null(), form == "nfc+ws")
        .group_by(pl.col("doc_class").fill_null("?"))
        .agg(pl.col("value").mean(), pl.len().alias("n"))
        .sort("value", "doc_class", descending=[True, False])
        .head(CLASSES)
    )
    rows = [(f"{name} ({n})", value, f"{value:.4f}") for name, value, n in means.iter_rows()]
    return _bars(rows, "Character error rate by class (documents)", "cer-by-class") if rows else ""


def _bars(rows: Sequence[tuple[str, float, str]], title: str, name: str) -> str:
    """Named bars from 0 to the largest, with their figures."""
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    start, width, high = 190.0, WIDTH - 280.0, 24.0
    drawn = []
    for number, (label, value, told) in enumerate(rows):
        y = TOP + high * number
        drawn.append(text(start - 8, y + 15, label, text_anchor="end"))
        drawn.append(
            element(
                "rect", {"class": "kept", "x": start, "y": y + 3, "width": max(width * value / most, 1.0), "height": 15}
            )
        )
        drawn.append(text(start + width * value / most + 8, y + 15, told, class_="num"))
    about = "; ".join(f"{label}: {told}" for label, _, told in rows)
    height = TOP + high * len(rows) + 12
    return picture(WIDTH, height, title, about, name, text(12, 24, title, class_="strong"), *drawn, alone=True)
