-- backend_type is null if the role may not see it: the number is then unknown, not 0.
SELECT CASE WHEN bool_or(backend_type = 'checkpointer')
            THEN count(*) FILTER (WHERE backend_type = 'autovacuum worker')
       END::float8 AS autovacuum
FROM pg_stat_get_activity(NULL)
