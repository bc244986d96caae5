//! The classic monitor files.
