//! /proc/stat: processor time in ticks; /proc/pressure/{cpu,io,memory}: time in which tasks waited for
//! a resource (PSI).

/// Ticks of all processors since boot. `user` and `nice` include guest time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

impl CpuTimes {
    pub fn total(&self) -> u64 {
        let work = self.in_processes().saturating_add(self.irq).saturating_add(self.softirq);
        [self.idle, self.iowait, self.steal].into_iter().fold(work, u64::saturating_add)
    }

    /// Returns the time that the kernel charged to processes.
    pub fn in_processes(&self) -> u64 {
        self.user.saturating_add(self.nice).saturating_add(self.system)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub cpu: CpuTimes,
    /// Processors online.
    pub cores: u32,
}

pub fn parse(text: &str) -> Option<Stat> {
    let mut stat = None;
    let mut cores = 0;
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some("cpu") {
            stat = cpu(&words.map_while(|word| word.parse().ok()).collect::<Vec<u64>>());
        } else {
            cores += 1;
        }
    }
    stat.map(|cpu| Stat { cpu, cores })
}

fn cpu(n: &[u64]) -> Option<CpuTimes> {
    let [user, nice, system, idle, iowait, irq, softirq, ..] = *n else { return None };
    // Steal time exists since Linux 2.6.11.
    let steal = n.get(7).copied().unwrap_or(0);
    Some(CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal })
}

/// Returns the microseconds since boot during which at least one task waited.
pub fn stalled_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}
