//! The lock on the data set of a schema, so that loads and removals never overlap.

use postgres::Client;

use super::error::DatasetError;
use super::sql;

/// Runs `work` while holding the lock on the data set of a schema, which excludes other loads and
/// removals.
pub(super) fn with_lock<T>(
    admin: &mut Client,
    work: impl FnOnce(&mut Client) -> Result<T, DatasetError>,
) -> Result<T, DatasetError> {
    let failed = |e| DatasetError::from_pg("lock", "the data set", e);
    if !admin.query_one(sql::LOCK, &[]).map_err(failed)?.try_get::<_, bool>(0)? {
        return Err(DatasetError::Busy);
    }
    let result = work(admin);
    // This fails only if the connection is lost, which also releases the lock.
    let _ = admin.query_one(sql::UNLOCK, &[]);
    result
}
