-- Settings that a restart would put in force, and lines of the configuration files that the server cannot apply.
-- What the command line or the environment sets is not affected by a file.
SELECT coalesce(f.name, f.sourcefile || ' line ' || f.sourceline) AS name
FROM pg_file_settings f
LEFT JOIN pg_settings p ON lower(p.name) = lower(f.name)
WHERE f.error IS NOT NULL
  -- Otherwise of a line that was removed.
  AND coalesce(f.name, f.sourcefile) IS NOT NULL
  AND coalesce(p.source, '') NOT IN ('command line', 'environment variable', 'override')
ORDER BY f.seqno
