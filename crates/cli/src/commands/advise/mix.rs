//! The mix of workloads that advice is for: named, of a job file of fio's, or of a running system.
//!
//! Invariant: what the law has no equation for is refused with its name, never taken for something
//! else.

use anyhow::{Result, anyhow, bail};
use predict::advise::Share;
use predict::law::{Single, Work};
use spec::program::tools::{JobAccess, fio_accesses};

use super::iostat::{Flow, SMALL_BYTES};

/// The mix of a job file, and the requests in flight of each job.
#[derive(Debug)]
pub struct OfJobs {
    /// What its sections do, each section with the weight 1.
    pub mix: Vec<Share>,
    /// Of its random sections; `None` without one.
    pub depth: Option<u32>,
    /// Jobs of its random sections; without one, of the section that has most.
    pub jobs: u32,
    /// What is not as in fio, and sections without an equation.
    pub notes: Vec<String>,
    /// The sections of each workload: `[a], [b]`.
    pub sections: Vec<(Work, String)>,
}

/// The mix of the text of a job file or a command line; its name is for messages. Sections without
/// an equation are left out, and named.
///
/// # Errors
/// Options that are not understood; no section has an equation.
pub fn of_jobs(name: &str, text: &str) -> Result<OfJobs> {
    let (jobs, mut notes) = fio_accesses(name, text)?;
    let mut mix: Vec<Share> = Vec::new();
    let mut random: Option<&JobAccess> = None;
    let (mut counted, mut left_out) = (Vec::new(), Vec::new());
    for job in &jobs {
        match works(job).and_then(|works| alike(job, random).map(|()| works)) {
            Ok(works) => {
                works.iter().for_each(|share| add(&mut mix, share.work, share.weight));
                let is_random =
                    |share: &Share| matches!(share.work, Work::RandomRead | Work::RandomWrite);
                random = random.or(works.iter().any(is_random).then_some(job));
                counted.push(job);
            }
            Err(why) => left_out.push((job, why)),
        }
    }
    match (&mix[..], left_out) {
        ([], left_out) => {
            let (job, why) = left_out.into_iter().next().expect("a section has works, or none");
            bail!("--job {name}: [{}]: {why}", job.name)
        }
        (_, left_out) => {
            let note = |(job, why): (&JobAccess, _)| format!("[{}] is left out: {why}", job.name);
            notes.extend(left_out.into_iter().map(note));
        }
    }
    let most = counted.iter().map(|job| job.jobs).max().unwrap_or(1);
    let jobs = random.map_or(most, |job| job.jobs);
    let of = |share: &Share| {
        let is_of = |job: &&&JobAccess| {
            works(job).is_ok_and(|works| works.iter().any(|one| one.work == share.work))
        };
        let names = counted.iter().filter(is_of).map(|job| format!("[{}]", job.name));
        (share.work, names.collect::<Vec<_>>().join(", "))
    };
    let sections = mix.iter().map(of).collect();
    Ok(OfJobs { mix, depth: random.map(|job| job.depth), jobs, notes, sections })
}

/// The workloads of a section, which together weigh 1.
fn works(job: &JobAccess) -> Result<Vec<Share>> {
    let mut works = Vec::new();
    for (reads, percent) in [(true, job.read_percent), (false, 100 - job.read_percent)] {
        if percent > 0 {
            let weight = f64::from(percent) / 100.0;
            works.push(Share { work: work(job, reads)?, weight });
        }
    }
    Ok(works)
}

/// Whether a random section has as many requests in flight as the first one.
fn alike(job: &JobAccess, first: Option<&JobAccess>) -> Result<()> {
    let Some(first) = first.filter(|_| job.random) else { return Ok(()) };
    for (option, own, other) in
        [("iodepth", job.depth, first.depth), ("numjobs", job.jobs, first.jobs)]
    {
        if own != other {
            bail!(
                "{option} {own}, of [{}] {other}: one {option} is predicted at a time; give the \
                 random sections one, or advise on each",
                first.name
            );
        }
    }
    Ok(())
}

fn add(mix: &mut Vec<Share>, work: Work, weight: f64) {
    match mix.iter_mut().find(|share| share.work == work) {
        Some(share) => share.weight += weight,
        None => mix.push(Share { work, weight }),
    }
}

