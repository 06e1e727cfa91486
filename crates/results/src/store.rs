//! The results file: opens it, stores cells, reads records.
//!
//! Invariant: every method leaves the file consistent. Writers wait for each other
//! ([`WAIT`]); readers never wait (WAL). Paths of the user are not stored.
//!
//! After a crash: a cell is committed and synced before `put` returns. On a crash before that the
//! cell is missing, the run has no end time, and the sweep can be resumed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Params, TransactionBehavior, named_params, params,
};
use serde::Serialize;
use spec::sweep::{Item, ItemKey};

use super::error::{StoreError, StoreProblem, WAIT};
use super::schema;
use crate::host::Host;
use crate::record::{Cell, Record, rfc3339};

/// A run to be started.
#[derive(Clone, Debug, Default)]
pub struct NewRun<'a> {
    /// Title for display: the sweep's title, or `bench`.
    pub title: &'a str,
    /// The sweep's name, by which it is resumed; `None`: not a sweep.
    pub sweep: Option<&'a str>,
    /// The set of published figures to show beside it.
    pub published: Option<&'a str>,
}

/// Summary of a run, for lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunInfo {
    /// Number of the run.
    pub id: i64,
    /// Title for display.
    pub title: String,
    /// The sweep's name.
    pub sweep: Option<String>,
    /// The set of published figures to show beside it.
    pub published: Option<String>,
    /// Start time, RFC 3339.
    pub started: String,
    /// End time, RFC 3339; `None` while it runs, and after a crash.
    pub ended: Option<String>,
    /// Host name of the machine that ran it.
    pub hostname: Option<String>,
    /// Number of cells.
    pub cells: u64,
    /// Number of items that could not be run.
    pub not_run: u64,
}

/// A position in the history of a results file: separates earlier item records from later ones.
///
/// A row ID of `items`: a new row, also one that replaces another, has one more than the highest.
/// Where SQLite renumbers rows (VACUUM), new rows look old: their items are tried again.
#[derive(Clone, Copy, Debug)]
pub struct Sequence(pub(super) i64);

/// An item that a sweep could not measure.
#[derive(Clone, Debug, PartialEq)]
pub struct NotRun {
    /// Description for display.
    pub what: String,
    /// Reason.
    pub reason: String,
}

/// An open results file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// The default results file: `raidlab/results.db` in `$XDG_DATA_HOME`, which is
/// `~/.local/share` by default (XDG Base Directory Specification: relative paths do not count).
pub fn default_path() -> Option<PathBuf> {
    let absolute = |name| Some(PathBuf::from(std::env::var_os(name)?)).filter(|p| p.is_absolute());
    let data =
        absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("raidlab").join("results.db"))
}

