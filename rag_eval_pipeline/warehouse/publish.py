"""The DuckDB file for people: built beside the old one from manifests only, and swapped in under open readers.

Tables of stages carry `pipeline_id`, tables of evaluations `evaluation_id`, tables of comparisons `comparison_id`;
`evaluation_tables` joins them, and the views `current_<table>` show the newest complete evaluation of every key. What a
table means stands in its declaration.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock

from rag_eval_pipeline.engine.kills import reached
from rag_eval_pipeline.warehouse.manifests import Comparison, Manifest
from rag_eval_pipeline.warehouse.redact import Redactor
from rag_eval_pipeline.warehouse.store import IdKind, Store, Stored
from rag_eval_pipeline.warehouse.table import Table, name_of, polars_schema, privacy_of

STORAGE = "v1.5.0"
"""Opens with any DuckDB from 1.5 on."""

LOCK_SECONDS = 600


@dataclass(frozen=True)
class Published:
    """What a publication did."""

    path: Path
    evaluations: int
    rows_added: int
    rows_kept: int
    bytes: int


def publish(
    database: Path,
    manifests: Sequence[Manifest],
    accepted: Mapping[str, tuple[str, str] | None],
    schemas: Mapping[str, type[Table]],
    store: Store,
    redactor_of: Callable[[str], Redactor],
    comparisons: Sequence[Comparison] = (),
    always: Mapping[str, IdKind] | None = None,
    gates: Sequence[Mapping[str, Any]] = (),
) -> Published:
    """Bring the database up to the manifests.

    Args:
        database: the file to swap in.
        manifests: all evaluations.
        accepted: corpus -> (key, evaluation_id) of its accepted baseline.
        schemas: declarations of all tables that may be published.
        store: where the tables lie.
        redactor_of: subject -> redactor over its labelled and predicted personal strings.
        comparisons: all comparisons; what they show is redacted for both of their subjects.
        always: tables that are there, without rows, also where nothing names them, so that views can stand on them.
        gates: records of release gates, as `Manifests.gates` reads them.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{database}.lock", timeout=LOCK_SECONDS):
        for stale in database.parent.glob(f".{database.name}.*.tmp*"):
            stale.unlink()  # left by a publication that was killed: we hold the lock, so nobody writes it
        building = database.parent / f".{database.name}.{uuid.uuid4().hex}.tmp"
        wanted = _wanted(manifests, schemas) | _compared(comparisons, schemas)
        redactors = _redactors(wanted, redactor_of)
        if database.exists() and not _shows_too_much(database, wanted, redactors):
            shutil.copyfile(database, building)
        content = _Content(manifests, accepted, comparisons, schemas, always or {}, gates)
        counts = _build(building, content, store, wanted, redactors)
        reached("database:temporary")
        building.replace(database)
    return Published(database, len(manifests), *counts, database.stat().st_size)


@dataclass(frozen=True)
class _Content:
    """What a publication is made of."""

    manifests: Sequence[Manifest]
    accepted: Mapping[str, tuple[str, str] | None]
    comparisons: Sequence[Comparison]
    schemas: Mapping[str, type[Table]]
    always: Mapping[str, IdKind]
    gates: Sequence[Mapping[str, Any]]


