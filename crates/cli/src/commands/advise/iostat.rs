//! What `iostat -x` printed of a device: how many requests of which size.
//!
//! Invariant: columns are found by their names, in the versions of sysstat since 10; a text without
//! them is refused.

use anyhow::{Result, anyhow, bail};

/// The reads or the writes of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Reads, or writes.
    pub reads: bool,
    /// Requests per second.
    pub per_second: f64,
    /// Bytes of a request, on average; 0 without requests.
    pub bytes_each: f64,
}

/// What a device did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its reads and its writes.
    pub flows: [Flow; 2],
    /// Requests in flight, on average; `None`: no column says it, or it counts none, as that of md
    /// in kernels that do not account for it.
    pub in_flight: Option<f64>,
    /// There is one report: the mean since the system was started, or of an interval that was cut
    /// out of the output.
    pub is_single: bool,
}

/// Reads and writes of a device: the mean of its reports, but for the first of several, which is
/// since the system was started. `device`: its name; without, the only md array or the only device.
///
/// # Errors
/// No output of `iostat -x`; a device that is not there, or several without a name.
pub fn load(text: &str, device: Option<&str>) -> Result<Load> {
    let mut columns: Option<Columns> = None;
    let mut rows: Vec<(String, Report)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_some_and(|word| word.trim_end_matches(':') == "Device") {
            columns = Some(Columns::of(&words)?);
            continue;
        }
        match &columns {
            Some(of) if words.len() == of.count => rows.push((words[0].into(), of.row(&words)?)),
            // A blank line ends a report's table.
            _ => columns = columns.filter(|_| !words.is_empty()),
        }
    }
    let mut names: Vec<&str> = rows.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names.dedup();
    let arrays: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("md")).collect();
    let name = match (device, &arrays[..], &names[..]) {
        (_, _, []) => bail!("it has no table of devices: the output of iostat -x is required"),
        (Some(device), ..) => device.strip_prefix("/dev/").unwrap_or(device),
        (None, [one], _) | (None, _, [one]) => one,
        (None, ..) => bail!("it has {}: name one, as in FILE:{}", names.join(", "), names[0]),
    };
    let all: Vec<Report> =
        rows.iter().filter(|(row, _)| row == name).map(|(_, report)| *report).collect();
    let counted = match &all[..] {
        [] => bail!("it has no device {name}, but {}", names.join(", ")),
        [one] => std::slice::from_ref(one),
        [_, others @ ..] => others,
    };
    let in_flight = counted.iter().filter_map(|report| report.in_flight).sum::<f64>();
    Ok(Load {
        flows: [0, 1].map(|direction| mean(counted.iter().map(|report| report.flows[direction]))),
        is_single: all.len() == 1,
        in_flight: Some(in_flight / counted.len() as f64).filter(|in_flight| *in_flight > 0.0),
    })
}

/// A line of a report.
#[derive(Clone, Copy)]
struct Report {
    flows: [Flow; 2],
    in_flight: Option<f64>,
}

fn mean(flows: impl ExactSizeIterator<Item = Flow> + Clone) -> Flow {
    let count = flows.len() as f64;
    let requests: f64 = flows.clone().map(|flow| flow.per_second).sum();
    let bytes: f64 = flows.clone().map(|flow| flow.per_second * flow.bytes_each).sum();
    let reads = flows.clone().next().is_some_and(|flow| flow.reads);
    let bytes_each = if requests > 0.0 { bytes / requests } else { 0.0 };
    Flow { reads, per_second: requests / count, bytes_each }
}

/// Where the columns stand.
struct Columns {
    count: usize,
    requests: [usize; 2],
    bytes: [usize; 2],
    /// Bytes of the unit of `bytes`.
    unit: f64,
    in_flight: Option<usize>,
}

/// No system does more of anything in a second; what is computed of smaller numbers stays finite.
const NUMBER_MAX: f64 = 1e12;

impl Columns {
    fn of(heads: &[&str]) -> Result<Columns> {
        let at = |name: &str| heads.iter().position(|head| *head == name);
        let both = |read: &str, write: &str| Some([at(read)?, at(write)?]);
        let units = [
            ("rkB/s", "wkB/s", 1024.0),
            ("rMB/s", "wMB/s", 1048576.0),
            ("rsec/s", "wsec/s", 512.0),
        ];
        let bytes = units.iter().find_map(|(read, write, unit)| Some((both(read, write)?, *unit)));
        match (both("r/s", "w/s"), bytes) {
            (Some(requests), Some((bytes, unit))) => {
                let in_flight = at("aqu-sz").or(at("avgqu-sz"));
                Ok(Columns { count: heads.len(), requests, bytes, unit, in_flight })
            }
            _ => bail!(
                "it has no columns r/s, w/s, rkB/s, wkB/s: the output of iostat -x is required"
            ),
        }
    }

