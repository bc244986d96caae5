//! The machine: processes and /proc.

pub mod stop;
