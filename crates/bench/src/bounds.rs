//! Bounds of cells: what the members could deliver together, put into a cell before it is measured.
//!
//! Invariant: a cell has a bound only where all members have a drive model. Called by `blocks`.

use md::nested::{ArrayExpr, Members};
use predict::bound::{self, CellShape, MemberDrive, Pattern, Shape};
use results::record::Cell;
use spec::case::{ArrayConfig, BenchLevel};
use spec::matrix::tolerated_losses;
use spec::members::placement_for;
use spec::topology::StorageTopology;
use spec::workload::{Kind, Spec};

use crate::arrays::nested_geometry;
use crate::error::RunError;
use crate::target::Target;
use crate::target_error::TargetError;

/// Sets the bound of the members, where all of them have a drive model.
pub(crate) fn set_bound(
    cell: &mut Cell,
    array: &ArrayConfig,
    spec: &Spec,
    area_bytes: u64,
    missing: &[usize],
) {
    let Ok(nested) = nested_geometry(array) else { return };
    let pattern = match spec.kind {
        Kind::SeqRead => Pattern::SequentialRead,
        Kind::SeqWrite => Pattern::SequentialWrite,
        Kind::RandRead => Pattern::RandomRead,
        Kind::RandWrite => Pattern::RandomWrite,
        Kind::None => return,
        Kind::SeqMixed | Kind::RandMixed => {
            let modelled = array.members.iter().all(|member| member.drive().is_some());
            let note =
                "no bound: it is derived for reads or writes alone, and neither bounds a mix";
            cell.derived.bound_note = modelled.then(|| note.into());
            return;
        }
    };
    let shape = match array.level {
        BenchLevel::Single => Shape::single(array.member_bytes),
        BenchLevel::Md(_) => Shape::from(&nested),
    };
    let drives = array.members.iter().map(|member| {
        let (profile, given) = member.drive()?;
        let placement = placement_for(profile, given, !spec.kind.is_sequential());
        Some(MemberDrive { profile, placement, member_bytes: array.member_bytes })
    });
    let members: Vec<Option<MemberDrive<'_>>> = drives.collect();
    let asked = CellShape {
        shape: &shape,
        members: &members,
        topology: array.topology,
        missing,
        pattern,
        block_bytes: spec.block_bytes,
        depth: spec.depth,
        jobs: spec.jobs,
        span_bytes: Some(area_bytes),
    };
    if let Some(bound) = bound::bound(&asked) {
        cell.derived.bound_mb_per_s = Some(bound.mb_per_s);
        let stated = spec.rate.filter(|rate| f64::from(rate.iops) < bound.iops);
        cell.derived.bound_note = Some(match stated {
            None => bound.note,
            Some(rate) => format!(
                "no share: {} requests arrive per second, the members could serve {:.0} ({})",
                rate.iops, bound.iops, bound.note
            ),
        });
    }
    let apart = StorageTopology { buses: array.topology.buses, ..StorageTopology::default() };
    if array.topology != apart {
        let bound = bound::bound(&CellShape { topology: apart, ..asked });
        cell.derived.unshared_bound_mb_per_s = bound.map(|bound| bound.mb_per_s);
    }
}

/// The slots that an array of md lacks as it is planned.
pub(crate) fn lost_slots(array: &ArrayConfig) -> Result<Vec<usize>, RunError> {
    let nested = nested_geometry(array)?;
    let lost = tolerated_losses(nested.geometry(), array.degraded, &|_| false);
    let lost = lost.map_err(TargetError::Degraded)?;
    Ok(lost.iter().map(|slot| usize::from(slot.0)).collect())
}

/// The leaves of the outermost level's members that are out of service.
pub(crate) fn missing_leaves(array: &ArrayConfig, target: &Target) -> Vec<usize> {
    let counts: Vec<usize> = match &array.expr.members {
        Members::Leaves(count) => vec![1; *count],
        Members::Arrays(arrays) => arrays.iter().map(ArrayExpr::leaves).collect(),
    };
    let failed = target.failed();
    let mut first = 0;
    let mut missing = Vec::new();
    for (member, leaves) in counts.into_iter().enumerate() {
        if failed.contains(&(member as u16)) {
            missing.extend(first..first + leaves);
        }
        first += leaves;
    }
    missing
}
