-- needs: loss_waterfall
-- needs: stage_repairs
CREATE OR REPLACE VIEW stage_costs AS
WITH lost AS (
    SELECT corpus_version, pipeline, evaluation_id, retriever, k, stage, position, lost_units, lost_recall, ceiling_before,
        ceiling_after, recall, n_units, n_queries
    FROM loss_waterfall
    WHERE slice_name = 'all'
),
repaired AS (
    SELECT corpus_version, pipeline, evaluation_id, retriever, k, stage, kind, status AS repair_status, recovered_recall,
        recovered_low, recovered_high, marginal_recall, shapley, n_lost, n_repairable
    FROM stage_repairs
)
SELECT * EXCLUDE (kind), coalesce(kind, 'stage') AS kind
FROM lost FULL JOIN repaired USING (corpus_version, pipeline, evaluation_id, retriever, k, stage);
COMMENT ON VIEW stage_costs IS 'What each stage lost first (the ledger) beside what repairing it gives back (real re-runs); repairs are NULL where none was run';
COMMENT ON COLUMN stage_costs.kind IS 'stage | total, ceiling, context: what all repairs or a perfect reranker would give, no part of the waterfall';
COMMENT ON COLUMN stage_costs.lost_recall IS 'Recall lost here first: where it died, not what it would be worth';
COMMENT ON COLUMN stage_costs.repair_status IS 'Whether its repair was run, and why not';
COMMENT ON COLUMN stage_costs.recovered_recall IS 'Recall that repairing this stage alone gives back; below 0 where it hurts; NULL: not repaired';
COMMENT ON COLUMN stage_costs.marginal_recall IS 'Recall of all repairs less recall of all but this one';
COMMENT ON COLUMN stage_costs.shapley IS 'Its Shapley share of what all repairs together recover';
COMMENT ON COLUMN stage_costs.n_repairable IS 'Lost units that the repair can speak of: where fewer than n_lost, recovered_recall is at least so much';
