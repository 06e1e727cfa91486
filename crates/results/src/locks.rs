//! Claims on items, so that of several processes that resume one run only one measures an item.
//!
//! Invariant: an item, or a device, is claimed by at most one live owner. The claims of an owner
//! that ended, by a crash or a reboot, are void: the next process takes them over. Runs are found
//! by host name, so all owners are processes of one host. Called from `sweep::runner`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use spec::sweep::{Item, ItemKey};

use super::error::StoreError;
use super::store::{Sequence, Store};

/// The owner of claims: a measuring process, or one of several in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The boot ID: process IDs are meaningless after a reboot.
    boot: String,
    /// Process ID.
    pub process: u32,
    /// Start time of the process, clock ticks since boot: process IDs are reused.
    began: u64,
    /// Number of the owner within the process.
    number: u32,
}

impl LockHolder {
    /// A new owner in this process, different at each call.
    pub fn new() -> LockHolder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        LockHolder { number, ..LockHolder::of(std::process::id()) }
    }

    fn of(process: u32) -> LockHolder {
        LockHolder { boot: boot(), process, began: began(process).unwrap_or(0), number: 0 }
    }

    /// Its claims are void from now on, also those that could not be released, as where the results
    /// file cannot be written while this process lives on.
    pub fn end(&self) {
        ENDED.lock().unwrap_or_else(PoisonError::into_inner).insert(self.number);
    }

    fn lives(&self) -> bool {
        let has_ended = self.process == std::process::id()
            && ENDED.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.number);
        self.boot == boot() && began(self.process) == Some(self.began) && !has_ended
    }
}

/// Numbers of this process's owners that have ended.
static ENDED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

impl Default for LockHolder {
    fn default() -> LockHolder {
        LockHolder::new()
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_string()
}

/// Start time of a process, clock ticks since boot (proc_pid_stat(5), field 22); `None` when there
/// is no process of this ID, or only a zombie.
fn began(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name, in parentheses, and may hold anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

impl Store {
    /// Claims the items of a run that are neither measured, nor have failed since, nor are claimed
    /// by another live owner. Returns the other items; these are all items where another live owner
    /// has claimed one of the `devices` that the measurement uses exclusively.
    ///
    /// # Errors
    /// An error of SQLite; then nothing is claimed.
    pub fn claim(
        &mut self,
        run: i64,
        items: &[Item],
        devices: &[ItemKey],
        owner: &LockHolder,
        since: Sequence,
    ) -> Result<HashSet<ItemKey>, StoreError> {
        self.change(TransactionBehavior::Immediate, |change| {
            let held = |key: &ItemKey| -> rusqlite::Result<bool> {
                let other = holder(change, run, key)?;
                Ok(other.is_some_and(|other| other != *owner && other.lives()))
            };
            for device in devices {
                if held(device)? {
                    return Ok(items.iter().map(|item| item.key.clone()).collect());
                }
            }
            let mut ours = Vec::new();
            let mut theirs = HashSet::new();
            for Item { key, .. } in items {
                let text = "SELECT 1 FROM items
                            WHERE run = ?1 AND key = ?2 AND (reason IS NULL OR rowid > ?3)";
                let of = params![run, key.0, since.0];
                let known = change.query_row(text, of, |_| Ok(())).optional()?;
                if known.is_some() || held(key)? {
                    theirs.insert(key.clone());
                } else {
                    ours.push(key);
                }
            }
            if !ours.is_empty() {
                ours.extend(devices);
            }
            for key in ours {
                let text = "INSERT OR REPLACE INTO claims VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let LockHolder { boot, process, began, number } = owner;
                let began = began.cast_signed();
                change.execute(text, params![run, key.0, boot, process, began, number])?;
            }
            Ok(theirs)
        })
    }

    /// Releases all claims of an owner.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn release(&mut self, run: i64, owner: &LockHolder) -> Result<(), StoreError> {
        self.change(TransactionBehavior::Immediate, |change| {
            let text = "DELETE FROM claims WHERE run = ?1 AND boot = ?2 AND process = ?3
                        AND began = ?4 AND number = ?5";
            let LockHolder { boot, process, began, number } = owner;
            change.execute(text, params![run, boot, process, began.cast_signed(), number])?;
            Ok(())
        })
    }

    /// Items of a run that other live owners are measuring, and the devices they use.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn claimed_by_others(
        &mut self,
        run: i64,
        owner: &LockHolder,
    ) -> Result<Vec<(ItemKey, LockHolder)>, StoreError> {
        let all = self.change(TransactionBehavior::Deferred, |change| {
            let text = "SELECT key, boot, process, began, number FROM claims WHERE run = ?1";
            let mut query = change.prepare(text)?;
            let claims = query.query_map([run], |row| Ok((ItemKey(row.get(0)?), read(row, 1)?)))?;
            claims.collect::<rusqlite::Result<Vec<(ItemKey, LockHolder)>>>()
        })?;
        Ok(all.into_iter().filter(|(_, other)| other != owner && other.lives()).collect())
    }
}

fn holder(among: &Connection, run: i64, key: &ItemKey) -> rusqlite::Result<Option<LockHolder>> {
    let text = "SELECT boot, process, began, number FROM claims WHERE run = ?1 AND key = ?2";
    among.query_row(text, params![run, key.0], |row| read(row, 0)).optional()
}

