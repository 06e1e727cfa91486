//! Arrays that are disassembled and assembled from their leaves again.

use md::{Layout, Level, MemberIdx, Sector};
use raidlab_array::{
    ArraySpec, DataPlaneConfig, Driver, DriverOptions, Fault, FaultControl, FaultMember, HostOp,
    MemMember, MemberSpec,
};

fn raid5(members: Vec<MemberSpec>) -> Driver {
    let spec = ArraySpec {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 8,
        members,
        data_plane: DataPlaneConfig {
            stripe_cache_bytes: 1 << 20,
            queue_depth: 8,
            ..DataPlaneConfig::default()
        },
    };
    let options = DriverOptions { leases: 1, lease_bytes: 8192, ..DriverOptions::default() };
    Driver::new(spec, &options).expect("an array")
}

fn mem() -> MemMember {
    MemMember::new(1024).expect("memory")
}

/// Writes or reads the first 8 KiB; gives back what is there then.
fn first(driver: &mut Driver, write: Option<u8>) -> Result<Vec<u8>, String> {
    let mut lease = driver.leases().take(8192).expect("a buffer");
    let op = match write {
        Some(byte) => {
            lease.bytes_mut().fill(byte);
            HostOp::Write { fua: false }
        }
        None => HostOp::Read,
    };
    driver.submit(op, Sector(0), 16, Some(lease), 1).expect("room");
    let mut done = Vec::new();
    while done.is_empty() {
        driver.poll(&mut done);
    }
    let end = done.remove(0);
    end.result.map_err(|e| e.to_string())?;
    Ok(end.lease.expect("the lease comes back").bytes().to_vec())
}

#[test]
fn leaves_keep_their_data_and_whether_they_were_in_service() {
    let mut driver = raid5((0..3).map(|_| MemberSpec::ready(mem())).collect());
    first(&mut driver, Some(1)).expect("written");
    driver.fail_member(MemberIdx(1));
    driver.poll(&mut Vec::new());
    first(&mut driver, Some(2)).expect("written without member 1");
    let leaves = driver.into_leaves();
    let in_service: Vec<bool> = leaves.iter().map(|leaf| leaf.in_service).collect();
    assert_eq!(in_service, [true, false, true]);
    let members = leaves.into_iter().map(|leaf| match leaf.member.filter(|_| leaf.in_service) {
        Some(member) => MemberSpec::Ready(member),
        None => MemberSpec::Missing { sectors: 1024 },
    });
    let mut driver = raid5(members.collect());
    assert_eq!(first(&mut driver, None).expect("served by two"), vec![2; 8192]);
    let leaves = driver.into_leaves();
    let there: Vec<bool> = leaves.iter().map(|leaf| leaf.member.is_some()).collect();
    assert_eq!(there, [true, false, true], "a missing member is a leaf too");
}

#[test]
fn arrays_inside_come_apart_into_leaves() {
    let inner = |members: usize| {
        MemberSpec::Array(ArraySpec {
            level: Level::Raid0,
            layout: Layout::default_for(Level::Raid0),
            chunk_sectors: 8,
            members: (0..members).map(|_| MemberSpec::ready(mem())).collect(),
            data_plane: DataPlaneConfig {
                stripe_cache_bytes: 0,
                queue_depth: 8,
                ..DataPlaneConfig::default()
            },
        })
    };
    let mut driver = raid5(vec![inner(2), MemberSpec::ready(mem()), inner(3)]);
    first(&mut driver, Some(1)).expect("written");
    driver.fail_member(MemberIdx(2));
    driver.poll(&mut Vec::new());
    let leaves = driver.into_leaves();
    let in_service: Vec<bool> = leaves.iter().map(|leaf| leaf.in_service).collect();
    assert_eq!(in_service, [true, true, true, false, false, false]);
    assert!(leaves.iter().all(|leaf| leaf.member.is_some()));
}

#[test]
fn a_script_that_is_off_does_nothing_and_counts_nothing() {
    let control = FaultControl::default();
    control.set_on(false);
    let script = vec![Fault::Gone { after: 1 }, Fault::FlipRead { at: 0 }];
    let bad = FaultMember::switched(Box::new(mem()), script, &control);
    let mut driver =
        raid5(vec![MemberSpec::ready(bad), MemberSpec::ready(mem()), MemberSpec::ready(mem())]);
    for _ in 0..3 {
        first(&mut driver, Some(7)).expect("written");
        assert_eq!(first(&mut driver, None).expect("read"), vec![7; 8192]);
    }
    control.set_on(true);
    assert_ne!(first(&mut driver, None).expect("read"), vec![7; 8192], "the bit is flipped");
    assert_eq!(first(&mut driver, None).expect("without it"), vec![7; 8192], "it is gone");
    assert!(driver.failed().contains(0));
}
