//! The ranks of a run: which drivers are connected now. Apart from listener and handshake because both
//! use it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ranks of the run's drivers: who is connected now.
#[derive(Debug)]
pub struct Ranks(Mutex<Vec<bool>>);

impl Ranks {
    pub fn new(count: u32) -> Arc<Ranks> {
        Arc::new(Ranks(Mutex::new(vec![false; count as usize])))
    }

    pub fn count(&self) -> u32 {
        self.ranks().len() as u32
    }

    fn ranks(&self) -> MutexGuard<'_, Vec<bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes this rank, or any free one.
    pub(super) fn take(&self, rank: Option<u32>) -> Result<u32, String> {
        let mut ranks = self.ranks();
        let count = ranks.len();
        let free = match rank {
            Some(rank) if rank as usize >= count => {
                return Err(format!(
                    "it has rank {rank}, but the run has {count} drivers, from rank 0"
                ));
            }
            Some(rank) if ranks[rank as usize] => {
                return Err(format!("a driver of rank {rank} is connected already"));
            }
            Some(rank) => rank as usize,
            None => ranks
                .iter()
                .position(|taken| !taken)
                .ok_or_else(|| format!("all {count} drivers of the run are connected already"))?,
        };
        ranks[free] = true;
        Ok(free as u32)
    }

    pub fn free(&self, rank: u32) {
        if let Some(taken) = self.ranks().get_mut(rank as usize) {
            *taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_gets_the_requested_rank_or_any_free_one() {
        let ranks = Ranks::new(3);
        assert_eq!(ranks.take(Some(1)), Ok(1));
        assert_eq!(ranks.take(None), Ok(0));
        assert!(ranks.take(Some(1)).unwrap_err().contains("rank 1 is connected already"));
        assert!(ranks.take(Some(3)).unwrap_err().contains("the run has 3 drivers"));
        assert_eq!(ranks.take(None), Ok(2));
        assert!(ranks.take(None).unwrap_err().contains("all 3 drivers"));
        ranks.free(1);
        assert_eq!(ranks.take(None), Ok(1));
    }
}
