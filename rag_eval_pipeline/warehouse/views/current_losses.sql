-- The losses of the newest complete evaluation of each pipeline.
-- needs: evidence_fate
-- needs: evidence_units
CREATE OR REPLACE VIEW current_losses AS
SELECT f.corpus_version, f.pipeline, f.evaluation_id, f.retriever, f.k,
    f.first_loss_stage AS stage, f.cause, f.query_id, f.evidence_id, u.doc_id, f.rank, u.quote
FROM current_evidence_fate AS f
JOIN current_evidence_units AS u USING (corpus_version, pipeline, evaluation_id, query_id, evidence_id)
WHERE f.eligible AND NOT f.served;
COMMENT ON VIEW current_losses IS 'The losses of the newest complete evaluation of each key';
