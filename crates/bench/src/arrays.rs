//! Arrays of a plan: their geometry, the fields that their cells share, and their creation for a
//! program.
//!
//! Invariant: a field that follows from the array's settings is filled here alone. Called by
//! `blocks`, `placed`, and by the session of programs.

use array::Array;
use drive::{Placement, Profile};
use md::Geometry;
use md::nested::{NestedError, NestedGeometry};
use predict::bound::Shape;
use results::record::{Cell, CellCase};
use results::words;
use spec::case::{ArrayConfig, BenchLevel, RunConfig};
use spec::members::{MemberExpr, placement_for};
use spec::target::TargetKind;
use spec::workload::Spec;

use crate::provision::ClaimedDevices;
use crate::target::{Requests, Target};
use crate::target_error::TargetError;

/// Buffers for background work of arrays with copies, as many as the engine keeps in flight.
const SPARE_BUFFERS: usize = 32;

/// What the workloads of an array request at most.
pub fn requests(cells: &[Spec]) -> Requests {
    let whole_pages = cells.iter().all(|cell| cell.block_bytes % 4096 == 0);
    Requests {
        block_bytes: cells.iter().map(|cell| cell.block_bytes).max().unwrap_or(4096),
        unit_bytes: if whole_pages { 4096 } else { 512 },
        in_flight: cells.iter().map(Spec::in_flight).max().unwrap_or(1),
        spare: if cells.iter().any(|cell| cell.background.is_some()) { SPARE_BUFFERS } else { 0 },
    }
}

/// The fields that all cells of an array share.
pub fn describe(array: &ArrayConfig, run: &RunConfig, geometry: &Geometry) -> Cell {
    let has_chunks = array.expr.level.has_chunks() && array.level != BenchLevel::Single;
    let drive = array.members.iter().find_map(MemberExpr::drive);
    let buses = array.topology.buses;
    let one_bus = buses.and_then(|buses| buses.of_all());
    Cell {
        case: CellCase {
            target: TargetKind::Engine.into(),
            level: array.level.into(),
            layout: words::layout(geometry.layout()),
            disks: array.expr.leaves() as u32,
            members: array.set.recorded(),
            chunk_kib: match has_chunks {
                true => Some(geometry.chunk_sectors() * md::SECTOR_BYTES / 1024),
                false => array.takes_chunk().then_some(array.chunk_bytes / 1024),
            },
            degraded: array.degraded,
            array: array.nested.then(|| array.expr.to_string()),
            knobs: array.knobs,
            cores: run.cores,
            rounds_max: run.rounds_max(),
            bus_mb_per_s: one_bus.map(|rate| rate as f64 / 1e6),
            buses: buses.filter(|_| one_bus.is_none()).map(|buses| buses.to_string()),
            disks_per_channel: array.topology.disks_per_channel,
            members_per_spindle: array.topology.members_per_spindle,
            member_bytes: Some(array.member_bytes),
            placement: drive.map(|(profile, given)| placement_name(profile, given, false)),
            ..CellCase::default()
        },
        ..Cell::default()
    }
}

/// An array of a plan for a program, with the fields that its cells share, and its block devices,
/// which are unchanged until [`ClaimedDevices::begin`] and to be released after it. Paced members
/// are paced from the start.
///
/// # Errors
/// One line that names the invalid member, directory, size or geometry.
pub fn array_for_program(
    array: &ArrayConfig,
    run: &RunConfig,
    requests: Requests,
) -> Result<(Array, Cell, ClaimedDevices), TargetError> {
    let mut target = Target::new(array, run, requests)?;
    target.degrade(array.degraded)?;
    target.set_paced(true);
    let cell = describe(array, run, target.geometry());
    let Target { shards, claimed, .. } = target;
    Ok((Array::run_shards(shards)?, cell, claimed))
}

/// The fields that all cells of an array share.
///
/// # Errors
/// When its geometry is impossible.
pub fn described(array: &ArrayConfig, run: &RunConfig) -> Result<Cell, NestedError> {
    Ok(describe(array, run, nested_geometry(array)?.geometry()))
}

/// Geometry of an array of a plan.
///
/// # Errors
/// When it is impossible.
pub fn nested_geometry(array: &ArrayConfig) -> Result<NestedGeometry, NestedError> {
    let leaves = vec![array.member_bytes / md::SECTOR_BYTES; array.expr.leaves()];
    NestedGeometry::new(&array.expr, array.chunk_bytes / md::SECTOR_BYTES, &leaves)
}

/// Size of an array of a plan and of its stripe, in bytes.
///
/// # Errors
/// When its geometry is impossible.
pub fn extent_of(array: &ArrayConfig) -> Result<(u64, u64), NestedError> {
    let nested = nested_geometry(array)?;
    let stripe = nested.geometry().stripe_sectors() * md::SECTOR_BYTES;
    Ok((Shape::from(&nested).bytes(), stripe))
}

/// Where a member lies on its drive, as records name it.
pub fn placement_name(profile: &Profile, given: Option<Placement>, random: bool) -> String {
    let flash = profile.kind() == drive::Kind::Solid;
    match placement_for(profile, given, random) {
        Placement::Window { .. } if flash => "fresh".into(),
        Placement::Stretch if flash => "scaled".into(),
        Placement::Window { at } => format!("window@{at}"),
        Placement::Stretch => "stretch".into(),
    }
}
