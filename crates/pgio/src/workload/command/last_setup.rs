//! A record of the last `setup`, so that with `setup_once` it runs again only if it would create other
//! data: the points of a sweep share one schema, and a setup may use the values that differ.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::environment::CommandEnvironment;

/// Shared by all commands that create their data in the same place; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LastSetup(Arc<Mutex<Option<Recipe>>>);

/// What determines the data of a setup: its command line and the variables that it can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

impl Recipe {
    /// `environment` must not belong to a trial: a directory or a seed of its own does not change the
    /// data.
    pub(super) fn new(argv: Vec<String>, environment: CommandEnvironment) -> Recipe {
        Recipe { argv, env: environment.env }
    }
}

impl LastSetup {
    pub(super) fn matches(&self, recipe: &Recipe) -> bool {
        self.lock().as_ref() == Some(recipe)
    }

    pub(super) fn remember(&self, recipe: Recipe) {
        *self.lock() = Some(recipe);
    }

    /// Call this before any data are removed.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
