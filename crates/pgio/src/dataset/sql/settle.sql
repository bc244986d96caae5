-- After COPY FREEZE, this visits one page on version 14 and later, and resets the insert counter of
-- autovacuum, so that autovacuum does not run during the first trial. On version 13 it sets the
-- visibility map, which COPY FREEZE does not do there.
VACUUM (FREEZE, ANALYZE) {table}
