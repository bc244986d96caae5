-- Settings of ALTER DATABASE … SET and ALTER ROLE … IN DATABASE … SET; without role, for all roles.
SELECT r.rolname::text AS role, split_part(s.setting, '=', 1) AS name,
       substr(s.setting, strpos(s.setting, '=') + 1) AS value
  FROM pg_catalog.pg_db_role_setting c
  JOIN pg_catalog.pg_database d ON d.oid = c.setdatabase
  LEFT JOIN pg_catalog.pg_roles r ON r.oid = c.setrole
 CROSS JOIN LATERAL unnest(c.setconfig) WITH ORDINALITY AS s (setting, at)
 WHERE d.datname = current_database()
 ORDER BY r.rolname NULLS FIRST, s.at
