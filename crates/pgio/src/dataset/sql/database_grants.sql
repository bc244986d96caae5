-- No rows if the privileges are the defaults, nor if all were revoked.
SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE format('%I', pg_catalog.pg_get_userbyid(a.grantee)) END AS grantee,
       a.privilege_type::text AS privilege, a.is_grantable AS grantable, a.grantor = d.datdba AS by_owner
  FROM pg_catalog.pg_database d CROSS JOIN LATERAL pg_catalog.aclexplode(d.datacl) AS a
 WHERE d.datname = current_database()
