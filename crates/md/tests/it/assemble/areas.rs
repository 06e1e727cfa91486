//! Data areas that lie on their devices otherwise than those of the other members.

use super::support::*;
use raidlab_md::assemble::Candidate;

fn contradictions(all: &[Candidate]) -> Vec<String> {
    one(all).contradictions
}

#[test]
fn without_redundancy_a_data_area_that_starts_or_ends_elsewhere_is_a_contradiction() {
    let degraded = |mut all: Vec<Candidate>| {
        all.remove(2);
        all
    };
    for mut all in [members(0, 0, 3), members(-1, 0, 3), degraded(raid5(4))] {
        all.iter_mut().for_each(|member| member.device_sectors += 256);
        assert_eq!(contradictions(&all), [""; 0]);
        for (start, length) in [(1920, USED), (2048, USED + 128), (1920, USED + 64)] {
            let mut odd = all.clone();
            (odd[1].metadata.data_offset, odd[1].metadata.data_sectors) = (start, length);
            let said = contradictions(&odd);
            let mut about = said.iter().filter(|it| it.contains("its data area"));
            assert!(about.next().is_some_and(|it| it.starts_with("disk1: ")), "{said:?}");
            assert_eq!(about.next(), None);
        }
    }
}

#[test]
fn of_two_members_either_may_be_the_odd_one() {
    let mut all = members(0, 0, 2);
    all[0].metadata.data_offset -= 8;
    let said = contradictions(&all);
    assert!(said.len() == 2 && said[0].starts_with("disk0") && said[1].starts_with("disk1"));
}

#[test]
fn larger_devices_and_copies_on_larger_devices_are_nothing_odd() {
    let mut all = members(0, 0, 3);
    all[1].metadata.data_sectors += 4096;
    all[1].device_sectors += 4096;
    assert_eq!(contradictions(&all), [""; 0], "a larger device");
    all[1].metadata.data_offset += 2048;
    all[1].device_sectors += 2048;
    assert_eq!(contradictions(&all), [""; 0], "added by another mdadm");
    let mut all = members(0, 0, 3);
    all[1].device_sectors += 999;
    all[2].device_sectors += 5;
    assert_eq!(contradictions(&all), [""; 0], "copies");
}

#[test]
fn where_redundancy_shows_it_data_areas_are_not_compared() {
    let mut all = raid5(4);
    all[1].metadata.data_sectors += 64;
    all[1].device_sectors += 128;
    assert_eq!(contradictions(&all), [""; 0]);
    all.remove(3);
    assert_eq!(contradictions(&all).len(), 1);
}