def _build(
    path: Path,
    content: _Content,
    store: Store,
    wanted: Mapping[tuple[str, str, str], _Part],
    redactors: Mapping[tuple[str, ...], Redactor],
) -> tuple[int, int]:
    import duckdb

    with duckdb.connect() as con:
        con.sql(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS published (STORAGE_VERSION '{STORAGE}')")
        con.sql("USE published")
        con.begin()  # one transaction: a commit a statement would be a sync of the disk a statement
        con.sql(
            "CREATE TABLE IF NOT EXISTS _published (table_name VARCHAR, declaration VARCHAR, corpus_version VARCHAR, id VARCHAR, "
            "content_hash VARCHAR, redaction VARCHAR, rows BIGINT)"
        )
        added, kept = _sync(con, wanted, content.schemas, store, redactors)
        shown = {table for table, _, _ in wanted}
        empty = {
            name: kind
            for name, kind in content.always.items()
            if name in content.schemas and name not in shown and _columns(content.schemas[name])
        }
        for name, kind in sorted(empty.items()):
            _insert(con, content.schemas[name], _without_rows(content.schemas[name], kind))
        _replace_evaluations(con, content)
        _create_views(con, shown | empty.keys())
        con.commit()
        con.sql("CHECKPOINT published")
    return added, kept


@dataclass(frozen=True)
class _Part:
    """One stored table to be shown."""

    content_hash: str
    path: str
    rows: int
    kind: str
    pipeline: str | None
    source_text: bool
    subjects: tuple[str, ...]


def _wanted(manifests: Sequence[Manifest], schemas: Mapping[str, type[Table]]) -> dict[tuple[str, str, str], _Part]:
    """(table, corpus_version, id) -> what to show; tables that evaluations share are shown once."""
    wanted: dict[tuple[str, str, str], _Part] = {}
    for manifest in manifests:
        subject, _, pipeline = manifest.key.partition("#")
        source_text = bool(manifest.config.get("publish", {}).get("source_text", False))
        for name, entry in manifest.tables.items():
            if name not in schemas or not _columns(schemas[name]):
                continue
            evaluated = entry["kind"] == "evaluation_id"
            wanted[name, subject, entry["id"]] = _Part(
                entry["content_hash"],
                entry["path"],
                entry["rows"],
                entry["kind"],
                (pipeline or "default") if evaluated else None,
                source_text,
                (subject,),
            )
    return wanted


def _compared(
    comparisons: Sequence[Comparison], schemas: Mapping[str, type[Table]]
) -> dict[tuple[str, str, str], _Part]:
    """The same of comparisons. Both sides' texts are masked texts, so no choice of source text concerns them."""
    wanted: dict[tuple[str, str, str], _Part] = {}
    for comparison in comparisons:
        subject, _, pipeline = comparison.key.partition("#")
        subjects = tuple(sorted({subject, comparison.key_before.partition("#")[0]}))
        for name, entry in comparison.tables.items():
            if name in schemas:
                wanted[name, subject, entry["id"]] = _Part(
                    entry["content_hash"], entry["path"], entry["rows"], entry["kind"], pipeline or "default", False, subjects
                )  # fmt: skip
    return wanted


def _redactors(
    wanted: Mapping[tuple[str, str, str], _Part], redactor_of: Callable[[str], Redactor]
) -> dict[tuple[str, ...], Redactor]:
    """Subjects -> redactor over the personal strings of them all."""
    single = {
        subject: redactor_of(subject) for subject in sorted({s for part in wanted.values() for s in part.subjects})
    }
    return {
        subjects: single[subjects[0]]
        if len(subjects) == 1
        else Redactor(term for subject in subjects for term in single[subject].terms)
        for subjects in {part.subjects for part in wanted.values()}
    }


def _mark(redactor: Redactor, part: _Part) -> str:
    """How a part was redacted."""
    return f"{redactor.fingerprint}{'+source' if part.source_text else ''}"


def _shows_too_much(
    database: Path, wanted: Mapping[tuple[str, str, str], _Part], redactors: Mapping[tuple[str, ...], Redactor]
) -> bool:
    """Whether something must be hidden that was shown: a deleted row's bytes stay in a file, so it is built anew."""
    import duckdb

    try:
        with duckdb.connect(str(database), read_only=True) as con:
            rows = con.sql("SELECT table_name, corpus_version, id, redaction FROM _published").fetchall()
    except duckdb.Error:  # not a file of ours, or one that this DuckDB cannot read: everything in it can be made anew
        return True
    marks = {(name, subject, id_): redaction for name, subject, id_, redaction in rows}
    return any(
        mark != _mark(redactors[wanted[key].subjects], wanted[key]) for key, mark in marks.items() if key in wanted
    )


def _sync(
    con: Any,
    wanted: Mapping[tuple[str, str, str], _Part],
    schemas: Mapping[str, type[Table]],
    store: Store,
    redactors: Mapping[tuple[str, ...], Redactor],
) -> tuple[int, int]:
    """Add what is new, drop what no manifest names, keep the rest. Returns rows added and kept."""
    declared = {name: _declaration(schemas[name]) for name, _, _ in wanted}
    present = {
        (row[0], row[2], row[3]): row
        for row in con.sql(
            "SELECT table_name, declaration, corpus_version, id, content_hash, redaction, rows FROM _published"
        ).fetchall()
    }
    stale = {row[0] for row in present.values() if declared.get(row[0]) != row[1]}
    rowless = set(schemas) - {row[0] for row in present.values()}
    for name in sorted(stale | rowless):  # its declaration changed, or nobody names it any more: make it anew
        con.sql(f'DROP VIEW IF EXISTS "current_{name}"')
        con.sql(f'DROP TABLE IF EXISTS "{name}"')
        con.sql("DELETE FROM _published WHERE table_name = $1", params=[name])
    added = kept = 0
    for key, part in sorted(wanted.items()):
        name, subject, id_ = key
        redactor = redactors[part.subjects]
        mark = _mark(redactor, part)
        row = None if name in stale else present.get(key)
        if row and (row[4], row[5]) == (part.content_hash, mark):
            kept += part.rows
            continue
        if row:
            _remove(con, name, subject, id_, part.kind)
        frame = store.read(Stored(name, store.path_of(part.path), part.content_hash, part.rows))
        shown = _shown(schemas[name], frame, redactor, part, subject, id_)
        _insert(con, schemas[name], shown)
        con.sql(
            "INSERT INTO _published VALUES ($1, $2, $3, $4, $5, $6, $7)",
            params=[name, declared[name], subject, id_, part.content_hash, mark, part.rows],
        )
        added += part.rows
    for name, subject, id_ in present.keys() - wanted.keys():
        if name not in stale:
            _remove(con, name, subject, id_, next(kind for kind in KINDS if _has(con, name, kind)))
    return added, kept


KINDS = ("comparison_id", "evaluation_id", "pipeline_id")
"""Columns that name what a row belongs to; a table's own is the first of these that it has."""


def _without_rows(schema: type[Table], kind: IdKind) -> pl.DataFrame:
    """A table as it would be shown, without rows."""
    pipeline = None if kind == "pipeline_id" else "default"
    part = _Part("", "", 0, kind, pipeline, False, ())
    return _shown(schema, pl.DataFrame(schema=polars_schema(schema)), Redactor([]), part, "", "")


def _remove(con: Any, name: str, subject: str, id_: str, kind: str) -> None:
    con.sql(f'DELETE FROM "{name}" WHERE corpus_version = $1 AND {kind} = $2', params=[subject, id_])
    con.sql(
        "DELETE FROM _published WHERE table_name = $1 AND corpus_version = $2 AND id = $3", params=[name, subject, id_]
    )


def _has(con: Any, name: str, column: str) -> bool:
    query = "SELECT count(*) FROM information_schema.columns WHERE table_catalog = 'published' AND table_name = $1 AND column_name = $2"
    return bool(con.sql(query, params=[name, column]).fetchall()[0][0])


def _columns(schema: type[Table]) -> list[str]:
    """Columns that may be shown in some form: bytes and vectors never are."""
    return [name for name, column in schema.columns().items() if column.dtype not in (pl.Binary, pl.List(pl.Float32))]


def _declaration(schema: type[Table]) -> str:
    shape = {n: [str(c.dtype), c.description, privacy_of(c)] for n, c in schema.columns().items()}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]