fn read(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<LockHolder> {
    Ok(LockHolder {
        boot: row.get(from)?,
        process: row.get(from + 1)?,
        began: row.get::<_, i64>(from + 2)?.cast_unsigned(),
        number: row.get(from + 3)?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::fixture;
    use crate::store::NewRun;

    fn items() -> [Item; 2] {
        ["a", "b"].map(|name| Item { key: ItemKey(name.into()), what: name.into() })
    }

    fn keys(theirs: HashSet<ItemKey>) -> Vec<String> {
        let mut keys: Vec<String> = theirs.into_iter().map(|key| key.0).collect();
        keys.sort();
        keys
    }

    fn store() -> (tempfile::TempDir, Store, i64) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::create(&directory.path().join("results.db")).expect("a file");
        let run = store.begin(&NewRun::default(), &fixture::record()).expect("a run");
        (directory, store, run)
    }

    #[test]
    fn what_is_claimed_or_measured_is_not_claimed_again_until_it_is_given_back() {
        let (_directory, mut store, run) = store();
        let (one, other, items) = (LockHolder::new(), LockHolder::new(), items());
        let begun = store.moment().expect("SQL");
        let mut claim =
            |items: &[Item], owner| keys(store.claim(run, items, &[], owner, begun).expect("SQL"));
        assert_eq!(claim(&items[..1], &one), [""; 0]);
        assert_eq!(claim(&items, &other), ["a"]);
        assert_eq!(claim(&items, &one), ["b"], "its own claim stands");
        store.put(run, &items[0], &[]).expect("stored");
        store.release(run, &other).expect("SQL");
        assert!(store.claimed_by_others(run, &other).expect("SQL").is_empty(), "it is measured");
        assert_eq!(keys(store.claim(run, &items, &[], &other, begun).expect("SQL")), ["a"]);
        let claimed = store.claimed_by_others(run, &one).expect("SQL");
        assert_eq!(claimed, [(items[1].key.clone(), other)]);
        store.put_not_run(run, &items[1], "a reason").expect("SQL");
        assert!(store.claimed_by_others(run, &one).expect("SQL").is_empty());
        assert_eq!(keys(store.claim(run, &items, &[], &one, begun).expect("SQL")), ["a", "b"]);
        let later = store.moment().expect("SQL");
        let theirs = store.claim(run, &items, &[], &one, later).expect("SQL");
        assert_eq!(keys(theirs), ["a"], "b is tried again");
    }

    #[test]
    fn claims_of_an_owner_that_has_ended_are_void_while_its_process_lives_on() {
        let (_directory, mut store, run) = store();
        let (one, other, items) = (LockHolder::new(), LockHolder::new(), items());
        let begun = store.moment().expect("SQL");
        let mut claim = |owner| keys(store.claim(run, &items, &[], owner, begun).expect("SQL"));
        assert_eq!(claim(&one), [""; 0]);
        assert_eq!(claim(&other), ["a", "b"]);
        // It could not be released.
        one.end();
        assert_eq!(claim(&other), [""; 0]);
    }

    #[test]
    fn items_on_one_device_are_claimed_by_one() {
        let (_directory, mut store, run) = store();
        let (one, other, [a, b]) = (LockHolder::new(), LockHolder::new(), items());
        let begun = store.moment().expect("SQL");
        let [sdb, sdc] = ["sdb", "sdc"].map(|name| ItemKey(name.into()));
        let mut claim = |item: &Item, devices: &[ItemKey], owner| {
            let items = std::slice::from_ref(item);
            keys(store.claim(run, items, devices, owner, begun).expect("SQL"))
        };
        assert_eq!(claim(&a, std::slice::from_ref(&sdb), &one), [""; 0]);
        // None of several devices is claimed where another owner has one of them.
        assert_eq!(claim(&b, &[sdc.clone(), sdb.clone()], &other), ["b"]);
        assert_eq!(claim(&b, std::slice::from_ref(&sdc), &one), [""; 0]);
        store.put(run, &a, &[]).expect("stored");
        store.release(run, &one).expect("SQL");
        let claim =
            store.claim(run, std::slice::from_ref(&a), std::slice::from_ref(&sdb), &one, begun);
        assert_eq!(keys(claim.expect("SQL")), ["a"], "nothing to measure, so no device is taken");
        let claim = store.claim(run, std::slice::from_ref(&b), &[sdc, sdb], &other, begun);
        assert_eq!(keys(claim.expect("SQL")), [""; 0]);
    }

    #[test]
    fn who_has_gone_holds_nothing() {
        let (_directory, mut store, run) = store();
        let (me, items) = (LockHolder::new(), items());
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep");
        let other = LockHolder::of(child.id());
        let begun = store.moment().expect("SQL");
        store.claim(run, &items, &[], &other, begun).expect("SQL");
        assert_eq!(keys(store.claim(run, &items, &[], &me, begun).expect("SQL")), ["a", "b"]);
        child.kill().expect("killed");
        // A zombie does not count as live.
        while other.lives() {
            std::thread::yield_now();
        }
        assert!(store.claimed_by_others(run, &me).expect("SQL").is_empty());
        assert_eq!(keys(store.claim(run, &items, &[], &me, begun).expect("SQL")), [""; 0]);
        child.wait().expect("ended");
        // Process IDs are reused, by other processes and after a reboot.
        let before = LockHolder { boot: "another start".into(), ..LockHolder::new() };
        let namesake = LockHolder { began: 1, ..LockHolder::new() };
        assert!(me.lives() && !before.lives() && !namesake.lives());
    }
}
