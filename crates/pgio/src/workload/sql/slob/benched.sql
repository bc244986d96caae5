-- {rounds} draws, or the same number of iterations of an empty loop.
DO $pgio$
DECLARE
    span CONSTANT bigint := {keys};
    k    bigint;
    x    float8;
    hot  bigint := 0;
BEGIN
    PERFORM setseed({seed});
    FOR i IN 1 .. {rounds} LOOP
{draw}
    END LOOP;
END
$pgio$;
