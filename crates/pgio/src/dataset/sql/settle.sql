-- After COPY FREEZE this visits one page on 14 and later, and tells autovacuum that the inserts are
-- dealt with, so that it stays out of the first trial. On 13 it sets the visibility map, which COPY
-- FREEZE does not do there.
VACUUM (FREEZE, ANALYZE) {table}
