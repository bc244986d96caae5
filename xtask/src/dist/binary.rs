//! Checks that a program is static, stripped and small.
//!
//! Static means that the kernel starts it without another file: the ELF header names no interpreter. Only what the
//! checks need is read from the header (System V ABI, chapters 4 and 5); 64 bits, little endian.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The largest program that is released: 12 MB.
pub const MAX_BYTES: u64 = 12_000_000;

const INTERPRETER: u32 = 3;
const SYMBOL_TABLE: u32 = 2;

/// Its size in bytes.
pub(super) fn check(path: &Path) -> Result<u64> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let name = path.display();
    let Some(elf) = Elf::of(&bytes) else { bail!("{name} is no 64-bit ELF file") };
    if elf.segments().any(|kind| kind == INTERPRETER) {
        bail!("{name} is linked dynamically; release targets are static (musl)");
    }
    if elf.sections().any(|kind| kind == SYMBOL_TABLE) {
        bail!("{name} has symbols; the release profile strips them");
    }
    let size = bytes.len() as u64;
    if size > MAX_BYTES {
        bail!("{name} has {size} bytes, more than {MAX_BYTES}; `cargo bloat` finds what grew");
    }
    Ok(size)
}

struct Elf<'a>(&'a [u8]);

impl Elf<'_> {
    fn of(bytes: &[u8]) -> Option<Elf<'_>> {
        (bytes.starts_with(b"\x7fELF\x02\x01") && bytes.len() >= 64).then_some(Elf(bytes))
    }

    fn number(&self, at: usize, bytes: usize) -> Option<u64> {
        let part = self.0.get(at..at.checked_add(bytes)?)?;
        Some(part.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b)))
    }

    /// The types of the program's segments.
    fn segments(&self) -> impl Iterator<Item = u32> {
        self.table([32, 54, 56], 0)
    }

    /// The types of its sections.
    fn sections(&self) -> impl Iterator<Item = u32> {
        self.table([40, 58, 60], 4)
    }

    /// One field of each entry of a table; the header has its offset, the size of an entry and their number.
    fn table(&self, header: [usize; 3], field: usize) -> impl Iterator<Item = u32> {
        let number = |at, bytes| self.number(at, bytes).unwrap_or(0) as usize;
        let [offset, size, count] =
            [number(header[0], 8), number(header[1], 2), number(header[2], 2)];
        (0..count).filter_map(move |n| {
            let at = offset.checked_add(n * size)?.checked_add(field)?;
            u32::try_from(self.number(at, 4)?).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one segment and one section of these types.
    fn elf(segment: u32, section: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 256];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        for (at, value) in [(32, 64u8), (54, 56), (56, 1), (40, 128), (58, 64), (60, 1)] {
            bytes[at] = value;
        }
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes[132..136].copy_from_slice(&section.to_le_bytes());
        bytes
    }

    fn checked(bytes: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::write(&path, bytes).unwrap();
        match check(&path) {
            Ok(size) => size.to_string(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn only_a_small_static_stripped_program_is_released() {
        assert_eq!(checked(&elf(1, 1)), "256");
        assert!(checked(&elf(3, 1)).contains("linked dynamically"));
        assert!(checked(&elf(1, 2)).contains("has symbols"));
        assert!(checked(b"#!/bin/sh\n").contains("no 64-bit ELF"));
        let mut large = elf(1, 1);
        large.resize(MAX_BYTES as usize + 1, 0);
        assert!(checked(&large).contains("more than 12000000"));
    }

    #[test]
    fn the_running_test_is_not_static() {
        let own = std::env::current_exe().unwrap();
        assert!(check(&own).unwrap_err().to_string().contains("linked dynamically"));
    }
}
