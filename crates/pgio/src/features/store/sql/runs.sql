-- The runs of one experiment, the newest last.
SELECT run_id, experiment, created_at, baseline, primary_metric, declared_metrics::text, work::text,
       facts::text, trials
FROM pgio_results.runs
WHERE experiment = $1
ORDER BY time, run_id
