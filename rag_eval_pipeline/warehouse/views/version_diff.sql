-- needs: version_regressions
CREATE OR REPLACE VIEW version_diff AS
SELECT
    version_before, pipeline_before, evaluation_before, corpus_version, pipeline, evaluation_id, retriever, k, state,
    CASE WHEN state IN ('recovered', 'removed_unit') THEN stage_before ELSE stage_now END AS stage,
    CASE WHEN state IN ('recovered', 'removed_unit') THEN cause_before ELSE cause_now END AS cause,
    document_change, points_at,
    count(*) AS units,
    count(DISTINCT query_id) AS queries,
    count(DISTINCT doc_id) AS documents,
    count_if(metadata_changed) AS metadata_changed
FROM version_regressions
GROUP BY ALL;
COMMENT ON VIEW version_diff IS 'Two evaluations: units by what became of them, stage and cause of the loss (now, or before where it is lost no more), the change of their document, and where that points';
COMMENT ON COLUMN version_diff.stage IS 'Stage that loses them first: now, or before where recovered or removed; served where kept';
COMMENT ON COLUMN version_diff.units IS 'Units of evidence';
COMMENT ON COLUMN version_diff.metadata_changed IS 'Of these units, those whose document is declared otherwise: language, locale, tags, tenant, acl';
