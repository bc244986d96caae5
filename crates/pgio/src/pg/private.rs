//! A private PostgreSQL.