    fn row(&self, words: &[&str]) -> Result<Report> {
        let number = |at: usize| {
            // Some languages write a comma.
            let number = words[at].replace(',', ".").parse::<f64>();
            let number = number.ok().filter(|number| (0.0..NUMBER_MAX).contains(number));
            number
                .ok_or_else(|| anyhow!("{}: '{}' is no number from 0 to 1e12", words[0], words[at]))
        };
        let flow = |direction: usize| -> Result<Flow> {
            let per_second = number(self.requests[direction])?;
            let bytes = number(self.bytes[direction])? * self.unit;
            let bytes_each = if per_second > 0.0 { bytes / per_second } else { 0.0 };
            Ok(Flow { reads: direction == 0, per_second, bytes_each })
        };
        let in_flight = self.in_flight.map(number).transpose()?;
        Ok(Report { flows: [flow(0)?, flow(1)?], in_flight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// sysstat 12, shortened to the columns before those of discards.
    const TWO_REPORTS: &str = "\
Linux 6.1.0 (host)  11/26/26  _x86_64_  (2 CPU)

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
md0            900.00   3600.00     0.00   0.00    0.00     4.00    1.00      4.00
sda              5.00     20.00     0.00   0.00    0.00     4.00    1.00      4.00

avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
md0            100.00    800.00     0.00   0.00    0.00     8.00   20.00  10240.00
sda              5.00     20.00     0.00   0.00    0.00     4.00    0.00      0.00
";

    #[test]
    fn the_report_since_the_start_does_not_count() {
        let two = load(TWO_REPORTS, None).expect("one array");
        assert!(!two.is_single);
        let [reads, writes] = two.flows;
        assert_eq!(reads, Flow { reads: true, per_second: 100.0, bytes_each: 8192.0 });
        assert_eq!(writes, Flow { reads: false, per_second: 20.0, bytes_each: 524288.0 });
        let [_, writes] = load(TWO_REPORTS, Some("/dev/sda")).expect("named").flows;
        assert_eq!((writes.per_second, writes.bytes_each), (0.0, 0.0));
    }

    #[test]
    fn older_and_other_forms_are_read() {
        let older =
            "Device:  rrqm/s wrqm/s r/s w/s rsec/s wsec/s\nsdb 0,00 0,00 10,00 5,00 80,00 0,00\n";
        let one = load(older, None).expect("one device");
        assert!(one.is_single);
        let [reads, _] = one.flows;
        assert_eq!((reads.per_second, reads.bytes_each), (10.0, 4096.0));
        for (text, device, part) in [
            ("", None, "no table"),
            ("Device tps kB_read/s\nsda 1 2\n", None, "iostat -x"),
            (TWO_REPORTS, Some("sdz"), "no device sdz, but md0, sda"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 1 1\nsdb 1 1 1 1\n", None, "FILE:sda"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 x 1 1\n", None, "'x' is no number"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 1e306 1\n", None, "'1e306' is no number"),
            ("Device r/s w/s rkB/s wkB/s\nsda 1 1 nan 1\n", None, "'nan' is no number"),
        ] {
            let refused = load(text, device).map(|_| ()).expect_err(part);
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn requests_in_flight_are_those_of_the_queue() {
        let of = |head: &str, cell: &str| {
            let text = format!(
                "Device r/s w/s rkB/s wkB/s {head}\nsda 1 1 4 4 99\n\n\
                 Device r/s w/s rkB/s wkB/s {head}\nsda 1 1 4 4 {cell}\n"
            );
            load(&text, None).expect("one device").in_flight
        };
        assert_eq!(of("aqu-sz", "7.50"), Some(7.5));
        assert_eq!(of("avgqu-sz", "3,00"), Some(3.0));
        // Of md, where the kernel does not count it.
        assert_eq!(of("aqu-sz", "0.00"), None);
        assert_eq!(of("svctm", "7.50"), None);
    }
}
