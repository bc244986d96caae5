//! /proc/PID/stat: one process, its parent, and the processor time of it and its ended children.
//!
//! Source: proc_pid_stat(5).

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Name of the program, cut at 15 bytes.
    pub name: String,
    /// Ticks: own time, and that of children that ended and were waited for.
    pub own_ticks: u64,
    pub children_ticks: u64,
    /// Ticks from boot to its start: with the number they tell a process from a later one.
    pub started_ticks: u64,
}

impl Process {
    pub fn ticks(&self) -> u64 {
        self.own_ticks.saturating_add(self.children_ticks)
    }
}

/// Many such files one after the other. A name with a line break in it is lost, and with it its
/// process; nobody but a joker has one.
pub fn parse_all(text: &str) -> Vec<Process> {
    text.lines().filter_map(parse).collect()
}

pub fn parse(line: &str) -> Option<Process> {
    // The name may hold anything, parentheses and spaces included.
    let (pid, rest) = line.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field 3 of the manual is the first here.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // The kernel's type for children's time is signed.
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
