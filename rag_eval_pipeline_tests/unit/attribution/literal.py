"""Definitions 3 to 6 of the ledger, one unit, list and k at a time: slow, plain, and written apart from the product.

It starts from the anchors (where a carrier's characters stand in each text) and uses nothing else of attribution.
"""

from __future__ import annotations


class Literal:
    def __init__(self, world, units, anchors):
        self.world, self.hold = world, world.settings.ledger.hold
        self.units = list(units.iter_rows(named=True))
        self.carriers = {}
        for row in anchors.sort("carrier").iter_rows(named=True):
            unit = self.carriers.setdefault((row["query_id"], row["evidence_id"]), {})
            unit.setdefault(row["carrier"], {})[row["layer"]] = row
        frames = world.frames
        self.chunks = {row["chunk_id"]: row for row in frames["chunks"].iter_rows(named=True)}
        self.by_document = {}
        for chunk in self.chunks.values():
            self.by_document.setdefault(chunk["doc_id"], []).append(chunk["chunk_id"])
        self.encoded = dict(frames["embeddings"].select("chunk_id", "encoded_end").iter_rows())
        self.lists = {}
        for table in ("runs", "exact_runs", "fused_runs", "exact_fused_runs", "ranked_runs"):
            self.lists[table] = {}
            for row in frames[table].sort("rank").iter_rows(named=True):
                by_query = self.lists[table].setdefault(row["retriever"], {})
                by_query.setdefault(row["query_id"], []).append((row["chunk_id"], row["doc_id"]))
        self.sizes = {}
        for row in frames["ranked_runs"].iter_rows(named=True):
            if row["input_size"] is not None:
                self.sizes[(row["query_id"], row["retriever"])] = row["input_size"]
        scopes = {row["scope_id"]: row for row in frames["scopes"].iter_rows(named=True)}
        self.scope = {
            row["query_id"]: scopes[row["scope_id"]] for row in frames["applied_filters"].iter_rows(named=True)
        }

    # --- holds

    def together(self, unit, chunk_ids, encoded_only=False, own_only=False):
        """Whether these chunks, from one carrier, hold the unit."""
        for number, carrier in self.carriers[unit["query_id"], unit["evidence_id"]].items():
            if own_only and carrier["masked"]["doc_id"] != unit["doc_id"]:
                continue
            if self.carrier_held(unit, number, chunk_ids, encoded_only):
                return True
        return False

    def carrier_held(self, unit, number, chunk_ids, encoded_only):
        anchor = self.carriers[unit["query_id"], unit["evidence_id"]][number]["masked"]
        if not anchor["present"] or not anchor["kept"]:
            return False
        mine = [self.chunks[c] for c in chunk_ids if c in self.chunks and self.chunks[c]["doc_id"] == anchor["doc_id"]]
        if unit["kind"] == "document":
            return any(
                chunk["text"].strip() and (not encoded_only or chunk["chunk_id"] in self.encoded) for chunk in mine
            )
        ranges = []
        for chunk in mine:
            if chunk["start"] is None:
                continue
            end = chunk["end"]
            if encoded_only:
                end = min(end, chunk["start"] + self.encoded.get(chunk["chunk_id"], 0))
            ranges.append((chunk["start"], end))
        places = anchor["positions"]
        there = [any(a <= p < b for a, b in ranges) for p in places if p >= 0]
        if sum(there) < self.hold * unit["n_chars"] - 1e-9 or not sum(there):
            return False
        for token, (low, high) in enumerate(zip(unit["critical_from"], unit["critical_to"], strict=True)):
            if token in anchor["broken"]:
                return False
            if not any(all(a <= p < b for p in places[low:high]) for a, b in ranges):
                return False
        return True

    def first(self, unit, items, m, by_item=False):
        """The first m items; for document units the items of the first m documents."""
        if unit["kind"] != "document" or by_item:
            return [chunk for chunk, _ in items[:m]]
        seen = []
        for _, doc in items:
            if doc not in seen:
                seen.append(doc)
        return [chunk for chunk, doc in items if doc in seen[:m]]

    def served(self, unit, items, m, by_item=False):
        return self.together(unit, self.first(unit, items, m, by_item))

    def rescued(self, unit, name, k):
        """Served, but by no place in the document that gold names."""
        chunks = self.first(unit, self.final(name, unit["query_id"]), k)
        return self.together(unit, chunks) and not self.together(unit, chunks, own_only=True)

    # --- lists

    def real(self, name, query):
        table = "fused_runs" if self.world.retrievers[name].lanes else "runs"
        return self.lists[table].get(name, {}).get(query, [])

    def exact(self, name, query):
        table = "exact_fused_runs" if self.world.retrievers[name].lanes else "exact_runs"
        if name in self.lists[table]:
            return self.lists[table][name].get(query, [])
        return self.real(name, query)

    def final(self, name, query):
        return self.lists["ranked_runs"].get(name, {}).get(query, [])

    # --- the tests, in order

    def fate(self, unit, name, k):
        """(stage, cause that matters here)."""
        if not unit["eligible"]:
            return "ineligible", None
        failing = self.failing(unit, name, k)
        if self.served(unit, self.final(name, unit["query_id"]), k):
            return "served", None
        stage = failing[0]
        every = self.every(unit)
        if stage in ("search", "fusion", "rank") and not any(self.together(unit, [c]) for c in every):
            stage = "cut"
        if stage in ("cut", "search", "fusion", "rank") and self.scattered(unit):
            return "parsing", "reading_order"
        return ("chunking", "cut") if stage == "cut" else (stage, None)

    def every(self, unit):
        """Chunks of the documents that can carry the unit; no other chunk can hold it."""
        documents = {c["parsed"]["doc_id"] for c in self.carriers[unit["query_id"], unit["evidence_id"]].values()}
        return [chunk for document in sorted(documents) for chunk in self.by_document.get(document, [])]

    def counted(self, unit):
        carriers = self.carriers[unit["query_id"], unit["evidence_id"]].values()
        documents = {c["parsed"]["doc_id"] for c in carriers}
        found = []
        for carrier in carriers:
            row = carrier["parsed"]
            if row["present"] and (row["kept"] or row["survivor"] not in documents):
                found.append(carrier)
        return found

    def scattered(self, unit):
        holders = [c for c in self.counted(unit) if c["parsed"]["held"] or c["clean"]["held"]]
        flags = [c["parsed"]["spread"] if c["parsed"]["held"] else c["clean"]["spread"] for c in holders]
        return bool(flags) and all(flags)

    def failing(self, unit, name, k):
        query, info = unit["query_id"], self.world.retrievers[name]
        carriers = list(self.carriers[query, unit["evidence_id"]].values())
        present = [c for c in carriers if c["parsed"]["present"]]
        counted = self.counted(unit)
        kept = [c for c in present if c["parsed"]["kept"]]
        every = self.every(unit)
        scope = self.scope[query]
        admitted = [c for c in every if scope["everything"] or self.chunks[c]["doc_id"] in scope["doc_ids"]]
        lanes = info.lanes or (name,)
        n = self.sizes.get((query, name)) if info.reranked else None
        real, exact, final = self.real(name, query), self.exact(name, query), self.final(name, query)
        searched = []
        for lane in lanes:
            depth = self.world.retrievers[lane].depth
            by_item = self.world.retrievers[lane].depth_unit == "chunks"
            items = self.exact(lane, query)
            if by_item:
                searched += [chunk for chunk, _ in items[:depth]]
            else:
                searched += self.first({"kind": "document"}, items, depth)
        index = (self.served(unit, exact, k) and not self.served(unit, real, k)) or (
            n is not None and self.served(unit, exact, n, True) and not self.served(unit, real, n, True)
        )
        m, by_item = (n, True) if n is not None else (k, False)
        some_lane = any(self.served(unit, self.real(lane, query), m, by_item) for lane in lanes)
        tests = [
            ("source", bool(present)),
            ("unanchored", any(c["parsed"]["status"] != "unanchored" for c in present) or not present),
            ("parsing", any(c["parsed"]["held"] or c["clean"]["held"] for c in counted)),
            ("cleaning", any(c["clean"]["held"] for c in counted)),
            ("dedup", any(c["clean"]["held"] for c in kept)),
            ("pii", any(c["masked"]["held"] for c in kept)),
            ("chunking", self.together(unit, every)),
            ("filtering", self.together(unit, admitted)),
            ("embedding", not info.dense or self.together(unit, admitted, encoded_only=True)),
            ("search", self.together(unit, searched)),
            ("indexing", not (info.dense and index)),
            ("fusion", not (info.lanes and some_lane and not self.served(unit, real, m, by_item))),
            ("reranking", not (info.reranked and self.served(unit, real, k) and not self.served(unit, final, k))),
            ("rank", self.served(unit, final, k)),
        ]
        return [stage for stage, passed in tests if not passed]
