DO $pgio$
DECLARE
    began float8 := date_part('epoch', clock_timestamp());
BEGIN
    PERFORM pg_sleep(date_part('epoch', {until_at} - clock_timestamp()));
    PERFORM set_config('pgio.result', json_build_object(
        'began', began,
        'ended', date_part('epoch', clock_timestamp()),
        'classes', json_build_object())::text, false);
END
$pgio$;