/// The workload of a section's reads or writes.
fn work(job: &JobAccess, reads: bool) -> Result<Work> {
    let (several, small) = (job.jobs > 1, job.block_bytes <= SMALL_BYTES);
    if !reads && job.fsync > 0 {
        return match (job.fsync, several, small) {
            (1, false, true) => Ok(Work::SyncWrite),
            (1, ..) => {
                bail!("an fsync after each write is predicted of one job with small blocks only")
            }
            (every, ..) => bail!("fsync={every}: predicted are 0, and 1 of one job"),
        };
    }
    if job.random {
        return match (small, reads) {
            (true, true) => Ok(Work::RandomRead),
            (true, false) => Ok(Work::RandomWrite),
            (false, _) => bail!(
                "random blocks of {} KiB: the law has an equation up to 64 KiB",
                job.block_bytes / 1024
            ),
        };
    }
    if job.direct {
        return direct(job, reads);
    }
    Ok(match (several, reads) {
        (false, true) => Work::Read,
        (false, false) => Work::Write,
        (true, true) => Work::StreamsRead,
        (true, false) => Work::StreamsWrite,
    })
}

/// The workload of sequential requests past the page cache. No read-ahead and no write-back joins
/// them, so that small ones, or one at a time, do not reach all members.
fn direct(job: &JobAccess, reads: bool) -> Result<Work> {
    if job.block_bytes <= SMALL_BYTES {
        bail!(
            "direct=1 with blocks of {} KiB in order: nothing joins them, and the law has an \
             equation for larger ones only, above 64 KiB",
            job.block_bytes / 1024
        );
    }
    if job.jobs == 1 && job.depth == 1 {
        bail!(
            "direct=1 with one request at a time: without read-ahead or write-back it reaches a \
             member or two; predicted are many requests in flight (iodepth, numjobs)"
        );
    }
    Ok(if reads { Work::DirectRead } else { Work::DirectWrite })
}

/// The mix of what a running system does: each flow weighs the time that one disk would need
/// for a second of it.
///
/// # Errors
/// A flow of which nothing is known of one disk; no flow at all.
pub fn of_flows(flows: &[Flow], single: &Single) -> Result<Vec<Share>> {
    let mut mix = Vec::new();
    for flow in flows.iter().filter(|flow| flow.per_second > 0.0) {
        let work = match (flow.random, flow.reads) {
            (true, true) => Work::RandomRead,
            (true, false) => Work::RandomWrite,
            (false, true) => Work::Read,
            (false, false) => Work::Write,
        };
        let one = single.get(work).map(|one| one.rate);
        let one =
            one.ok_or_else(|| anyhow!("--iostat: no figure of one disk for {}", work.name()))?;
        let rate =
            if flow.random { flow.per_second } else { flow.per_second * flow.bytes_each / 1e6 };
        add(&mut mix, work, rate / one);
    }
    match mix.is_empty() {
        true => bail!("--iostat: the device was idle"),
        false => Ok(mix),
    }
}

#[cfg(test)]
mod tests {
    use predict::law::Source;

    use super::*;

    fn jobs(text: &str) -> Result<OfJobs> {
        of_jobs("x.fio", text)
    }

    #[test]
    fn each_workload_has_the_names_of_its_sections() {
        let found = jobs("[a]\nrw=write\nnumjobs=2\n[b]\nrw=rw\nnumjobs=2\n[c]\nrw=randread\n");
        let sections = found.expect("a mix").sections;
        let name = |work: Work| {
            let of = sections.iter().find(|(one, _)| *one == work);
            of.map(|(_, names)| names.as_str())
        };
        assert_eq!(name(Work::StreamsWrite), Some("[a], [b]"));
        assert_eq!((name(Work::StreamsRead), name(Work::RandomRead)), (Some("[b]"), Some("[c]")));
    }

