-- Plants in schema public, as a role without privileges: functions and operators with every name of
-- pg_catalog that is among NAMES, for combinations of argument types, and views with the names of the
-- most used catalogs.
SET search_path = pg_catalog;
SET check_function_bodies = off;
DO $plant$
DECLARE
    types  CONSTANT text[] := '{name,text,"\"char\"",int4,int8,oid,float8,bool,timestamptz,interval,xid,pg_lsn,regclass}';
    few    CONSTANT text[] := '{name,text,int4,int8,float8}';
    signatures text[];
    found  record;
    a      text;
    b      text;
    result text;
    body   text;
BEGIN
    FOR found IN
        SELECT p.proname::text AS name, p.pronargs AS n, oidvectortypes(p.proargtypes) AS own,
               CASE WHEN t.typtype = 'p' OR p.proretset THEN 'text' ELSE format_type(t.oid, NULL) END AS result
          FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
         WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (NAMES::text[])
           AND p.prokind = 'f' AND p.pronargs <= 4
    LOOP
        signatures := ARRAY[found.own];
        IF found.n = 1 THEN
            signatures := signatures || types;
        ELSIF found.n = 2 THEN
            FOREACH a IN ARRAY few LOOP
                FOREACH b IN ARRAY few || '{bool}'::text[] LOOP
                    signatures := signatures || (a || ', ' || b);
                END LOOP;
            END LOOP;
        ELSIF found.n = 3 THEN
            signatures := signatures || '{"name, text, bool","text, text, text","name, text, text","text, int4, int4","text, int8, int8"}'::text[];
        END IF;
        FOREACH a IN ARRAY signatures LOOP
            BEGIN
                EXECUTE format(
                    'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $b$ BEGIN PERFORM public.alarm(%L); RETURN NULL; END $b$',
                    found.name, a, found.result, found.name || '(' || a || ')');
            EXCEPTION WHEN OTHERS THEN
                NULL;
            END;
        END LOOP;
    END LOOP;
    FOREACH result IN ARRAY '{bool,text,float8,int8}'::text[] LOOP
        FOREACH a IN ARRAY types LOOP
            FOREACH b IN ARRAY types LOOP
                EXECUTE format(
                    'CREATE FUNCTION public.alarm_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $b$ BEGIN PERFORM public.alarm(%L); RETURN NULL; END $b$',
                    result, a, b, result, 'operator on ' || a || ' and ' || b);
            END LOOP;
        END LOOP;
    END LOOP;
    FOR found IN
        SELECT * FROM (VALUES ('=', 'bool'), ('<>', 'bool'), ('<', 'bool'), ('>', 'bool'), ('<=', 'bool'),
            ('>=', 'bool'), ('~', 'bool'), ('!~', 'bool'), ('~~', 'bool'), ('!~~', 'bool'), ('!~*', 'bool'),
            ('||', 'text'), ('+', 'float8'), ('-', 'float8'), ('*', 'float8'), ('/', 'float8'),
            ('%', 'int8'), ('&', 'int8')) AS operators (name, result)
    LOOP
        FOREACH a IN ARRAY types LOOP
            FOREACH b IN ARRAY types LOOP
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.alarm_%s)',
                    found.name, a, b, found.result);
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH a IN ARRAY '{pg_class,pg_namespace,pg_settings,pg_stat_activity,pg_database,pg_roles,pg_locks,pg_tables,pg_stat_database,pg_index}'::text[] LOOP
        EXECUTE format(
            'CREATE VIEW public.%I AS SELECT * FROM pg_catalog.%I WHERE (SELECT public.alarm(%L)) IS NOT NULL',
            a, a, 'view ' || a);
        EXECUTE format('GRANT SELECT ON public.%I TO PUBLIC', a);
    END LOOP;
END
$plant$;
