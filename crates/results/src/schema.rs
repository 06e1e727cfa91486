//! The schema of the results file, and its migrations.
//!
//! ```text
//!   runs  1 --- n  cells      the record's head; a cell as JSON, with the columns to select it by
//!   runs  1 --- n  items      items that a sweep has tried: measured, or failed with a reason
//!   runs  1 --- n  claims     items that a process is measuring now
//!   runs  1 --- n  hosts      the machines of a run over several; cells name theirs
//! ```
//!
//! Invariant: a published migration step is never changed; a change of the schema is a new step.
//! `user_version` counts the steps applied to a file. Called by `store` when it opens a file.

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreProblem;

/// Identifies a results file of raidlab (`PRAGMA application_id`): "RLab".
pub const APPLICATION_ID: i32 = 0x524c_6162;

/// The first version with every table that readers need: only writers need the claims, and runs
/// of earlier versions have one host.
const READABLE: i64 = 2;

/// Migration steps: each upgrades a file from the version of its index to the next.
const STEPS: [&str; 4] = [
    "CREATE TABLE runs (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         title TEXT NOT NULL,
         raidlab TEXT NOT NULL,
         started TEXT NOT NULL,
         ended TEXT,
         hostname TEXT,
         host TEXT NOT NULL
     );
     CREATE TABLE cells (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         key TEXT NOT NULL,
         target TEXT NOT NULL, level TEXT NOT NULL, layout TEXT, array TEXT,
         disks INTEGER NOT NULL, members TEXT NOT NULL, chunk_kib INTEGER,
         degraded INTEGER NOT NULL, place TEXT, program TEXT, phase TEXT, workload TEXT NOT NULL,
         block_kib REAL NOT NULL, depth INTEGER NOT NULL, jobs INTEGER NOT NULL,
         mb_per_s REAL NOT NULL, iops REAL NOT NULL, cpu_s_per_gib REAL, verified INTEGER,
         cell TEXT NOT NULL
     );
     CREATE INDEX cells_by_run ON cells (run, key);
     CREATE INDEX cells_by_array ON cells (level, disks, workload);",
    "ALTER TABLE runs ADD COLUMN sweep TEXT;
     ALTER TABLE runs ADD COLUMN published TEXT;
     CREATE TABLE items (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         key TEXT NOT NULL,
         what TEXT NOT NULL,
         reason TEXT,
         at TEXT NOT NULL,
         PRIMARY KEY (run, key)
     );",
    "CREATE TABLE claims (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         key TEXT NOT NULL,
         boot TEXT NOT NULL,
         process INTEGER NOT NULL,
         began INTEGER NOT NULL,
         number INTEGER NOT NULL,
         PRIMARY KEY (run, key)
     );",
    "CREATE TABLE hosts (
         run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
         hostname TEXT NOT NULL,
         host TEXT NOT NULL,
         PRIMARY KEY (run, hostname)
     );",
];

/// Application ID and version of the file.
fn marks(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
    Ok((number("application_id")?, number("user_version")?))
}

/// Checks a file that cannot be migrated: it must have the tables that readers need.
///
/// # Errors
/// A table is missing, the version is newer, or the file belongs to another program.
pub fn check_readable(connection: &Connection) -> Result<(), StoreProblem> {
    match marks(connection)? {
        (application, _) if application != i64::from(APPLICATION_ID) => {
            Err(StoreProblem::ForeignDatabase)
        }
        (_, version) if !(READABLE..=STEPS.len() as i64).contains(&version) => {
            let (oldest, newest) = (READABLE, STEPS.len());
            Err(StoreProblem::NotReadable { version, oldest, newest })
        }
        _ => Ok(()),
    }
}

/// Migrates the file to the newest version, or initializes an empty one.
///
/// # Errors
/// A file of another program, or of a newer raidlab, is not changed.
pub fn migrate(connection: &mut Connection) -> Result<(), StoreProblem> {
    // A reader must not wait for a writer only to find the file up to date.
    if marks(connection)? == (APPLICATION_ID.into(), STEPS.len() as i64) {
        return Ok(());
    }
    // Checks and changes under one lock: two processes may open a new file concurrently.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (application, version) = marks(&change)?;
    let tables: i64 =
        change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != i64::from(APPLICATION_ID) && (application != 0 || tables > 0) {
        return Err(StoreProblem::ForeignDatabase);
    }
    let seen = usize::try_from(version).unwrap_or(usize::MAX);
    if seen > STEPS.len() {
        return Err(StoreProblem::Newer { version, newest: STEPS.len() });
    }
    if seen == STEPS.len() {
        return Ok(());
    }
    for step in &STEPS[seen..] {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "application_id", APPLICATION_ID)?;
    change.pragma_update(None, "user_version", STEPS.len() as i64)?;
    Ok(change.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_version_keeps_its_cells() {
        let mut old = Connection::open_in_memory().expect("memory");
        old.execute_batch(STEPS[0]).expect("the first version");
        old.pragma_update(None, "application_id", APPLICATION_ID).expect("ours");
        old.pragma_update(None, "user_version", 1).expect("version 1");
        let run = "INSERT INTO runs (title, raidlab, started, host) VALUES ('a', '0', 't', '{}')";
        old.execute(run, []).expect("a run");
        migrate(&mut old).expect("the newest version");
        let (title, sweep): (String, Option<String>) = old
            .query_row("SELECT title, sweep FROM runs", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("the run is there");
        assert_eq!((title.as_str(), sweep), ("a", None));
        migrate(&mut old).expect("nothing to do the second time");
    }

    #[test]
    fn what_is_only_read_need_not_be_of_the_newest_version() {
        let file = Connection::open_in_memory().expect("memory");
        file.pragma_update(None, "application_id", APPLICATION_ID).expect("ours");
        let all = [(0, false), (1, false), (2, true), (3, true), (4, true), (5, false)];
        for (version, readable) in all {
            file.pragma_update(None, "user_version", version).expect("a version");
            let checked = check_readable(&file);
            assert_eq!(checked.is_ok(), readable, "version {version}: {checked:?}");
        }
    }

    /// The remedy depends on SQLite's error code, which must be preserved.
    #[test]
    fn what_sqlite_says_keeps_its_code() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("results.db");
        let mut one = Connection::open(&file).expect("a file");
        let mut other = Connection::open(&file).expect("the same");
        other.busy_timeout(std::time::Duration::ZERO).expect("no patience");
        let lock = one.transaction_with_behavior(TransactionBehavior::Immediate).expect("a lock");
        let problem = migrate(&mut other).expect_err("another connection writes");
        let StoreProblem::Sqlite(error) = problem else { panic!("{problem:?}") };
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
        drop(lock);
    }

    #[test]
    fn files_of_others_and_of_newer_versions_are_left_alone() {
        let mut other = Connection::open_in_memory().expect("memory");
        other.execute_batch("CREATE TABLE mine (a)").expect("a table");
        let ours = |problem: Result<(), StoreProblem>| match problem.expect_err("not for us") {
            StoreProblem::Sqlite(error) => panic!("{error}"),
            problem => problem.to_string(),
        };
        assert!(ours(migrate(&mut other)).contains("another program's"));
        let mut newer = Connection::open_in_memory().expect("memory");
        migrate(&mut newer).expect("a new file");
        newer.pragma_update(None, "user_version", 99).expect("a version");
        let error = ours(migrate(&mut newer));
        assert!(error.contains("newer raidlab") && error.contains("99"), "{error}");
    }
}
