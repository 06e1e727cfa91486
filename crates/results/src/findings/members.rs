//! Findings about the members: what moved how much, who waited for whom.
//!
//! Invariant: as in the module above.

use md::Level;
use spec::buses::Buses;
use spec::members::RecordedMembers;
use spec::workload::AccessKind;

use super::advice::{Knob, size, turn};
use super::{
    data_members, finding, has_parity, percent, raid10_layout, seconds, short, stripe_kib, total,
};
use crate::record::{Cell, Finding, MemberTraffic};

/// Members that moved less of what the workload moved say nothing about how it spreads over them.
const MOVED_SHARE: f64 = 0.5;

/// What must reach the members for each byte that is written, when no cache keeps any of it: its
/// copies and the parity of whole stripes, on the members that are there. At least: a small write
/// costs more.
fn least_written(cell: &Cell) -> f64 {
    let (disks, there) =
        (f64::from(cell.case.disks), f64::from(cell.case.disks - cell.case.degraded));
    let per_data = || data_members(cell).filter(|data| *data > 0).map(f64::from);
    let copies = match cell.md_level() {
        // Arrays inside one another: at least the bytes themselves.
        _ if cell.case.array.is_some() || cell.case.disks <= cell.case.degraded => return 1.0,
        Some(Level::Raid1) => disks,
        Some(Level::Raid10) => raid10_layout(cell).map_or(1.0, |layout| match layout.offset {
            // Far copies are read from all members, and written twice or more all the same.
            false if layout.far > 1 => layout.copies() as f64,
            _ => per_data().map_or(1.0, |data| disks / data),
        }),
        Some(Level::Raid4 | Level::Raid5 | Level::Raid6) => {
            per_data().map_or(1.0, |data| disks / data)
        }
        _ => return 1.0,
    };
    (copies * there / disks).max(1.0)
}

/// The members moved too little.
pub(super) fn page_cache(cell: &Cell) -> Option<Finding> {
    // Members that moved less than this share of what had to reach them did not determine the
    // figure: the rest came from a cache, or is still in one.
    const REACHED: f64 = 0.8;
    let user = cell.measured.program_bytes.unwrap_or_else(|| cell.user_bytes());
    // How much of a mixed load was written is not known: each byte is at least read or written.
    let mixed = cell.is_mixed();
    let of: fn(&MemberTraffic) -> u64 = match cell.writes() {
        _ if mixed => MemberTraffic::bytes,
        true => |member| member.written_bytes,
        false => |member| member.read_bytes,
    };
    let least = if cell.writes() { least_written(cell) } else { 1.0 };
    let moved = total(cell, of) as f64 / user as f64;
    let place = cell.case.place.as_ref();
    let memory = place.and_then(|place| place.memory_bytes);
    let fits = cell.case.file_bytes.zip(memory).filter(|(file, memory)| file < memory);
    let share = moved / least;
    let too_little = !cell.measured.per_member.is_empty() && share < REACHED;
    if !too_little && cell.measured.cached.is_none() {
        return None;
    }
    let mut evidence = vec![("user_bytes", user as f64)];
    if !cell.measured.per_member.is_empty() {
        evidence.push(("member_bytes_per_user_byte", moved));
        evidence.push(("least_member_bytes_per_user_byte", least));
    }
    if let Some((file, memory)) = fits {
        evidence.extend([("file_bytes", file as f64), ("memory_bytes", memory as f64)]);
    }
    let who = cell.measured.cached.clone().unwrap_or_else(|| "a cache".into());
    let way = match cell.writes() {
        _ if mixed => "was moved by",
        true => "reached",
        false => "came from",
    };
    let text = match cell.measured.per_member.is_empty() {
        true => format!("how much of the data {way} the members is unknown: {who} kept the rest"),
        false if share < 1.0 && least > 1.0 => format!(
            "only {} of the bytes that had to reach the members ({} for each byte with copies and \
             parity) did during the samples: {who} held the rest",
            percent(share),
            short(least)
        ),
        false if share < 1.0 => format!(
            "only {} of the data {way} the members during the samples: {who} held the rest",
            percent(share)
        ),
        false => format!(
            "for each byte {} {way} the members, at times that {who} chose: the figure depends on \
             it as much as on the members",
            short(moved)
        ),
    };
    let command = memory.map(|memory| {
        format!("files of {} GiB or more, twice the memory", (2 * memory).div_ceil(1 << 30))
    });
    Some(finding("page-cache", text, &evidence, command))
}

