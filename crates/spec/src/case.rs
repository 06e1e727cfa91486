//! A case: one measurement, described completely. What a sweep runs, stores and finds again is a
//! list of cases.
//!
//! ```text
//!   Case = target + array + workload + run
//! ```
//!
//! Invariant: pure data. A new setting is a field here; the key of a case and its description
//! (`sweep::key`) name every field, so that a new one does not compile without them.

use std::path::PathBuf;
use std::time::Duration;

use md::Level;
use md::nested::{ArrayExpr, Members};
use serde::{Deserialize, Serialize};

use crate::members::{MemberExpr, MemberSet, MembersError};
use crate::program::ProgramSpec;
use crate::program::timing::Timing;
use crate::target::TargetExpr;
use crate::topology::StorageTopology;
use crate::workload::Spec;

/// The chunk of the Linux RAID wiki's table.
pub const DEFAULT_CHUNK_BYTES: u64 = 256 << 10;
/// Default stripe memory of an array, in bytes: that of the engine.
pub const DEFAULT_STRIPE_CACHE_BYTES: u64 = 32 << 20;

/// One measurement: what runs, where, on which array, and how it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Where it runs.
    pub target: TargetExpr,
    /// The array below, of the engine or of md; `None` where the target brings its own.
    pub array: Option<ArrayConfig>,
    /// What runs.
    pub workload: Workload,
    /// Size of all files of a program together, bytes; `None`: derived from memory and target, or
    /// that of the array.
    pub size: Option<u64>,
    /// How it is measured.
    pub run: RunConfig,
}

/// What runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Blocks, on an array of the engine.
    Blocks(Spec),
    /// A program, with its options.
    Program(ProgramSpec),
}

/// A level of `bench`: one of md, or a single disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BenchLevel {
    /// One member, no array.
    Single,
    /// An array.
    Md(Level),
}

impl BenchLevel {
    /// Its name in records: md's, or `single`.
    pub const fn name(self) -> &'static str {
        match self {
            BenchLevel::Single => "single",
            BenchLevel::Md(level) => level.name(),
        }
    }

    /// The level that records name so, and no other form of the name.
    pub fn named(name: &str) -> Option<BenchLevel> {
        let levels = Level::ALL.into_iter().map(BenchLevel::Md);
        std::iter::once(BenchLevel::Single).chain(levels).find(|level| level.name() == name)
    }
}

/// A text is neither a level of md nor `single`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; or 'single' for an ordinary disk")]
pub struct UnknownLevel(#[source] pub md::LevelError);

impl std::str::FromStr for BenchLevel {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<BenchLevel, UnknownLevel> {
        if text == "single" {
            return Ok(BenchLevel::Single);
        }
        text.parse().map(BenchLevel::Md).map_err(UnknownLevel)
    }
}

/// An array, its members and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayConfig {
    /// Its level in the record.
    pub level: BenchLevel,
    /// The array.
    pub expr: ArrayExpr,
    /// Whether it is nested: then its expression goes into the record.
    pub nested: bool,
    /// Chunk of arrays that name none.
    pub chunk_bytes: u64,
    /// Its members, in words.
    pub set: MemberSet,
    /// The same, one per leaf.
    pub members: Vec<MemberExpr>,
    /// Size of each member.
    pub member_bytes: u64,
    /// How much of the array is used; `None` is all.
    pub area_bytes: Option<u64>,
    /// Members to be taken out.
    pub degraded: u32,
    /// What the members share.
    pub topology: StorageTopology,
    /// What the engine does with it.
    pub knobs: Knobs,
    /// Whether its one member, a block device, is read as it is found: opened read-only, without
    /// data of ours.
    pub read_only: bool,
}

impl ArrayConfig {
    /// An array whose settings are at their defaults.
    ///
    /// # Errors
    /// The set has another number of members.
    pub fn new(
        expr: ArrayExpr,
        set: &MemberSet,
        member_bytes: u64,
    ) -> Result<ArrayConfig, MembersError> {
        Ok(ArrayConfig {
            level: BenchLevel::Md(expr.level),
            nested: matches!(expr.members, Members::Arrays(_)),
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            set: set.clone(),
            members: set.expand(expr.leaves())?,
            member_bytes,
            area_bytes: None,
            degraded: 0,
            topology: StorageTopology::default(),
            knobs: Knobs::usual(&expr),
            read_only: false,
            expr,
        })
    }

    /// `raid5 x4, 1 missing`: for progress and messages.
    pub fn name(&self) -> String {
        let mut name = match self.level {
            BenchLevel::Single => "ordinary disk".to_string(),
            BenchLevel::Md(_) => self.expr.to_string(),
        };
        if self.degraded > 0 {
            name.push_str(&format!(", {} missing", self.degraded));
        }
        name
    }

