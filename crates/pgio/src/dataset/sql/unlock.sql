SELECT pg_catalog.pg_advisory_unlock(
    hashtext('pgio data set'), hashtext(current_database() || '.' || current_setting('pgio.schema')))