/// md ran a resync, rebuild, check or reshape in the background.
pub(super) fn resync_running(cell: &Cell) -> Option<Finding> {
    let sync = cell
        .measured
        .sync
        .as_ref()
        .filter(|s| !matches!(s.action.as_str(), "" | "idle" | "frozen"))?;
    if cell.case.background.is_some() {
        // It is what is measured.
        return None;
    }
    let mut evidence = Vec::new();
    evidence.extend(sync.begin.map(|share| ("begin_share", share)));
    evidence.extend(sync.end.map(|share| ("end_share", share)));
    let from_to = match (sync.begin, sync.end) {
        // md reports progress in steps of a sixteenth.
        (Some(begin), Some(end)) if end > begin => {
            format!(" from {:.1} to {:.1} %", begin * 100.0, end * 100.0)
        }
        (Some(begin), Some(_)) => format!(" at {:.1} % or a little more", begin * 100.0),
        (Some(begin), None) => format!(" from {:.1} % to its end", begin * 100.0),
        _ => String::new(),
    };
    // md calls a rebuild "recover".
    let action = if sync.action == "recover" { "rebuild" } else { sync.action.as_str() };
    let text = format!(
        "a {action} of the array ran during the samples{from_to}: the members served it besides \
         the workload"
    );
    let command = "mdadm --wait /dev/mdX, and measure again".to_string();
    Some(finding("resync-running", text, &evidence, Some(command)))
}

/// The members' traffic saturates the bus that they share.
pub(super) fn shared_bus(cell: &Cell) -> Option<Finding> {
    const FULL: f64 = 0.85;
    let (bus, members, moved) = fullest_bus(cell)?;
    let share = moved / bus;
    if members < 2 || !share.is_finite() || share < FULL {
        return None;
    }
    let text = format!(
        "{} members moved {} MB/s over a bus of {} MB/s, {} of it: more members on it will not \
         be faster",
        members,
        short(moved),
        short(bus),
        percent(share)
    );
    let evidence = [
        ("members_mb_per_s", moved),
        ("bus_mb_per_s", bus),
        ("bus_share", share),
        ("members", members as f64),
    ];
    let command = format!("--bus {}MB/s, or members on another bus", (bus * 2.0).round());
    Some(finding("shared-bus", text, &evidence, Some(command)))
}

/// The bus of which most is used: its rate in MB/s, the number of its members, and what they moved
/// in MB/s.
fn fullest_bus(cell: &Cell) -> Option<(f64, usize, f64)> {
    let rate = |bytes: u64| bytes as f64 / 1e6 / seconds(cell);
    if let Some(bus) = cell.case.bus_mb_per_s.filter(|rate| *rate > 0.0) {
        return Some((bus, cell.case.disks as usize, rate(total(cell, MemberTraffic::bytes))));
    }
    let buses: Buses = cell.case.buses.as_deref()?.parse().ok()?;
    let spindle = cell.case.members_per_spindle.unwrap_or(1).max(1) as usize;
    let on = |bus: usize| {
        let members = cell.measured.per_member.iter().enumerate();
        let on_it = members.filter(|(at, _)| buses.of_disk(at / spindle) == Some(bus));
        on_it.fold((0, 0), |(count, bytes), (_, member)| (count + 1, bytes + member.bytes()))
    };
    let used = buses.rates().enumerate().map(|(bus, limit)| {
        let (members, bytes) = on(bus);
        (limit as f64 / 1e6, members, rate(bytes))
    });
    used.max_by(|one, two| (one.2 / one.0).total_cmp(&(two.2 / two.0)))
}

/// Members that are parts of one disk: its head seeks between them.
pub(super) fn shared_spindle(cell: &Cell) -> Option<Finding> {
    let members = cell.case.members_per_spindle.filter(|members| *members > 1)?;
    let sharing =
        format!("{members} members are parts of one disk, and its head seeks between them");
    shared("shared-spindle", cell, f64::from(members), &sharing, "--spindle 1")
}

