//! /proc/PID/stat: a process, its parent, and its processor time, ended children included.
//!
//! Source: proc_pid_stat(5).

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Name of the program, truncated to 15 bytes.
    pub name: String,
    /// Ticks of the process, and of children that have ended and were waited for.
    pub own_ticks: u64,
    pub children_ticks: u64,
    /// Ticks from boot to the start of the process; together with the pid they identify a process.
    pub started_ticks: u64,
}

impl Process {
    pub fn ticks(&self) -> u64 {
        self.own_ticks.saturating_add(self.children_ticks)
    }
}

/// Parses concatenated files. A process whose name contains a newline is skipped; such names do not
/// occur in practice.
pub fn parse_all(text: &str) -> Vec<Process> {
    text.lines().filter_map(parse).collect()
}

pub fn parse(line: &str) -> Option<Process> {
    // The name may contain any characters, parentheses and spaces included.
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first element is field 3 of the manual page.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // The kernel uses a signed type for the time of children.
    let children = |field: usize| {
        Some(u64::try_from(fields.get(field - 3)?.parse::<i64>().ok()?).unwrap_or(0))
    };
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        own_ticks: ticks(14)?.saturating_add(ticks(15)?),
        children_ticks: children(16)?.saturating_add(children(17)?),
        started_ticks: ticks(22).unwrap_or(0),
    })
}
