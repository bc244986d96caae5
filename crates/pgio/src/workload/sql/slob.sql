-- One session's work on one table, one slice at a time: a block of PL/pgSQL, which block.sql or
-- woven.sql makes a DO statement. DO needs no privilege and leaves no object. A temporary procedure
-- would be dropped by a commit at the end of its session, and a session that is terminated because its
-- standby is gone would wait for the standby there, where it cannot be interrupted. The placeholders
-- in braces are filled in when the session is prepared, with the read, update and commit from the
-- neighboring files, so that all SQL is static, planned once per slice, and without branches on
-- settings. In most runs, most of the placeholders are empty.
--
-- Each class of operation has its exact sum and maximum, and a histogram whose bucket of x µs is 17 +
-- round(16 * log2(greatest(x, 0.5))); 16 / ln(2) is 23.0831. The last of 512 buckets takes all that is
-- longer. The histogram gives the counts.
--
-- All numbers of the result are whole, in microseconds: the text of a float8 depends on extra_float_digits.
--
-- A slice always ends at its deadline, so that a stop takes effect at once. A pending COMMIT runs at
-- the end of the slice, inside the measured time.
DECLARE
    start_at       CONSTANT timestamptz := {start_at};  -- wait for this moment; NULL: at once
    until_at       CONSTANT timestamptz := {until_at};  -- no operation begins after this moment
    keys           CONSTANT bigint := {keys};           -- keys 1 .. keys are visited
    seed           CONSTANT float8 := {seed};           -- NULL: the stream of the slice before
    read_span      CONSTANT bigint := keys - {work_unit} + 1;
    update_span    CONSTANT bigint := keys - {update_work_unit} + 1;
    began          bigint;
    t0             timestamptz;
    us             float8;
    b              int;
    k              bigint;
    n              bigint;
    blocks_read    bigint := 0;
    read_us        float8 := 0;
    read_max       float8 := 0;
    read_h         bigint[] := array_fill(0::bigint, ARRAY[512]);
    rows_updated   bigint := 0;
    update_us      float8 := 0;
    update_max     float8 := 0;
    update_h       bigint[] := array_fill(0::bigint, ARRAY[512]);
    commit_us      float8 := 0;
    commit_max     float8 := 0;
    commit_h       bigint[] := array_fill(0::bigint, ARRAY[512]);
    pending        bigint := 0;     -- update calls since the last commit
    pending_rows   bigint := 0;
    deadlocks      bigint := 0;
    rows_lost      bigint := 0;     -- rolled back by a deadlock, not counted as updated
{variables}
BEGIN
    IF seed IS NOT NULL THEN
        PERFORM setseed(seed);
    END IF;
    IF start_at IS NOT NULL THEN
        PERFORM pg_sleep(date_part('epoch', start_at - clock_timestamp()));
    END IF;
    began := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
{before}
    LOOP
{call_begins}
        IF {is_update} THEN
{draw_update}
            t0 := clock_timestamp();
{exit}
{update}
{record_update}
            rows_updated := rows_updated + n;
{count_update}
{commit}
{other_calls}
        ELSE
{draw_read}
            t0 := clock_timestamp();
{exit}
{read}
{record_read}
            blocks_read := blocks_read + n;
{count_read}
        END IF;
{call_ends}
    END LOOP;
{last_commit}
{after}
    PERFORM set_config('pgio.result', json_build_object(
        'began_us', began,
        'ended_us', (date_part('epoch', clock_timestamp()) * 1e6)::bigint,
        'blocks_read', blocks_read,
        'rows_updated', rows_updated,
        'deadlocks', deadlocks,
        'rows_lost', rows_lost,
        'counts', json_build_object({counts}),
        'classes', json_build_object({classes}
            'read', json_build_object('us', read_us::bigint, 'max', read_max::bigint, 'h', read_h),
            'update', json_build_object('us', update_us::bigint, 'max', update_max::bigint, 'h', update_h),
            'commit', json_build_object('us', commit_us::bigint, 'max', commit_max::bigint, 'h', commit_h)))::text, false);
END
