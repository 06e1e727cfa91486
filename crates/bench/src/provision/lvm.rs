//! A logical volume between a block device and a file system.
//!
//! Invariant: LVM sees the one device that is ours and nothing else of the host's: no devices file,
//! a filter, no backups, no udev. Data begins at a multiple of the array's stripe.

use std::path::{Path, PathBuf};

use super::error::ProvisionError;
use super::plan::Stripes;
use super::steps::{Step, StepError};
use super::undo::Undo;

/// What is done, in order, each with what undoes it; and the volume's device. `ours` is the device
/// of an array of the engine: a loop device that ends with the volume, its last user, so that there
/// is nothing left to erase, and nothing to erase it on.
fn steps(
    device: &Path,
    stripes: Option<Stripes>,
    ours: bool,
    group: &str,
) -> ([(Step, Option<Step>); 3], PathBuf) {
    let device = device.display().to_string();
    let config = format!(
        "devices {{ use_devicesfile=0 filter=[\"a|^{device}$|\",\"r|.*|\"] }} \
         activation {{ udev_sync=0 udev_rules=0 }} backup {{ backup=0 archive=0 }}"
    );
    let lvm = |args: &[&str]| {
        let all = args.iter().copied().chain(["--config", &config]);
        Step::run("lvm", all)
    };
    let mut pv = vec!["pvcreate", "-ff", "-y"];
    let align = stripes.map(|s| format!("{}b", s.chunk_bytes * s.data_members));
    pv.extend(align.as_ref().iter().flat_map(|align| ["--dataalignment", align]));
    pv.push(&device);
    let steps = [
        (lvm(&pv), (!ours).then(|| lvm(&["pvremove", "-y", &device]))),
        (lvm(&["vgcreate", group, &device]), Some(lvm(&["vgremove", "-f", group]))),
        // Goes with the group.
        (lvm(&["lvcreate", "-y", "-Wn", "-l", "100%FREE", "-n", "data", group]), None),
    ];
    (steps, format!("/dev/mapper/{}-data", group.replace('-', "--")).into())
}

/// Refuses to begin where the kernel cannot map devices. Opening `control` loads the module where
/// there is one.
pub(super) fn can_map(control: &Path) -> Result<(), ProvisionError> {
    let opened = std::fs::File::open(control).map(drop);
    // Without the node the kernel may have it all the same, as in a container.
    opened.map_err(|source| ProvisionError::NoDeviceMapper { path: control.into(), source })
}

/// What opens to the kernel's device-mapper.
pub(super) const CONTROL: &str = "/dev/mapper/control";

/// Makes a volume of all of `device`; `ours` as in [`steps`].
pub(super) fn volume(
    device: &Path,
    stripes: Option<Stripes>,
    ours: bool,
    undo: &mut Undo,
) -> Result<PathBuf, StepError> {
    let group = format!("raidlab{}", std::process::id());
    let (steps, volume) = steps(device, stripes, ours, &group);
    for (step, back) in steps {
        step.perform()?;
        back.into_iter().for_each(|back| undo.push(back));
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_devices_from_being_mapped_is_named() {
        let refused = can_map(Path::new("/no/such/control")).expect_err("refused");
        let why = "lvm: /no/such/control cannot be opened: No such file or directory";
        let refused = refused.to_string();
        assert!(refused.starts_with(why), "{refused}");
    }

    #[test]
    fn the_hosts_volumes_are_out_of_sight() {
        let stripes = Some(Stripes { chunk_bytes: 65_536, data_members: 3 });
        let (steps, volume) = steps(Path::new("/dev/loop7"), stripes, false, "raidlab1");
        let config = "--config devices { use_devicesfile=0 \
                      filter=[\"a|^/dev/loop7$|\",\"r|.*|\"] } activation { udev_sync=0 \
                      udev_rules=0 } backup { backup=0 archive=0 }";
        let (there, back): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
        let all = there.iter().chain(back.iter().flatten()).map(ToString::to_string);
        let all: Vec<String> = all.collect();
        assert!(all.iter().all(|step| step.ends_with(config)), "{all:?}");
        assert!(all[0].starts_with("lvm pvcreate -ff -y --dataalignment 196608b /dev/loop7 "));
        assert!(all[2].contains("lvcreate -y -Wn -l 100%FREE -n data raidlab1"));
        assert!(all[3].contains("pvremove") && all[4].contains("vgremove"));
        assert_eq!(volume, Path::new("/dev/mapper/raidlab1-data"));
    }

    #[test]
    fn a_device_that_ends_with_its_volume_is_not_erased() {
        let (steps, _) = super::steps(Path::new("/dev/loop7"), None, true, "raidlab1");
        let back: Vec<String> =
            steps.iter().filter_map(|(_, back)| back.as_ref()).map(ToString::to_string).collect();
        assert!(back.len() == 1 && back[0].starts_with("lvm vgremove -f raidlab1"), "{back:?}");
    }
}
