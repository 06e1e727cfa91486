//! Assembles arrays: geometry, members, memory, and checks that they fit together.
//!
//! Invariant: nothing is written to a member here; an invalid specification is refused with one
//! clear line.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{
    ConfigError, DEFAULT_STRIPE_CACHE_BYTES, MAX_MEMBERS, MemberSet, Shard, ShardConfig, Sharding,
};
use md::ondisk::ppl::PPL_HEADER_BYTES;
use md::{Geometry, GeometryError, GeometrySpec, Layout, Level};
use thiserror::Error;

use crate::buf::{Growing, InPlaceSources, Region, Regions};
use crate::executor::Executor;
use crate::member::{FileId, Member, MemberInfo, NestedMember};

/// Specification of an array.
pub struct ArraySpec {
    /// RAID level.
    pub level: Level,
    /// Layout; `Layout::default_for(level)` is md's default.
    pub layout: Layout,
    /// Chunk size in sectors; 0 for levels without chunks.
    pub chunk_sectors: u64,
    /// Members in slot order.
    pub members: Vec<MemberSpec>,
    /// Memory and limits.
    pub data_plane: DataPlaneConfig,
}

/// Settings of a running array that its data do not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlaneConfig {
    /// Memory for stripe work and its cache, in bytes; more is allocated if one stripe needs it.
    pub stripe_cache_bytes: u64,
    /// How much of it there is from the start; the rest is added as load needs it.
    pub stripe_bytes_at_first: u64,
    /// Operations in flight per member, at least 1; further ones are queued in order.
    pub queue_depth: usize,
    /// Members whose copies are read only where no other can serve; see
    /// [`ShardConfig::write_mostly`]. Not of nested arrays.
    pub write_mostly: MemberSet,
    /// Members that a bad block fails; see [`ShardConfig::failfast`]. Not of nested arrays.
    pub failfast: MemberSet,
}

impl Default for DataPlaneConfig {
    fn default() -> DataPlaneConfig {
        DataPlaneConfig {
            stripe_cache_bytes: DEFAULT_STRIPE_CACHE_BYTES,
            stripe_bytes_at_first: u64::MAX,
            queue_depth: usize::MAX,
            write_mostly: MemberSet::EMPTY,
            failfast: MemberSet::EMPTY,
        }
    }
}

impl DataPlaneConfig {
    /// The part of one of `shards` shards, at least 1.
    fn per_shard(self, shards: u16) -> DataPlaneConfig {
        let queue_depth = match self.queue_depth {
            usize::MAX => usize::MAX,
            depth => (depth / usize::from(shards)).max(1),
        };
        DataPlaneConfig {
            stripe_cache_bytes: self.stripe_cache_bytes / u64::from(shards),
            stripe_bytes_at_first: self.stripe_bytes_at_first / u64::from(shards),
            queue_depth,
            ..self
        }
    }
}

/// Specification of one member.
pub enum MemberSpec {
    /// An opened member.
    Ready(Box<dyn Member>),
    /// A missing member.
    Missing {
        /// Its size in sectors.
        sectors: u64,
    },
    /// A nested array.
    Array(ArraySpec),
}

impl MemberSpec {
    /// Boxes a member.
    pub fn ready(member: impl Member + 'static) -> MemberSpec {
        MemberSpec::Ready(Box::new(member))
    }
}

/// Why an array cannot be assembled.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The geometry is invalid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The engine cannot run it.
    #[error(transparent)]
    Engine(#[from] ConfigError),
    /// It has an array as a member, which is supported in one shard only.
    #[error("an array with nested arrays runs in one shard only; {shards} were requested")]
    NestedShards {
        /// Number of shards requested.
        shards: u16,
    },
    /// Two members keep their data in one file.
    #[error("{}", same_file(path, also))]
    SameFile {
        /// The file, as one of them names it.
        path: PathBuf,
        /// The same file, as the other names it.
        also: PathBuf,
    },
    /// A system resource (memory, io_uring) is missing.
    #[error("cannot {doing}: {}", host::sys::reason(source))]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

fn same_file(path: &Path, also: &Path) -> String {
    let (path, also) = (path.display(), also.display());
    match path.to_string() == also.to_string() {
        true => format!("{path}: given twice as a member"),
        false => format!("{path} and {also} are one file, given twice as a member"),
    }
}

/// Engine settings of an array with metadata.
pub(crate) struct WithMetadata {
    /// From [`engine::MetadataManager::intent_map`].
    pub(crate) intents: Option<engine::IntentMap>,
    /// From [`engine::MetadataManager::in_sync_below`].
    pub(crate) in_sync_below: u64,
    /// From [`engine::MetadataManager::out_of_sync`].
    pub(crate) out_of_sync: Vec<Range<u64>>,
    /// From [`engine::MetadataManager::missing_by_force`].
    pub(crate) missing_by_force: MemberSet,
    /// The partial parity log of RAID 5: size of the smallest area, and what its headers carry.
    pub(crate) log: Option<PartialParityArea>,
    /// From [`engine::MetadataManager::rebuilding`].
    pub(crate) rebuilding: Vec<(md::MemberIdx, Vec<Range<u64>>)>,
    /// From [`engine::MetadataManager::replacing`].
    pub(crate) replacing: Vec<(md::MemberIdx, Vec<Range<u64>>)>,
    /// Whether all that replaces members guarantees zeroes after a discard.
    pub(crate) discard_zeroes: bool,
}

/// The partial parity log of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialParityArea {
    /// Size of the smallest area of a device that may serve, in sectors.
    pub sectors: u64,
    /// [`md::ondisk::ppl::PplHeader::signature_of`] the array.
    pub signature: u32,
}

