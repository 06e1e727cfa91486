//! Members: `examine`, `detail`, `guess`, and the contents of an array by ranges.

use std::sync::Arc;

use cli::verbs::{self, Options};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use raidlab::NotRead;

use crate::errors::{Raise, differs, lost, raised, usage};
use crate::objects::{object, paths};
use crate::waiting::wait_for;

/// Shows the superblocks of members, as the JSON of `raidlab examine`.
///
/// `members` is a path or an iterable of paths: image files, partitions, disks; `PATH@OFFSET` for a
/// part of one. They are opened read-only. Numbers have their units in their names; the fields are
/// those on disk. A member that cannot be looked at raises its error, unless `errors` is `"keep"`:
/// then its entry is `{"member": ..., "error": ...}`, as in the program.
#[pyfunction]
#[pyo3(signature = (members, *, errors="raise"))]
pub fn examine<'py>(
    py: Python<'py>,
    members: &Bound<'py, PyAny>,
    errors: &str,
) -> PyResult<Bound<'py, PyAny>> {
    if !["raise", "keep"].contains(&errors) {
        return Err(usage(py, format!("errors={errors:?}: \"raise\" or \"keep\"")));
    }
    let members = paths(members)?;
    let (value, problems) = wait_for(py, move |_| verbs::examine(&members))?;
    match problems.into_iter().next() {
        Some(problem) if errors == "raise" => Err(raised(py, problem)),
        _ => object(py, &value),
    }
}

/// Shows the arrays that members form, and what a start would do, as the JSON of `raidlab detail`.
///
/// `array` selects one of several by its UUID or name. Nothing is run and nothing is written; sizes
/// are in sectors of 512 bytes where the name says so. No array among the members raises
/// NotFoundError.
#[pyfunction]
#[pyo3(signature = (members, *, array=None))]
pub fn detail<'py>(
    py: Python<'py>,
    members: &Bound<'py, PyAny>,
    array: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let members = paths(members)?;
    let found = wait_for(py, move |_| verbs::detail(&members, array.as_deref()))?;
    object(py, &found.or_raise(py)?)
}

fn bytes(count: Option<u64>) -> Option<String> {
    count.map(|count| format!("{count}B"))
}

/// Finds the geometry of an array from the contents of its members, as the JSON of `raidlab guess`.
///
/// What is known narrows the search: `level` ("raid5"), `layout` by md's name, `chunk_bytes`,
/// `data_offset_bytes`, `raid_devices`. At most `budget_bytes` are read of each member (256 MiB,
/// with `thorough` 1 GiB). `verdict` is "exact", "ambiguous" or "none": only an exact one is an
/// answer. Ctrl-C raises KeyboardInterrupt at once.
#[pyfunction]
#[pyo3(signature = (members, *, level=None, layout=None, chunk_bytes=None, data_offset_bytes=None,
                    raid_devices=None, thorough=false, budget_bytes=None))]
pub fn guess<'py>(
    py: Python<'py>,
    members: &Bound<'py, PyAny>,
    level: Option<String>,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    data_offset_bytes: Option<u64>,
    raid_devices: Option<u64>,
    thorough: bool,
    budget_bytes: Option<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let members = paths(members)?;
    let options = Options::default()
        .with("level", level)
        .with("layout", layout)
        .with("chunk", bytes(chunk_bytes))
        .with("data-offset", bytes(data_offset_bytes))
        .with("raid-devices", raid_devices.map(|count| count.to_string()))
        .with("budget", bytes(budget_bytes))
        .with_flag("thorough", thorough);
    let found = wait_for(py, move |stop| verbs::guess(&members, &options, &|| stop.is_set()))?;
    object(py, &found.or_raise(py)?)
}

/// The contents of an array, which are read by ranges of bytes from the members that exist.
///
/// Opened read-only, as `raidlab dump` does: by the superblocks; with `level` by a description,
/// members in the order of the slots and `missing` in place of one that is not there; or with
/// `guess=True` by their contents. What is read is compared with its redundancy where that is known
/// to be in sync; `check=False` reads only what the contents need.
#[pyclass(frozen, module = "raidlab")]
pub struct Contents(Arc<raidlab::Contents>);

