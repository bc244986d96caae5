-- DROP waits for sessions that use the old table; report an error instead of hanging.
SET lock_timeout = '5s';
-- Workloads pin their plans, so a sample of 3,000 rows of a uniform table is sufficient; the default
-- would read 30,000 pages of each table.
SET default_statistics_target = 10;
