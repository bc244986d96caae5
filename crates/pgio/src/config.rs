//! Files that say what to do, parsed and never executed.