    #[test]
    fn sections_are_workloads() {
        let text = "[global]\nioengine=libaio\n[a]\nrw=randrw\nrwmixread=75\niodepth=16\n[b]\n\
                    rw=read\nbs=1m\n[c]\nrw=randread\niodepth=16\n[d]\nrw=write\nfsync=1\n";
        let found = jobs(text).expect("a mix");
        let weights = found.mix.iter().map(|share| (share.work, share.weight));
        let expected = [
            (Work::RandomRead, 1.75),
            (Work::RandomWrite, 0.25),
            (Work::Read, 1.0),
            (Work::SyncWrite, 1.0),
        ];
        assert_eq!(weights.collect::<Vec<_>>(), expected);
        assert_eq!((found.depth, found.jobs), (Some(16), 1));
        let streams = jobs("[a]\nrw=read\nnumjobs=8\n[b]\nrw=write\ndirect=1\nbs=1m\nnumjobs=4\n");
        let works: Vec<Work> = streams.expect("a mix").mix.iter().map(|one| one.work).collect();
        assert_eq!(works, [Work::StreamsRead, Work::DirectWrite]);
    }

    #[test]
    fn the_jobs_of_random_sections_count() {
        let streams = "[a]\nrw=read\nnumjobs=8\n[b]\nrw=randread\n";
        let found = jobs(streams).expect("a mix");
        assert_eq!((found.depth, found.jobs), (Some(1), 1));
        assert_eq!(jobs("[a]\nrw=read\nnumjobs=8\n").expect("a mix").jobs, 8);
    }

    #[test]
    fn what_has_no_equation_is_named() {
        for (text, part) in [
            ("[a]\nrw=randread\nbs=1m\n", "[a]: random blocks of 1024 KiB"),
            ("[b]\nrw=write\nfsync=8\n", "[b]: fsync=8"),
            ("[a]\nrw=read\nbs=4k\ndirect=1\n", "[a]: direct=1 with blocks of 4 KiB"),
            ("[a]\nrw=write\nbs=4k\ndirect=1\nnumjobs=4\n", "[a]: direct=1 with blocks of 4 KiB"),
            ("[a]\nrw=read\nbs=1m\ndirect=1\n", "[a]: direct=1 with one request at a time"),
            ("[a]\nrw=trim\n", "x.fio:2"),
        ] {
            let refused = jobs(text).map(|_| ()).expect_err(text);
            let refused = format!("{refused:#}");
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn sections_without_an_equation_are_left_out_and_named() {
        for (text, part) in [
            (
                "[global]\nioengine=libaio\n[a]\nrw=randread\niodepth=4\n[b]\nrw=randwrite\n\
                 iodepth=8\n",
                "[b] is left out: iodepth 8, of [a] 4",
            ),
            (
                "[a]\nrw=randread\nnumjobs=4\n[b]\nrw=randwrite\nnumjobs=2\n",
                "[b] is left out: numjobs 2, of [a] 4",
            ),
            ("[b]\nrw=randrw\nbs=1m\n[a]\nrw=randread\n", "[b] is left out: random blocks of"),
        ] {
            let found = jobs(text).expect(text);
            let works: Vec<Work> = found.mix.iter().map(|share| share.work).collect();
            assert_eq!(works, [Work::RandomRead], "{text}");
            assert!(found.notes.iter().any(|note| note.starts_with(part)), "{:?}", found.notes);
        }
    }

    #[test]
    fn flows_weigh_the_time_of_one_disk() {
        let mut single = Single::default();
        single.offer(Work::RandomRead, 100.0, Source::Measured);
        single.offer(Work::Write, 200.0, Source::Measured);
        let flow = |reads, per_second, bytes_each| {
            let random = bytes_each < 1e5;
            Flow { reads, per_second, bytes_each, random }
        };
        let flows = [flow(true, 50.0, 8192.0), flow(false, 100.0, 1e6), flow(true, 0.0, 1e6)];
        let mix = of_flows(&flows, &single).expect("a mix");
        let weights: Vec<_> = mix.iter().map(|share| (share.work, share.weight)).collect();
        assert_eq!(weights, [(Work::RandomRead, 0.5), (Work::Write, 0.5)]);
        of_flows(&flows[2..], &single).expect_err("idle");
        let unknown = of_flows(&[flow(false, 1.0, 4096.0)], &single).expect_err("no figure");
        assert!(unknown.to_string().contains("random write"), "{unknown}");
    }
}
