-- Other sessions of this database whose snapshot may see rows that were deleted before $1.
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND age(backend_xmin) > age($1::text::xid)
