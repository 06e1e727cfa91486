//! Numbers, times and names as mdadm prints them, for people and scripts used to its output.
//!
//! Invariant: nothing here changes a value; what mdadm has no word for is shown as `-unknown-`.
//! Called from `examine`, `detail`, `status` and the state of servers. The tests compare with
//! mdadm's own output.

use std::fmt::Write;

use md::ondisk::{Timestamp, Uuid};
use md::{Layout, Level, Raid0Layout};

/// mdadm's text for a value without a name.
pub const UNKNOWN: &str = "-unknown-";

/// A size in both units, with the space in front of it; nothing below 5000 KiB.
pub fn human_size(bytes: u128) -> String {
    if bytes < 5000 * 1024 {
        return String::new();
    }
    let (binary, decimal, prefix) = match bytes {
        0..0x8000_0000 => (1_u128 << 20, 1_000_000_u128, 'M'),
        0x8000_0000..0x200_0000_0000 => (1 << 30, 1_000_000_000, 'G'),
        _ => (1 << 40, 1_000_000_000_000, 'T'),
    };
    let hundredths = |unit: u128, bytes: u128| bytes.saturating_mul(200) / unit;
    let binary = hundredths(binary, bytes).div_ceil(2);
    let decimal = (bytes / (decimal / 200)).div_ceil(2);
    let two = |hundredths: u128| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!(" ({} {prefix}iB {} {prefix}B)", two(binary), two(decimal))
}

/// Sectors with both sizes: `14336 sectors (7.00 MiB 7.34 MB)`.
pub fn sectors(sectors: u64) -> String {
    format!("{sectors} sectors{}", sector_size(sectors.into()))
}

/// KiB with both sizes: `7168 (7.00 MiB 7.34 MB)`.
pub fn kib(sectors: u128) -> String {
    format!("{}{}", sectors / 2, sector_size(sectors))
}

/// [`human_size`] of sectors.
pub fn sector_size(sectors: u128) -> String {
    human_size(sectors * 512)
}

/// A moment in the machine's time zone: `Sat Nov 21 19:31:32 2026`.
pub fn time(time: Timestamp) -> String {
    let seconds = i64::try_from(time.seconds).ok();
    let stamp = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    match stamp {
        Some(stamp) => stamp
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime("%a %b %e %H:%M:%S %Y")
            .to_string(),
        None => format!("second {} since 1970", time.seconds),
    }
}

/// The name of a level's number.
pub fn level(number: i32) -> &'static str {
    match number {
        -4 => "multipath",
        -5 => "faulty",
        _ => Level::from_number(number).map_or(UNKNOWN, Level::name),
    }
}

/// The value of the line `Layout`; `None` where mdadm has no such line.
pub fn layout(level: i32, number: u32) -> Option<String> {
    match Level::from_number(level)? {
        Level::Raid10 => Some(raid10_layout(number)),
        level @ (Level::Raid0 | Level::Raid5 | Level::Raid6) => {
            let layout = Layout::from_number(level, number.cast_signed());
            Some(match layout {
                Ok(Layout::None | Layout::Raid0(Raid0Layout::Unrecorded)) | Err(_) => {
                    UNKNOWN.into()
                }
                Ok(layout) => layout.to_string(),
            })
        }
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
    }
}

/// `near=2`, `offset=2`, `near=2, far=2`.
fn raid10_layout(number: u32) -> String {
    let (near, far) = (number & 0xff, number >> 8 & 0xff);
    let kind = if number & 0x1_0000 == 0 { "far" } else { "offset" };
    let mut text = String::new();
    if near != 1 {
        let _ = write!(text, "near={near}");
    }
    if far != 1 {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{kind}={far}");
    }
    if near * far == 1 {
        text.push_str("NO REDUNDANCY");
    }
    text
}

/// As in /proc/mdstat: a bar, the share, the blocks.
pub fn bar(word: &str, done_sectors: u64, of_sectors: u64) -> String {
    let share = done_sectors as f64 / of_sectors.max(1) as f64;
    let done = ((share * 20.0) as usize).min(20);
    let bar = if done == 20 { "=".repeat(20) } else { "=".repeat(done) + ">" };
    let (share, done, all) = (share * 100.0, done_sectors / 2, of_sectors / 2);
    format!("[{bar:.<20}]  {word} = {share:.1}% ({done}/{all})")
}

/// Bytes that a bit of a bitmap stands for: `64 MB`, in powers of 1024.
pub fn bitmap_chunk(bytes: u32) -> String {
    let (mut number, mut unit) = (bytes, 0);
    while number >= 1024 && unit < 3 {
        (number, unit) = (number >> 10, unit + 1);
    }
    format!("{number} {}", ["Bytes", "KB", "MB", "GB"][unit])
}

/// This machine's name, which mdadm takes for the home host.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// `  (local to host NAME)` when a name of metadata 1.x begins with the home host's.
pub fn local_to(name: &str, home_host: &str) -> String {
    let is_local = !home_host.is_empty()
        && name.strip_prefix(home_host).is_some_and(|rest| rest.starts_with(':'));
    if is_local { format!("  (local to host {home_host})") } else { String::new() }
}

/// The same of metadata 0.90, whose uuid ends with the first half of the name's SHA-1.
pub fn local_to_v0(uuid: Uuid, home_host: &str) -> String {
    let is_local = !home_host.is_empty() && uuid.0[8..] == home_host_digest(home_host);
    if is_local { format!(" (local to host {home_host})") } else { String::new() }
}

/// The second half of the UUID of an array with metadata 0.90.
pub fn home_host_digest(home_host: &str) -> [u8; 8] {
    use sha1::Digest;
    let digest = sha1::Sha1::digest(home_host.as_bytes());
    let mut end = [0; 8];
    end.copy_from_slice(&digest[..8]);
    // mdadm keeps the digest as words in memory, and prints words.
    end.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    end
}
