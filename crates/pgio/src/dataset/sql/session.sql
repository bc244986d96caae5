-- DROP waits for whoever uses the former table; better to say so than to hang.
SET lock_timeout = '5s';
-- Plans are pinned when a workload runs: 3,000 rows of a uniform table are sample enough, where the
-- default would read 30,000 pages of each.
SET default_statistics_target = 10;
