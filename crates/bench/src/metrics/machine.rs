//! The whole machine's counters: `/proc/stat`.
//!
//! ```text
//!   cpu  user nice system idle iowait irq softirq steal guest guest_nice     in clock ticks
//!   intr TOTAL per-interrupt...
//! ```
//! proc_stat(5). Guest time is in user time already. Steal is missing before Linux 2.6.11.
//!
//! Invariant: pure. Called from `snapshot`, `recorder` and the CPU meters.

use serde::Serialize;

use super::error::FormatError;

/// The counters since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounters {
    /// Clock ticks in user mode, niced processes included.
    pub user: u64,
    /// Clock ticks in the kernel, interrupts included.
    pub system: u64,
    /// Idle clock ticks.
    pub idle: u64,
    /// Idle clock ticks with outstanding disk I/O.
    pub iowait: u64,
    /// Clock ticks stolen by other virtual machines; `None` where the kernel does not count them.
    pub steal: Option<u64>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Interrupts; `None` where there is no such line.
    pub interrupts: Option<u64>,
    /// Clock ticks in interrupts, hard and soft; they are in `system`.
    pub interrupt_ticks: u64,
}

/// Shares of all CPU time between two readings, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuShares {
    /// User mode.
    pub user: f64,
    /// Kernel mode.
    pub system: f64,
    /// Idle with outstanding disk I/O.
    pub iowait: f64,
    /// Stolen by other virtual machines.
    pub steal: Option<f64>,
    /// Idle otherwise.
    pub idle: f64,
}

/// Reads the text of `/proc/stat`. `None` where nothing is counted: some containers show zeros, and
/// a meter that is not there must not read 0.
///
/// # Errors
/// What is missing.
pub(crate) fn parse(text: &str) -> Result<Option<MachineCounters>, FormatError> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let all = all.ok_or(FormatError::NoCpuLine)?;
    let ticks: Vec<u64> = all.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, ..] = ticks[..] else {
        return Err(FormatError::ShortCpuLine(all.trim().to_string()));
    };
    if ticks.iter().all(|ticks| *ticks == 0) {
        return Ok(None);
    }
    let one_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let interrupts = text.lines().find_map(|line| line.strip_prefix("intr "));
    Ok(Some(MachineCounters {
        user: user + nice,
        system: system + irq + softirq,
        idle,
        iowait,
        steal: ticks.get(7).copied(),
        cpus: text.lines().filter(one_cpu).count() as u32,
        interrupts: interrupts.and_then(|rest| rest.split_whitespace().next()?.parse().ok()),
        interrupt_ticks: irq + softirq,
    }))
}

impl MachineCounters {
    /// Ticks in which a CPU worked for this machine.
    pub fn busy(&self) -> u64 {
        self.user + self.system
    }

    /// What the CPUs did since `before`. A kernel's idle and iowait counters may go back a little
    /// (proc_stat(5)): that counts as nothing.
    pub fn shares_since(&self, before: &MachineCounters) -> CpuShares {
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let (user, system) = (since(self.user, before.user), since(self.system, before.system));
        let (idle, iowait) = (since(self.idle, before.idle), since(self.iowait, before.iowait));
        let steal = self.steal.zip(before.steal).map(|(now, then)| since(now, then));
        let all = (user + system + idle + iowait + steal.unwrap_or(0.0)).max(1.0);
        CpuShares {
            user: user / all,
            system: system / all,
            iowait: iowait / all,
            steal: steal.map(|ticks| ticks / all),
            idle: idle / all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 20 30 4000 500 6 7 800 9 9\ncpu0 5 10 15 2000 250 3 3 400 4 4\n\
                        cpu1 5 10 15 2000 250 3 4 400 5 5\nintr 4711 0 9 1\nctxt 5\n";

    #[test]
    fn every_field_has_its_place() {
        let counters = parse(STAT).unwrap().expect("counted");
        let expected = MachineCounters {
            user: 30,
            system: 43,
            idle: 4000,
            iowait: 500,
            steal: Some(800),
            cpus: 2,
            interrupts: Some(4711),
            interrupt_ticks: 6 + 7,
        };
        assert_eq!(counters, expected);
        assert_eq!(counters.busy(), 10 + 20 + 30 + 6 + 7, "not idle, waiting or stolen");
        let old = parse("cpu  1 2 3 4 5 6 7\n").unwrap().expect("counted");
        assert_eq!((old.steal, old.interrupts, old.cpus), (None, None, 0));
        assert!(parse("cpu  1 2\n").unwrap_err().to_string().contains("fewer than 7"));
        assert!(parse("intr 1\n").is_err());
        assert_eq!(parse("cpu  0 0 0 0 0 0 0 0\nintr 5\n"), Ok(None), "some containers");
    }

    #[test]
    fn shares_add_up_and_counters_that_go_back_count_nothing() {
        let before = parse(STAT).unwrap().expect("counted");
        let mut now = before;
        (now.user, now.system, now.idle) = (now.user + 50, now.system + 25, now.idle + 15);
        (now.iowait, now.steal) = (now.iowait - 1, Some(810));
        let shares = now.shares_since(&before);
        assert_eq!((shares.user, shares.system, shares.idle), (0.5, 0.25, 0.15));
        assert_eq!((shares.iowait, shares.steal), (0.0, Some(0.1)));
        assert_eq!(before.shares_since(&before).idle, 0.0);
    }
}
