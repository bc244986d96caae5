-- What dashboards and pgio history read. Columns may be added at the end, never removed or renamed.
CREATE VIEW pgio_results.runs AS
SELECT e.created_at AS time, e.run_id, e.name AS experiment, e.workload, e.pgio, e.server_version,
       e.baseline, e.primary_metric, e.margin, e.work, e.facts, e.declared_metrics,
       e.manifest ->> 'created_at' AS created_at,
       (SELECT count(*) FROM pgio_results.trials t WHERE t.experiment_id = e.experiment_id) AS trials,
       (SELECT count(*) FROM pgio_results.trials t
         WHERE t.experiment_id = e.experiment_id AND t.standing = 'counts') AS valid_trials
FROM pgio_results.experiments e;
COMMENT ON VIEW pgio_results.runs IS 'a row for each run of a workload';

CREATE VIEW pgio_results.run_conditions AS
SELECT e.created_at AS time, e.run_id, e.name AS experiment, c.ordinal, c.condition,
       c.condition = e.baseline AS is_baseline, c.treatments, c.trials
FROM pgio_results.experiments e
JOIN pgio_results.conditions c USING (experiment_id);
COMMENT ON VIEW pgio_results.run_conditions IS 'a row for each run and condition';

CREATE VIEW pgio_results.run_values AS
SELECT e.created_at AS time, e.run_id, e.name AS experiment, e.workload, m.condition,
       m.condition = e.baseline AS is_baseline, m.metric, m.metric = e.primary_metric AS is_primary,
       m.unit, m.value, m.value / nullif(b.value, 0) AS to_baseline
FROM pgio_results.experiments e
JOIN pgio_results.condition_metrics m USING (experiment_id)
LEFT JOIN pgio_results.condition_metrics b
       ON b.experiment_id = e.experiment_id AND b.condition = e.baseline AND b.metric = m.metric;
COMMENT ON VIEW pgio_results.run_values IS 'a row for each run, condition and metric: the typical trial';

CREATE VIEW pgio_results.trial_values AS
SELECT t.started_at AS time, e.run_id, e.name AS experiment, t.line, t.condition, t.block, t.position,
       t.attempt, t.point, t.standing, m.metric, m.metric = e.primary_metric AS is_primary, m.unit,
       m.value, m.at_least
FROM pgio_results.experiments e
JOIN pgio_results.trials t USING (experiment_id)
JOIN pgio_results.trial_metrics m USING (experiment_id, line);
COMMENT ON VIEW pgio_results.trial_values IS 'a row for each trial and metric';

CREATE VIEW pgio_results.effects AS
SELECT e.created_at AS time, e.run_id, e.name AS experiment, c.condition, e.baseline, c.metric,
       c.is_primary, c.blocks, c.ratio, c.ratio_low, c.ratio_high, c.p, c.p_adjusted, c.verdict,
       c.decision, c.gate
FROM pgio_results.experiments e
JOIN pgio_results.comparisons c USING (experiment_id);
COMMENT ON VIEW pgio_results.effects IS 'a row for each comparison with the baseline';