impl Store {
    /// Opens the file; creates it, and its directory, where it is missing.
    ///
    /// # Errors
    /// The directory cannot be created, the file belongs to another program, or its version is
    /// newer.
    pub fn create(path: &Path) -> Result<Store, StoreError> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| StoreError {
                path: directory.into(),
                problem: StoreProblem::MakeDirectory(error),
            })?;
        }
        let fail = |problem: StoreProblem| StoreError { path: path.into(), problem };
        let is_new = match std::fs::metadata(path) {
            Ok(facts) => {
                check_kind(&facts).and_then(|()| check_head(path)).map_err(fail)?;
                false
            }
            Err(_) => true,
        };
        // SQLite would not report the reason.
        let made = std::fs::File::options().append(true).create(true).open(path);
        made.map_err(|error| fail(StoreProblem::OpenForWriting(error)))?;
        let opened = Store::opened(path, OpenFlags::SQLITE_OPEN_CREATE);
        // With no space at all, an empty file must not remain.
        let is_empty = || std::fs::metadata(path).is_ok_and(|facts| facts.len() == 0);
        if is_new && opened.is_err() && is_empty() {
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    /// Opens an existing file for reading. A file without write permission is read as immutable.
    ///
    /// # Errors
    /// As [`Store::create`]; also when the file is missing or empty.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let fail = |problem: StoreProblem| StoreError { path: path.into(), problem };
        let facts = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(StoreProblem::Read(error))),
            Ok(facts) => Some(facts),
        };
        facts.as_ref().map_or(Ok(()), check_kind).map_err(fail)?;
        if facts.is_none_or(|facts| facts.len() == 0) {
            return Err(fail(StoreProblem::Missing));
        }
        std::fs::File::open(path).map_err(|error| fail(StoreProblem::Read(error)))?;
        if std::fs::File::options().append(true).open(path).is_err() {
            return Store::as_it_is(path);
        }
        Store::opened(path, OpenFlags::empty())
    }

    /// Reads a file without write permission: without locks, which need files beside it. No other
    /// process writes to it then either, unless there is a journal.
    fn as_it_is(path: &Path) -> Result<Store, StoreError> {
        let fail = |problem: StoreProblem| StoreError { path: path.into(), problem };
        let mut journal = path.as_os_str().to_owned();
        journal.push("-wal");
        if std::fs::metadata(journal).is_ok_and(|facts| facts.len() > 0) {
            return Err(fail(StoreProblem::BeingWritten));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let bytes = path.as_os_str().as_encoded_bytes().iter();
        let name: String = bytes.map(|byte| format!("%{byte:02x}")).collect();
        let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags);
        let connection = connection.map_err(|error| fail(error.into()))?;
        schema::check_readable(&connection).map_err(fail)?;
        Ok(Store { path: path.into(), connection })
    }

    fn opened(path: &Path, more: OpenFlags) -> Result<Store, StoreError> {
        let fail = |problem: StoreProblem| StoreError { path: path.into(), problem };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        let failed = |error: rusqlite::Error| fail(error.into());
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_handler(Some(wait_on)).map_err(failed)?;
        schema::migrate(&mut connection).map_err(fail)?;
        // WAL: readers and a writer do not wait for each other. FULL: a commit is durable; a cell
        // took seconds to measure, so a sync costs nothing.
        let wal = |connection: &Connection| {
            connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "full")?;
            connection.pragma_update(None, "foreign_keys", true)
        };
        wal(&connection).map_err(failed)?;
        Ok(Store { path: path.into(), connection })
    }

    /// Path of the results file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one transaction.
    pub(super) fn change<T>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let path = &self.path;
        let failed =
            |error: rusqlite::Error| StoreError { path: path.clone(), problem: error.into() };
        let change = self.connection.transaction_with_behavior(behavior).map_err(failed)?;
        let done = work(&change).map_err(failed)?;
        change.commit().map_err(failed)?;
        Ok(done)
    }

    fn failed_with(&self) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        |error| StoreError { path: self.path.clone(), problem: error.into() }
    }

    /// Starts a run. `head` is the record without its cells.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn begin(&self, run: &NewRun<'_>, head: &Record) -> Result<i64, StoreError> {
        insert_run(&self.connection, run, head).map_err(self.failed_with())
    }

    /// Resumes the newest run of a sweep ([`Store::newest_of`]), or starts one where there is none.
    /// Of two processes that do so concurrently only one starts it.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn go_on(&mut self, run: &NewRun<'_>, head: &Record) -> Result<i64, StoreError> {
        // Looks up and starts under one lock. After a crash in between the run exists completely
        // or not at all.
        self.change(TransactionBehavior::Immediate, |change| {
            let known = run.sweep.map_or(Ok(None), |sweep| newest_of(change, sweep, head))?;
            known.map_or_else(|| insert_run(change, run, head), Ok)
        })
    }

    /// Stores the cells of an item in a run: all or none. Earlier cells of the item in the run are
    /// replaced.
    ///
    /// # Errors
    /// An error of SQLite; then nothing has changed.
    pub fn put(&mut self, run: i64, item: &Item, cells: &[Cell]) -> Result<(), StoreError> {
        self.change(TransactionBehavior::Immediate, |change| {
            replace_cells(change, run, item, cells)
        })
    }

    /// Stores the cells of an item that a host has measured, with the facts about the host: all or
    /// nothing. Earlier cells of the item in the run are replaced. The cells name the host.
    ///
    /// # Errors
    /// An error of SQLite; then nothing has changed.
    pub fn put_of_host(
        &mut self,
        run: i64,
        item: &Item,
        cells: &[Cell],
        hosts: &[Host],
    ) -> Result<(), StoreError> {
        self.change(TransactionBehavior::Immediate, |change| {
            for host in hosts {
                let json = serde_json::to_string(host).expect("a host is plain data");
                let text = "INSERT OR REPLACE INTO hosts (run, hostname, host) VALUES (?1, ?2, ?3)";
                change.execute(text, params![run, host.hostname, json])?;
            }
            replace_cells(change, run, item, cells)
        })
    }

    /// Records an item that could not be run, with the reason.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn put_not_run(&mut self, run: i64, item: &Item, reason: &str) -> Result<(), StoreError> {
        self.change(TransactionBehavior::Immediate, |change| note(change, run, item, Some(reason)))
    }

    /// Marks the run as complete.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn end(&self, run: i64) -> Result<(), StoreError> {
        let text = "UPDATE runs SET ended = ?2 WHERE id = ?1";
        let now = rfc3339(SystemTime::now());
        self.connection.execute(text, params![run, now]).map_err(self.failed_with())?;
        Ok(())
    }

    /// The keys of the items that were measured in a run.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn finished(&self, run: i64) -> Result<HashSet<ItemKey>, StoreError> {
        self.keys("SELECT key FROM items WHERE run = ?1 AND reason IS NULL", [run])
    }

    /// The current position.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn moment(&self) -> Result<Sequence, StoreError> {
        let text = "SELECT coalesce(max(rowid), 0) FROM items";
        let newest = self.connection.query_row(text, [], |row| row.get(0));
        newest.map(Sequence).map_err(self.failed_with())
    }

    /// The keys of the items of a run that were measured at any time, or failed since `since`.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn tried(&self, run: i64, since: Sequence) -> Result<HashSet<ItemKey>, StoreError> {
        let text = "SELECT key FROM items WHERE run = ?1 AND (reason IS NULL OR rowid > ?2)";
        self.keys(text, [run, since.0])
    }

    /// Items of a run that failed since `since`, in any process, with the reason.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn failed(&self, run: i64, since: Sequence) -> Result<Vec<(Item, String)>, StoreError> {
        let read = || {
            let text = "SELECT key, what, reason FROM items
                        WHERE run = ?1 AND rowid > ?2 AND reason IS NOT NULL ORDER BY rowid";
            let mut query = self.connection.prepare(text)?;
            let each = query.query_map([run, since.0], |row| {
                Ok((Item { key: ItemKey(row.get(0)?), what: row.get(1)? }, row.get(2)?))
            })?;
            each.collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed_with())
    }

    /// Duration of all phases of each measured program, seconds, by the program's key; the latest
    /// measurement counts.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn programs_took(&self) -> Result<HashMap<ItemKey, f64>, StoreError> {
        let read = || {
            let mut query = self.connection.prepare(
                "SELECT cells.key, total(sample.value ->> 'seconds')
                 FROM cells, json_each(cells.cell, '$.samples') AS sample
                 WHERE program IS NOT NULL GROUP BY cells.run, cells.key ORDER BY cells.run",
            )?;
            let each = query.query_map([], |row| Ok((ItemKey(row.get(0)?), row.get(1)?)))?;
            each.collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed_with())
    }

    fn keys(&self, text: &str, of: impl Params) -> Result<HashSet<ItemKey>, StoreError> {
        let read = || {
            let mut query = self.connection.prepare(text)?;
            let keys = query.query_map(of, |row| Ok(ItemKey(row.get(0)?)))?;
            keys.collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed_with())
    }

    /// All runs, the oldest first.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn runs(&self) -> Result<Vec<RunInfo>, StoreError> {
        let read = || {
            let mut query = self.connection.prepare(
                "SELECT id, title, sweep, published, started, ended, hostname,
                     (SELECT count(*) FROM cells WHERE run = runs.id),
                     (SELECT count(*) FROM items WHERE run = runs.id AND reason IS NOT NULL)
                 FROM runs ORDER BY id",
            )?;
            let info = |row: &rusqlite::Row<'_>| {
                Ok(RunInfo {
                    id: row.get(0)?,
                    title: row.get(1)?,
                    sweep: row.get(2)?,
                    published: row.get(3)?,
                    started: row.get(4)?,
                    ended: row.get(5)?,
                    hostname: row.get(6)?,
                    cells: row.get::<_, i64>(7)?.unsigned_abs(),
                    not_run: row.get::<_, i64>(8)?.unsigned_abs(),
                })
            };
            query.query_map([], info)?.collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed_with())
    }

    /// The newest run of a sweep on this host by this version of raidlab, to be resumed.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn newest_of(&self, sweep: &str, head: &Record) -> Result<Option<i64>, StoreError> {
        newest_of(&self.connection, sweep, head).map_err(self.failed_with())
    }

    /// A run as a record, ratios to the ordinary disk filled in.
    ///
    /// # Errors
    /// When there is no such run, or a cell in it cannot be read.
    pub fn record(&self, run: i64) -> Result<Record, StoreError> {
        self.record_of(run, None)
    }

    /// As [`Store::record`], of one item: its cells, and the hosts that measured them.
    ///
    /// # Errors
    /// As there.
    pub fn record_of(&self, run: i64, item: Option<&ItemKey>) -> Result<Record, StoreError> {
        let fail = |problem: StoreProblem| StoreError { path: self.path.clone(), problem };
        let head = self
            .connection
            .query_row("SELECT raidlab, started, host FROM runs WHERE id = ?1", [run], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            })
            .optional()
            .map_err(self.failed_with())?;
        let Some((raidlab, started, host)) = head else {
            return Err(fail(StoreProblem::NoRun(run)));
        };
        let undecoded = |part: String, source| fail(StoreProblem::Decode { run, part, source });
        let host: Host = serde_json::from_str(&host)
            .map_err(|error| undecoded("field host".to_string(), error))?;
        let texts = || {
            let order = "SELECT id, cell FROM cells
                         WHERE run = ?1 AND (?2 IS NULL OR key = ?2) ORDER BY id";
            let mut query = self.connection.prepare(order)?;
            let key = item.map(|key| &key.0);
            let rows = query.query_map(params![run, key], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut cells: Vec<Cell> = Vec::new();
        for (id, text) in texts().map_err(self.failed_with())? {
            let cell = serde_json::from_str(&text);
            cells.push(cell.map_err(|error| undecoded(format!("cell {id}"), error))?);
        }
        let mut hosts: Vec<Host> = Vec::new();
        for text in self.hosts(run).map_err(self.failed_with())? {
            let host: Host = serde_json::from_str(&text)
                .map_err(|error| undecoded("table hosts".to_string(), error))?;
            let measured = |cell: &Cell| {
                let mut names = cell.case.host.as_deref().unwrap_or_default().split('+');
                names.any(|name| host.hostname.as_deref() == Some(name))
            };
            if item.is_none() || cells.iter().any(measured) {
                hosts.push(host);
            }
        }
        let mut record = Record { raidlab, host, started, cells, hosts };
        record.set_ratios();
        Ok(record)
    }

    /// The machines of a run over several, as JSON.
    fn hosts(&self, run: i64) -> rusqlite::Result<Vec<String>> {
        // A file of an older version that may not be written does not have the table.
        if !self.connection.table_exists(None, "hosts")? {
            return Ok(Vec::new());
        }
        let text = "SELECT host FROM hosts WHERE run = ?1 ORDER BY hostname";
        let mut query = self.connection.prepare(text)?;
        query.query_map([run], |row| row.get(0))?.collect()
    }

    /// Items that a run could not measure.
    ///
    /// # Errors
    /// An error of SQLite.
    pub fn not_run(&self, run: i64) -> Result<Vec<NotRun>, StoreError> {
        let read = || {
            let text = "SELECT what, reason FROM items
                        WHERE run = ?1 AND reason IS NOT NULL ORDER BY rowid";
            let mut query = self.connection.prepare(text)?;
            let each = query
                .query_map([run], |row| Ok(NotRun { what: row.get(0)?, reason: row.get(1)? }))?;
            each.collect::<rusqlite::Result<_>>()
        };
        read().map_err(self.failed_with())
    }
}

