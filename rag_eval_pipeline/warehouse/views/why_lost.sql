-- needs: evidence_fate
-- needs: evidence_units
-- needs: evidence_ledger
-- needs: documents
-- needs: blocks
CREATE OR REPLACE VIEW why_lost AS
WITH lost AS (
    SELECT
        f.corpus_version, f.pipeline, f.evaluation_id, f.retriever, f.k, f.first_loss_stage AS stage, f.cause, f.query_id,
        f.evidence_id, f.rank, u.doc_id, u.quote, u.critical, f.detail::JSON AS fate, l.detail::JSON AS seen,
        coalesce(l.detail ->> '$.doc_id', u.doc_id) AS place
    FROM evidence_fate AS f
    JOIN evidence_units AS u USING (evaluation_id, query_id, evidence_id)
    LEFT JOIN evidence_ledger AS l
        ON l.evaluation_id = f.evaluation_id AND l.query_id = f.query_id AND l.evidence_id = f.evidence_id
        AND l.stage = f.first_loss_stage AND l.retriever IN ('', f.retriever)
    WHERE f.eligible AND NOT f.served
),
files AS (
    SELECT t.evaluation_id, d.doc_id, d.path
    FROM documents AS d
    JOIN evaluation_tables AS t
        ON t.table_name = 'documents' AND t.id = d.pipeline_id AND t.corpus_version = d.corpus_version
),
pages AS (
    SELECT l.evaluation_id, l.query_id, l.evidence_id, min(b.page) AS page
    FROM (SELECT DISTINCT evaluation_id, corpus_version, query_id, evidence_id, place, (seen ->> '$.start')::BIGINT AS at
          FROM lost WHERE stage = 'parsing') AS l
    JOIN evaluation_tables AS t ON t.evaluation_id = l.evaluation_id AND t.table_name = 'blocks'
    JOIN blocks AS b
        ON b.pipeline_id = t.id AND b.corpus_version = l.corpus_version AND b.doc_id = l.place
        AND b."start" <= l.at AND l.at < b."end"
    GROUP BY ALL
),
told AS (
    SELECT
        l.*,
        coalesce(p.path, l.place) || coalesce(' (page ' || g.page || ')', '') AS here,
        array_to_string(
            list_transform((l.seen -> '$.broken_tokens')::BIGINT[], lambda i: '''' || l.critical[i + 1] || ''''), ', '
        ) AS tokens,
        (l.seen ->> '$.chars') || ' of ' || (l.seen ->> '$.n_chars') || ' characters' AS characters
    FROM lost AS l
    LEFT JOIN files AS p ON p.evaluation_id = l.evaluation_id AND p.doc_id = l.place
    LEFT JOIN pages AS g
        ON g.evaluation_id = l.evaluation_id AND g.query_id = l.query_id AND g.evidence_id = l.evidence_id
        AND l.stage = 'parsing'
)
SELECT
    corpus_version, pipeline, evaluation_id, retriever, k, query_id, evidence_id, stage, cause, doc_id,
    CASE stage
        WHEN 'source' THEN 'its document ' || doc_id || ' is not in this version'
        WHEN 'unanchored' THEN 'its label has no place in ' || here || ': there is no reference text and no passage similar enough'
        WHEN 'parsing' THEN CASE cause
            WHEN 'token' THEN 'parsing broke ' || coalesce(nullif(tokens, ''), 'a critical token') || ' in ' || here
                || coalesce('; it read ' || characters, '')
            WHEN 'characters' THEN 'parsing of ' || here || ' read only ' || coalesce(characters, 'a part of it')
            WHEN 'missing' THEN 'parsing of ' || here || ' left no passage like it'
            WHEN 'reading_order' THEN 'parsing of ' || here || ' put its words out of order or far apart'
            ELSE 'parsing of ' || here || ' ended with status ' || coalesce(cause, 'unknown') END
        WHEN 'cleaning' THEN CASE
            WHEN cause IN ('token', 'characters') THEN 'cleaning' || coalesce(' by ' || (seen ->> '$.cleaner'), '') || ' of ' || here
                || ' kept only ' || coalesce(characters, 'a part of it') || coalesce(' and lost ' || nullif(tokens, ''), '')
            ELSE 'cleaning of ' || here || ' ended with status ' || coalesce(cause, 'unknown') END
        WHEN 'dedup' THEN coalesce(
            array_to_string(list_transform((seen -> '$.removed')::JSON[], lambda r:
                (r ->> '$.doc_id') || ' was removed as a duplicate of ' || (r ->> '$.survivor')
                || coalesce(' (similarity ' || round((r ->> '$.similarity')::DOUBLE, 2) || ')', '')), '; '),
            'its document was removed as a duplicate')
        WHEN 'pii' THEN CASE
            WHEN cause = 'policy' THEN 'it is masked in ' || here || ', and the token itself is labelled personal: rightly lost'
            WHEN cause IN ('token', 'characters') THEN 'masking'
                || coalesce(' of ' || nullif(array_to_string((seen -> '$.types')::VARCHAR[], ', '), ''), '') || ' took '
                || coalesce(nullif(tokens, ''), 'characters of it') || ' in ' || here
            ELSE 'masking of ' || here || ' ended with status ' || coalesce(cause, 'unknown') END
        WHEN 'chunking' THEN CASE cause
            WHEN 'cut' THEN 'an edge of a chunk goes through it: no single chunk of ' || here || ' holds it'
                || coalesce(' (it is spread over ' || nullif(array_to_string((seen -> '$.chunk_ids')::VARCHAR[], ', '), '') || ')', '')
            ELSE 'no chunks of ' || here || ', taken together, have all its characters' END
        WHEN 'filtering' THEN 'the filter (' || coalesce(cause, 'unknown') || ') excludes ' || here
        WHEN 'embedding' THEN 'the encoder saw ' || coalesce((seen ->> '$.encoded_tokens') || ' of ' || (seen ->> '$.tokens') || ' tokens', 'only a part')
            || ' of its chunks' || CASE cause WHEN 'possible' THEN '; a sparse lane had the chunk, so this is possible and not proved' ELSE '' END
        WHEN 'search' THEN 'no lane of ' || retriever || ' found it within its depth, even by exact search'
        WHEN 'indexing' THEN 'exact search had it at rank ' || coalesce(fate ->> '$.exact_rank', 'unknown') || ', the index '
            || coalesce('at rank ' || (fate ->> '$.rank_before'), 'nowhere')
        WHEN 'fusion' THEN 'a lane had it in time ('
            || coalesce(nullif(array_to_string(list_transform((seen -> '$.lanes')::JSON[], lambda r:
                (r ->> '$.lane') || coalesce(' at rank ' || (r ->> '$.hold_rank'), ' nowhere')), ', '), ''), 'its ranks are not recorded')
            || '), the fused list ' || coalesce('at rank ' || (fate ->> '$.rank_before'), 'nowhere')
        WHEN 'reranking' THEN 'it stood at rank ' || coalesce(fate ->> '$.rank_before', 'unknown') || ' before the reranker and '
            || coalesce('at rank ' || rank, 'nowhere') || ' after it'
        WHEN 'rank' THEN coalesce('it stands at rank ' || rank || ', below the cut at ' || k, 'it stands nowhere in the list of ' || retriever)
        ELSE 'lost at ' || stage || coalesce(' (' || cause || ')', '')
    END AS why,
    quote
FROM told;
COMMENT ON VIEW why_lost IS 'One row a lost unit, retriever and k: why, in words. Quote and tokens are masked';
COMMENT ON COLUMN why_lost.why IS 'What happened at the stage that lost it first, in words';
COMMENT ON COLUMN why_lost.doc_id IS 'Document that gold names';
COMMENT ON COLUMN why_lost.quote IS 'The passage, masked';
