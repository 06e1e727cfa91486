//! Member expressions: `mem`, `file:DIR`, `paced:hdd-2007*3+hdd-2009`, `fault:...`.
//!
//! ```text
//! SET    = PART [+ PART]...            one kind for all members, or counted kinds
//! PART   = MEMBER [* COUNT]
//! MEMBER = mem | null | file | file:DIR
//!        | /dev/X                            a block device; a set of devices may name more
//!                                            than an array has members: it has the first
//!        | paced:PROFILE[@AT][:MEMBER]       AT: 0.0 (outer edge) .. 1.0, or stretch
//!                                            PROFILE: a name, or a document that ends with .toml
//!        | fault:RULE[/RULE]...:MEMBER
//! RULE   = flip@BYTE | torn@BYTE | read-error@FROM..TO | write-error@FROM..TO | gone@COUNT
//!        | delay=TIME
//! ```
//! After the first part of a set, the prefix `paced:` may be left out where a profile is named.
//!
//! Invariant: parsing reports the first error; it reads drive profiles and creates nothing. A
//! profile document is read once: all expressions that name it mean the same drive. Members are
//! created by the runner. Called from `matrix`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use drive::{Fault, Placement, Profile};
use md::{BareNumber, SizeError, parse_size};
use thiserror::Error;

use crate::units::{QuantityError, parse_seconds, show_size};

/// Limit of members in a set: md's limit is 1920 for RAID 0; a set may serve nested arrays.
const MAX_SET: usize = 4096;
/// Nesting limit of `fault:` and `paced:`.
const MAX_DEPTH: usize = 8;
/// Limit of profile documents that a process reads: each is kept, in about 1 KiB.
const MAX_DOCUMENTS: usize = 1024;

/// A parsed member expression.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberExpr {
    /// Memory.
    Mem,
    /// A null member: discards writes.
    Null,
    /// A file in this directory, or in the default one.
    File(Option<PathBuf>),
    /// An existing block device.
    Device(PathBuf),
    /// A member that is delayed to the speed of a modelled drive.
    Paced {
        /// The drive's name.
        profile: String,
        /// Placement of the member on it; `None`: depends on the workload.
        placement: Option<Placement>,
        /// The member that stores the data.
        inner: Box<MemberExpr>,
    },
    /// A member with injected faults.
    Fault {
        /// The faults.
        rules: Vec<Fault>,
        /// The member below.
        inner: Box<MemberExpr>,
    },
}

/// A parsed member set.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSet {
    text: String,
    parts: Vec<(MemberExpr, Option<usize>)>,
}

/// The reason why a text is not a member set, or not one for this array.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("member '{part}': {problem}")]
pub struct MembersError {
    /// The invalid part.
    pub part: String,
    /// The reason.
    #[source]
    pub problem: MemberProblem,
}

