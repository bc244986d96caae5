DO $pgio$
DECLARE
    began bigint := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
BEGIN
    PERFORM pg_sleep(date_part('epoch', {until_at} - clock_timestamp()));
    PERFORM set_config('pgio.result', json_build_object(
        'began_us', began,
        'ended_us', (date_part('epoch', clock_timestamp()) * 1e6)::bigint,
        'classes', json_build_object())::text, false);
END
$pgio$;
