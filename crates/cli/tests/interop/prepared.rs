//! `scripts/guest/prepare`, where something goes wrong on the way.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::guest::Guest;
use crate::scratch::Scratch;

/// Runs it with our `cp`, which cannot copy LVM.
fn prepare(folder: &Path, tools: &Path) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/guest/prepare");
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new("sh");
    command.arg(script).env("RAIDLAB_GUEST_DIR", folder);
    command.env("PATH", format!("{}:{path}", tools.display()));
    command.output().expect("started")
}

#[test]
fn half_of_the_file_systems_is_not_taken_for_all_and_not_tried_again_at_once() {
    let packages = match Guest::find() {
        Ok(guest) => guest.packages(),
        Err(why) => return println!("skipped: {why}"),
    };
    let scratch = Scratch::new("prepared");
    let (folder, tools) = (scratch.path().join("guest"), scratch.path().join("tools"));
    fs::create_dir_all(folder.join("packages")).expect("made");
    fs::create_dir(&tools).expect("made");
    let packages: Vec<_> = fs::read_dir(packages).expect("packages").flatten().collect();
    if !packages.iter().any(|file| file.file_name().to_string_lossy().starts_with("lvm2_")) {
        return println!("skipped: the guest here has no file systems");
    }
    for file in packages {
        symlink(file.path(), folder.join("packages").join(file.file_name())).expect("linked");
    }
    let copy = tools.join("cp");
    let text = "#!/bin/sh\ncase $1 in */lvm) exit 1 ;; esac\nPATH=/usr/bin:/bin exec cp \"$@\"\n";
    fs::write(&copy, text).expect("written");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it can be run");

    let ran = prepare(&folder, &tools);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("no file systems in the guest"), "{said}");
    let is_there = |name: &str| folder.join(name).exists();
    assert!(is_there("stamp") && is_there("initrd") && is_there("vmlinuz"), "{said}");
    assert!(!is_there("file-systems") && is_there("no-file-systems"), "{said}");

    let again = prepare(&folder, &tools);
    assert!(again.status.success() && again.stderr.is_empty(), "{again:?}");
    fs::remove_file(folder.join("no-file-systems")).expect("removed");
    fs::remove_file(&copy).expect("removed");
    assert!(prepare(&folder, &tools).status.success());
    assert!(is_there("file-systems") && !is_there("no-file-systems"));
}
