//! How many files and sockets this process may hold open. Most systems give a soft limit of 1,024
//! for the sake of programs that use select(2); a process that does not may raise it to the hard one.
//!
//! Raised only by who needs it, since programs started later inherit it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What may be in use beside what is asked for.
const OTHERS: u64 = 64;

/// Makes room for so many, or says what the hard limit is.
pub fn make_room(needed: u64) -> Result<(), u64> {
    let limit = getrlimit(Resource::Nofile);
    // No limit reads as none.
    let wanted = needed.saturating_add(OTHERS);
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|hard| *hard < wanted) {
        return Err(hard);
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| limit.current.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_goes_up_and_the_hard_one_stays() {
        let before = getrlimit(Resource::Nofile);
        let soft = before.current.unwrap();
        make_room(soft.saturating_sub(OTHERS)).unwrap();
        assert_eq!(getrlimit(Resource::Nofile), before);
        if before.maximum.is_none_or(|hard| hard > soft) {
            make_room(soft + 1 - OTHERS).unwrap();
            let after = getrlimit(Resource::Nofile);
            assert_eq!((after.current, after.maximum), (Some(soft + 1), before.maximum));
        }
        if let Some(hard) = before.maximum {
            assert_eq!(make_room(hard), Err(hard));
        }
    }
}