/// Which shard of an array to build.
#[derive(Clone, Copy)]
pub(crate) struct ShardOf {
    pub(crate) number: u16,
    pub(crate) shards: u16,
    /// See [`Sharding::with_least_unit`].
    pub(crate) least_unit: u64,
}

impl ShardOf {
    /// The only shard.
    pub(crate) const ONLY: ShardOf = ShardOf { number: 0, shards: 1, least_unit: 1 };
}

/// Divides a specification among shards: each gets its own handles on the members, and its part of
/// the stripe memory and of the queue depth.
pub(crate) fn divide(mut spec: ArraySpec, shards: u16) -> Result<Vec<ArraySpec>, BuildError> {
    if shards > 1 {
        spec.data_plane = spec.data_plane.per_shard(shards);
    }
    let handle = |member: &MemberSpec| match member {
        MemberSpec::Ready(member) => member.share().map(MemberSpec::Ready),
        MemberSpec::Missing { sectors } => Some(MemberSpec::Missing { sectors: *sectors }),
        MemberSpec::Array(_) => None,
    };
    let mut all = Vec::new();
    for _ in 1..shards {
        let members: Option<Vec<MemberSpec>> = spec.members.iter().map(handle).collect();
        let members = members.ok_or(BuildError::NestedShards { shards })?;
        let ArraySpec { level, layout, chunk_sectors, data_plane, .. } = spec;
        all.push(ArraySpec { level, layout, chunk_sectors, members, data_plane });
    }
    all.insert(0, spec);
    Ok(all)
}