/// Disks on one cable: the channel serves one command at a time.
pub(super) fn shared_channel(cell: &Cell) -> Option<Finding> {
    let all = cell.case.disks.div_ceil(cell.case.members_per_spindle.unwrap_or(1).max(1));
    let disks = cell.case.disks_per_channel?.min(all);
    if disks < 2 {
        return None;
    }
    let sharing = format!("{disks} disks share a channel, which serves one command at a time");
    shared("shared-channel", cell, f64::from(disks), &sharing, "--channel 1")
}

/// The cost of sharing a spindle or a channel: the bound of members that share nothing is clearly
/// higher, and this cell is close to the bound of members that share.
fn shared(name: &str, cell: &Cell, count: f64, how: &str, command: &str) -> Option<Finding> {
    const CLEARLY: f64 = 1.25;
    const ABOUT: f64 = 0.7;
    let (unshared, bound) = (cell.derived.unshared_bound_mb_per_s?, cell.derived.bound_mb_per_s?);
    if cell.case.disks < 2 || bound * CLEARLY > unshared || cell.derived.mb_per_s < ABOUT * bound {
        return None;
    }
    let text = format!(
        "{how}: {} MB/s here, at most {} MB/s with a disk and a channel for each",
        short(cell.derived.mb_per_s),
        short(unshared)
    );
    let evidence = [
        ("mb_per_s", cell.derived.mb_per_s),
        ("bound_mb_per_s", bound),
        ("unshared_bound_mb_per_s", unshared),
        ("sharing", count),
    ];
    Some(finding(name, text, &evidence, Some(command.to_string())))
}

/// One member is busy all the time and needs more time per byte than any other; the others wait for
/// it. In a stream it may be as fast as the others: where the stream runs at the speed of the
/// disks, a member that lags keeps lagging, and the others serve requests from their read-ahead or
/// write cache. So modelled drives of one model, which are alike, give no finding. For other drives
/// only a test of each member is conclusive, except under random reads, which no drive prefetches.
pub(super) fn one_slow_member(cell: &Cell) -> Option<Finding> {
    slow_per_byte(cell).or_else(|| slow_answers(cell))
}

/// One member's latency is much longer than any other's, though it gets no more operations: the
/// requests that it serves are the long tail. Its mean operations in flight and their number give
/// the time of one operation (Little's law); members in memory complete immediately and have none
/// in flight.
fn slow_answers(cell: &Cell) -> Option<Finding> {
    const LONGER: f64 = 2.0;
    const MORE: f64 = 1.5;
    const FEW: u64 = 20;
    if cell.measured.per_member.len() != cell.measured.member_load.len() || modelled_alike(cell) {
        return None;
    }
    let answer = |(index, traffic): (usize, &MemberTraffic)| {
        let ops = traffic.reads + traffic.writes;
        let in_flight = cell.measured.member_load[index].in_flight.unwrap_or(0.0);
        (ops >= FEW).then(|| (index, in_flight * seconds(cell) / ops as f64 * 1e6, ops))
    };
    let mut answers: Vec<_> =
        cell.measured.per_member.iter().enumerate().filter_map(answer).collect();
    answers.sort_by(|one, two| one.1.total_cmp(&two.1));
    let (slow, slow_us, ops) = answers.pop()?;
    let (_, next_us, _) = *answers.last()?;
    let mean_ops = answers.iter().map(|answer| answer.2).sum::<u64>() / answers.len() as u64;
    let latency = cell.measured.latency_us?;
    // Most requests must not touch it: then it shows in the tail of the latency.
    let tail = latency.p99 >= LONGER * latency.p50;
    let asked_more = ops as f64 > MORE * mean_ops as f64;
    if slow_us < LONGER * next_us.max(latency.p50 / LONGER) || asked_more || !tail {
        return None;
    }
    let ms = |us: f64| spec::units::latency(us);
    let others = if next_us > 0.0 { ms(next_us) } else { "a negligible time".into() };
    let text = format!(
        "member {slow} took {} for an operation, and no other more than {others}: p50 of the \
         requests is {}, p99 {}",
        ms(slow_us),
        ms(latency.p50),
        ms(latency.p99)
    );
    let evidence = [
        ("member", slow as f64),
        ("member_us", slow_us),
        ("next_us", next_us),
        ("p50_us", latency.p50),
        ("p99_us", latency.p99),
    ];
    let command = format!("measure member {slow} alone: if it is slow there, replace it");
    Some(finding("one-slow-member", text, &evidence, Some(command)))
}

