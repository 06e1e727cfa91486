//! A profile that callgrind wrote: which instructions were executed, and which functions called.
//!
//! Callgrind ran with `--dump-instr=yes --compress-strings=no --compress-pos=no`: each line of
//! costs begins with an address, and each name is written out.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, Result};

/// What was executed between two marks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Programs and libraries, by their paths.
    pub objects: Vec<String>,
    /// How often each instruction was executed, by object and address.
    pub executed: HashMap<(usize, u64), Executed>,
    /// Calls, by the called function.
    pub calls: BTreeMap<String, u64>,
    /// Instructions by source file, those of functions inlined from it included.
    pub files: BTreeMap<String, u64>,
}

/// Executions of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// How many.
    pub times: u64,
    /// It is a part of `clock_gettime`: under valgrind a system call, otherwise none.
    pub reads_clock: bool,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The line that does not read.
    pub fn parse(text: &str) -> Result<Profile> {
        let mut profile = Profile::default();
        let (mut object, mut file, mut called) = (0, String::new(), "");
        let (mut reads_clock, mut is_call) = (false, false);
        for (index, line) in text.lines().enumerate() {
            let (key, value) = line.split_once('=').unwrap_or(("", line));
            match key {
                "ob" => object = profile.object(value),
                "fl" | "fi" | "fe" => file = value.to_string(),
                "fn" => reads_clock = without_version(value) == "clock_gettime",
                "cfn" => called = value,
                "calls" => {
                    let times = value.split(' ').next().and_then(|times| times.parse::<u64>().ok());
                    let times = times.with_context(|| format!("line {}: {line}", index + 1))?;
                    *profile.calls.entry(without_version(called).to_string()).or_default() += times;
                    is_call = true;
                }
                "" if line.starts_with("0x") => {
                    // The line behind a call has the costs of the called function.
                    if std::mem::take(&mut is_call) {
                        continue;
                    }
                    let (address, times) =
                        cost(line).with_context(|| format!("line {}: {line}", index + 1))?;
                    let executed = profile.executed.entry((object, address)).or_default();
                    executed.times += times;
                    executed.reads_clock |= reads_clock;
                    match profile.files.get_mut(&file) {
                        Some(instructions) => *instructions += times,
                        None => drop(profile.files.insert(file.clone(), times)),
                    }
                }
                _ => {}
            }
        }
        Ok(profile)
    }

    fn object(&mut self, path: &str) -> usize {
        self.objects.iter().position(|known| known == path).unwrap_or_else(|| {
            self.objects.push(path.to_string());
            self.objects.len() - 1
        })
    }
}

/// `malloc` of `malloc@@GLIBC_2.2.5`, and without what tells recursion levels apart.
fn without_version(name: &str) -> &str {
    name.split(['@', '\'']).next().unwrap_or(name)
}

/// The address and the executions of a line "0xADDRESS LINE COUNT".
fn cost(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    Some((address, words.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "positions: instr line\nevents: Ir\n\nob=/bin/a\nfl=/x/driver.rs\n\
        fn=submit\n0x10 5 7\n0x12 6 7\nfi=/x/level.rs\n0x12 9 2\nfe=/x/driver.rs\n0x14 7 1\n\
        cob=/lib/c\ncfi=???\ncfn=malloc@@GLIBC_2.2.5\ncalls=3 0x99 0 \n0x16 8 3000\n\n\
        ob=/lib/c\nfl=???\nfn=clock_gettime@@GLIBC_2.17\n0x10 0 4\n";

    #[test]
    fn instructions_are_counted_by_address_and_by_file() {
        let profile = Profile::parse(PROFILE).unwrap();
        assert_eq!(profile.objects, ["/bin/a", "/lib/c"]);
        let times = |object, address| profile.executed[&(object, address)].times;
        assert_eq!([times(0, 0x10), times(0, 0x12), times(0, 0x14), times(1, 0x10)], [7, 9, 1, 4]);
        assert_eq!(profile.executed.len(), 4);
        let clock = profile.executed.iter().filter(|(_, executed)| executed.reads_clock);
        assert_eq!(clock.map(|(at, _)| *at).collect::<Vec<_>>(), [(1, 0x10)]);
        let files = [("/x/driver.rs", 15), ("/x/level.rs", 2), ("???", 4)];
        assert_eq!(profile.files, files.map(|(path, count)| (path.to_string(), count)).into());
    }

    #[test]
    fn calls_are_counted_by_the_called_function() {
        let profile = Profile::parse(PROFILE).unwrap();
        assert_eq!(profile.calls, [("malloc".to_string(), 3)].into());
        for bad in ["0x1g 5 7", "0x10 5", "0x10 5 x", "calls=x 0x99 0"] {
            assert!(Profile::parse(bad).is_err(), "{bad}");
        }
    }
}
