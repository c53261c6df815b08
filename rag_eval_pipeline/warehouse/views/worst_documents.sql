-- needs: evidence_fate
-- needs: evidence_units
CREATE OR REPLACE VIEW worst_documents AS
WITH shares AS (
    SELECT corpus_version, pipeline, evaluation_id, retriever, k, query_id, evidence_id, served, first_loss_stage, cause,
        1.0 / count(*) OVER (PARTITION BY evaluation_id, retriever, k, query_id) AS share
    FROM evidence_fate
    WHERE eligible
),
queries AS (
    SELECT evaluation_id, retriever, k, count(DISTINCT query_id) AS n_queries FROM shares GROUP BY ALL
)
SELECT
    s.corpus_version, s.pipeline, s.evaluation_id, s.retriever, s.k, u.doc_id,
    sum(s.share) / any_value(q.n_queries) AS lost_recall,
    count(*) AS lost_units,
    count(DISTINCT s.query_id) AS lost_queries,
    list(DISTINCT s.first_loss_stage ORDER BY s.first_loss_stage) AS stages,
    list(DISTINCT s.cause ORDER BY s.cause) FILTER (WHERE s.cause IS NOT NULL) AS causes
FROM shares AS s
JOIN queries AS q USING (evaluation_id, retriever, k)
JOIN evidence_units AS u USING (evaluation_id, query_id, evidence_id)
WHERE NOT s.served
GROUP BY s.corpus_version, s.pipeline, s.evaluation_id, s.retriever, s.k, u.doc_id;
COMMENT ON VIEW worst_documents IS 'Documents by the recall that their lost evidence costs; over all documents it adds up to 1 - recall';
COMMENT ON COLUMN worst_documents.lost_recall IS 'Mean over all queries of (lost units of this document / eligible units of the query)';
COMMENT ON COLUMN worst_documents.stages IS 'Stages that lost them first';
COMMENT ON COLUMN worst_documents.causes IS 'What happened there';
