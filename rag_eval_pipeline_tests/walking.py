"""Which units a list serves, by walking every list item by item: what `measures.evidence.hold_rank` is held against."""

import polars as pl


def served_at(pieces: pl.DataFrame, run: pl.DataFrame, units: pl.DataFrame, k: int, hold: float) -> pl.DataFrame:
    """What `hold_rank` says about one k, found by walking every list: slow, simple, and written apart from it.

    Returns:
        query_id, evidence_id, retriever, served: one row a unit and retriever of `run`.
    """
    retrievers = sorted(run["retriever"].unique().to_list())
    lists: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in run.sort("rank").iter_rows(named=True):
        lists.setdefault((row["query_id"], row["retriever"]), []).append((row["chunk_id"], row["doc_id"]))
    by_unit: dict[tuple[str, str], list[dict]] = {}
    for row in pieces.iter_rows(named=True):
        by_unit.setdefault((row["query_id"], row["evidence_id"]), []).append(row)
    rows = []
    for unit in units.iter_rows(named=True):
        query, evidence = unit["query_id"], unit["evidence_id"]
        for retriever in retrievers:
            chunks = _first_chunks(lists.get((query, retriever), []), k, unit["kind"] == "document")
            mine = [piece for piece in by_unit.get((query, evidence), []) if piece["chunk_id"] in chunks]
            rows.append((query, evidence, retriever, _any_carrier_holds(mine, unit, hold)))
    schema = {"query_id": pl.String, "evidence_id": pl.String, "retriever": pl.String, "served": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _first_chunks(items: list[tuple[str, str]], k: int, by_document: bool) -> set[str]:
    if not by_document:
        return {chunk for chunk, _ in items[:k]}
    documents: list[str] = []
    for _, document in items:
        if document not in documents:
            documents.append(document)
    return {chunk for chunk, document in items if document in documents[:k]}


def _any_carrier_holds(mine: list[dict], unit: dict, hold: float) -> bool:
    if unit["kind"] == "document":
        return bool(mine)
    for carrier in {piece["carrier"] for piece in mine}:
        chars: set[int] = set()
        tokens: set[int] = set()
        for piece in mine:
            if piece["carrier"] == carrier:
                chars |= set(piece["chars"])
                tokens |= set(piece["tokens"])
        if len(chars) >= max(hold * unit["n_chars"] - 1e-9, 1) and len(tokens) == len(unit["critical_from"]):
            return True
    return False
