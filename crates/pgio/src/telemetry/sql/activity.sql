-- backend_type is null if the role may not see the session.
WITH seen AS MATERIALIZED (
    SELECT * FROM pg_stat_get_activity(NULL)
)
SELECT CASE
           WHEN backend_type IS NULL THEN 'hidden'
           WHEN state = 'disabled' THEN state
           WHEN state IN ('active', 'fastpath function call')
               THEN coalesce(wait_event_type || ':' || wait_event, 'CPU')
           ELSE 'Client'
       END,
       count(*),
       NULL::text,
       NULL::int[]
FROM seen
WHERE pid = ANY ($1)
GROUP BY 1
UNION ALL
-- Sessions of others; without a database if it is unknown what they do.
SELECT NULL,
       count(*),
       (SELECT datname FROM pg_database WHERE oid = datid AND known),
       array_agg(pid)
FROM (
    SELECT datid, pid, state, backend_type IS NOT NULL AND state IS DISTINCT FROM 'disabled' AS known
    FROM seen
    WHERE pid <> ALL ($1)
      AND datid <> 0
      AND coalesce(backend_type, 'client backend') = 'client backend'
      AND NOT starts_with(coalesce(application_name, ''), $2)
) AS others
WHERE NOT known OR state IN ('active', 'fastpath function call')
GROUP BY datid, known