#[pymethods]
impl Contents {
    #[new]
    #[pyo3(signature = (members, *, array=None, order=None, ignore_events=false,
                        ignore_checksums=false, force=false, partial=false, guess=false,
                        level=None, layout=None, chunk_bytes=None, data_offset_bytes=None,
                        size_bytes=None, raid_devices=None, check=true))]
    fn new(
        py: Python<'_>,
        members: &Bound<'_, PyAny>,
        array: Option<String>,
        order: Option<Vec<String>>,
        ignore_events: bool,
        ignore_checksums: bool,
        force: bool,
        partial: bool,
        guess: bool,
        level: Option<String>,
        layout: Option<String>,
        chunk_bytes: Option<u64>,
        data_offset_bytes: Option<u64>,
        size_bytes: Option<u64>,
        raid_devices: Option<u64>,
        check: bool,
    ) -> PyResult<Contents> {
        let members = paths(members)?;
        let options = Options::default()
            .with("array", array)
            .with("order", order.map(|places| places.join(",")))
            .with_flag("ignore-events", ignore_events)
            .with_flag("ignore-checksums", ignore_checksums)
            .with_flag("force", force)
            .with_flag("guess", guess)
            .with("level", level)
            .with("layout", layout)
            .with("chunk", bytes(chunk_bytes))
            .with("data-offset", bytes(data_offset_bytes))
            .with("size", bytes(size_bytes))
            .with("raid-devices", raid_devices.map(|count| count.to_string()));
        let opened = wait_for(py, move |_| verbs::contents(&members, &options, check, partial))?;
        Ok(Contents(Arc::new(opened.or_raise(py)?)))
    }

    /// The array's name, as messages have it.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Size of the array in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.bytes()
    }

    /// Notes about the contents: degraded slots, members that are left out.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes().to_vec()
    }

    /// Reasons why the contents may be wrong; empty where nothing speaks for it.
    #[getter]
    fn doubts(&self) -> Vec<String> {
        self.0.doubts().to_vec()
    }

    /// Reads `length` bytes from byte `offset` on; without a length up to the end.
    ///
    /// All of it or none: LostError names the ranges that no member has, DiffersError those that
    /// contradict their redundancy. Never zeroes in place of data.
    #[pyo3(signature = (offset=0, length=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.0.bytes();
        let end = match length {
            None if offset <= size => size,
            Some(length) if offset.checked_add(length).is_some_and(|end| end <= size) => {
                offset + length
            }
            _ => {
                let length = length.map_or("None".into(), |length| length.to_string());
                let text = format!(
                    "offset {offset}, length {length}: outside of {}, which has {size} bytes",
                    self.0.name()
                );
                return Err(usage(py, text));
            }
        };
        let contents = self.0.clone();
        match wait_for(py, move |stop| read(&contents, offset, end, stop))? {
            Ok(bytes) => Ok(PyBytes::new(py, &bytes)),
            Err(Problem::Memory) => {
                Err(PyMemoryError::new_err(format!("no memory for {} bytes", end - offset)))
            }
            Err(Problem::NotRead(NotRead::Lost(ranges))) => {
                Err(lost(py, self.text("lost: no member has them", &ranges), ranges))
            }
            Err(Problem::NotRead(NotRead::Differs(ranges))) => {
                let what = "not certain: they contradict their redundancy (check=False reads them)";
                Err(differs(py, self.text(what, &ranges), ranges))
            }
            Err(Problem::NotRead(other)) => Err(usage(py, format!("{}: {other}", self.0.name()))),
        }
    }

    fn __repr__(&self) -> String {
        format!("<raidlab.Contents of {}: {} bytes>", self.0.name(), self.0.bytes())
    }
}

impl Contents {
    fn text(&self, what: &str, ranges: &[std::ops::Range<u64>]) -> String {
        let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let first = ranges.first().map_or(0, |range| range.start);
        format!("{}: {all} bytes from byte {first} on are {what}", self.0.name())
    }
}

enum Problem {
    Memory,
    NotRead(NotRead),
}

/// Bytes that are read between two looks at the flag.
const PIECE: u64 = 8 << 20;
const SECTOR: u64 = 512;

fn read(
    contents: &raidlab::Contents,
    offset: u64,
    end: u64,
    stop: &crate::waiting::Stop,
) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let length = usize::try_from(end - offset).map_err(|_| Problem::Memory)?;
    bytes.try_reserve_exact(length).map_err(|_| Problem::Memory)?;
    let mut at = offset / SECTOR * SECTOR;
    let last = end.next_multiple_of(SECTOR);
    let mut piece = Vec::new();
    while offset < end && at < last && !stop.is_set() {
        let until = (at + PIECE).min(last);
        piece.clear();
        piece.resize((until - at) as usize, 0);
        let read = contents.read(at / SECTOR, &mut piece);
        read.map_err(|problem| Problem::NotRead(within(problem, offset, end)))?;
        let (from, to) = (offset.max(at) - at, end.min(until) - at);
        bytes.extend_from_slice(&piece[from as usize..to as usize]);
        at = until;
    }
    Ok(bytes)
}

/// The parts of ranges that were requested. A sector is lost whole, so a range is never empty.
fn within(problem: NotRead, offset: u64, end: u64) -> NotRead {
    let cut = |ranges: Vec<std::ops::Range<u64>>| {
        ranges.into_iter().map(|it| it.start.max(offset)..it.end.min(end)).collect::<Vec<_>>()
    };
    match problem {
        NotRead::Lost(ranges) => NotRead::Lost(cut(ranges)),
        NotRead::Differs(ranges) => NotRead::Differs(cut(ranges)),
        other => other,
    }
}
