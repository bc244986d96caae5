//! The limit on open files and sockets of this process. Most systems set a soft limit of 1,024
//! for programs that use select(2); a process that does not use it may raise the soft limit to the
//! hard limit.
//!
//! Call it only if necessary, because programs started later inherit the limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for other uses.
const RESERVED: u64 = 64;

/// Raises the soft limit for a number of descriptors; the error is the hard limit.
pub fn raise_limit(needed: u64) -> Result<(), u64> {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let required = needed.saturating_add(RESERVED);
    if limit.current.is_none_or(|soft| soft >= required) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|hard| *hard < required) {
        return Err(hard);
    }
    let raised = Rlimit { current: Some(required), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| limit.current.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_soft_limit_is_raised() {
        let before = getrlimit(Resource::Nofile);
        let soft = before.current.unwrap();
        raise_limit(soft.saturating_sub(RESERVED)).unwrap();
        assert_eq!(getrlimit(Resource::Nofile), before);
        if before.maximum.is_none_or(|hard| hard > soft) {
            raise_limit(soft + 1 - RESERVED).unwrap();
            let after = getrlimit(Resource::Nofile);
            assert_eq!((after.current, after.maximum), (Some(soft + 1), before.maximum));
        }
        if let Some(hard) = before.maximum {
            assert_eq!(raise_limit(hard), Err(hard));
        }
    }
}
