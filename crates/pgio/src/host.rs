//! The machine: processes and /proc.
