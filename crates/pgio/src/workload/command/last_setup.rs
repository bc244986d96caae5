//! What a `setup` made last, so that with `setup_once` it runs again only where it would make something
//! else: the points of a sweep have one schema, and a setup may say what they differ in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::environment::CommandEnvironment;

/// One for all commands that make their data in the same place; cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub struct LastSetup(Arc<Mutex<Option<Recipe>>>);

/// All that decides what a setup makes: what is run, and the variables that it can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    argv: Vec<String>,
    env: Vec<(String, String)>,
}

impl Recipe {
    /// `environment` must belong to no trial: a directory or a seed of its own makes no other data.
    pub(super) fn new(argv: Vec<String>, environment: CommandEnvironment) -> Recipe {
        Recipe { argv, env: environment.env }
    }
}

impl LastSetup {
    pub(super) fn is(&self, recipe: &Recipe) -> bool {
        self.lock().as_ref() == Some(recipe)
    }

    pub(super) fn remember(&self, recipe: Recipe) {
        *self.lock() = Some(recipe);
    }

    /// Before anything is taken away.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recipe>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
