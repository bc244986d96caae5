//! Parses a host's memory from /proc/meminfo, and computes how much of it a ballast of huge pages may leave.
//! Pure functions.

use std::collections::BTreeMap;

use pgio_results::units::{exact_bytes, human};

/// Minimum free memory of a host; a large host needs this share of its memory.
const MIN_FREE: u64 = 256 << 20;
const MIN_FREE_DIVISOR: u64 = 256;

/// Memory that may stay free beyond the requested size, in addition to a tenth of it.
const TOLERANCE: u64 = 64 << 20;

/// A host's memory at one moment, in bytes; `pages` counts huge pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub page: u64,
    /// The value of nr_hugepages.
    pub pages: u64,
    /// Neither used nor reserved.
    pub idle: u64,
}

impl Memory {
    pub(super) fn parse(text: &str) -> Option<Memory> {
        let numbers: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| {
                let (name, rest) = line.split_once(':')?;
                Some((name, rest.split_whitespace().next()?.parse().ok()?))
            })
            .collect();
        let number = |name: &str| numbers.get(name).copied();
        let bytes = |name: &str| number(name)?.checked_mul(1024);
        let total = number("HugePages_Total").unwrap_or(0);
        Some(Memory {
            total: bytes("MemTotal")?,
            free: bytes("MemFree")?,
            available: bytes("MemAvailable")?,
            page: bytes("Hugepagesize").unwrap_or(0),
            // Surplus pages are in use, and are freed by their user.
            pages: total.saturating_sub(number("HugePages_Surp").unwrap_or(0)),
            idle: number("HugePages_Free")
                .unwrap_or(0)
                .saturating_sub(number("HugePages_Rsvd").unwrap_or(0)),
        })
    }

    /// Returns the memory with at most this many huge pages; pages in use stay.
    #[must_use]
    pub(super) fn after_release(self, pages: u64) -> Memory {
        let idle = self.pages.saturating_sub(pages).min(self.idle);
        let bytes = idle * self.page;
        Memory {
            free: self.free + bytes,
            available: self.available + bytes,
            pages: self.pages - idle,
            idle: self.idle - idle,
            ..self
        }
    }

    /// Returns why this much cannot be left free.
    pub(super) fn refusal(&self, leave: u64) -> Option<String> {
        let floor = MIN_FREE.max(self.total / MIN_FREE_DIVISOR);
        let left = exact_bytes(leave);
        if self.page == 0 {
            Some("the kernel has no huge pages: use way = \"cgroup\"".to_owned())
        } else if leave >= self.total {
            Some(format!("{left} is more than its {} of memory", human::bytes(self.total)))
        } else if leave >= self.available {
            let available = human::bytes(self.available);
            Some(format!("cannot leave {left} free: only {available} is available"))
        } else if leave < floor {
            Some(format!(
                "{left} is too little for the host to run: leave at least {}",
                human::bytes(floor)
            ))
        } else {
            None
        }
    }

    /// Returns why an undo could not leave the huge pages where they are: the kernel frees pages of all nodes in turn.
    /// `nodes` lists those with memory as the kernel does, such as `0-1`.
    pub(super) fn placement_refusal(&self, nodes: &str) -> Option<String> {
        (self.pages > 0 && nodes.contains(['-', ','])).then(|| {
            format!(
                "it has {} huge pages and several NUMA nodes, between which an undo could not distribute them as before: use way = \"cgroup\"",
                self.pages
            )
        })
    }

    /// Returns an error if the kernel allocated too few pages to leave about the requested size.
    pub(super) fn too_much_left(&self, leave: u64) -> Option<String> {
        (self.free > leave + leave / 10 + TOLERANCE).then(|| {
        format!(
            "the kernel allocated {} huge pages, which leaves {} free instead of {}: memory is fragmented, or other processes freed memory; try again, or soon after a reboot",
            self.pages,
            human::bytes(self.free),
            exact_bytes(leave)
        )
    })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMINFO: &str = "\
MemTotal:       24684084 kB
MemFree:        21782284 kB
MemAvailable:   24009112 kB
HugePages_Total:     954
HugePages_Free:      900
HugePages_Rsvd:       10
HugePages_Surp:        4
Hugepagesize:       2048 kB
";

    #[test]
    fn meminfo_is_understood() {
        let memory = Memory::parse(MEMINFO).unwrap();
        assert_eq!((memory.pages, memory.idle, memory.page), (950, 890, 2 << 20));
        assert_eq!(memory.free, 21_782_284 * 1024);
        assert_eq!(Memory::parse("MemTotal: 1 kB"), None);
    }

    #[test]
    fn memory_of_a_held_ballast_is_available_for_the_next() {
        let memory = Memory::parse(MEMINFO).unwrap();
        let held = Memory {
            free: 1 << 30,
            available: 1 << 30,
            pages: 950 + 4000,
            idle: 890 + 4000,
            ..memory
        };
        assert!(held.refusal(2 << 30).unwrap().contains("only 1 GiB is available"));
        let then = held.clone().after_release(950);
        assert_eq!((then.pages, then.idle), (memory.pages, memory.idle));
        assert_eq!(then.available, (1 << 30) + 4000 * (2 << 20));
        assert_eq!(then.refusal(2 << 30), None);
        let used = Memory { idle: 1000, ..held };
        assert_eq!(used.after_release(950).pages, 3950, "those in use stay");
    }

    #[test]
    fn an_impossible_amount_is_refused() {
        let memory = Memory::parse(MEMINFO).unwrap();
        let why = |leave| memory.refusal(leave).unwrap_or_default();
        assert_eq!(why(1 << 30), "");
        assert_eq!(why(64 << 30), "64G is more than its 23.5 GiB of memory");
        assert_eq!(why(23 << 30), "cannot leave 23G free: only 22.9 GiB is available");
        assert_eq!(
            why(100 << 20),
            "100M is too little for the host to run: leave at least 256 MiB"
        );
        let without = Memory { page: 0, ..memory.clone() };
        assert!(without.refusal(1 << 30).unwrap().contains("cgroup"));
        let large = Memory { total: 1 << 40, ..memory.clone() };
        assert!(large.refusal(2 << 30).unwrap().contains("4 GiB"));
        let tight = Memory { free: 1150 << 20, ..memory };
        assert_eq!(tight.too_much_left(1 << 30), None);
        assert!(tight.too_much_left(900 << 20).unwrap().contains("instead of 900M"));
    }

    #[test]
    fn huge_pages_on_several_nodes_are_not_moved() {
        let memory = Memory::parse(MEMINFO).unwrap();
        for one in ["0", "12", ""] {
            assert_eq!(memory.placement_refusal(one), None, "{one}");
        }
        for several in ["0-1", "0,2"] {
            let why = memory.placement_refusal(several).unwrap();
            assert!(why.contains("950 huge pages and several NUMA nodes"), "{why}");
            let without = Memory { pages: 0, ..memory.clone() };
            assert_eq!(without.placement_refusal(several), None);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = Memory::parse(&text);
        }
    }
}
