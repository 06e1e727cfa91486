//! What disks are: the facts beside a figure that say which disk it is of. Serial numbers are not
//! among them: records are published.
//!
//! ```text
//!   /sys/class/block/sda1 --> sda: device/{vendor,model,rev}, queue/{scheduler,...}, size
//!                              '-- its path: .../ata3/..., .../usb1/1-4/..., nvme: PCI's own files
//! ```
//! Fields: the kernel's Documentation/ABI, stable and testing (sysfs-block, sysfs-ata, sysfs-nvme,
//! sysfs-bus-pci, sysfs-bus-usb).
//!
//! Invariant: what a driver does not say is absent. Called from `program`.

use std::path::{Path, PathBuf};

use results::record::DriveFacts;

use super::snapshot::Roots;
use crate::metrics::host::{chosen, line};

/// The disks of these names, or those that these partitions are on.
pub fn drives(roots: &Roots, names: &[String]) -> Vec<DriveFacts> {
    names.iter().map(|name| drive(&roots.sys, name)).collect()
}

fn drive(sys: &Path, name: &str) -> DriveFacts {
    // In sysfs the slashes of names like cciss/c0d0 are exclamation marks.
    let link = sys.join("class/block").join(name.replace('/', "!"));
    let own = std::fs::canonicalize(&link).unwrap_or(link);
    let disk = match own.join("partition").exists() {
        true => own.parent().map_or(own.clone(), Path::to_path_buf),
        false => own,
    };
    let device = disk.join("device");
    let of_device = |names: &[&str]| names.iter().find_map(|name| line(device.join(name)));
    let of_queue = |name: &str| line(disk.join("queue").join(name));
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let bytes = number(line(disk.join("size"))).map(|sectors| sectors * 512);
    DriveFacts {
        name: name.to_string(),
        // ATA disks have a vendor, too: ATA.
        model: match (of_device(&["vendor"]).filter(|text| is_name(text)), of_device(&["model"])) {
            (Some(vendor), Some(model)) if vendor != "ATA" => Some(format!("{vendor} {model}")),
            (_, model) => model,
        },
        firmware: of_device(&["firmware_rev", "rev"]),
        link: link_of(sys, &device),
        bytes: bytes.filter(|bytes| *bytes > 0),
        rotational: of_queue("rotational").map(|text| text == "1"),
        queue_depth: number(of_device(&["queue_depth"]).or_else(|| of_queue("nr_requests"))),
        scheduler: of_queue("scheduler").map(|text| chosen(&text)),
        read_ahead_kib: number(of_queue("read_ahead_kb")),
        write_cache: of_queue("write_cache"),
        block_bytes: number(of_queue("logical_block_size")),
    }
}

/// PCI's vendors are numbers.
fn is_name(text: &str) -> bool {
    !text.starts_with("0x")
}