/// Builds one shard of the array and the arrays nested in it; appends its stripe memory to
/// `regions`.
pub(crate) fn build(
    spec: ArraySpec,
    max_requests: usize,
    regions: &mut Regions,
    keeping: Option<&WithMetadata>,
    shard: ShardOf,
) -> Result<Executor, BuildError> {
    if spec.members.len() > MAX_MEMBERS {
        let given = spec.members.len();
        return Err(BuildError::Engine(ConfigError::TooManyMembers { given }));
    }
    let mut members: Vec<Option<Box<dyn Member>>> = Vec::new();
    let mut sizes = Vec::new();
    let mut missing = MemberSet::EMPTY;
    for (slot, member) in spec.members.into_iter().enumerate() {
        let member = match member {
            MemberSpec::Ready(member) => Some(member),
            MemberSpec::Array(inner) => {
                let executor = build(inner, max_requests, regions, None, ShardOf::ONLY)?;
                Some(Box::new(NestedMember::new(executor)) as Box<dyn Member>)
            }
            MemberSpec::Missing { sectors } => {
                missing.insert(u16::try_from(slot).expect("at most MAX_MEMBERS"));
                sizes.push(sectors);
                None
            }
        };
        if let Some(member) = &member {
            sizes.push(member.info().sectors);
        }
        members.push(member);
    }
    let logical_block = largest_block(&members);
    let block_sectors = u64::from(logical_block) / md::SECTOR_BYTES;
    // A linear array continues on the next member at a multiple of the logical block, for all
    // members.
    sizes.iter_mut().for_each(|sectors| *sectors -= *sectors % block_sectors);
    let geometry = Geometry::new(&GeometrySpec {
        level: spec.level,
        layout: spec.layout,
        chunk_sectors: spec.chunk_sectors,
        member_sectors: sizes,
    })
    .map_err(BuildError::Geometry)?;
    let mut info = agree(&members, geometry.array_sectors());
    info.discard_zeroes &= keeping.is_none_or(|keeping| keeping.discard_zeroes);
    let mut config = ShardConfig::new(geometry);
    config.sharding = Sharding::with_least_unit(&config.geometry, shard.shards, shard.least_unit);
    config.number = shard.number;
    config.missing = missing;
    config.logical_block = info.logical_block;
    config.discard_zeroes = info.discard_zeroes;
    config.max_requests = max_requests;
    config.write_mostly = spec.data_plane.write_mostly;
    config.failfast = spec.data_plane.failfast;
    if let Some(keeping) = keeping {
        config.intents = keeping.intents;
        config.in_sync_below = keeping.in_sync_below;
        config.out_of_sync.clone_from(&keeping.out_of_sync);
        config.missing_by_force = keeping.missing_by_force;
        config.rebuilding.clone_from(&keeping.rebuilding);
        config.replacing.clone_from(&keeping.replacing);
        config.partial_parity_log = keeping.log.map(|log| log.sectors);
    }
    // The engine discards whole rows of parity levels only: the edges keep their contents.
    info.discard_zeroes &= !spec.level.has_parity();
    let (mut in_place, mut stripes) = (InPlaceSources::default(), None);
    if spec.level.has_parity() {
        let least = ShardConfig::least_stripe_cache_bytes(&config.geometry);
        // As the engine uses it: a power of two.
        config.stripe_cache_bytes = 1 << spec.data_plane.stripe_cache_bytes.max(least).ilog2();
        config.stripe_bytes_at_first = spec.data_plane.stripe_bytes_at_first;
        let (first, most) = (config.usable_stripe_bytes(), config.stripe_cache_bytes);
        let memory = Region::of_parts(first, most, true)
            .map_err(|source| BuildError::System { doing: "map the stripe memory", source })?;
        in_place = InPlaceSources::of(regions.count(), memory.len());
        let growing = Growing::new(Arc::new(memory), first as usize, most as usize);
        config.scratch_region = regions.add(growing.region().clone());
        stripes = Some(growing);
        members.iter_mut().flatten().for_each(|member| member.get_ready_to_lend(regions));
    }
    let state = Shard::new(config).map_err(BuildError::Engine)?;
    let queue_depth = spec.data_plane.queue_depth.max(1);
    let mut executor = Executor::new(state, members, queue_depth, info, in_place, stripes);
    if let Some(log) = keeping.and_then(|keeping| keeping.log) {
        let headers =
            Region::new(executor.geometry().members() as u64 * PPL_HEADER_BYTES as u64)
                .map_err(|source| BuildError::System { doing: "map memory for logs", source })?;
        executor.keep_log(log.signature, regions.add(Arc::new(headers)));
    }
    if keeping.is_some() || shard.shards > 1 {
        executor.enable_control_plane();
    }
    Ok(executor)
}

fn largest_block(members: &[Option<Box<dyn Member>>]) -> u32 {
    let blocks = members.iter().flatten().map(|member| member.info().logical_block);
    blocks.max().unwrap_or(512)
}

/// Refuses a file, or a part of one, that two members would write to.
pub(crate) fn refuse_shared_files(executor: &Executor) -> Result<(), BuildError> {
    let mut files = Vec::new();
    executor.files(&mut files);
    files.sort_by_key(|file| (file.identity, file.bytes.start));
    let overlap = |pair: &&[FileId]| {
        pair[0].identity == pair[1].identity && pair[1].bytes.start < pair[0].bytes.end
    };
    match files.windows(2).find(overlap) {
        Some([one, other]) => {
            Err(BuildError::SameFile { path: one.path.clone(), also: other.path.clone() })
        }
        _ => Ok(()),
    }
}

/// Properties of the array that follow from those of all members.
fn agree(members: &[Option<Box<dyn Member>>], array_sectors: u64) -> MemberInfo {
    let present = || members.iter().flatten().map(|member| member.info());
    let logical_block = largest_block(members);
    let block_sectors = u64::from(logical_block) / md::SECTOR_BYTES;
    MemberInfo {
        sectors: array_sectors / block_sectors * block_sectors,
        logical_block,
        discard_zeroes: present().all(|info| info.discard_zeroes),
        keeps_data: present().all(|info| info.keeps_data),
        uses_ring: present().any(|info| info.uses_ring),
        in_memory: present().all(|info| info.in_memory),
        synchronous: present().all(|info| info.synchronous),
    }
}
