//! CPU time by thread: this process's own, io_uring's workers among them (`iou-wrk-...`), and md's
//! kernel threads (`md0_raid5`, `md0_resync`).
//!
//! Threads come and go, so they are looked at now and then; what one had used when it was last seen
//! counts. What it used after that is lost.
//!
//! Invariant: only what was used since the start counts. Called from `recorder`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::snapshot::Roots;
use crate::meter::{self, ThreadCpu};
use crate::record::ThreadTime;

#[derive(Clone)]
struct Seen {
    name: String,
    first_s: f64,
    last_s: f64,
}

/// See the module.
pub(super) struct ThreadWatch {
    roots: Roots,
    /// Whether to look through all processes for md's.
    md: bool,
    seen: BTreeMap<u32, Seen>,
}

impl ThreadWatch {
    /// Begins to watch; `md`: the kernel's threads too, for which all processes are looked at.
    pub(super) fn start(roots: &Roots, md: bool) -> ThreadWatch {
        let mut watch = ThreadWatch { roots: roots.clone(), md, seen: BTreeMap::new() };
        for (id, thread) in watch.now() {
            let used = thread.seconds();
            watch.seen.insert(id, Seen { name: thread.name, first_s: used, last_s: used });
        }
        watch
    }

    /// Looks at all of them again. A thread that is new has used what it used since the last look.
    pub(super) fn look(&mut self) {
        for (id, thread) in self.now() {
            let used = thread.seconds();
            let new = Seen { name: thread.name.clone(), first_s: 0.0, last_s: used };
            let seen = self.seen.entry(id).or_insert_with(|| new.clone());
            if used < seen.last_s {
                *seen = new; // Another thread by the same number.
            }
            seen.last_s = used;
            seen.name = thread.name; // It may have been given one since.
        }
    }

    /// What each used, the busiest first.
    pub(super) fn used(&self) -> Vec<ThreadTime> {
        let mut used: Vec<ThreadTime> = Vec::new();
        for seen in self.seen.values() {
            let seconds = seen.last_s - seen.first_s;
            if seconds > 0.0 {
                used.push(ThreadTime { name: seen.name.clone(), seconds });
            }
        }
        used.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
        used
    }

    fn now(&self) -> Vec<(u32, ThreadCpu)> {
        let own = self.list(&self.roots.proc.join("self/task"));
        let all = if self.md { self.list(&self.roots.proc) } else { Vec::new() };
        own.into_iter().chain(all.into_iter().filter(|(_, thread)| is_md(thread))).collect()
    }

    fn list(&self, directory: &PathBuf) -> Vec<(u32, ThreadCpu)> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let thread = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            // A thread may end between the listing and the reading.
            let text = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((id, meter::thread_times(&text, meter::ticks_per_s())?))
        };
        entries.filter_map(thread).collect()
    }
}

/// `md127_raid5`, `md_d0_resync`; not `mdadm`.
fn is_md(thread: &ThreadCpu) -> bool {
    let name = thread.name.as_str();
    let Some((array, _)) = name.rsplit_once('_') else { return false };
    let number = array.strip_prefix("md_d").or_else(|| array.strip_prefix("md"));
    number.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(id: u32, name: &str, ticks: u64) -> String {
        format!("{id} ({name}) S 1 2 3 4 5 6 7 8 9 10 {ticks} 0 0 0")
    }

    #[test]
    fn workers_and_md_threads_count_from_the_start_on() {
        let dir = crate::watch::recorder::tests::Dir::new("threads");
        let tick = 1.0 / meter::ticks_per_s();
        dir.write("proc/self/task/7/stat", &stat(7, "main", 100));
        dir.write("proc/40/stat", &stat(40, "md127_raid5", 1000));
        dir.write("proc/41/stat", &stat(41, "mdadm_1", 1000));
        dir.write("proc/42/stat", &stat(42, "cat", 1000));
        let mut watch = ThreadWatch::start(&Roots::below(&dir.0), true);
        assert_eq!(watch.used(), []);
        dir.write("proc/self/task/7/stat", &stat(7, "main", 101));
        dir.write("proc/self/task/8/stat", &stat(8, "iou-wrk-7", 3));
        dir.write("proc/40/stat", &stat(40, "md127_raid5", 1020));
        dir.write("proc/42/stat", &stat(42, "cat", 2000));
        watch.look();
        // The worker ends; what it used stays.
        std::fs::remove_dir_all(dir.0.join("proc/self/task/8")).unwrap();
        watch.look();
        let used: Vec<(String, f64)> =
            watch.used().into_iter().map(|t| (t.name, (t.seconds / tick).round())).collect();
        let expected = [("md127_raid5", 20.0), ("iou-wrk-7", 3.0), ("main", 1.0)];
        assert_eq!(used, expected.map(|(name, ticks)| (name.to_string(), ticks)));
    }
}
