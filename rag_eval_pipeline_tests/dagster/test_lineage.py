"""Column lineage names columns that there are, never goes back, and leads every text to the document that it was read from."""

import pytest

from rag_eval_pipeline.orchestration import lineage
from rag_eval_pipeline.release.evaluated import EVALUATED, schemas
from rag_eval_pipeline.stages.graph import STAGES
from rag_eval_pipeline.warehouse.table import name_of

ALL = {name_of(t): lineage.of_stage(stage, t) for stage in STAGES for t in stage.writes}
ALL |= {name_of(t): lineage.of_evaluated(step, t) for step in EVALUATED for t in step.writes}
READS = {name: stage.reads for stage in STAGES for name in stage.tables}
READS |= {
    name: (*step.reads, *(t for s in STAGES if s.name == step.room for t in s.tables))
    for step in EVALUATED
    for name in step.tables
}


@pytest.mark.parametrize("table", ALL)
def test_a_column_comes_from_columns_that_its_step_reads(table):
    known = schemas()
    for column, places in ALL[table].items():
        assert column in known[table].columns()
        assert places
        for source, name in places:
            assert name in known[source].columns(), f"{table}.{column} <- {source}.{name}"
            assert source in READS[table], f"{table} does not read {source}"


@pytest.mark.parametrize("table", ["cleaned", "masked", "chunks"])
def test_a_text_leads_back_to_what_was_parsed(table):
    way = []
    while places := ALL[table].get("text"):
        ((table, _),) = places
        way.append(table)
    assert way[-1] == "parsed"


def test_a_measured_value_comes_from_its_rooms_tables_and_a_mean_from_values():
    sources = {source for source, _ in ALL["retrieval_quality"]["value"]}
    assert sources == {"runs", "exact_runs"}
    assert {name for _, name in ALL["scorecard"]["mean"]} == {"value", "status"}
    assert "stage" in ALL["scorecard"]
