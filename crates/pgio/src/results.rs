//! What is stored.
