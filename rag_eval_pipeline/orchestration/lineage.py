"""Column lineage: from which columns of the tables above a column comes, read off the declarations.

The rule of the house makes it possible: a column keeps its name on its way. A stage takes a column from the nearest table above
that has it; a measured value comes from the columns of its room's own tables; a mean from the values. A column without a
namesake is new at its stage, and has no lineage.
"""

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from rag_eval_pipeline.release.evaluated import Evaluated, schemas
from rag_eval_pipeline.stages.graph import PRODUCER, STAGES
from rag_eval_pipeline.stages.stage import Stage
from rag_eval_pipeline.warehouse.table import Table, name_of

Sources = dict[str, list[tuple[str, str]]]
"""Column -> (table, column) it comes from."""


def of_stage(stage: Stage, schema: type[Table]) -> Sources:
    """Columns of a stage's table."""
    order = [name for room in STAGES for name in room.tables]
    reads = sorted(stage.reads, key=order.index)
    return _named(schema, reads, nearest=True)


def of_evaluated(step: Evaluated, schema: type[Table]) -> Sources:
    """Columns of an evaluation's table."""
    known = schemas()
    if step.room is not None:
        own = [name for name, stage in PRODUCER.items() if stage.name == step.room]
        keys = [(name, column) for name in own for column in known[name].primary_key() if column.endswith("_id")]
        rest = [
            (name, column)
            for name in own
            for column in known[name].columns()
            if column not in known[name].primary_key()
        ]
        return {column: places for column, places in (("item_id", keys), ("value", rest), ("status", rest)) if places}
    found = _named(schema, step.reads, nearest=False)
    values = [(name, column) for name in step.reads if name.endswith("_quality") for column in ("value", "status")]
    measured = {name for name, column in schema.columns().items() if name not in found and column.dtype.is_numeric()}
    return found | {name: values for name in measured if values}


def _named(schema: type[Table], reads: Iterable[str], *, nearest: bool) -> Sources:
    known: Mapping[str, type[Table]] = schemas()
    tables: Sequence[str] = [name for name in reads if name in known and name != name_of(schema)]
    found: Sources = {}
    for column in schema.columns():
        holders = [name for name in tables if column in known[name].columns()]
        if holders:
            found[column] = [(name, column) for name in (holders[-1:] if nearest else holders)]
    return found


def lineage(sources: Sources) -> dict[str, dg.TableColumnLineage]:
    """As Dagster's UI draws it."""
    deps = {
        column: [dg.TableColumnDep(asset_key=table, column_name=name) for table, name in places]
        for column, places in sources.items()
        if places
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps)} if deps else {}
