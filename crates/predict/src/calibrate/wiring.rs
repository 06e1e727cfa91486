//! Which disks share a bus: all are read at a time; where the rate of some is lower than alone,
//! one is left out, and those that become faster were behind the same bus.

use crate::calibrate::figures::{SharedBus, WiringFigures};
use crate::calibrate::load::{Access, Limit, Stream};
use crate::calibrate::machine::{Machine, MachineError};
use crate::calibrate::settings::Settings;

/// A disk that is slower than this share of its rate alone is held up by others.
const HELD_UP: f64 = 0.96;
/// A disk that becomes faster by this share, when another one is left out, shares a bus with it.
const RISES: f64 = 1.02;

const MIB: u64 = 1 << 20;
/// Requests in flight of all disks together.
const IN_FLIGHT_MAX: usize = 256;

fn together(
    machine: &mut dyn Machine,
    disks: &[usize],
    settings: Settings,
) -> Result<Vec<f64>, MachineError> {
    let access = Access::Sequential { at: 0, run: MIB, skip: 0 };
    let depth = (IN_FLIGHT_MAX / disks.len().max(1)).clamp(1, 4);
    let streams: Vec<Stream> =
        disks.iter().map(|disk| Stream::reads(*disk, access, MIB, depth)).collect();
    let ran = machine.run(&streams, Limit::seconds(settings.stream_seconds))?;
    Ok(ran.iter().map(|one| one.mb_per_s_after(0.2).unwrap_or(0.0)).collect())
}

/// Finds the buses that disks share, from the rates of each alone, MB/s.
///
/// # Errors
/// A request fails, or it is stopped.
pub fn find(
    machine: &mut dyn Machine,
    alone: &[f64],
    settings: Settings,
) -> Result<WiringFigures, MachineError> {
    let all: Vec<usize> = (0..alone.len()).collect();
    let rates = together(machine, &all, settings)?;
    let held = |disk: &usize| rates[*disk] < alone[*disk] * HELD_UP;
    let mut left: Vec<usize> = all.into_iter().filter(held).collect();
    let mut buses = Vec::new();
    while let Some((first, others)) = left.split_first() {
        let (first, others) = (*first, others.to_vec());
        let mut group = vec![first];
        if !others.is_empty() {
            let without = together(machine, &others, settings)?;
            let rising = others.iter().zip(&without);
            group.extend(
                rising.filter(|(disk, rate)| **rate > rates[**disk] * RISES).map(|(disk, _)| *disk),
            );
        }
        left.retain(|disk| !group.contains(disk));
        let mb_per_s = group.iter().map(|disk| rates[*disk]).sum();
        if group.len() > 1 {
            buses.push(SharedBus { disks: group, mb_per_s });
        }
    }
    Ok(WiringFigures { together_mb_per_s: rates, buses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::machine::Modelled;
    use drive::Profile;

    #[test]
    fn disks_on_one_bus_are_found_and_what_it_carries() {
        let disk = Profile::named("hdd-2007").expect("built in");
        let buses = [0, 1, 0, 1, 1].map(|bus| (disk, Some(bus)));
        let mut disks = buses.to_vec();
        disks.push((disk, None));
        let mut machine = Modelled::new(&disks, &[110_000_000, 193_000_000]);
        let alone = vec![83.0; 6];
        let found = find(&mut machine, &alone, Settings::default()).expect("it runs");
        let groups: Vec<&[usize]> = found.buses.iter().map(|bus| &bus.disks[..]).collect();
        assert_eq!(groups, [&[0, 2][..], &[1, 3, 4]]);
        assert!((found.buses[0].mb_per_s / 110.0 - 1.0).abs() < 0.02, "{found:?}");
        assert!((found.buses[1].mb_per_s / 193.0 - 1.0).abs() < 0.02, "{found:?}");
        let free = vec![(disk, None); 4];
        let found = find(&mut Modelled::new(&free, &[]), &[83.0; 4], Settings::default());
        assert_eq!(found.expect("it runs").buses, []);
    }
}