/// What is wrong with a part of a member set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberProblem {
    /// The number behind `*` is none, or out of range.
    #[error("'{0}': a number of members is 1 to {MAX_SET}")]
    Count(String),
    /// The set names another number of members.
    #[error("names {named} member(s), the array has {wanted}")]
    OtherCount {
        /// Members of the set.
        named: usize,
        /// Members of the array.
        wanted: usize,
    },
    /// Members below members, too many.
    #[error("nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// There is no such kind of member.
    #[error(
        "unknown kind; there are mem, null, file:DIR, /dev/NAME, paced:PROFILE and \
         fault:RULE:MEMBER"
    )]
    UnknownKind,
    /// A device with a count, or named twice.
    #[error("a device is one member: name each once, as in /dev/sdb+/dev/sdc")]
    DeviceTwice,
    /// `file:` without a directory.
    #[error("file: needs a directory, as in file:/mnt/disk")]
    NoDirectory,
    /// `paced` without a profile.
    #[error("paced:PROFILE is required, as in paced:hdd-2007")]
    NoProfile,
    /// The place on the drive is none.
    #[error("'@{0}': a place is a number from 0 to 1, or stretch")]
    Placement(String),
    /// The drive profile cannot be used.
    #[error(transparent)]
    Profile(#[from] Arc<UnknownProfile>),
    /// `fault:` without a member.
    #[error("fault:RULE:MEMBER is required, as in fault:flip@1M:mem")]
    NoFaultyMember,
    /// There is no such fault.
    #[error(
        "unknown fault; there are flip@BYTE, read-error@FROM..TO, write-error@FROM..TO, \
         gone@COUNT, torn@BYTE, delay=TIME and hang=TIME@FIRST..END"
    )]
    UnknownFault,
    /// A position in a fault is no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A delay is no duration.
    #[error(transparent)]
    Delay(#[from] QuantityError),
    /// A range has no end.
    #[error("a range is FROM..TO, as in 1M..1088K")]
    NoRange,
    /// A range holds nothing.
    #[error("the range is empty")]
    EmptyRange,
    /// The count of a fault is no number.
    #[error("gone@COUNT needs a number")]
    GoneCount,
    /// `hang=` without a range of operations.
    #[error("hang=TIME@FIRST..END: the numbers of the operations that hang, from 0 on")]
    HangCount,
    /// A fault that no operation can meet.
    #[error("lies beyond the member's end ({})", show_size(*.bytes))]
    BeyondEnd {
        /// Size of the member.
        bytes: u64,
    },
}

fn error(part: &str, problem: impl Into<MemberProblem>) -> MembersError {
    MembersError { part: part.into(), problem: problem.into() }
}

impl FromStr for MemberSet {
    type Err = MembersError;

    fn from_str(text: &str) -> Result<MemberSet, MembersError> {
        let mut parts = Vec::new();
        let (mut words, mut paced) = (Vec::new(), false);
        for part in text.split('+') {
            let (member, count) = match part.rsplit_once('*') {
                Some((member, count)) => {
                    let counted = count.parse().ok().filter(|count| (1..=MAX_SET).contains(count));
                    let problem = || MemberProblem::Count(count.into());
                    (member, Some(counted.ok_or_else(|| error(part, problem()))?))
                }
                None => (part, None),
            };
            let name = member.split(['@', ':']).next().unwrap_or("");
            // A drive profile alone is that of paced members, as `predict` has it.
            let bare_profile = is_document(name) || Profile::named(name).is_some();
            let expr = match bare_profile {
                true => paced_expr(member, 1)?,
                false => member_expr(member, 1)?,
            };
            let prefix = if bare_profile && !paced { "paced:" } else { "" };
            words.push(format!("{prefix}{part}"));
            paced = matches!(expr, MemberExpr::Paced { .. });
            let twice = |device| parts.iter().any(|(other, _)| MemberExpr::device(other) == device);
            if expr.device().is_some() && (count.is_some() || twice(expr.device())) {
                return Err(error(part, MemberProblem::DeviceTwice));
            }
            parts.push((expr, count));
        }
        Ok(MemberSet { text: words.join("+"), parts })
    }
}

impl std::fmt::Display for MemberSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A member set as a record has it. Drive profiles that this build does not have are no error in
/// it, and the set may be that of another tool: it is never parsed further than here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedMembers<'t>(pub &'t str);

impl<'t> RecordedMembers<'t> {
    /// The first member: `paced:hdd-2007` of `paced:hdd-2007*3+hdd-2009*2`.
    pub fn first(self) -> &'t str {
        self.0.split(['+', '*']).next().unwrap_or(self.0)
    }

    /// Whether they are modelled drives, all of one kind.
    pub fn modelled_alike(self) -> bool {
        self.0.starts_with("paced:") && !self.0.contains('+')
    }

    /// Whether it places members on their drives: `paced:hdd-2007@0.5`.
    pub fn places_them(self) -> bool {
        self.0.contains('@')
    }
}

impl MemberSet {
    /// The set of these block devices.
    pub fn of_devices(devices: &[PathBuf]) -> MemberSet {
        let text: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
        let parts = devices.iter().map(|path| (MemberExpr::Device(path.clone()), None));
        MemberSet { text: text.join("+"), parts: parts.collect() }
    }