fn insert_run(to: &Connection, run: &NewRun<'_>, head: &Record) -> rusqlite::Result<i64> {
    let host = serde_json::to_string(&head.host).expect("a host is plain data");
    to.execute(
        "INSERT INTO runs (title, sweep, published, raidlab, started, hostname, host)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            run.title,
            run.sweep,
            run.published,
            head.raidlab,
            head.started,
            head.host.hostname,
            host
        ],
    )?;
    Ok(to.last_insert_rowid())
}

fn newest_of(among: &Connection, sweep: &str, head: &Record) -> rusqlite::Result<Option<i64>> {
    among.query_row(
        "SELECT max(id) FROM runs WHERE sweep = ?1 AND hostname IS ?2 AND raidlab = ?3",
        params![sweep, head.host.hostname, head.raidlab],
        |row| row.get(0),
    )
}

fn insert(change: &Connection, run: i64, key: &ItemKey, cell: &Cell) -> rusqlite::Result<()> {
    let json = serde_json::to_string(cell).expect("a cell is plain data");
    change.execute(
        "INSERT INTO cells (run, key, target, level, layout, array, disks, members, chunk_kib,
             degraded, place, program, phase, workload, block_kib, depth, jobs, mb_per_s, iops,
             cpu_s_per_gib, verified, cell)
         VALUES (:run, :key, :target, :level, :layout, :array, :disks, :members, :chunk_kib,
             :degraded, :place, :program, :phase, :workload, :block_kib, :depth, :jobs, :mb_per_s,
             :iops, :cpu_s_per_gib, :verified, :cell)",
        named_params! {
            ":run": run,
            ":key": key.0,
            ":target": cell.case.target.text(),
            ":level": cell.case.level.text(),
            ":layout": cell.case.layout.as_ref().map(|layout| layout.text()),
            ":array": cell.case.array,
            ":disks": cell.case.disks,
            ":members": cell.case.members,
            ":chunk_kib": cell.case.chunk_kib.map(|chunk| chunk as i64),
            ":degraded": cell.case.degraded,
            ":place": cell.case.place.as_ref().map(|place| &place.name),
            ":program": cell.case.program,
            ":phase": cell.case.phase,
            ":workload": cell.case.workload.text(),
            ":block_kib": cell.case.block_kib,
            ":depth": cell.case.depth,
            ":jobs": cell.case.jobs,
            ":mb_per_s": cell.derived.mb_per_s,
            ":iops": cell.derived.iops,
            ":cpu_s_per_gib": cell.derived.cpu_s_per_gib,
            ":verified": cell.measured.verified,
            ":cell": json,
        },
    )?;
    Ok(())
}