fn slow_per_byte(cell: &Cell) -> Option<Finding> {
    const BUSY: f64 = 0.8;
    const SLOWER: f64 = 1.3;
    if cell.measured.per_member.len() != cell.measured.member_load.len() || modelled_alike(cell) {
        return None;
    }
    let cost = |(index, traffic): (usize, &MemberTraffic)| {
        let busy = cell.measured.member_load[index].busy?;
        (traffic.bytes() > 0).then(|| (index, busy, busy * seconds(cell) / traffic.bytes() as f64))
    };
    let mut costs: Vec<_> = cell.measured.per_member.iter().enumerate().filter_map(cost).collect();
    // A member without a busy time is not compared.
    let known = cell.measured.member_load.iter().filter(|load| load.busy.is_some()).count();
    if costs.len() < 2
        || known < cell.measured.per_member.len() - cell.case.degraded.min(cell.case.disks) as usize
    {
        return None;
    }
    costs.sort_by(|one, two| one.2.total_cmp(&two.2));
    let (slow, busy, per_byte) = costs.pop()?;
    let (_, _, next) = *costs.last()?;
    let others = costs.iter().map(|(_, busy, _)| busy).sum::<f64>() / costs.len() as f64;
    // A busy time below the resolution of its source has no ratio. And the others must have had
    // idle time: otherwise they are as much of a bottleneck.
    if next <= 0.0 || busy < BUSY || per_byte < next * SLOWER || others * SLOWER > busy {
        return None;
    }
    let perhaps = match cell.case.workload == AccessKind::RandRead {
        true => "",
        false => ", unless all are alike and one lags behind",
    };
    let text = format!(
        "member {slow} was busy {} of the time and needed {}x as long per byte as any other; \
         they were busy {}, and wait for it{perhaps}",
        percent(busy),
        short(per_byte / next),
        percent(others)
    );
    let evidence = [
        ("member", slow as f64),
        ("busy", busy),
        ("others_busy", others),
        ("time_per_byte_ratio", per_byte / next),
    ];
    // `--level single` applies only to an array that `bench` creates.
    let how = if cell.case.level.is_empty() { "" } else { " (--level single)" };
    let command =
        format!("measure each member alone{how}: if only member {slow} is slow there, replace it");
    Some(finding("one-slow-member", text, &evidence, Some(command)))
}

/// Whether the members are modelled drives of one kind.
fn modelled_alike(cell: &Cell) -> bool {
    RecordedMembers(&cell.case.members).modelled_alike()
}

/// Some members moved many more bytes than others, or some moved none.
pub(super) fn unbalanced_members(cell: &Cell) -> Option<Finding> {
    const UNEVEN: f64 = 1.25;
    let undivided = cell.is_single() || cell.md_level() == Some(Level::Linear);
    if undivided || cell.measured.per_member.len() < 2 {
        return None;
    }
    // Writeback from a cache says nothing about how the layout distributes the workload.
    if cell.amplification()? < MOVED_SHARE {
        return None;
    }
    let (idle, ratio) = (cell.idle_members(), cell.imbalance());
    let moved = |member: &&MemberTraffic| member.bytes() > 0;
    let fewest = cell.measured.per_member.iter().filter(moved).map(|m| m.reads + m.writes).min()?;
    // With n operations at random on each, two members differ by some 1/sqrt(n) by chance.
    if idle == 0 && ratio? < UNEVEN + 4.0 / (fewest.max(1) as f64).sqrt() {
        return None;
    }
    let text = match idle {
        0 => format!("the busiest member moved {}x what the idlest one moved", short(ratio?)),
        1 => "one member moved nothing".to_string(),
        _ => format!("{idle} members moved nothing"),
    };
    let (why, command) = match cell.md_level() {
        Some(Level::Raid4) => {
            ("parity is on a dedicated member", Some("--level raid5".to_string()))
        }
        Some(Level::Raid1 | Level::Raid10) if !cell.writes() => (
            "a stream with little in flight reads one copy, and other copies serve other streams",
            turn(cell, Knob::Jobs, u64::from((cell.case.jobs.max(1) * 2).max(cell.case.disks))),
        ),
        _ if cell.case.degraded > 0 => ("a member is missing", None),
        _ => (
            "the requests do not spread over the chunks",
            cell.case
                .chunk_kib
                .filter(|kib| *kib > 4)
                .map(|kib| format!("--chunk {}", size(kib / 2))),
        ),
    };
    let evidence = [
        ratio.map(|ratio| ("busiest_over_idlest", ratio)),
        Some(("idle_members", idle as f64)),
        Some(("fewest_operations", fewest as f64)),
    ];
    let evidence: Vec<(&str, f64)> = evidence.into_iter().flatten().collect();
    Some(finding("unbalanced-members", format!("{text}: {why}"), &evidence, command))
}

