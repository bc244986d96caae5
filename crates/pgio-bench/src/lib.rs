//! What measuring pgio needs and its integration tests need as well; the program itself is in `main.rs`.

pub mod loop_disk;
