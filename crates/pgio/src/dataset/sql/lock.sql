-- Two concurrent loads into one schema would drop each other's tables.
SELECT pg_catalog.pg_try_advisory_lock(
    hashtext('pgio data set'), hashtext(current_database() || '.' || current_setting('pgio.schema')))