    /// The set of one member.
    pub fn of_one(member: MemberExpr, text: String) -> MemberSet {
        MemberSet { text, parts: vec![(member, None)] }
    }

    /// Its block devices, if it has nothing else.
    pub fn devices(&self) -> Option<Vec<PathBuf>> {
        self.kinds().map(|member| member.device().map(Path::to_path_buf)).collect()
    }

    /// Its name in records: of block devices only that they are devices, also below faults and
    /// paces, because their names may contain serial numbers and change with the next start.
    pub fn recorded(&self) -> String {
        if self.kinds().all(|member| matches!(member, MemberExpr::Device(_))) {
            return "device".into();
        }
        let parts = self.text.split('+').zip(self.kinds()).map(|(part, member)| {
            let path = member.device().map(|path| path.display().to_string());
            let kind = path.and_then(|path| part.strip_suffix(path.as_str()));
            kind.map_or_else(|| part.to_string(), |kind| format!("{kind}device"))
        });
        parts.collect::<Vec<_>>().join("+")
    }

    /// One expression per member of an array of `count`: of a set of devices the first.
    ///
    /// # Errors
    /// When the set names another number of members.
    pub fn expand(&self, count: usize) -> Result<Vec<MemberExpr>, MembersError> {
        if self.devices().is_some_and(|devices| devices.len() >= count) {
            return Ok(self.kinds().take(count).cloned().collect());
        }
        if let [(expr, None)] = self.parts.as_slice()
            && expr.device().is_none()
        {
            return Ok(vec![expr.clone(); count]);
        }
        let all: Vec<MemberExpr> = self
            .parts
            .iter()
            .flat_map(|(expr, times)| std::iter::repeat_n(expr.clone(), times.unwrap_or(1)))
            .collect();
        if all.len() == count {
            return Ok(all);
        }
        Err(error(&self.text, MemberProblem::OtherCount { named: all.len(), wanted: count }))
    }

    /// The first member, which is used for the ordinary disk.
    pub fn first(&self) -> &MemberExpr {
        &self.parts[0].0
    }

    /// All kinds that occur.
    pub fn kinds(&self) -> impl Iterator<Item = &MemberExpr> {
        self.parts.iter().map(|(expr, _)| expr)
    }

    /// Number of members, where the set counts them.
    pub fn counted(&self) -> Option<usize> {
        match self.parts.as_slice() {
            [(expr, None)] if expr.device().is_none() => None,
            parts => Some(parts.iter().map(|(_, count)| count.unwrap_or(1)).sum()),
        }
    }
}

fn member_expr(text: &str, depth: usize) -> Result<MemberExpr, MembersError> {
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (text, None),
    };
    if depth > MAX_DEPTH {
        return Err(error(text, MemberProblem::TooDeep));
    }
    match (kind, rest) {
        ("mem", None) => Ok(MemberExpr::Mem),
        ("null", None) => Ok(MemberExpr::Null),
        ("file", None) => Ok(MemberExpr::File(None)),
        ("file", Some(dir)) if !dir.is_empty() => Ok(MemberExpr::File(Some(dir.into()))),
        ("file", Some(_)) => Err(error(text, MemberProblem::NoDirectory)),
        // The name of a device may have colons: /dev/disk/by-path/pci-0000:00:1f.2-ata-1
        _ if text.starts_with('/') => Ok(MemberExpr::Device(text.into())),
        ("paced", Some(rest)) => paced_expr(rest, depth),
        ("paced", None) => Err(error(text, MemberProblem::NoProfile)),
        ("fault", Some(rest)) => {
            let Some((rules, inner)) = rest.split_once(':') else {
                return Err(error(text, MemberProblem::NoFaultyMember));
            };
            let rules = rules.split('/').map(fault_rule).collect::<Result<_, _>>()?;
            Ok(MemberExpr::Fault { rules, inner: Box::new(member_expr(inner, depth + 1)?) })
        }
        _ => Err(error(text, MemberProblem::UnknownKind)),
    }
}