/// Writes cause reads of old data or parity.
pub(super) fn read_modify_write(cell: &Cell) -> Option<Finding> {
    const READ_SHARE: f64 = 0.2;
    let resyncing = resync_running(cell).is_some();
    // The reads of a rewrite belong to the workload.
    if !has_parity(cell) || !cell.only_writes() || resyncing || cell.measured.per_member.is_empty()
    {
        return None;
    }
    let user = cell.user_bytes() as f64;
    let read = total(cell, |member| member.read_bytes) as f64 / user;
    let written = total(cell, |member| member.written_bytes) as f64 / user;
    if read < READ_SHARE {
        return None;
    }
    let stripe = stripe_kib(cell);
    let text = format!(
        "for each byte written the members read {} and wrote {}: writes of {} KiB do not cover \
         {}, so old data or parity is read first",
        short(read),
        short(written),
        short(cell.case.block_kib),
        stripe.map_or("a whole stripe".to_string(), |kib| format!("a stripe of {kib} KiB"))
    );
    let mut evidence = vec![
        ("read_bytes_per_user_byte", read),
        ("written_bytes_per_user_byte", written),
        ("block_kib", cell.case.block_kib),
    ];
    evidence.extend(stripe.map(|kib| ("stripe_kib", kib as f64)));
    let whole = stripe.filter(|kib| cell.case.workload == AccessKind::SeqWrite && *kib <= 16 << 10);
    let block = whole.and_then(|kib| turn(cell, Knob::Block, kib));
    let command = block.unwrap_or_else(|| match cell.case.disks.is_multiple_of(2) {
        true => "--level raid10".into(),
        false => "--level raid1".into(),
    });
    Some(finding("read-modify-write", text, &evidence, Some(command)))
}

/// md's stripe cache grew, or was full. The size that md shows is a minimum: since Linux 4.1 it
/// allocates more entries when it runs out, and frees them when memory is short, so more entries in
/// use than the size mean that the cache has grown.
pub(super) fn stripe_cache_growing(cell: &Cell) -> Option<Finding> {
    const FULL: f64 = 0.95;
    let cache = cell.measured.stripe_cache?;
    let (begin, end) = (cache.entries_begin as f64, cache.entries_end as f64);
    let active = cache.active_max.map(|active| active as f64);
    let was_set = cache.entries_end > cache.entries_begin;
    if !was_set && active.is_none_or(|active| active < begin.max(end) * FULL) {
        return None;
    }
    let text = match active {
        _ if was_set => format!(
            "the stripe cache grew from {begin} to {end} entries during the samples: early \
             samples had less of it than late ones"
        ),
        Some(active) if active > end => format!(
            "{active} entries of the stripe cache were in use, and it keeps {end}: md allocated \
             more during the samples, and writes waited for them"
        ),
        _ => format!(
            "{} of the {end} entries of the stripe cache were in use: writes waited for free \
             entries",
            active.unwrap_or(end)
        ),
    };
    let mut evidence = vec![("entries_begin", begin), ("entries_end", end)];
    evidence.extend(active.map(|active| ("active_max", active)));
    let most = cache.entries_end.max(cache.active_max.unwrap_or(0)).max(1);
    let wanted = (most * 2).next_power_of_two().min(32_768);
    let command = format!("echo {wanted} > /sys/block/mdX/md/stripe_cache_size");
    let memory =
        data_members(cell).map(|_| f64::from(cell.case.disks) * 4.0 * wanted as f64 / 1024.0);
    evidence.extend(memory.map(|mib| ("memory_mib_at_command", mib)));
    Some(finding("stripe-cache-growing", text, &evidence, Some(command)))
}
