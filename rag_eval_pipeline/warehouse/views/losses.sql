-- One row a unit of evidence that the served list does not hold, with the stage at which it was lost first.
-- needs: evidence_fate
-- needs: evidence_units
CREATE OR REPLACE VIEW losses AS
SELECT
    f.corpus_version, f.pipeline, f.evaluation_id, f.retriever, f.k,
    f.first_loss_stage AS stage, f.cause, f.query_id, f.evidence_id, u.doc_id, f.rank, u.quote
FROM evidence_fate AS f
JOIN evidence_units AS u USING (corpus_version, pipeline, evaluation_id, query_id, evidence_id)
WHERE f.eligible AND NOT f.served;
COMMENT ON VIEW losses IS 'One row a unit of evidence that the served list does not hold, with the stage at which it was lost first';
