//! Sizes, layouts, rates and times on the command line.
//!
//! Invariant: a number without a unit is KiB in the verbs with mdadm's options (`create`, `dump`),
//! as with mdadm's `--chunk`, `--size` and `--data-offset`; elsewhere it is refused.

use std::time::Duration;

use anyhow::{Result, anyhow};
use md::{BareNumber, Layout, Level, SECTOR_BYTES, SizeProblem, parse_size};

use crate::error::Context;
use spec::units::{parse_any_seconds, parse_rate};

/// A size in bytes, which needs a unit: `64K`, `64KiB`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    parse_size(text.trim(), BareNumber::Refused).map_err(|error| anyhow!("{}", error.problem))
}

/// The size of a disk as shops have it: `8T` and `8TB` are 8 x 10^12 bytes; `8TiB` is binary.
pub fn parse_disk_bytes(text: &str) -> Result<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = match unit.trim().to_ascii_uppercase().as_str() {
        "K" | "KB" => 1,
        "M" | "MB" => 2,
        "G" | "GB" => 3,
        "T" | "TB" => 4,
        "P" | "PB" => 5,
        // Binary ones, and the refusal of what is none.
        _ => return parse_bytes(text),
    };
    let bytes = number.parse::<f64>().ok().map(|number| number * 1000f64.powi(power));
    match bytes {
        Some(bytes) if (1.0..1e19).contains(&bytes) => Ok(bytes.round() as u64),
        _ => Err(anyhow!("a size of a disk, as in 8T (8 x 10^12 bytes) or 8TiB")),
    }
}

/// The limit of a rate of background work, in KiB/s, at least 1.
pub fn parse_speed_limit(text: &str) -> Result<u64> {
    Ok((parse_rate(text)? / 1024).max(1))
}

/// Memory for data: at least 16 MiB.
pub fn parse_memory(text: &str) -> Result<u64> {
    let bytes = parse_bytes(text)?;
    match (16 << 20..=64 << 30).contains(&bytes) {
        true => Ok(bytes),
        false => Err(anyhow!("memory for data is 16M to 64G")),
    }
}

/// How long an operation of a member may take: 10 ms, which is a test's, to a day.
pub fn parse_member_timeout(text: &str) -> Result<Duration> {
    let seconds = parse_any_seconds(text)?;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(anyhow!("an operation may take 10ms to 86400s (a day)")),
    }
}

/// A size in sectors: `64`, `64K` (KiB), `1M`, `10G`, `2T`, or `2048s` for sectors.
pub fn parse_sectors(text: &str) -> Result<u64> {
    let bytes = parse_size(text, BareNumber::Kib).map_err(|error| match error.problem {
        SizeProblem::Malformed => {
            anyhow!("a number of KiB, or with a unit as in 64K, 1M, 10G, 2048s")
        }
        problem => anyhow!("{problem}"),
    })?;
    match bytes {
        _ if bytes > i64::MAX as u64 => Err(anyhow!("too large")),
        _ if !bytes.is_multiple_of(SECTOR_BYTES) => Err(anyhow!("a multiple of 512 bytes")),
        _ => Ok(bytes / SECTOR_BYTES),
    }
}

/// A level: `5`, `raid5`, `linear`, `mirror`, `stripe`.
pub fn parse_level(text: &str) -> Result<Level> {
    let lower = text.to_ascii_lowercase();
    let found = match lower.as_str() {
        "mirror" => Some(Level::Raid1),
        "stripe" => Some(Level::Raid0),
        _ => lower.parse().ok().or_else(|| lower.parse::<i32>().ok().and_then(Level::from_number)),
    };
    found.context("one of linear, 0, 1, 4, 5, 6, 10 (raid5 is 5)")
}

/// A layout by its name or md's number.
pub fn parse_layout(level: Level, text: &str) -> Result<Layout> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => i32::from_str_radix(digits, 16).ok(),
        None => text.parse::<i32>().ok(),
    };
    let layout = match number {
        Some(number) => Layout::from_number(level, number),
        None => Layout::parse(level, text),
    };
    layout.with_context(|| format!("--layout {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_sold_in_powers_of_1000() {
        for (text, bytes) in [
            ("8T", 8_000_000_000_000),
            ("8TB", 8_000_000_000_000),
            ("1.92T", 1_920_000_000_000),
            ("500G", 500_000_000_000),
            ("8TiB", 8 << 40),
            ("64KiB", 64 << 10),
        ] {
            assert_eq!(parse_disk_bytes(text).expect(text), bytes, "{text}");
        }
        for text in ["8", "T", "1.2.3T", "-1T", "1e30T", "99999P"] {
            assert!(parse_disk_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_kib_unless_they_say_otherwise() {
        for (text, sectors) in [
            ("64", 128),
            ("64K", 128),
            ("1M", 2048),
            ("2048s", 2048),
            ("2T", 1 << 32),
            ("0", 0),
            ("1.5M", 3072),
            ("1K", 2),
        ] {
            assert_eq!(parse_sectors(text).ok(), Some(sectors), "{text}");
        }
        for text in ["", "K", "-1", "64Q", "1.5", "100B", "8388608T", "99999999999T"] {
            assert!(parse_sectors(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_operation_may_take_some_time_and_not_for_ever() {
        for (text, millis) in [("30", 30_000), ("500ms", 500), ("1.5s", 1500), ("2min", 120_000)] {
            let parsed = parse_member_timeout(text).ok();
            assert_eq!(parsed, Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0", "0s", "-1", "1ms", "none", "", "100000", "inf", "30MB"] {
            assert!(parse_member_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn levels_and_layouts_go_by_name_and_number() {
        for (text, level) in
            [("5", Level::Raid5), ("raid6", Level::Raid6), ("mirror", Level::Raid1)]
        {
            assert_eq!(parse_level(text).ok(), Some(level), "{text}");
        }
        assert_eq!(parse_level("-1").ok(), Some(Level::Linear));
        assert!(parse_level("7").is_err() && parse_level("raid7").is_err());
        let far = Layout::parse(Level::Raid10, "f2");
        assert_eq!(parse_layout(Level::Raid10, "0x201").ok(), far.ok());
        assert!(parse_layout(Level::Raid5, "n2").is_err());
    }
}
