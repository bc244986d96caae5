-- One slice of a woven window: the guard, which is not counted, then two halves. The three are one
-- statement, so that the block is compiled and planned once a slice, under the slice's condition, and
-- not between counted parts. The inner block starts each part with fresh counters. The result is when the
-- guard began, and those of both halves.
DO $pgio$
DECLARE
    weave_began   CONSTANT bigint := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
    weave_ends    CONSTANT timestamptz[] := ARRAY[{ends}];
    weave_results text[];
BEGIN
    FOR weave_part IN 1 .. 3 LOOP
{block};
        weave_results[weave_part] := current_setting('pgio.result');
    END LOOP;
    PERFORM set_config('pgio.result',
        '[' || weave_began || ',' || array_to_string(weave_results[2:], ',') || ']', false);
END
$pgio$
