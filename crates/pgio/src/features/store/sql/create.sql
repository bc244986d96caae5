CREATE SCHEMA pgio_results;
COMMENT ON SCHEMA pgio_results IS 'results of pgio; made by pgio store';
CREATE TABLE pgio_results.schema_version (
    version integer PRIMARY KEY,
    pgio text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgio_results.schema_version IS 'the migrations that were applied';
