INSERT INTO pgio_results.experiments (run_id, name, created_at, pgio, workload, server_version, baseline,
    primary_metric, margin, work, facts, declared_metrics, manifest, digest)
VALUES ($1, $2, $3::text::timestamptz, $4, $5, $6, $7, $8, $9, $10::text::jsonb, $11::text::jsonb,
    $12::text::jsonb, $13::text::jsonb, $14)
RETURNING experiment_id
