CREATE PROCEDURE pg_temp.pgio_waiting(until_at timestamptz, INOUT result text)
LANGUAGE plpgsql AS $pgio$
DECLARE
    began float8 := date_part('epoch', clock_timestamp());
BEGIN
    PERFORM pg_sleep(date_part('epoch', until_at - clock_timestamp()));
    result := json_build_object(
        'began', began,
        'ended', date_part('epoch', clock_timestamp()),
        'classes', json_build_object());
END
$pgio$;