/// Stores the cells of an item, in place of earlier ones.
fn replace_cells(
    change: &Connection,
    run: i64,
    item: &Item,
    cells: &[Cell],
) -> rusqlite::Result<()> {
    let delete = "DELETE FROM cells WHERE run = ?1 AND key = ?2";
    change.execute(delete, params![run, item.key.0])?;
    cells.iter().try_for_each(|cell| insert(change, run, &item.key, cell))?;
    note(change, run, item, None)
}

/// Records that an item was measured, or the reason why not, and removes its claim.
fn note(to: &Connection, run: i64, item: &Item, reason: Option<&str>) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO items (run, key, what, reason, at)
                VALUES (?1, ?2, ?3, ?4, ?5)";
    let at = rfc3339(SystemTime::now());
    to.execute(text, params![run, item.key.0, item.what, reason, at])?;
    to.execute("DELETE FROM claims WHERE run = ?1 AND key = ?2", params![run, item.key.0])?;
    Ok(())
}

/// Checks that the results file is a regular file.
fn check_kind(facts: &std::fs::Metadata) -> Result<(), StoreProblem> {
    match facts.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(StoreProblem::Directory),
        _ => Err(StoreProblem::NotRegular),
    }
}

/// SQLite treats a file of one byte as empty, and would overwrite it.
fn check_head(path: &Path) -> Result<(), StoreProblem> {
    use std::io::Read as _;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(16).read_to_end(&mut head));
    read.map_err(StoreProblem::Read)?;
    match head.is_empty() || head == b"SQLite format 3\0" {
        true => Ok(()),
        false => Err(StoreProblem::Foreign),
    }
}

