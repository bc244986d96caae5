-- Objects of this database except pgio's tables ($1, as regclass texts) and objects created by initdb
-- (object ids below 16384). Indexes, TOAST and row type of a table are not listed separately.
WITH ours AS (
    SELECT r::regclass::oid AS oid FROM unnest($1::text[]) AS r
), mine AS (
    SELECT oid FROM ours
    UNION SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid IN (SELECT oid FROM ours)
    UNION SELECT reltoastrelid FROM pg_catalog.pg_class WHERE oid IN (SELECT oid FROM ours)
    UNION SELECT i.indexrelid FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_class c ON c.reltoastrelid = i.indrelid
           WHERE c.oid IN (SELECT oid FROM ours)
), found AS (
    SELECT 'relation ' || oid::regclass AS what FROM pg_catalog.pg_class c
     WHERE oid >= 16384 AND oid NOT IN (SELECT oid FROM mine)
       AND relnamespace NOT IN (SELECT oid FROM pg_catalog.pg_namespace
                                 WHERE nspname = 'pg_toast' OR nspname LIKE 'pg\_%temp\_%')
    UNION ALL
    SELECT 'type ' || oid::regtype FROM pg_catalog.pg_type
     WHERE oid >= 16384 AND typrelid = 0 AND typcategory <> 'A'
    UNION ALL SELECT 'routine ' || oid::regprocedure FROM pg_catalog.pg_proc WHERE oid >= 16384
    UNION ALL
    SELECT 'schema ' || nspname FROM pg_catalog.pg_namespace
     WHERE oid >= 16384 AND nspname NOT LIKE 'pg\_%temp\_%'
    UNION ALL SELECT 'extension ' || extname FROM pg_catalog.pg_extension WHERE oid >= 16384
    UNION ALL SELECT 'language ' || lanname FROM pg_catalog.pg_language WHERE oid >= 16384
    UNION ALL SELECT 'operator ' || oid::regoperator FROM pg_catalog.pg_operator WHERE oid >= 16384
    UNION ALL SELECT 'operator family ' || opfname FROM pg_catalog.pg_opfamily WHERE oid >= 16384
    UNION ALL SELECT 'cast to ' || casttarget::regtype FROM pg_catalog.pg_cast WHERE oid >= 16384
    UNION ALL SELECT 'collation ' || collname FROM pg_catalog.pg_collation WHERE oid >= 16384
    UNION ALL SELECT 'conversion ' || conname FROM pg_catalog.pg_conversion WHERE oid >= 16384
    UNION ALL SELECT 'text search configuration ' || cfgname FROM pg_catalog.pg_ts_config WHERE oid >= 16384
    UNION ALL SELECT 'text search dictionary ' || dictname FROM pg_catalog.pg_ts_dict WHERE oid >= 16384
    UNION ALL SELECT 'text search parser ' || prsname FROM pg_catalog.pg_ts_parser WHERE oid >= 16384
    UNION ALL SELECT 'text search template ' || tmplname FROM pg_catalog.pg_ts_template WHERE oid >= 16384
    UNION ALL SELECT 'access method ' || amname FROM pg_catalog.pg_am WHERE oid >= 16384
    UNION ALL SELECT 'foreign data wrapper ' || fdwname FROM pg_catalog.pg_foreign_data_wrapper
    UNION ALL SELECT 'publication ' || pubname FROM pg_catalog.pg_publication
    UNION ALL SELECT 'event trigger ' || evtname FROM pg_catalog.pg_event_trigger
    UNION ALL SELECT 'large object ' || oid FROM pg_catalog.pg_largeobject_metadata
    UNION ALL SELECT 'default privileges ' || oid FROM pg_catalog.pg_default_acl
    UNION ALL SELECT 'policy ' || polname FROM pg_catalog.pg_policy
    UNION ALL SELECT 'extended statistics ' || stxname FROM pg_catalog.pg_statistic_ext
    UNION ALL SELECT 'trigger ' || tgname FROM pg_catalog.pg_trigger WHERE NOT tgisinternal
    UNION ALL
    SELECT 'subscription ' || s.subname FROM pg_catalog.pg_subscription s
      JOIN pg_catalog.pg_database d ON d.oid = s.subdbid WHERE d.datname = current_database()
    UNION ALL
    SELECT 'replication slot ' || slot_name FROM pg_catalog.pg_replication_slots
     WHERE database = current_database()
    UNION ALL
    SELECT 'prepared transaction ' || gid FROM pg_catalog.pg_prepared_xacts
     WHERE database = current_database()
    UNION ALL
    -- Privileges on objects created by initdb, such as a GRANT on a function. Those of information_schema
    -- are granted after initdb records the initial privileges, so they cannot be compared.
    SELECT 'privileges on ' || p.oid::regprocedure FROM pg_catalog.pg_proc p
      LEFT JOIN pg_catalog.pg_init_privs i
        ON i.objoid = p.oid AND i.classoid = 'pg_catalog.pg_proc'::regclass AND i.objsubid = 0
     WHERE p.oid < 16384 AND p.pronamespace <> 'information_schema'::regnamespace
       AND p.proacl IS DISTINCT FROM i.initprivs
    UNION ALL
    SELECT 'privileges on ' || c.oid::regclass FROM pg_catalog.pg_class c
      LEFT JOIN pg_catalog.pg_init_privs i
        ON i.objoid = c.oid AND i.classoid = 'pg_catalog.pg_class'::regclass AND i.objsubid = 0
     WHERE c.oid < 16384 AND c.relnamespace <> 'information_schema'::regnamespace
       AND c.relacl IS DISTINCT FROM i.initprivs
    UNION ALL
    SELECT 'privileges on schema ' || n.nspname FROM pg_catalog.pg_namespace n
      LEFT JOIN pg_catalog.pg_init_privs i
        ON i.objoid = n.oid AND i.classoid = 'pg_catalog.pg_namespace'::regclass AND i.objsubid = 0
     WHERE n.oid < 16384 AND n.nspname <> 'information_schema'
       AND n.nspacl IS DISTINCT FROM i.initprivs
    UNION ALL
    SELECT 'another owner of schema public' FROM pg_catalog.pg_namespace
     WHERE nspname = 'public'
       AND nspowner::regrole::text <> CASE WHEN current_setting('server_version_num')::int >= 150000
                                           THEN 'pg_database_owner' ELSE 10::oid::regrole::text END
    UNION ALL
    SELECT 'no schema public'
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'public')
)
SELECT what, count(*) OVER () AS all_of_them FROM found ORDER BY what LIMIT 3
