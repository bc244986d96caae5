-- The publication for which the server refuses the work: $1 the schema, $2 whether rows of the data set are
-- updated, $3 whether rows of pgio_turnover are deleted, a table that each trial creates.
SELECT p.pubname::text
FROM pg_catalog.pg_publication p
WHERE $2 AND p.pubupdate AND EXISTS (
        SELECT FROM pg_catalog.pg_publication_tables t
        JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
        JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
        WHERE t.pubname = p.pubname AND t.schemaname = $1 AND t.tablename ~ '^pgio[0-9]+$'
          AND (c.relreplident = 'n' OR c.relreplident = 'd' AND NOT EXISTS (
                SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)))
   OR $3 AND p.pubdelete AND p.puballtables
ORDER BY 1
LIMIT 1
