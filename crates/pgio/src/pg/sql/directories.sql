-- Empty if the role may not read data_directory.
WITH data AS (
    SELECT setting AS directory FROM pg_settings WHERE name = 'data_directory'
), spaces AS (
    SELECT spcname, pg_tablespace_location(oid) AS location
    FROM pg_tablespace
    WHERE oid IN (SELECT dattablespace FROM pg_database WHERE datname = current_database()
                  UNION ALL
                  SELECT reltablespace FROM pg_class)
)
SELECT 'data' AS role, directory FROM data
UNION ALL
SELECT 'wal', directory || '/pg_wal' FROM data
UNION ALL
SELECT 'tablespace ' || spcname,
       CASE WHEN location LIKE '/%' THEN location ELSE directory || '/' || location END
FROM data, spaces
WHERE location <> ''
