//! The machine's memory, as the kernel counts it (`/proc/meminfo`, proc(5)).

use std::fs;

/// Memory of the machine, bytes.
pub fn memory_bytes() -> Option<u64> {
    field(&meminfo()?, "MemTotal")
}

/// Memory that could be used now without swapping, in bytes, as the kernel estimates it.
pub fn available_memory_bytes() -> Option<u64> {
    field(&meminfo()?, "MemAvailable")
}

/// Memory that could be used now without writing anything to a device first, bytes.
pub fn spare_memory_bytes() -> Option<u64> {
    spare(&meminfo()?)
}

fn spare(meminfo: &str) -> Option<u64> {
    // Dirty pages count as available: they are of files.
    let unwritten = ["Dirty", "Writeback"].iter().filter_map(|name| field(meminfo, name));
    Some(field(meminfo, "MemAvailable")?.saturating_sub(unwritten.sum()))
}

fn meminfo() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_written_first_is_not_spare() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:   9000 kB\n\
                    Dirty:           800 kB\nWriteback:       200 kB\nWritebackTmp:     7 kB\n";
        assert_eq!(field(text, "MemTotal"), Some(16 << 20));
        assert_eq!(spare(text), Some(8000 << 10));
        assert_eq!(spare("MemAvailable: 1 kB\nDirty: 2 kB\n"), Some(0));
        assert_eq!(spare("MemTotal: 1 kB\n"), None, "Linux before 3.14");
        assert!(spare_memory_bytes().is_some() && available_memory_bytes() <= memory_bytes());
    }
}
