-- Settings of files that were written after the last reload, with the value in force and the one in the file.
-- Files have times in whole seconds.
SELECT p.name, p.setting, p.unit, p.vartype, p.min_val::float8 AS low, p.max_val::float8 AS high,
       coalesce(p.enumvals, '{}') AS choices, f.setting AS in_file
FROM pg_settings p
LEFT JOIN (SELECT * FROM pg_file_settings WHERE applied) f ON lower(f.name) = lower(p.name)
WHERE p.source IN ('configuration file', 'default')
  AND (f.name IS NOT NULL OR p.source = 'configuration file')
  AND coalesce(
      (pg_stat_file(coalesce(f.sourcefile, p.sourcefile), true)).modification
          >= date_trunc('second', pg_conf_load_time()),
      f.name IS NULL AND p.sourcefile IS NOT NULL)
ORDER BY p.name
