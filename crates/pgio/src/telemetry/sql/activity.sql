-- backend_type is null if the role may not see the session.
SELECT CASE
           WHEN backend_type IS NULL THEN 'hidden'
           WHEN state = 'disabled' THEN state
           WHEN state IN ('active', 'fastpath function call')
               THEN coalesce(wait_event_type || ':' || wait_event, 'CPU')
           ELSE 'Client'
       END,
       count(*)
FROM pg_stat_get_activity(NULL)
WHERE pid = ANY ($1)
GROUP BY 1