fn paced_expr(text: &str, depth: usize) -> Result<MemberExpr, MembersError> {
    let (drive, inner) = match text.split_once(':') {
        Some((drive, inner)) => (drive, member_expr(inner, depth + 1)?),
        None => (text, MemberExpr::File(None)),
    };
    let (profile, placement) = match drive.split_once('@') {
        None => (drive, None),
        Some((profile, "stretch")) => (profile, Some(Placement::Stretch)),
        Some((profile, at)) => {
            let fraction = at.parse::<f64>().ok().filter(|at| (0.0..=1.0).contains(at));
            let problem = || MemberProblem::Placement(at.into());
            let at = fraction.ok_or_else(|| error(text, problem()))?;
            (profile, Some(Placement::Window { at }))
        }
    };
    known_profile(profile).map_err(|problem| error(text, Arc::new(problem)))?;
    Ok(MemberExpr::Paced { profile: profile.into(), placement, inner: Box::new(inner) })
}

fn is_document(name: &str) -> bool {
    name.ends_with(".toml")
}

/// Why a drive profile cannot be used.
#[derive(Debug, Error)]
pub enum UnknownProfile {
    /// No built-in profile has the name.
    #[error("no drive profile '{0}'; there are {known}, or FILE.toml", known = profile_names())]
    Name(String),
    /// The document cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Its path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The document is no valid profile.
    #[error("{path}: {source}")]
    Parse {
        /// Its path.
        path: String,
        /// The first problem.
        source: drive::ProfileError,
    },
    /// The process has read as many documents as it keeps.
    #[error("{0}: more than {MAX_DOCUMENTS} documents of drive profiles")]
    TooMany(String),
}

/// By their texts: the system's errors cannot be compared.
impl PartialEq for UnknownProfile {
    fn eq(&self, other: &UnknownProfile) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for UnknownProfile {}

fn profile_names() -> String {
    Profile::names().collect::<Vec<&str>>().join(", ")
}

/// The built-in profile of that name, or the profile of a document.
///
/// # Errors
/// No built-in profile has the name, or the document cannot be read or is invalid.
pub fn known_profile(name: &str) -> Result<&'static Profile, UnknownProfile> {
    // Read once and kept: members and their drives refer to it as long as the process lives, as
    // they do to the built-in profiles. What is kept has a bound.
    static DOCUMENTS: Mutex<Vec<(String, &'static Profile)>> = Mutex::new(Vec::new());
    if !is_document(name) {
        return Profile::named(name).ok_or_else(|| UnknownProfile::Name(name.to_string()));
    }
    let mut documents = DOCUMENTS.lock().expect("no panic while the list is locked");
    if let Some((_, profile)) = documents.iter().find(|(known, _)| known == name) {
        return Ok(profile);
    }
    let path = || name.to_string();
    if documents.len() == MAX_DOCUMENTS {
        return Err(UnknownProfile::TooMany(path()));
    }
    let text = std::fs::read_to_string(name);
    let text = text.map_err(|source| UnknownProfile::Read { path: path(), source })?;
    let profile = Profile::parse(&text);
    let profile = profile.map_err(|source| UnknownProfile::Parse { path: path(), source })?;
    let profile: &'static Profile = Box::leak(Box::new(profile));
    documents.push((name.to_string(), profile));
    Ok(profile)
}

fn fault_rule(text: &str) -> Result<Fault, MembersError> {
    // Positions, as in PATH@OFFSET.
    let size = |value: &str| parse_size(value, BareNumber::Bytes).map_err(|e| error(text, e));
    let range = |value: &str| {
        let (from, to) =
            value.split_once("..").ok_or_else(|| error(text, MemberProblem::NoRange))?;
        let (from, to) = (size(from)?, size(to)?);
        if from < to { Ok(from..to) } else { Err(error(text, MemberProblem::EmptyRange)) }
    };
    if let Some(time) = text.strip_prefix("delay=") {
        let seconds = parse_seconds(time).map_err(|e| error(text, e))?;
        return Ok(Fault::Delay { nanos: (seconds * 1e9) as u64 });
    }
    if let Some((time, ops)) = text.strip_prefix("hang=").and_then(|rest| rest.split_once('@')) {
        let nanos = (parse_seconds(time).map_err(|e| error(text, e))? * 1e9) as u64;
        let count = |text: Option<&str>| text.and_then(|count| count.parse().ok());
        let mut ends = ops.split("..");
        let (first, end) = (count(ends.next()), count(ends.next()));
        let ops = first.zip(end).filter(|(first, end)| first < end);
        let (first, end) = ops.ok_or_else(|| error(text, MemberProblem::HangCount))?;
        return Ok(Fault::Hang { ops: first..end, nanos });
    }
    match text.split_once('@') {
        Some(("flip", at)) => Ok(Fault::FlipRead { at: size(at)? }),
        Some(("torn", at)) => Ok(Fault::TornWrite { at: size(at)? }),
        Some(("gone", after)) => {
            let after = after.parse().map_err(|_| error(text, MemberProblem::GoneCount))?;
            Ok(Fault::Gone { after })
        }
        Some(("read-error", bytes)) => Ok(Fault::ReadError { range: range(bytes)? }),
        Some(("write-error", bytes)) => Ok(Fault::WriteError { range: range(bytes)? }),
        _ => Err(error(text, MemberProblem::UnknownFault)),
    }
}

impl MemberExpr {
    /// The drive that paces it, if any, and where the member lies on it: `None` where that follows
    /// the workload; see [`placement_for`].
    pub fn drive(&self) -> Option<(&'static Profile, Option<Placement>)> {
        match self {
            MemberExpr::Paced { profile, placement, .. } => {
                Some((known_profile(profile).ok()?, *placement))
            }
            MemberExpr::Fault { inner, .. } => inner.drive(),
            _ => None,
        }
    }