def _shown(
    schema: type[Table], frame: pl.DataFrame, redactor: Redactor, part: _Part, subject: str, id_: str
) -> pl.DataFrame:
    """The rows as people may see them: masked text redacted, source text as length and hash."""
    columns: list[pl.Series] = []
    declared = schema.columns()
    for name in _columns(schema):
        # An older evaluation's file may lack a column that was declared since.
        values = (
            frame[name] if name in frame.columns else pl.Series(name, [None] * frame.height, dtype=declared[name].dtype)
        )
        privacy = privacy_of(declared[name])
        if privacy == "masked":
            columns.append(redactor.column(values))
        elif privacy == "source":
            columns.extend(_fingerprints(values, part.source_text))
        else:
            columns.append(values)
    identity = {"corpus_version": subject, part.kind: id_}
    if part.pipeline is not None:
        identity["pipeline"] = part.pipeline
    extra = [
        pl.lit(value, dtype=pl.String).alias(name) for name, value in identity.items() if name not in frame.columns
    ]
    shown = pl.DataFrame(columns) if columns else pl.DataFrame()
    return (
        shown.with_columns(extra).select(*identity, pl.exclude(*identity))
        if shown.height
        else _empty(shown, extra, identity)
    )


def _empty(shown: pl.DataFrame, extra: list[pl.Expr], identity: Mapping[str, str]) -> pl.DataFrame:
    return shown.with_columns(extra).clear().select(*identity, pl.exclude(*identity))