/// How a disk is connected, and how fast that is: `SATA 6.0 Gbps`, `PCIe 8.0 GT/s x4`, `USB 5000
/// Mbit/s`, `virtio`.
fn link_of(sys: &Path, device: &Path) -> Option<String> {
    let real = std::fs::canonicalize(device).ok()?;
    let above = || real.ancestors();
    let part = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let numbered = |path: &Path, kind: &str| -> Option<String> {
        let name = part(path)?;
        let number = name.strip_prefix(kind)?;
        (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then(|| number.into())
    };
    if let Some(port) = above().find_map(|path| numbered(path, "ata")) {
        let speed = line(sys.join(format!("class/ata_link/link{port}/sata_spd")));
        return Some(speed.map_or("ATA".into(), |speed| format!("SATA {speed}")));
    }
    if above().any(|path| numbered(path, "usb").is_some()) {
        let speed = above().find_map(|path| line(path.join("speed")));
        return Some(speed.map_or("USB".into(), |speed| format!("USB {speed} Mbit/s")));
    }
    if above().any(|path| numbered(path, "virtio").is_some()) {
        return Some("virtio".into());
    }
    if above().any(|path| numbered(path, "nvme").is_some()) {
        let pci = |name: &str| above().find_map(|path| line(path.join(name)));
        let speed = pci("current_link_speed").map(|speed| speed.trim_end_matches(" PCIe").into());
        return Some(match (speed, pci("current_link_width")) {
            (Some::<String>(speed), Some(width)) => format!("PCIe {speed} x{width}"),
            _ => "NVMe".into(),
        });
    }
    None
}

/// Version and kind of md's metadata, and where the bitmap lies: `1.2`, `+8`, `none`.
pub fn metadata(roots: &Roots, array: &str) -> (Option<String>, Option<String>) {
    let md: PathBuf = roots.sys.join("class/block").join(array).join("md");
    (line(md.join("metadata_version")), line(md.join("bitmap/location")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::metrics::recorder::tests::Dir;

    /// A disk at `at` below devices/, as sysfs shows it.
    fn disk(dir: &Dir, at: &str, name: &str) -> PathBuf {
        let path = format!("sys/devices/{at}/block/{name}");
        dir.write(&format!("{path}/size"), "2048\n");
        dir.write(&format!("{path}/queue/scheduler"), "none [mq-deadline] kyber\n");
        dir.write(&format!("{path}/queue/rotational"), "1\n");
        let link = |target: &str, at: PathBuf| {
            std::fs::create_dir_all(at.parent().expect("below")).expect("made");
            symlink(dir.0.join("sys").join(target), at).expect("linked");
        };
        link(&format!("devices/{at}/block/{name}"), dir.0.join("sys/class/block").join(name));
        link(&format!("devices/{at}"), dir.0.join(&path).join("device"));
        dir.0.join(format!("sys/devices/{at}"))
    }

    #[test]
    fn a_disk_is_known_by_its_model_its_firmware_and_its_link() {
        let dir = Dir::with_array("drive-facts");
        disk(&dir, "pci0/ata3/host2/2:0:0:0", "sdx");
        for (name, text) in [
            ("vendor", "ATA\n"),
            ("model", "ST3500418AS\n"),
            ("rev", "CC38\n"),
            ("queue_depth", "31\n"),
        ] {
            dir.write(&format!("sys/devices/pci0/ata3/host2/2:0:0:0/{name}"), text);
        }
        dir.write("sys/class/ata_link/link3/sata_spd", "3.0 Gbps\n");
        dir.write("sys/devices/pci0/ata3/host2/2:0:0:0/block/sdx/sdx1/partition", "1\n");
        let link = dir.0.join("sys/class/block/sdx1");
        let part = dir.0.join("sys/devices/pci0/ata3/host2/2:0:0:0/block/sdx/sdx1");
        symlink(part, link).expect("linked");
        let roots = Roots::below(&dir.0);
        let all = drives(&roots, &["sdx1".into(), "gone".into()]);
        let known = DriveFacts {
            name: "sdx1".into(),
            model: Some("ST3500418AS".into()),
            firmware: Some("CC38".into()),
            link: Some("SATA 3.0 Gbps".into()),
            bytes: Some(1 << 20),
            rotational: Some(true),
            queue_depth: Some(31),
            scheduler: Some("mq-deadline".into()),
            ..DriveFacts::default()
        };
        assert_eq!(all, [known, DriveFacts { name: "gone".into(), ..DriveFacts::default() }]);
    }

    #[test]
    fn links_are_derived_from_the_sysfs_path() {
        let dir = Dir::with_array("drive-links");
        let roots = Roots::below(&dir.0);
        let link = |name: &str| drives(&roots, &[name.to_string()]).remove(0).link;
        disk(&dir, "pci0/0000:01:00.0/nvme/nvme0", "nvme0n1");
        assert_eq!(link("nvme0n1").as_deref(), Some("NVMe"));
        dir.write("sys/devices/pci0/0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n");
        dir.write("sys/devices/pci0/0000:01:00.0/current_link_width", "4\n");
        assert_eq!(link("nvme0n1").as_deref(), Some("PCIe 8.0 GT/s x4"));
        disk(&dir, "pci0/usb2/2-1/host7/7:0:0:0", "sdy");
        dir.write("sys/devices/pci0/usb2/2-1/speed", "5000\n");
        assert_eq!(link("sdy").as_deref(), Some("USB 5000 Mbit/s"));
        disk(&dir, "pci0/0000:00:03.0/virtio1", "vdx");
        assert_eq!(link("vdx").as_deref(), Some("virtio"));
        disk(&dir, "virtual/none", "ram0");
        assert_eq!(link("ram0"), None);
    }

    #[test]
    fn md_says_which_metadata_and_where_the_bitmap_is() {
        let dir = Dir::with_array("drive-metadata");
        let roots = Roots::below(&dir.0);
        assert_eq!(metadata(&roots, "gone"), (None, None));
        dir.write("sys/class/block/md9/md/metadata_version", "1.2\n");
        dir.write("sys/class/block/md9/md/bitmap/location", "+8\n");
        let known = (Some("1.2".to_string()), Some("+8".to_string()));
        assert_eq!(metadata(&roots, "md9"), known);
    }
}
