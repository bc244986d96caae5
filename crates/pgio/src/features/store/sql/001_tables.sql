-- Results of pgio. A row belongs to one experiment and disappears with it.
CREATE TABLE pgio_results.experiments (
    experiment_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    pgio text NOT NULL,
    workload text NOT NULL,
    server_version text,
    baseline text NOT NULL,
    primary_metric text NOT NULL,
    margin double precision,
    work jsonb NOT NULL,
    facts jsonb NOT NULL,
    declared_metrics jsonb NOT NULL,
    manifest jsonb NOT NULL,
    digest text NOT NULL,
    UNIQUE (run_id, name)
);
CREATE INDEX ON pgio_results.experiments (name, created_at);
COMMENT ON TABLE pgio_results.experiments IS 'one execution of one workload of an experiment';
COMMENT ON COLUMN pgio_results.experiments.work IS 'the workload and its data: runs that differ here are not comparable';
COMMENT ON COLUMN pgio_results.experiments.facts IS 'the environment, the window and the version of pgio';
COMMENT ON COLUMN pgio_results.experiments.digest IS 'SHA-256 of the records and the version of pgio: an experiment that was continued is replaced';

CREATE TABLE pgio_results.conditions (
    experiment_id bigint NOT NULL REFERENCES pgio_results.experiments ON DELETE CASCADE,
    ordinal integer NOT NULL,
    condition text NOT NULL,
    treatments text NOT NULL,
    trials integer NOT NULL,
    PRIMARY KEY (experiment_id, ordinal)
);
COMMENT ON COLUMN pgio_results.conditions.trials IS 'trials that count';

CREATE TABLE pgio_results.condition_metrics (
    experiment_id bigint NOT NULL REFERENCES pgio_results.experiments ON DELETE CASCADE,
    condition text NOT NULL,
    metric text NOT NULL,
    unit text NOT NULL,
    value double precision NOT NULL,
    PRIMARY KEY (experiment_id, condition, metric)
);
COMMENT ON TABLE pgio_results.condition_metrics IS 'the typical trial of each condition, in base units (s, bytes)';

CREATE TABLE pgio_results.trials (
    experiment_id bigint NOT NULL REFERENCES pgio_results.experiments ON DELETE CASCADE,
    line integer NOT NULL,
    condition text NOT NULL,
    block integer NOT NULL,
    position integer NOT NULL,
    attempt integer NOT NULL,
    point jsonb NOT NULL,
    started_at timestamptz,
    window_seconds double precision NOT NULL,
    outcome text NOT NULL,
    standing text NOT NULL,
    invalid_checks text NOT NULL,
    PRIMARY KEY (experiment_id, line)
);
COMMENT ON COLUMN pgio_results.trials.line IS 'its line in trials.jsonl';
COMMENT ON COLUMN pgio_results.trials.standing IS 'counts, or why not: invalid, failed, interrupted, repeated, burn_in, unknown_condition';

CREATE TABLE pgio_results.trial_metrics (
    experiment_id bigint NOT NULL,
    line integer NOT NULL,
    metric text NOT NULL,
    unit text NOT NULL,
    value double precision NOT NULL,
    at_least boolean NOT NULL,
    PRIMARY KEY (experiment_id, line, metric),
    FOREIGN KEY (experiment_id, line) REFERENCES pgio_results.trials ON DELETE CASCADE
);
COMMENT ON COLUMN pgio_results.trial_metrics.at_least IS 'the value is a lower bound: the end of the window cut operations off';

CREATE TABLE pgio_results.comparisons (
    experiment_id bigint NOT NULL REFERENCES pgio_results.experiments ON DELETE CASCADE,
    condition text NOT NULL,
    metric text NOT NULL,
    is_primary boolean NOT NULL,
    blocks integer NOT NULL,
    ratio double precision,
    ratio_low double precision,
    ratio_high double precision,
    p double precision,
    p_adjusted double precision,
    verdict text NOT NULL,
    decision text,
    gate text,
    PRIMARY KEY (experiment_id, condition, metric)
);
COMMENT ON TABLE pgio_results.comparisons IS 'each condition against the baseline: ratio with its 95 % interval, and verdict';
