-- Their conditions with all values, in the order of the manifest, and the metrics that have lower bounds.
SELECT c.run_id, c.condition, c.treatments, c.trials,
       coalesce(v.metrics, '{}'::text[]), coalesce(v.values, '{}'::float8[]),
       coalesce(b.metrics, '{}'::text[])
FROM pgio_results.run_conditions c
LEFT JOIN (
    SELECT run_id, condition, array_agg(metric) AS metrics, array_agg(value) AS values
    FROM pgio_results.run_values
    WHERE experiment = $1
    GROUP BY run_id, condition
) v USING (run_id, condition)
LEFT JOIN (
    SELECT run_id, condition, array_agg(DISTINCT metric) AS metrics
    FROM pgio_results.trial_values
    WHERE experiment = $1 AND at_least AND standing = 'counts'
    GROUP BY run_id, condition
) b USING (run_id, condition)
WHERE c.experiment = $1
ORDER BY c.run_id, c.ordinal