def _fingerprints(values: pl.Series, source_text: bool) -> list[pl.Series]:
    """A source column as its length and hash; the text itself only where the user chose to publish it."""
    texts = values.to_list()
    hashes = [None if t is None else hashlib.sha256(str(t).encode("utf-8", "surrogatepass")).hexdigest() for t in texts]
    lengths = [None if t is None else len(t) for t in texts]
    return [
        values if source_text else pl.Series(values.name, [None] * values.len(), dtype=values.dtype),
        pl.Series(f"{values.name}_length", lengths, dtype=pl.Int64),
        pl.Series(f"{values.name}_sha256", hashes, dtype=pl.String),
    ]


def _insert(con: Any, schema: type[Table], shown: pl.DataFrame) -> None:
    name = name_of(schema)
    con.register("incoming", shown.to_arrow())
    try:
        created = not con.sql(
            "SELECT 1 FROM information_schema.tables WHERE table_catalog = 'published' AND table_name = $1",
            params=[name],
        ).fetchall()
        if created:
            con.sql(f'CREATE TABLE "{name}" AS SELECT * FROM incoming LIMIT 0')
            _comment(con, schema, shown.columns)
        con.sql(f'INSERT INTO "{name}" BY NAME SELECT * FROM incoming')
    finally:
        con.unregister("incoming")


NOTES = {
    "corpus_version": "corpus@version",
    "pipeline": "Pipeline under evaluation; `default` is corpus.yaml's own",
    "pipeline_id": "Identity of what the table was computed from; join evaluation_tables on it",
    "evaluation_id": "Identity of the evaluation",
    "comparison_id": "Identity of the comparison; what differs between its two sides stands in comparisons",
}


