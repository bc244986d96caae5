//! The name of a server, which coordinator and drivers each read over a session of their own and which must
//! agree.
//!
//! It has a file to itself because both processes need it, and neither may use the other's code.

use postgres::Client;

/// Returns text that identifies a server for every client: port, start time and database.
pub fn server_name(client: &mut Client) -> Result<String, postgres::Error> {
    let row = client.query_one(
        "SELECT coalesce(current_setting('port', true), '') || '/' || \
                (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text || '/' || current_database()",
        &[],
    )?;
    row.try_get(0)
}