/// Polling interval of a lock.
const LOOK: Duration = Duration::from_millis(25);

/// Callback for a lock that has been waited for a second.
static WAITING: OnceLock<fn(Duration)> = OnceLock::new();

/// Sets the callback for waits on another process's lock: `tell` is called once per wait, after a
/// second, with the longest possible wait. Only the first call of this function has an effect.
pub fn tell_of_waits(tell: fn(Duration)) {
    let _ = WAITING.set(tell);
}

/// Busy handler of SQLite, after `count` failed attempts. Returns whether to try again.
fn wait_on(count: i32) -> bool {
    let waited = LOOK * count.unsigned_abs();
    let is_said = waited == Duration::from_secs(1);
    if let Some(tell) = WAITING.get().filter(|_| is_said) {
        tell(WAIT);
    }
    std::thread::sleep(LOOK);
    waited < WAIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("raidlab-results-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).expect("a directory");
            Scratch(directory)
        }

        fn file(&self) -> PathBuf {
            self.0.join("deeper").join("results.db")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn item(index: usize) -> Item {
        Item { key: ItemKey(format!("{index:016x}")), what: format!("item {index}") }
    }

    fn run() -> NewRun<'static> {
        NewRun { title: "a test", sweep: Some("wiki"), published: None }
    }

    #[test]
    fn a_run_of_several_hosts_has_each_of_them_and_an_item_only_its_own() {
        let scratch = Scratch::new("hosts");
        let mut store = Store::create(&scratch.file()).expect("a new file");
        let mut head = fixture::record();
        let cell = head.cells[0].clone().with(|it| it.case.host = None);
        (head.cells, head.host) = (Vec::new(), Host::default());
        let id = store.begin(&run(), &head).expect("a run");
        for (at, name) in ["beta", "alpha", "beta"].into_iter().enumerate() {
            let host = Host { hostname: Some(name.into()), cores: Some(4), ..Host::default() };
            let cells = [cell.clone().with(|it| it.case.host = Some(name.into()))];
            let hosts = std::slice::from_ref(&host);
            store.put_of_host(id, &item(at), &cells, hosts).expect("stored");
            // An item that was measured twice, because its first result was lost on the way.
            store.put_of_host(id, &item(at), &cells, hosts).expect("stored");
        }
        let record = store.record(id).expect("the run");
        let names = record.hosts.iter().map(|host| host.hostname.as_deref().expect("named"));
        assert_eq!(names.collect::<Vec<_>>(), ["alpha", "beta"]);
        let hosts = record.cells.iter().map(|cell| cell.case.host.as_deref().expect("named"));
        assert_eq!(hosts.collect::<Vec<_>>(), ["beta", "alpha", "beta"]);
        let one = store.record_of(id, Some(&item(1).key)).expect("the item");
        assert_eq!((one.cells.len(), one.hosts.len()), (1, 1));
        assert_eq!(one.hosts[0].hostname.as_deref(), Some("alpha"));
        // It is resumed by its own kind only, and not by a sweep of one host.
        assert_eq!(store.newest_of("wiki", &head).expect("SQL"), Some(id));
        assert_eq!(store.newest_of("wiki", &fixture::record()).expect("SQL"), None);
        let nameless = Host::default();
        let refused = store.put_of_host(id, &item(3), &[], std::slice::from_ref(&nameless));
        assert!(refused.is_err() && !store.finished(id).expect("keys").contains(&item(3).key));
    }

    /// Half a minute of silence would look like a hang.
    #[test]
    fn a_wait_for_another_programs_lock_is_reported() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static CALLS: AtomicU32 = AtomicU32::new(0);
        tell_of_waits(|_| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        let scratch = Scratch::new("locked");
        let store = Store::create(&scratch.file()).expect("a new file");
        let other = Connection::open(scratch.file()).expect("the file");
        other.execute_batch("begin immediate").expect("the lock");
        let other = std::thread::spawn(move || {
            while CALLS.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(LOOK);
            }
            other.execute_batch("rollback").expect("no lock");
        });
        store.begin(&run(), &fixture::record()).expect("a run, in the end");
        other.join().expect("the callback ran");
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_record_comes_back_as_it_went_in() {
        let scratch = Scratch::new("back");
        let record = fixture::record();
        let mut store = Store::create(&scratch.file()).expect("a new file");
        let id = store.begin(&run(), &record).expect("a run");
        for (index, cell) in record.cells.iter().enumerate() {
            store.put(id, &item(index), std::slice::from_ref(cell)).expect("a cell");
        }
        drop(store);
        let store = Store::open(&scratch.file()).expect("the file");
        assert_eq!(store.record(id).expect("the run"), record);
        let all = store.runs().expect("runs");
        assert_eq!((all.len(), all[0].cells), (1, record.cells.len() as u64));
        assert_eq!((all[0].ended.clone(), all[0].sweep.as_deref()), (None, Some("wiki")));
        store.end(id).expect("the end");
        assert!(store.runs().expect("runs")[0].ended.is_some());
        assert!(store.record(99).expect_err("no run 99").to_string().contains("no run 99"));
    }

    #[test]
    fn words_that_are_not_ours_come_back_and_can_be_asked_for() {
        let scratch = Scratch::new("words");
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.case.target, cell.case.level) = ("zfs".into(), "raidz2".into());
        (cell.case.layout, cell.case.workload) = (Some("LS".into()), "rand-append".into());
        record.set_ratios();
        let mut store = Store::create(&scratch.file()).expect("a new file");
        let id = store.begin(&run(), &record).expect("a run");
        store.put(id, &item(1), &record.cells).expect("a cell");
        assert_eq!(store.record(id).expect("the run").to_json(), record.to_json());
        let file = Connection::open(scratch.file()).expect("the file");
        let columns =
            "SELECT target || ' ' || level || ' ' || layout || ' ' || workload FROM cells";
        let words: String = file.query_row(columns, [], |row| row.get(0)).expect("a row");
        assert_eq!(words, "zfs raidz2 LS rand-append");
    }

    #[test]
    fn an_item_that_is_repeated_replaces_itself_and_its_failure() {
        let scratch = Scratch::new("again");
        let record = fixture::record();
        let mut store = Store::create(&scratch.file()).expect("a new file");
        let id = store.begin(&run(), &record).expect("a run");
        let one = item(1);
        store.put_not_run(id, &one, "no room").expect("a failure");
        store.put_not_run(id, &one, "no room at all").expect("the same once more");
        let why = NotRun { what: "item 1".into(), reason: "no room at all".into() };
        assert_eq!(store.not_run(id).expect("failures"), [why]);
        assert!(store.finished(id).expect("keys").is_empty());
        store.put(id, &one, &record.cells[..1]).expect("a cell");
        store.put(id, &one, &record.cells[1..3]).expect("other cells");
        assert_eq!(store.not_run(id).expect("failures"), []);
        assert_eq!(store.finished(id).expect("keys"), HashSet::from([one.key]));
        let cells = store.record(id).expect("a record").cells;
        assert_eq!((cells.len(), &*cells[0].case.workload.text()), (2, "rand-read"));
        assert_eq!(store.newest_of("wiki", &record).expect("a run"), Some(id));
        assert_eq!(store.newest_of("other", &record).expect("none"), None);
        let upgraded = Record { raidlab: "9".into(), ..record };
        assert_eq!(store.newest_of("wiki", &upgraded).expect("none"), None);
    }

    #[test]
    fn failures_before_a_position_are_distinguished_from_later_ones() {
        let scratch = Scratch::new("moment");
        let mut store = Store::create(&scratch.file()).expect("a new file");
        let begun = store.moment().expect("an empty file");
        let id = store.begin(&run(), &fixture::record()).expect("a run");
        let failed = |store: &Store, since| -> Vec<String> {
            let failed = store.failed(id, since).expect("failures");
            failed.into_iter().map(|(item, why)| format!("{}: {why}", item.what)).collect()
        };
        store.put(id, &item(1), &[]).expect("measured");
        store.put_not_run(id, &item(2), "yesterday").expect("a failure");
        let today = store.moment().expect("a moment");
        assert_eq!(failed(&store, begun), ["item 2: yesterday"]);
        assert_eq!(failed(&store, today), [""; 0]);
        assert_eq!(store.tried(id, today).expect("keys"), HashSet::from([item(1).key]));
        // Also where the newest row is replaced, within the same second.
        store.put_not_run(id, &item(2), "today").expect("the same once more");
        assert_eq!(failed(&store, today), ["item 2: today"]);
        let both = HashSet::from([item(1).key, item(2).key]);
        assert_eq!(store.tried(id, today).expect("keys"), both);
    }

    #[test]
    fn two_writers_lose_nothing() {
        let scratch = Scratch::new("two");
        let file = scratch.file();
        Store::create(&file).expect("a new file");
        let record = fixture::record();
        const EACH: usize = 40;
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (file, record) = (&file, &record);
                scope.spawn(move || {
                    let mut store = Store::create(file).expect("the file");
                    let id = store.begin(&run(), record).expect("a run");
                    for index in 0..EACH {
                        let cell = &record.cells[index..index + 1];
                        store.put(id, &item(index + writer), cell).expect("a cell");
                    }
                });
            }
        });
        let store = Store::open(&file).expect("the file");
        let cells: Vec<u64> = store.runs().expect("runs").iter().map(|run| run.cells).collect();
        assert_eq!(cells, [EACH as u64; 2]);
    }

    #[test]
    fn two_who_start_a_sweep_at_once_have_one_run() {
        let scratch = Scratch::new("once");
        let (file, record) = (scratch.file(), fixture::record());
        const SWEEPS: usize = 20;
        let names: Vec<String> = (0..SWEEPS).map(|number| format!("sweep-{number}")).collect();
        let (ready, go) = (std::sync::Barrier::new(2), &names);
        let begin = || {
            let mut store = Store::create(&file).expect("the file");
            // Neither thread panics before the other's last start.
            let begin = |name: &String| {
                ready.wait();
                store.go_on(&NewRun { sweep: Some(name), ..run() }, &record)
            };
            go.iter().map(begin).collect::<Vec<_>>()
        };
        let (one, other) = std::thread::scope(|scope| {
            let (one, other) = (scope.spawn(begin), scope.spawn(begin));
            (one.join().expect("no panic"), other.join().expect("no panic"))
        });
        let ids = |runs: Vec<Result<i64, StoreError>>| -> Vec<i64> {
            runs.into_iter().map(|id| id.expect("a run")).collect()
        };
        let (one, other) = (ids(one), ids(other));
        assert_eq!(one, other);
        let store = Store::open(&file).expect("the file");
        assert_eq!(store.runs().expect("runs").len(), SWEEPS);
        let newest = store.newest_of("sweep-0", &record).expect("a run");
        assert_eq!(newest, Some(one[0]));
    }

    #[test]
    fn what_is_no_results_file_is_refused_and_left_alone() {
        let scratch = Scratch::new("other");
        let file = scratch.0.join("notes.txt");
        let text = "just some notes, and long enough to have a header of 100 bytes ".repeat(4);
        std::fs::write(&file, &text).expect("a file");
        let error = Store::create(&file).expect_err("not ours").to_string();
        assert!(error.contains("notes.txt: it is not a results file"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), text);
        // SQLite itself treats a single byte as an empty file.
        std::fs::write(&file, "x").expect("a file");
        let error = Store::create(&file).expect_err("not ours").to_string();
        assert!(error.contains("notes.txt: it is not a results file"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), "x");
        let empty = scratch.0.join("empty.db");
        std::fs::write(&empty, "").expect("a file");
        let error = Store::open(&empty).expect_err("nothing in it").to_string();
        assert!(error.contains("empty.db: there are no results yet"), "{error}");
        assert_eq!(std::fs::metadata(&empty).expect("the file").len(), 0, "looking makes nothing");
        let error = Store::open(&scratch.0.join("none.db")).expect_err("nothing there");
        assert!(error.to_string().contains("no results yet"), "{error}");
    }

    #[test]
    fn what_can_hold_no_results_is_said_to_be_what_it_is() {
        let scratch = Scratch::new("kinds");
        for open in [Store::open, Store::create] {
            let error = open(&scratch.0).expect_err("a directory").to_string();
            assert!(error.ends_with("it is a directory; name a file in it"), "{error}");
            let error = open(Path::new("/dev/null")).expect_err("nothing stays").to_string();
            assert!(error.contains("/dev/null: it is no regular file"), "{error}");
        }
        let below = scratch.0.join("file");
        std::fs::write(&below, "text").expect("a file");
        let error = Store::open(&below.join("results.db")).expect_err("no directory").to_string();
        assert!(error.contains("cannot be read: Not a directory"), "{error}");
    }

    #[test]
    fn what_is_damaged_is_said_to_be() {
        let scratch = Scratch::new("damaged");
        let (file, record) = (scratch.file(), fixture::record());
        let mut store = Store::create(&file).expect("a new file");
        let id = store.begin(&run(), &record).expect("a run");
        store.put(id, &item(1), &record.cells).expect("cells");
        drop(store);
        let whole = std::fs::read(&file).expect("the file");
        let mut flipped = whole.clone();
        flipped[8192..].iter_mut().for_each(|byte| *byte ^= 0x5a);
        for damaged in [&whole[..whole.len() / 2 / 4096 * 4096], &flipped] {
            std::fs::write(&file, damaged).expect("the file");
            let error = Store::open(&file).and_then(|store| {
                store.runs()?;
                store.record(id)
            });
            let error = error.expect_err("damaged").to_string();
            assert!(error.contains("it is damaged; move it away"), "{error}");
        }
    }

    #[test]
    fn what_may_not_be_written_can_be_read() {
        let scratch = Scratch::new("as it is %41?");
        let (file, record) = (scratch.file(), fixture::record());
        let mut store = Store::create(&file).expect("a new file");
        let id = store.begin(&run(), &record).expect("a run");
        store.put(id, &item(1), &record.cells).expect("cells");
        drop(store);
        let store = Store::as_it_is(&file).expect("the file");
        assert_eq!(store.record(id).expect("the run"), record);
        assert!(store.end(id).expect_err("not to be written").to_string().contains("written"));
        // Versions before the table of claims are readable, too.
        let older = Store::create(&file).expect("the file").connection;
        older.execute_batch("DROP TABLE claims; PRAGMA user_version = 2;").expect("version 2");
        drop(older);
        let store = Store::as_it_is(&file).expect("the file");
        assert_eq!(store.record(id).expect("the run"), record);
        let stored = (store.runs().expect("runs").len(), store.finished(id).expect("keys").len());
        assert_eq!((stored, store.not_run(id).expect("failures")), ((1, 1), vec![]));
        let journal = file.with_extension("db-wal");
        std::fs::write(journal, "pages").expect("a journal");
        let error = Store::as_it_is(&file).expect_err("in use").to_string();
        assert!(error.contains("another process is writing"), "{error}");
    }
}
