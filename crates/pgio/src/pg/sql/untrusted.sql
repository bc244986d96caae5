-- Why a schema ($1), or tables or views of these names ($2) in it, may run code of others when this session uses them: at
-- most one row. $3: whether a role that is no superuser may use what others own.
WITH named AS (
    SELECT c.oid, c.relname, c.relkind, c.relowner, c.relrowsecurity,
           format('%I.%I', $1::text, c.relname) AS title
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])
), tables AS (
    SELECT * FROM named WHERE relkind <> 'v'
), found AS (
    SELECT 0 AS place, 'schema ' || quote_ident(nspname) AS relation,
           'belongs to role ' || quote_ident(pg_get_userbyid(nspowner)) AS why
      FROM pg_namespace
     WHERE nspname = $1::text AND NOT {trusted_schema}
    UNION ALL
    SELECT 0, 'role ' || quote_ident(current_user), 'would own what pgio creates in the session of a superuser'
     WHERE NOT {trusted_role}
    UNION ALL
    SELECT 1, title, 'belongs to role ' || quote_ident(pg_get_userbyid(relowner))
      FROM named
     WHERE NOT ({trusted} OR $3::bool AND {ordinary})
    UNION ALL
    SELECT 2, title, 'is no ordinary table' FROM tables WHERE relkind <> 'r'
    UNION ALL
    SELECT 3, title, 'has the trigger ' || quote_ident(tgname)
      FROM named JOIN pg_trigger ON tgrelid = named.oid WHERE NOT tgisinternal
    UNION ALL
    SELECT 4, title, 'has the rule ' || quote_ident(rulename)
      FROM named JOIN pg_rewrite ON ev_class = named.oid
     WHERE NOT (relkind = 'v' AND rulename = '_RETURN')
    UNION ALL
    SELECT 5, title, 'has row security' || coalesce(', policy ' || quote_ident(polname), '')
      FROM tables LEFT JOIN pg_policy ON polrelid = tables.oid
     WHERE relrowsecurity OR polrelid IS NOT NULL
    UNION ALL
    SELECT 6, title, 'has a default or generated value for column ' || quote_ident(attname)
      FROM tables
      JOIN pg_attrdef ON adrelid = tables.oid
      JOIN pg_attribute ON attrelid = tables.oid AND attnum = adnum
     WHERE pg_get_expr(adbin, adrelid) <> 'now()'
    UNION ALL
    SELECT 7, title, 'has the type ' || format_type(atttypid, atttypmod) || ' in column ' || quote_ident(attname)
      FROM tables
      JOIN pg_attribute ON attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
      JOIN pg_type ON pg_type.oid = atttypid
     WHERE typnamespace <> 'pg_catalog'::regnamespace
    UNION ALL
    -- Foreign keys from or to tables that are not named: their triggers act on those.
    SELECT 8, title, 'has the constraint ' || quote_ident(conname)
      FROM tables JOIN pg_constraint ON tables.oid IN (conrelid, confrelid)
     WHERE contype NOT IN ('p', 'u', 'n')
       AND NOT (contype = 'f' AND conrelid IN (SELECT oid FROM tables) AND confrelid IN (SELECT oid FROM tables))
    UNION ALL
    SELECT 9, title, 'has the index ' || i.indexrelid::regclass || ' with an expression or an operator class of its own'
      FROM tables JOIN pg_index i ON i.indrelid = tables.oid
     WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
        OR EXISTS (SELECT FROM pg_opclass o
                    WHERE o.oid = ANY (i.indclass::oid[]) AND o.opcnamespace <> 'pg_catalog'::regnamespace)
    UNION ALL
    SELECT 10, title, 'inherits or is inherited'
      FROM tables WHERE EXISTS (SELECT FROM pg_inherits WHERE tables.oid IN (inhrelid, inhparent))
)
SELECT relation, why FROM found ORDER BY place, relation LIMIT 1
