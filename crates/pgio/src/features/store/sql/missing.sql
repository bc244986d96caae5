-- The rights on relations that this role lacks. $1: relations, $2: the right on each.
SELECT wanted.privilege, wanted.relation
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (relation, privilege, place)
JOIN pg_namespace s ON s.nspname = 'pgio_results'
LEFT JOIN pg_class c ON c.relnamespace = s.oid AND c.relname = wanted.relation
WHERE c.oid IS NULL OR NOT has_table_privilege(c.oid, wanted.privilege)
ORDER BY place