    /// Whether `chunk_bytes` is the chunk of it, or of an array inside it.
    pub fn takes_chunk(&self) -> bool {
        self.level != BenchLevel::Single
            && any_level(&self.expr, &|expr| expr.level.has_chunks() && expr.chunk.is_none())
    }

    /// Whether it or an array inside it has parity.
    pub fn has_parity(&self) -> bool {
        has_parity(&self.expr)
    }
}

/// Knobs of the engine for an array: a plan multiplies them, a case has them, a record stores them
/// by the names of this struct, as the options name them with their unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knobs {
    /// Stripe cache, whole KiB in records; `None` without parity.
    #[serde(rename = "stripe_cache_kib", with = "in_kib")]
    pub stripe_cache_bytes: Option<u64>,
    /// Queue depth of each member; `None`: unlimited.
    pub queue_depth: Option<u32>,
}

impl Knobs {
    /// Those of an array where none is set.
    pub fn usual(expr: &ArrayExpr) -> Knobs {
        let stripe_cache_bytes = has_parity(expr).then_some(DEFAULT_STRIPE_CACHE_BYTES);
        Knobs { stripe_cache_bytes, ..Knobs::default() }
    }

    /// The stripe cache, whole KiB.
    pub fn stripe_cache_kib(&self) -> Option<u64> {
        self.stripe_cache_bytes.map(|bytes| bytes / 1024)
    }
}

/// Bytes that records state in KiB.
mod in_kib {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        bytes.map(|bytes| bytes / 1024).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let kib = Option::<u64>::deserialize(from)?;
        Ok(kib.map(|kib| kib.saturating_mul(1024)))
    }
}

fn has_parity(expr: &ArrayExpr) -> bool {
    any_level(expr, &|expr| expr.level.has_parity())
}

/// Whether the test holds for the array or one inside it.
pub(crate) fn any_level(expr: &ArrayExpr, test: &dyn Fn(&ArrayExpr) -> bool) -> bool {
    let inner = match &expr.members {
        Members::Leaves(_) => &[][..],
        Members::Arrays(arrays) => arrays,
    };
    test(expr) || inner.iter().any(|expr| any_level(expr, test))
}

/// How a case is measured: durations, number of samples, seed, CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// Warm-up before the first sample of block workloads.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Whether the length was given by option: then it is kept even if a stream reaches the end of
    /// the array during the samples and restarts.
    pub sample_given: bool,
    /// Samples of each block workload.
    pub runs: u32,
    /// Limit of further samples until they are steady; `None`: no further samples.
    pub until_steady: Option<u32>,
    /// Timing of the phases of programs.
    pub phases: Timing,
    /// Default directory of member files.
    pub directory: PathBuf,
    /// Number of CPUs that the process is pinned to, and of shards of each array. `None`: one
    /// shard, not pinned.
    pub cores: Option<u32>,
    /// Whether modelled disks keep pace with the clock of the machine; otherwise their time is that
    /// of the models.
    pub real_time: bool,
    /// Seed of addresses and data.
    pub seed: u64,
    /// Permission to overwrite what devices hold.
    pub destroy_contents: bool,
    /// Parity kernels.
    pub kernels: parity::Kernels,
    /// Whether the kernels were given by option, instead of the fastest.
    pub kernels_chosen: bool,
}

impl RunConfig {
    /// Limit of the samples of a block workload until they are steady; `None`: a given number.
    pub fn rounds_max(&self) -> Option<u32> {
        self.until_steady.map(|most| most.max(self.runs))
    }

    /// One short sample of each block workload, on members that have no files: their directory
    /// can be on no machine.
    pub fn quick() -> RunConfig {
        RunConfig {
            warm_up: Duration::ZERO,
            sample: Duration::from_millis(5),
            sample_given: true,
            runs: 1,
            until_steady: None,
            phases: Timing::default(),
            directory: PathBuf::from("/dev/null/none"),
            cores: None,
            real_time: false,
            seed: 1,
            destroy_contents: false,
            kernels: parity::Kernels::best(),
            kernels_chosen: false,
        }
    }

    /// Whether block workloads on an array run in model time: of a kernel whose clock is a model,
    /// or of the engine, if all that takes time below it is models, which one thread drives.
    pub fn is_model_time(&self, place: &TargetExpr, array: &ArrayConfig) -> bool {
        let modelled = |member: &MemberExpr| member.drive().is_some();
        match place {
            TargetExpr::Engine => {
                !self.real_time && self.cores.is_none() && array.members.iter().all(modelled)
            }
            place => !self.real_time && place.model_time().is_some(),
        }
    }

    /// Number of shards of each array.
    pub fn shards(&self) -> u16 {
        // No host has more CPUs than u16::MAX.
        self.cores.map_or(1, |cores| u16::try_from(cores).unwrap_or(u16::MAX))
    }
}