def _comment(con: Any, schema: type[Table], shown: Sequence[str]) -> None:
    con.sql(f'COMMENT ON TABLE "{name_of(schema)}" IS {_quoted(schema.description)}')  # type: ignore[attr-defined]
    declared = schema.columns()
    for name in shown:
        base = name.removesuffix("_length").removesuffix("_sha256")
        column = declared.get(name) or declared.get(base)
        text = NOTES.get(name) if column is None else column.description
        if column is not None and name not in declared:
            text = f"{'Length' if name.endswith('_length') else 'sha256'} of: {column.description}"
        unit = (column.metadata or {}).get("unit") if column is not None and name in declared else None
        con.sql(
            f'COMMENT ON COLUMN "{name_of(schema)}"."{name}" IS {_quoted((text or "") + (f" [{unit}]" if unit else ""))}'
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _replace_evaluations(con: Any, content: _Content) -> None:
    """The tables `evaluations`, `evaluation_tables`, `comparisons` and `release_gates`: small, so made anew each time."""
    manifests, accepted = content.manifests, content.accepted
    evaluations = pl.DataFrame(
        [
            {
                "corpus_version": m.key.partition("#")[0],
                "pipeline": m.key.partition("#")[2] or "default",
                "evaluation_id": m.evaluation_id,
                "status": m.status,
                "started": m.started,
                "stopped_at": m.stopped_at,
                "accepted": accepted.get(m.key.partition("@")[0]) == (m.key, m.evaluation_id),
                "git_revision": m.git_revision,
                "gold_hash": m.gold_hash,
                "documents_hash": m.documents_hash,
                "config": json.dumps(m.config, ensure_ascii=False),
                "versions": json.dumps(m.versions),
            }
            for m in manifests
        ],
        schema={name: pl.Boolean if name == "accepted" else pl.String for name in LISTED},
    )
    tables = pl.DataFrame(
        [
            {"evaluation_id": m.evaluation_id, "corpus_version": m.key.partition("#")[0], "table_name": name, **entry}
            for m in manifests
            for name, entry in m.tables.items()
        ],
        schema={name: pl.Int64 if name == "rows" else pl.String for name in MADE_OF},
    )
    comparisons = _comparison_rows(content.comparisons)
    gates = gate_rows(content.gates)
    for name, frame in (
        ("evaluations", evaluations), ("evaluation_tables", tables), ("comparisons", comparisons), ("release_gates", gates),
    ):  # fmt: skip
        con.register("incoming", frame.to_arrow())
        con.sql(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM incoming')
        con.unregister("incoming")
    con.sql("COMMENT ON TABLE evaluations IS 'One row an evaluation: a key, what it stands on, and how it ended'")
    con.sql("COMMENT ON TABLE evaluation_tables IS 'Which stored tables make an evaluation'")
    con.sql("COMMENT ON TABLE comparisons IS 'One row a comparison of two evaluations, and what differs between them'")
    con.sql(
        "COMMENT ON TABLE release_gates IS 'One row a limit of a release rule and series, or a reason why nothing was decided (rule 0): "
        "what a release gate found'"
    )
    for table, columns in (
        ("evaluations", LISTED), ("evaluation_tables", MADE_OF), ("comparisons", COMPARED),
        ("release_gates", {n: about for n, (_, about) in GATED.items()}),
    ):  # fmt: skip
        for name, about in columns.items():
            con.sql(f'COMMENT ON COLUMN {table}."{name}" IS {_quoted(about)}')


LISTED = {
    "corpus_version": "corpus@version",
    "pipeline": "Pipeline under evaluation; `default` is corpus.yaml's own",
    "evaluation_id": "Identity of the evaluation",
    "status": "complete | failed",
    "started": "When its run began, ISO 8601 in UTC",
    "stopped_at": "Step at which a failed run stopped",
    "accepted": "Whether it is its corpus's accepted baseline",
    "git_revision": "Revision of the code that made it",
    "gold_hash": "Hash of the labels",
    "documents_hash": "Hash of the documents and what is declared of them",
    "config": "The settings, a JSON object",
    "versions": "Library -> version, a JSON object",
}

MADE_OF = {
    "evaluation_id": "Identity of the evaluation",
    "corpus_version": "corpus@version",
    "table_name": "Name of the table",
    "path": "Where it is stored, below the store",
    "content_hash": "Hash of its content, without volatile columns",
    "rows": "Rows",
    "kind": "What id names its content: pipeline_id, evaluation_id",
    "id": "That id",
}

COMPARED = {
    "comparison_id": "Identity of the comparison",
    "version_before": "corpus@version that is compared with",
    "pipeline_before": "Its pipeline",
    "evaluation_before": "Its evaluation",
    "corpus_version": "corpus@version that is compared",
    "pipeline": "Its pipeline",
    "evaluation_id": "Its evaluation",
    "made": "When it was computed",
    "documents_changed": "The documents, or what is declared of them, differ",
    "gold_changed": "The labels differ",
    "measuring_changed": "evaluate, ledger, code: what of the measuring differs; NULL: not known",
    "stages_changed": "Stage -> config, code, model, inputs -> whether it differs (null: not known); a JSON object",
}


GATED: dict[str, tuple[Any, str]] = {
    "gate_id": (pl.String, "Identity of the question: evaluation, baseline, rules, allowances"),
    "corpus_version": (pl.String, "corpus@version that is decided on"),
    "pipeline": (pl.String, "Its pipeline"),
    "evaluation_id": (pl.String, "Its evaluation"),
    "evaluation_before": (pl.String, "Evaluation that it is compared with; NULL: there is none"),
    "baseline": (pl.String, "What it is compared with, or why with nothing, in words"),
    "rules_hash": (pl.String, "Hash of the rules and the minimum coverage"),
    "made": (pl.String, "When it was decided last"),
    "whole_verdict": (pl.String, "Of the whole gate: pass | fail | inconclusive | missing_evidence"),
    "power_least": (pl.Float64, "Least chance that all relative limits pass if nothing changed; NULL without any"),
    "power_most": (pl.Float64, "Greatest such chance"),
    "allowances": (pl.List(pl.String), "Differences between the sides that were allowed: gold, rules, population"),
    "rule": (pl.Int64, "Number of the rule in corpus.yaml, from 1; 0: why nothing was decided"),
    "label": (pl.String, "The figure in words"),
    "limit": (pl.String, "min | max | max_drop | max_rise"),
    "allowed": (pl.Float64, "Value of the limit"),
    "verdict": (pl.String, "Of this limit"),
    "reason": (pl.String, "Why, and what to do"),
    "found": (pl.Float64, "Mean, or mean difference to the baseline"),
    "before": (pl.Float64, "Mean of the baseline"),
    "low": (pl.Float64, "One-sided lower 95 % bound of found"),
    "high": (pl.Float64, "One-sided upper 95 % bound of found"),
    "n": (pl.Int64, "Items with a value, on both sides where there are two"),
    "n_expected": (pl.Int64, "Items that should have one"),
    "n_needed": (pl.Int64, "Items on which it would be settled with 80 % power, if the figure stays"),
    "power": (pl.Float64, "Chance that this limit passes if nothing changed; relative limits only"),
    "p_fail": (pl.Float64, "Chance of a figure as bad as this one at the limit itself"),
    "p_holm": (pl.Float64, "The same, adjusted for the number of limits"),
}
FINDING = list(GATED)[list(GATED).index("rule") :]


def gate_rows(gates: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Records of gates as rows: one a finding, and one a refusal."""
    rows = []
    for gate in gates:
        decision = gate["decision"]
        power = decision["power"] or (None, None)
        whole = {
            **{name: gate[name] for name in ("gate_id", "evaluation_id", "evaluation_before", "baseline", "rules_hash", "made")},
            "corpus_version": gate["key"].partition("#")[0],
            "pipeline": gate["key"].partition("#")[2] or "default",
            "whole_verdict": decision["verdict"],
            "power_least": power[0],
            "power_most": power[1],
            "allowances": list(gate["allowed"]),
        }  # fmt: skip
        refused = [
            {"rule": 0, "label": "may be decided", "verdict": "missing_evidence", "reason": reason}
            for reason in decision["refusals"]
        ]
        for finding in (*refused, *decision["findings"]):
            rows.append(whole | {name: finding.get(name) for name in FINDING})
    return pl.DataFrame(rows, schema={name: kind for name, (kind, _) in GATED.items()}, orient="row")


def _comparison_rows(comparisons: Sequence[Comparison]) -> pl.DataFrame:
    rows = [
        {
            "comparison_id": c.comparison_id,
            "version_before": c.key_before.partition("#")[0],
            "pipeline_before": c.key_before.partition("#")[2] or "default",
            "evaluation_before": c.evaluation_before,
            "corpus_version": c.key.partition("#")[0],
            "pipeline": c.key.partition("#")[2] or "default",
            "evaluation_id": c.evaluation_id,
            "made": c.made,
            "documents_changed": c.changes["documents"],
            "gold_changed": c.changes["gold"],
            "measuring_changed": c.changes["measuring"],
            "stages_changed": json.dumps(c.changes["stages"]),
        }
        for c in comparisons
    ]
    kinds: dict[str, Any] = {
        "documents_changed": pl.Boolean,
        "gold_changed": pl.Boolean,
        "measuring_changed": pl.List(pl.String),
    }
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.String) for name in COMPARED})


def _create_views(con: Any, shown: set[str]) -> None:
    con.sql(
        "CREATE OR REPLACE VIEW current_evaluations AS SELECT * FROM evaluations WHERE status = 'complete' "
        "QUALIFY row_number() OVER (PARTITION BY corpus_version, pipeline ORDER BY started DESC, evaluation_id) = 1"
    )
    con.sql(
        "CREATE OR REPLACE VIEW current_release_gates AS SELECT t.* FROM release_gates t SEMI JOIN current_evaluations USING (evaluation_id) "
        "QUALIFY dense_rank() OVER (PARTITION BY evaluation_id ORDER BY made DESC, gate_id) = 1"
    )
    for name in sorted(shown):
        if _has(con, name, "evaluation_id"):
            body = f'SELECT t.* FROM "{name}" t SEMI JOIN current_evaluations USING (evaluation_id)'
        else:
            body = (
                f'SELECT e.pipeline, e.evaluation_id, t.* FROM "{name}" t '
                f"JOIN evaluation_tables u ON u.table_name = '{name}' AND u.id = t.pipeline_id AND u.corpus_version = t.corpus_version "
                "JOIN current_evaluations e ON e.evaluation_id = u.evaluation_id"
            )
        con.sql(f'CREATE OR REPLACE VIEW "current_{name}" AS {body}')
    qualities = sorted(name for name in shown if name.endswith("_quality"))
    if qualities:
        union = " UNION ALL BY NAME ".join(f'SELECT * FROM "{name}"' for name in qualities)
        con.sql(f"CREATE OR REPLACE VIEW measurements AS {union}")
        con.sql(
            "CREATE OR REPLACE VIEW current_measurements AS SELECT m.* FROM measurements m SEMI JOIN current_evaluations USING (evaluation_id)"
        )
    for file in sorted(
        (f for f in files("rag_eval_pipeline.warehouse").joinpath("views").iterdir() if f.name.endswith(".sql")),
        key=lambda f: f.name,
    ):
        text = file.read_text("utf-8")
        needs = {line.removeprefix("-- needs:").strip() for line in text.splitlines() if line.startswith("-- needs:")}
        if needs <= shown:
            con.sql(text)
