//! fio's words on the command line of `bench` and `sweep`: rewritten into ours where they mean the
//! same, with a note for each.
//!
//! Invariant: a word of ours is never changed, and nothing behind `--`. Called from `main`.

use std::ffi::OsString;

/// fio's option, ours, and what is different about it.
const OPTIONS: [(&str, &str, &str); 13] = [
    ("--bs", "--block", ""),
    ("--blocksize", "--block", ""),
    ("--iodepth", "--depth", ""),
    ("--numjobs", "--jobs", ""),
    ("--rw", "--workload", ""),
    ("--readwrite", "--workload", ""),
    ("--runtime", "--seconds", ", the length of each sample: --runs says how many"),
    ("--ramp_time", "--warm-up", ""),
    ("--randseed", "--seed", ""),
    ("--loops", "--runs", ""),
    ("--rate_iops", "--rate-iops", RATE),
    ("--rwmixread", "--read-percent", ""),
    ("--rate_process", "--rate-process", ""),
];

/// What is different about a stated load.
const RATE: &str = ", of all jobs together: latency counts from the scheduled arrival";

/// What is different about a mix.
const MIX: &str = ", 70 % reads unless --read-percent is given (fio: 50 %)";

/// fio's kinds of access, and ours.
const WORKLOADS: [(&str, &str); 7] = [
    ("read", "seq-read"),
    ("write", "seq-write"),
    ("randread", "rand-read"),
    ("randwrite", "rand-write"),
    ("rw", "seq-mixed"),
    ("readwrite", "seq-mixed"),
    ("randrw", "rand-mixed"),
];

/// The command line in our words, and a note for each word of fio's.
pub fn rewritten(mut words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut notes = Vec::new();
    let is_ours = words.get(1).is_some_and(|verb| verb == "bench" || verb == "sweep");
    let mut is_workload = false;
    for word in words.iter_mut().skip(2).take_while(|word| *word != "--").filter(|_| is_ours) {
        let Some(text) = word.to_str() else { continue };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let mut new = text.to_string();
        let mut is_option = name.starts_with("--");
        if let Some((_, ours, difference)) = OPTIONS.iter().find(|(fio, ..)| *fio == name) {
            notes.push(format!("fio's {name} is {ours} here{difference}"));
            new = value.map_or((*ours).to_string(), |value| format!("{ours}={value}"));
        } else if is_workload && !is_option {
            new = workloads(text, &mut notes);
        }
        if let Some(list) = new.strip_prefix("--workload=") {
            new = format!("--workload={}", workloads(list, &mut notes));
            is_option = false;
        }
        is_workload = is_option && new == "--workload";
        if new != text {
            *word = new.into();
        }
    }
    (words, notes)
}

/// A list of workloads in our words.
fn workloads(list: &str, notes: &mut Vec<String>) -> String {
    let ours = list.split(',').map(|word| match WORKLOADS.iter().find(|(fio, _)| *fio == word) {
        Some((fio, ours)) => {
            let share = if ours.ends_with("-mixed") { MIX } else { "" };
            notes.push(format!("fio's {fio} is {ours} here{share}"));
            *ours
        }
        None => word,
    });
    ours.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(line: &str) -> (String, usize) {
        let words = line.split(' ').map(OsString::from).collect();
        let (words, notes) = rewritten(words);
        let words: Vec<String> =
            words.into_iter().map(|word| word.into_string().unwrap()).collect();
        (words.join(" "), notes.len())
    }

    #[test]
    fn fios_words_become_ours() {
        for (fio, expected, notes) in [
            ("x bench --rw randread", "x bench --workload rand-read", 2),
            ("x bench --rw=randread,write", "x bench --workload=rand-read,seq-write", 3),
            ("x bench --workload read,dd", "x bench --workload seq-read,dd", 1),
            ("x bench --bs=4k --iodepth 32", "x bench --block=4k --depth 32", 2),
            (
                "x bench --rate_iops=100,200 --rate_process poisson",
                "x bench --rate-iops=100,200 --rate-process poisson",
                2,
            ),
            (
                "x bench --rw=randrw,rw,readwrite --rwmixread 50",
                "x bench --workload=rand-mixed,seq-mixed,seq-mixed --read-percent 50",
                5,
            ),
            ("x sweep --runtime 5 s.toml", "x sweep --seconds 5 s.toml", 1),
        ] {
            assert_eq!(ours(fio), (expected.to_string(), notes), "{fio}");
        }
    }

    #[test]
    fn what_is_ours_stays() {
        for line in [
            "x",
            "x bench",
            "x bench --workload seq-read,dd --block 4K",
            "x bench --dir read",
            "x bench --workload dd --dir write",
            "x bench -- --rw randread",
            "x report --rw randread",
        ] {
            assert_eq!(ours(line), (line.to_string(), 0), "{line}");
        }
    }
}