    /// The member without scripted failures.
    pub fn without_faults(&self) -> &MemberExpr {
        match self {
            MemberExpr::Fault { inner, .. } => inner.without_faults(),
            other => other,
        }
    }

    /// Whether it needs room in a directory, and in which.
    pub fn directory(&self) -> Option<Option<&Path>> {
        match self {
            MemberExpr::File(dir) => Some(dir.as_deref()),
            MemberExpr::Paced { inner, .. } | MemberExpr::Fault { inner, .. } => inner.directory(),
            MemberExpr::Mem | MemberExpr::Null | MemberExpr::Device(_) => None,
        }
    }

    /// The block device that stores its data, if one does.
    pub fn device(&self) -> Option<&Path> {
        match self {
            MemberExpr::Device(path) => Some(path),
            MemberExpr::Paced { inner, .. } | MemberExpr::Fault { inner, .. } => inner.device(),
            MemberExpr::Mem | MemberExpr::Null | MemberExpr::File(_) => None,
        }
    }

    /// Whether the engine's own speed is what is measured: nothing below it takes time.
    pub fn is_memory(&self) -> bool {
        match self {
            MemberExpr::Mem | MemberExpr::Null => true,
            MemberExpr::Fault { inner, .. } => inner.is_memory(),
            _ => false,
        }
    }

