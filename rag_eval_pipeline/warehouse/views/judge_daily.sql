-- needs: judge_evals
-- needs: judge_calibration
CREATE OR REPLACE VIEW judge_daily AS
WITH limits AS (
    SELECT evaluation_id,
        coalesce(TRY_CAST(json_extract_string(config::JSON, '$.pipeline.judging.alert_share') AS DOUBLE), 0.15) AS alert_share
    FROM evaluations
),
counted AS (
    SELECT corpus_version, pipeline, evaluation_id, judge, rubric, day,
        count(*) AS n,
        count(*) FILTER (WHERE status = 'ok') AS n_judged,
        avg(score) AS mean_score,
        avg(weighted_score) AS mean_weighted_score,
        avg(CAST(is_unsatisfactory AS DOUBLE)) AS unsatisfactory_share,
        sum(cost) AS cost,
        quantile_cont(latency_s, 0.5) AS latency_p50,
        CASE WHEN count(latency_s) >= 20 THEN quantile_cont(latency_s, 0.95) END AS latency_p95
    FROM current_judge_evals
    GROUP BY ALL
),
known AS (
    SELECT evaluation_id, judge, rubric, calibrated
    FROM judge_calibration
    WHERE decided_by = 'label' AND slice_name = 'all'
)
SELECT c.*, l.alert_share,
    coalesce(c.unsatisfactory_share > l.alert_share, false) AS flagged,
    coalesce(k.calibrated, false) AS calibrated
FROM counted AS c
JOIN limits AS l USING (evaluation_id)
LEFT JOIN known AS k USING (evaluation_id, judge, rubric);
COMMENT ON VIEW judge_daily IS 'What judges said by pipeline and day: mean score, n, unsatisfactory share, and days above the configured share';
COMMENT ON COLUMN judge_daily.day IS 'Day of the replies, UTC; NULL: requests that got none';
COMMENT ON COLUMN judge_daily.n IS 'Answers that were to be judged';
COMMENT ON COLUMN judge_daily.n_judged IS 'Answers with a judgment; means and shares are over these';
COMMENT ON COLUMN judge_daily.alert_share IS 'judging.alert_share of the evaluation';
COMMENT ON COLUMN judge_daily.flagged IS 'Whether the unsatisfactory share is above alert_share';
COMMENT ON COLUMN judge_daily.calibrated IS 'Whether the judge is calibrated on this corpus: else its figures are uncalibrated';
