-- For schema.rs: opens a transaction that holds the tables outside a schema, so that nobody drops or truncates them. Only
-- those that the role could drop; a bounded number, because all locks of a server share its memory.
BEGIN;
DO $$
DECLARE
    held regclass;
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR held IN
        SELECT c.oid
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ({schema}, 'information_schema') AND n.nspname !~ '^pg_'
           AND pg_has_role(c.relowner, 'USAGE')
         ORDER BY n.nspname <> current_setting('pgio.schema'), c.oid
         LIMIT 1000
    LOOP
        BEGIN
            EXECUTE 'LOCK TABLE ' || held || ' IN ACCESS SHARE MODE';
        EXCEPTION WHEN OTHERS THEN
            -- Someone changes it at this moment, or it is gone.
            NULL;
        END;
    END LOOP;
END
$$
