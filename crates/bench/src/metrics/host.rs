//! Provenance: the machine that a record was made on.
//!
//! Invariant: unknown facts are `None`; nothing is guessed, and a missing fact never fails a
//! run. No paths of the user are recorded. Sources: `/proc` and `/sys` (proc(5), sysfs(5)).
//!
//! Called once per run, before the first cell.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use results::host::{Backing, Host};

/// Collects the facts. `parity_kernel` is the name of the kernel in use; `backing` the
/// directory with the member files, if there is one.
pub fn probe(parity_kernel: Option<&str>, backing: Option<&Path>) -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let cores = std::thread::available_parallelism().ok();
    Host {
        hostname: Some(text(name.nodename())).filter(|name| !name.is_empty()),
        kernel: Some(format!("{} {}", text(name.sysname()), text(name.release()))),
        system: os_release(&system),
        architecture: Some(text(name.machine())),
        cpu: cpu_model(&cpuinfo),
        cores: cores.and_then(|cores| u32::try_from(cores.get()).ok()),
        virtual_machine: field(&cpuinfo, "flags")
            .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        memory_bytes: host::sys::memory_bytes(),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average: line("/proc/loadavg").and_then(|text| load_average(&text)),
        parity_kernel: parity_kernel.map(str::to_string),
        backing: backing.map(backing_of),
    }
}

/// The file system that `directory` is on.
pub fn backing_of(directory: &Path) -> Backing {
    let device = fs::metadata(directory).ok().map(|found| found.dev());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut backing = device.and_then(|dev| mount_of(&mounts, dev)).unwrap_or_default();
    if let Ok(space) = rustix::fs::statvfs(directory) {
        backing.free_bytes = Some(space.f_bavail.saturating_mul(space.f_frsize));
    }
    if let Some(dev) = device {
        look_at_queue(&mut backing, dev);
    }
    backing
}

/// Fills in the attributes of the block device's queue, if there is a block device.
fn look_at_queue(backing: &mut Backing, dev: u64) {
    let Some(queue) = queue_of(dev) else { return };
    backing.rotational = line(format!("{queue}/rotational")).map(|text| text == "1");
    backing.scheduler = line(format!("{queue}/scheduler")).map(|text| chosen(&text));
}

/// The directory with the settings of a block device's queue, by the device's number.
pub fn queue_of(dev: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue of its own: its disk is the directory above.
    let places = [format!("{device}/queue"), format!("{device}/../queue")];
    places.into_iter().find(|queue| Path::new(queue).is_dir())
}

/// The file's text without the newline; `None` if it is missing or empty.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string()).filter(|text| !text.is_empty())
}

/// `mq-deadline` of `none [mq-deadline] kyber`.
pub fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(chosen, _)| chosen).to_string()
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // x86 says `model name`; others, if anything, one of the following.
    let keys = ["model name", "Model", "cpu model", "cpu"];
    let model = keys.iter().find_map(|key| field(cpuinfo, key))?;
    Some(model.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn os_release(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_string())
}

fn load_average(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

/// A mount, as a line of mountinfo (proc_pid_mountinfo(5)) has it:
/// `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`.
pub struct Mount<'t> {
    /// The device's number: `98:0`.
    number: &'t str,
    /// Mount point.
    pub point: PathBuf,
    /// Options of the mount.
    options: &'t str,
    /// The file system: `ext4`.
    pub kind: &'t str,
    /// Source of the mount.
    source: &'t str,
    /// Options of the file system.
    super_options: &'t str,
}

impl Mount<'_> {
    fn of(line: &str) -> Option<Mount<'_>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let (mut mount, mut file_system) = (mount.split(' ').skip(2), file_system.split(' '));
        let number = mount.next()?;
        let point = unescaped(mount.nth(1)?).into();
        let (kind, source) = (file_system.next()?, file_system.next()?);
        let super_options = file_system.next().unwrap_or("");
        Some(Mount { number, point, options: mount.next()?, kind, source, super_options })
    }

    /// The options of the mount, then those of the file system without duplicates.
    pub fn all_options(&self) -> String {
        let mut options: Vec<&str> = self.options.split(',').collect();
        for option in self.super_options.split(',').filter(|option| !option.is_empty()) {
            if !options.contains(&option) {
                options.push(option);
            }
        }
        options.join(",")
    }
}

/// Spaces, tabs, newlines and backslashes are written in octal: `\\040`.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_string(), |text, (octal, plain)| text.replace(octal, plain))
}

/// The mounts in the text of mountinfo. Later ones cover earlier ones.
pub fn mounts(mountinfo: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(Mount::of)
}

/// The mount of device number `dev`.
fn mount_of(mountinfo: &str, dev: u64) -> Option<Backing> {
    let number = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mount = mounts(mountinfo).rev().find(|mount| mount.number == number)?;
    Some(Backing {
        options: Some(mount.all_options()),
        file_system: Some(mount.kind.to_string()),
        device: Some(mount.source.to_string()),
        ..Backing::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Example  CPU @ 3.00GHz\nflags\t\t: fpu avx2\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Example CPU @ 3.00GHz"));
        assert_eq!(field(cpuinfo, "flags"), Some("fpu avx2"));
        assert_eq!(load_average("0.50 1.25 2.00 1/234 5678"), Some([0.5, 1.25, 2.0]));
        assert_eq!(load_average("0.50 x"), None);
        let release = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n";
        assert_eq!(os_release(release).as_deref(), Some("Debian GNU/Linux 13 (trixie)"));
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn the_mount_of_a_device_is_found() {
        let text = "22 1 0:21 / /proc rw - proc proc rw\n\
                    36 35 98:0 /sub /mnt rw,noatime master:1 - ext3 /dev/a rw,errors=continue\n\
                    37 35 98:0 / /data rw,relatime - ext4 /dev/b rw\n";
        let mount = mount_of(text, rustix::fs::makedev(98, 0)).unwrap();
        assert_eq!(mount.file_system.as_deref(), Some("ext4"));
        assert_eq!(mount.device.as_deref(), Some("/dev/b"));
        assert_eq!(mount.options.as_deref(), Some("rw,relatime"));
        assert_eq!(mount_of(text, rustix::fs::makedev(98, 1)), None);
        let line =
            "36 35 7:0 / /tmp/a\\040b rw,noatime - ext3 /dev/loop0 rw,data=journal,stripe=48";
        let mount = mounts(line).next().expect("a mount");
        assert_eq!((mount.point.as_path(), mount.kind), (Path::new("/tmp/a b"), "ext3"));
        assert_eq!(mount.all_options(), "rw,noatime,data=journal,stripe=48");
    }

    #[test]
    fn this_machine_can_be_looked_at_and_written_down() {
        let host = probe(Some("portable"), Some(&std::env::temp_dir()));
        assert!(host.kernel.is_some() && host.cores.is_some_and(|cores| cores > 0));
        assert!(host.backing.as_ref().is_some_and(|backing| backing.free_bytes.is_some()));
        let text = serde_json::to_string(&host).unwrap();
        assert_eq!(serde_json::from_str::<Host>(&text).unwrap(), host);
    }

    #[test]
    fn a_directory_that_is_not_there_is_no_failure() {
        assert_eq!(backing_of(Path::new("no-such-directory")), Backing::default());
    }
}
