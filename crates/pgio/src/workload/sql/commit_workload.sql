-- Transactions of one statement each, one slice at a time; block, classes and histograms as in slob.sql.
DECLARE
    start_at        CONSTANT timestamptz := {start_at}; -- wait for this moment; NULL: at once
    until_at        CONSTANT timestamptz := {until_at}; -- no transaction begins after this moment
    at_most         CONSTANT bigint := {at_most};       -- nor after this many calls; NULL: no limit
    began           bigint;
    t0              timestamptz;
    t1              timestamptz;
    us              float8;
    b               int;
    rows_inserted   bigint := 0;
    transaction_us  float8 := 0;
    transaction_max float8 := 0;
    transaction_h   bigint[] := array_fill(0::bigint, ARRAY[512]);
    commits         bigint := 0;
    commit_us       float8 := 0;
    commit_max      float8 := 0;
    commit_h        bigint[] := array_fill(0::bigint, ARRAY[512]);
BEGIN
    IF start_at IS NOT NULL THEN
        PERFORM pg_sleep(date_part('epoch', start_at - clock_timestamp()));
    END IF;
    began := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
    LOOP
        t1 := clock_timestamp();
        EXIT WHEN t1 >= until_at OR commits >= at_most;
{statement}
{commit}
        commits := commits + 1;
        rows_inserted := rows_inserted + {rows_per_transaction};
{record_transaction}
    END LOOP;
    PERFORM set_config('pgio.result', json_build_object(
        'began_us', began,
        'ended_us', (date_part('epoch', clock_timestamp()) * 1e6)::bigint,
        'rows_inserted', rows_inserted,
        'classes', json_build_object(
            'transaction', json_build_object('us', transaction_us::bigint, 'max', transaction_max::bigint, 'h', transaction_h),
            'commit', json_build_object('us', commit_us::bigint, 'max', commit_max::bigint, 'h', commit_h)))::text, false);
END