    /// Whether what is written can be read again.
    pub fn keeps_data(&self) -> bool {
        match self {
            MemberExpr::Null => false,
            MemberExpr::Paced { inner, .. } | MemberExpr::Fault { inner, .. } => inner.keeps_data(),
            _ => true,
        }
    }
}

impl MemberExpr {
    /// Refuses faults that no operation on a member of `bytes` can ever meet: a test that cannot
    /// fail is none.
    ///
    /// # Errors
    /// The first of them.
    pub fn check_faults(&self, bytes: u64) -> Result<(), MembersError> {
        let (rules, inner) = match self {
            MemberExpr::Fault { rules, inner } => (rules.as_slice(), inner),
            MemberExpr::Paced { inner, .. } => (&[][..], inner),
            _ => return Ok(()),
        };
        let mut places = rules.iter().filter_map(|rule| match rule {
            Fault::FlipRead { at } => Some(("flip", *at)),
            Fault::TornWrite { at } => Some(("torn", *at)),
            Fault::ReadError { range } => Some(("read-error", range.start)),
            Fault::WriteError { range } => Some(("write-error", range.start)),
            Fault::Gone { .. } | Fault::Delay { .. } | Fault::Hang { .. } => None,
        });
        match places.find(|(_, at)| *at >= bytes) {
            Some((rule, at)) => {
                Err(error(&format!("fault:{rule}@{at}"), MemberProblem::BeyondEnd { bytes }))
            }
            None => inner.check_faults(bytes),
        }
    }
}

/// Where a member lies that was given no place: for random blocks on a disk all over the stroke, as
/// blocks of a full disk do, because a window of the member's size would be a far smaller disk;
/// else at the outer edge, where an empty disk is filled first. Flash that was given no place is
/// empty but for the member.
pub fn placement_for(profile: &Profile, given: Option<Placement>, random: bool) -> Placement {
    let rotates = profile.kind() == drive::Kind::Rotating;
    let usual = match random && rotates {
        true => Placement::Stretch,
        false => Placement::Window { at: 0.0 },
    };
    given.unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mixed_set_is_one_set() {
        let set: MemberSet = "paced:hdd-2007*3+hdd-2009*2".parse().expect("a set");
        let all = set.expand(5).expect("five members");
        let names: Vec<_> = all.iter().map(|m| m.drive().expect("paced").0.name()).collect();
        assert_eq!(names, ["hdd-2007", "hdd-2007", "hdd-2007", "hdd-2009", "hdd-2009"]);
        assert!(set.expand(4).expect_err("five").to_string().contains("names 5 member(s)"));
        assert_eq!(set.counted(), Some(5));
    }

    #[test]
    fn a_profile_may_be_a_document() {
        let directory =
            std::env::temp_dir().join(format!("raidlab-profile-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = |name: &str| directory.join(name).display().to_string();
        let built_in = include_str!("../../drive/profiles/hdd-2007.toml");
        let faster = built_in.replace("value = 83,", "value = 120,").replace("hdd-2007", "mine");
        std::fs::write(path("mine.toml"), faster).expect("a file");
        std::fs::write(path("bad.toml"), "name = 1").expect("a file");
        let set: Result<MemberSet, _> =
            format!("paced:{0}*2+{0}@0.5:mem+hdd-2009", path("mine.toml")).parse();
        let missing: Result<MemberSet, _> = format!("paced:{}", path("none.toml")).parse();
        let bad: Result<MemberSet, _> = format!("paced:{}", path("bad.toml")).parse();
        std::fs::remove_dir_all(&directory).expect("removed");
        let all = set.expect("a set").expand(4).expect("four members");
        let drives: Vec<_> = all.iter().map(|member| member.drive().expect("paced")).collect();
        assert_eq!(drives[0].0.name(), "mine");
        assert!(std::ptr::eq(drives[0].0, drives[2].0), "read once");
        assert_eq!(drives[2].1, Some(Placement::Window { at: 0.5 }));
        assert_eq!(drives[3].0.name(), "hdd-2009");
        assert!(drives[0].0.media_rate_at(0.0) > 1.3 * drives[3].0.media_rate_at(1.0));
        assert!(missing.expect_err("no such file").to_string().contains("none.toml: "));
        assert!(bad.expect_err("no profile").to_string().contains("bad.toml: "));
    }

    #[test]
    fn a_profile_alone_is_that_of_paced_members() {
        for (text, written) in [
            ("hdd-2016", "paced:hdd-2016"),
            ("hdd-2016*2+hdd-2009@0.5:mem", "paced:hdd-2016*2+hdd-2009@0.5:mem"),
            ("mem+hdd-2016", "mem+paced:hdd-2016"),
            ("paced:hdd-2016+mem", "paced:hdd-2016+mem"),
        ] {
            let set: MemberSet = text.parse().expect(text);
            assert_eq!(set.to_string(), written);
            assert_eq!(written.parse::<MemberSet>().expect(written), set);
        }
    }

    #[test]
    fn one_kind_serves_any_number() {
        let set: MemberSet = "paced:hdd-2007@stretch:mem".parse().expect("a set");
        assert_eq!(set.expand(7).expect("any").len(), 7);
        let (_, placement) = set.first().drive().expect("paced");
        assert_eq!(placement, Some(Placement::Stretch));
        assert!(set.first().directory().is_none());
        let file: MemberSet = "file:/tmp/x".parse().expect("a set");
        assert_eq!(file.first().directory(), Some(Some(Path::new("/tmp/x"))));
    }

    #[test]
    fn arrays_have_the_first_of_the_devices() {
        let set: MemberSet = "/dev/sdb+/dev/sdc+/dev/disk/by-path/pci-0:1f".parse().expect("a set");
        assert_eq!((set.counted(), set.recorded()), (Some(3), "device".into()));
        let paths = |count| -> Vec<PathBuf> {
            let members = set.expand(count).expect("enough devices");
            members.iter().filter_map(|member| member.device()).map(Path::to_path_buf).collect()
        };
        assert_eq!(paths(2), ["/dev/sdb", "/dev/sdc"].map(PathBuf::from));
        assert_eq!(paths(3), set.devices().expect("devices alone"));
        assert_eq!(MemberSet::of_devices(&paths(3)), set);
        set.expand(4).expect_err("three devices");
        let one: MemberSet = "/dev/sdb".parse().expect("a set");
        one.expand(2).expect_err("a device is one member");
        assert_eq!((one.counted(), one.expand(1).expect("one").len()), (Some(1), 1));
        let faulty: MemberSet = "fault:gone@5:/dev/sdb+/dev/sdc".parse().expect("a set");
        assert_eq!(faulty.devices().map(|devices| devices.len()), Some(2));
        let mixed: MemberSet = "/dev/sdb+mem".parse().expect("a set");
        assert_eq!((mixed.devices(), mixed.recorded()), (None, "device+mem".into()));
        mixed.expand(1).expect_err("two members");
        for (text, recorded) in [
            ("fault:gone@5:/dev/disk/by-id/ata-SERIAL", "fault:gone@5:device"),
            (
                "paced:hdd-2007@0.5:/dev/sdb+hdd-2009:/dev/sdc",
                "paced:hdd-2007@0.5:device+hdd-2009:device",
            ),
            (
                "paced:hdd-2007:fault:gone@5:/dev/disk/by-path/pci-0:1f+mem*2",
                "paced:hdd-2007:fault:gone@5:device+mem*2",
            ),
            ("mem*2+file:/tmp/x", "mem*2+file:/tmp/x"),
        ] {
            assert_eq!(text.parse::<MemberSet>().expect("a set").recorded(), recorded);
        }
    }

    #[test]
    fn faults_are_spelt_out() {
        let set: MemberSet = "mem*3+fault:flip@1M/read-error@4K..8K/delay=5ms/hang=40s@7..9:mem"
            .parse()
            .expect("a set");
        let all = set.expand(4).expect("four");
        let MemberExpr::Fault { rules, .. } = &all[3] else { panic!("{all:?}") };
        assert_eq!(rules[0], Fault::FlipRead { at: 1 << 20 });
        assert_eq!(rules[1], Fault::ReadError { range: 4096..8192 });
        assert_eq!(rules[2], Fault::Delay { nanos: 5_000_000 });
        assert_eq!(rules[3], Fault::Hang { ops: 7..9, nanos: 40_000_000_000 });
        "fault:hang=1s@9..9:mem".parse::<MemberSet>().expect_err("no operation hangs");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("disk", "unknown kind"),
            ("paced:hdd-1998", "hdd-2007"),
            ("paced:hdd-2007@2", "0 to 1"),
            ("mem*x", "number of members"),
            ("mem*0", "number of members"),
            ("fault:mem", "fault:RULE:MEMBER"),
            ("fault:bend@1:mem", "unknown fault"),
            ("fault:read-error@8K..4K:mem", "empty"),
            ("", "unknown kind"),
            ("/dev/sdb*2", "name each once"),
            ("/dev/sdb+mem+fault:gone@1:/dev/sdb", "name each once"),
        ] {
            let error = text.parse::<MemberSet>().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn faults_that_can_never_happen_are_refused() {
        for (text, bytes, good) in [
            ("fault:flip@1M:mem", (1 << 20) + 1, true),
            ("fault:flip@1M:mem", 1 << 20, false),
            ("fault:delay=1ms/torn@2M:mem", 1 << 20, false),
            ("fault:gone@5:fault:read-error@2M..3M:mem", 1 << 20, false),
            ("paced:hdd-2007:fault:write-error@2M..3M:mem", 1 << 20, false),
            ("fault:gone@5:mem", 512, true),
        ] {
            let set: MemberSet = text.parse().expect("a set");
            assert_eq!(set.first().check_faults(bytes).is_ok(), good, "{text} on {bytes}");
        }
    }

    fn member_text() -> impl Strategy<Value = String> {
        let plain = prop_oneof![
            Just("mem".to_string()),
            Just("null".to_string()),
            Just("file".to_string()),
            "file:/[a-z]{1,8}",
            "paced:hdd-20(07|09)",
            "paced:(sata|nvme)-ssd@0\\.[0-9]",
        ];
        let rule = prop_oneof![
            "flip@[0-9]{1,9}",
            "torn@[0-9]{1,4}K",
            "read-error@[0-9]{1,3}K\\.\\.1M",
            "gone@[0-9]{1,9}",
            "delay=[1-9]ms",
        ];
        plain.prop_recursive(3, 8, 2, move |inner| {
            let rules = proptest::collection::vec(rule.clone(), 1..3);
            prop_oneof![
                (rules, inner.clone()).prop_map(|(r, i)| format!("fault:{}:{i}", r.join("/"))),
                inner.prop_map(|inner| format!("paced:hdd-2007@stretch:{inner}")),
            ]
        })
    }

    proptest! {
        /// What is well formed is taken, and says what it was.
        #[test]
        fn sets_of_all_kinds_are_taken(
            parts in proptest::collection::vec((member_text(), 1usize..5), 1..4),
        ) {
            let words: Vec<String> = parts.iter().map(|(m, n)| format!("{m}*{n}")).collect();
            let text = words.join("+");
            let set: MemberSet = text.parse().map_err(|e: MembersError| {
                TestCaseError::fail(e.to_string())
            })?;
            prop_assert_eq!(set.to_string(), text.clone());
            prop_assert_eq!(&set.to_string().parse::<MemberSet>().expect("it was one"), &set);
            let count = parts.iter().map(|(_, times)| times).sum();
            prop_assert_eq!(set.counted(), Some(count));
            prop_assert_eq!(set.expand(count).expect("counted").len(), count);
            prop_assert!(set.expand(count + 1).is_err());
            prop_assert_eq!(set.kinds().count(), parts.len());
        }

        /// Whatever comes, the answer is a set or a message.
        #[test]
        fn no_text_is_too_strange(
            text in prop_oneof![
                "\\PC{0,40}",
                "[a-z0-9:*+@/.=-]{0,40}",
                "(fault|paced|file|mem|null|hdd-2007|flip|gone|[0-9]|[:*+@/.=-]){0,20}",
            ],
        ) {
            if let Err(error) = text.parse::<MemberSet>() {
                prop_assert!(error.to_string().starts_with("member '"));
            }
        }
    }

    #[test]
    fn nesting_ends_somewhere() {
        let deep = "fault:gone@1:".repeat(100_000) + "mem";
        let error = deep.parse::<MemberSet>().expect_err("too deep");
        assert_eq!(error.problem, MemberProblem::TooDeep);
    }
}
