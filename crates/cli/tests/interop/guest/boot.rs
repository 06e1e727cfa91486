//! Boots the guest with a job and waits for its end.
//!
//! Invariant: one guest at a time in a process, and none outlives its `run`. Member images are the
//! only files of a test that the guest can write. Used by the tests.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use testkit::Rng;

use super::job::{CONTENTS_MIB, Job, LANES, Step};
use super::overlay::Overlay;
use super::report::{self, Report};
use crate::reader::sha256;

/// Bytes of the pattern that arrays are filled with: more than the largest array.
pub const PATTERN_BYTES: usize = 96 << 20;

/// SCSI targets of the bus, without those that are not members.
const MOST_DISKS: usize = 240;

/// The kernel, the initramfs, and the emulator.
#[derive(Debug)]
pub struct Guest {
    folder: PathBuf,
    initrd: PathBuf,
}

/// One processor pair and a gigabyte: two guests at a time would only slow each other down.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Guest {
    /// The guest that `scripts/guest/prepare` has made.
    ///
    /// # Errors
    /// Why there is none on this machine, and what to do.
    pub fn find() -> Result<Guest, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the guest is an x86-64 one".into());
        }
        let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return Err(format!("{QEMU} is not installed; `sh scripts/setup --with-tests`"));
        }
        let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("guest");
        let folder = std::env::var_os("RAIDLAB_GUEST_DIR").map_or_else(beside, PathBuf::from);
        if !folder.join("stamp").is_file() {
            return Err("no guest kernel; `sh scripts/guest/prepare` fetches it".into());
        }
        let initrd = folder.join("initrd");
        Ok(Guest { folder, initrd })
    }

    /// Where the packages are that it was made from.
    pub fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    /// The same with more files in it, which the kernel unpacks over those of the initramfs.
    ///
    /// # Errors
    /// When they cannot be written to `scratch`.
    pub fn with_files(&self, overlay: Overlay, scratch: &Path) -> std::io::Result<Guest> {
        self.with_archive(&overlay.finish(), scratch)
    }

    fn with_archive(&self, archive: &[u8], scratch: &Path) -> std::io::Result<Guest> {
        let mut archives = fs::read(&self.initrd)?;
        // Archives begin at multiples of four.
        archives.resize(archives.len().next_multiple_of(4), 0);
        archives.extend(archive);
        let initrd = scratch.join("initrd");
        fs::write(&initrd, archives)?;
        Ok(Guest { folder: self.folder.clone(), initrd })
    }

    /// The same with mke2fs, LVM and losetup in it, and modules that they want.
    ///
    /// # Errors
    /// That they are not there, and what to do.
    pub fn with_file_systems(&self, scratch: &Path) -> Result<Guest, String> {
        let archive = fs::read(self.folder.join("file-systems")).map_err(
            |_| "no file systems for the guest; `sh scripts/guest/prepare` fetches them",
        )?;
        self.with_archive(&archive, scratch).map_err(|error| error.to_string())
    }

    /// Runs a job; files of the run, among them the console's log, go to `scratch`.
    ///
    /// # Errors
    /// A guest that does not start, does not end in time, or talks nonsense. What fails inside is
    /// in the report.
    pub fn run(&self, job: &Job, scratch: &Path) -> Result<Report, String> {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let files = Files::new(job, scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
        let start = Instant::now();
        let mut ended = self.boot(job, &files);
        let mut own = read(&files.port(1));
        for _ in 1..BOOTS {
            // A kernel that dies before it has seen a disk says nothing about arrays: emulated
            // timers on a starved machine can do that to it.
            if ended.is_err() || !own.is_empty() {
                break;
            }
            println!("{}: the guest died in its boot, once more", job.name);
            ended = self.boot(job, &files);
            own = read(&files.port(1));
        }
        let total = start.elapsed();
        let lanes: String = (0..LANES).map(|lane| read(&files.port(lane + 2))).collect();
        let arrays = report::arrays(job, &lanes);
        let why = match (ended, own.contains("\ndone ")) {
            (Ok(()), true) => None,
            (Ok(()), false) => Some("the guest ended before its job".to_string()),
            (Err(error), _) => Some(error),
        };
        if let Some(why) = why {
            let far = arrays.map_or_else(|error| error, |arrays| progress(&arrays));
            let console = read(&files.console);
            let tail: Vec<&str> = console.lines().rev().take(25).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            return Err(format!(
                "job {}: {why}; {far}; its console:\n{}",
                job.name,
                tail.join("\n")
            ));
        }
        let boot = own.lines().find_map(|line| line.strip_prefix("boot ")?.parse().ok());
        let boot = Duration::from_millis(boot.unwrap_or(0));
        let mut arrays = arrays?;
        files.hash_contents(&mut arrays)?;
        Ok(Report { arrays, boot, total, console: files.console })
    }

    fn boot(&self, job: &Job, files: &Files) -> Result<(), String> {
        let mut command = Command::new(QEMU);
        command
            .args("-accel tcg,thread=multi -cpu max -smp 2 -machine pc".split(' '))
            .args(["-m", &job.memory_mib.to_string()])
            .args("-nodefaults -no-user-config -display none -no-reboot".split(' '))
            .arg("-kernel")
            .arg(self.folder.join("vmlinuz"))
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-append", COMMAND_LINE])
            .args(["-serial", &format!("file:{}", comma(&files.console))])
            .args("-device virtio-serial-pci -device virtio-scsi-pci,id=scsi".split(' '));
        for port in 1..LANES + 2 {
            let path = comma(&files.port(port));
            command.args(["-chardev", &format!("file,id=port{port},path={path}")]);
            command.args(["-device", &format!("virtserialport,chardev=port{port},nr={port}")]);
        }
        if !job.vhost_user.is_empty() {
            // The guest's memory is shared with the servers.
            let memory =
                format!("memory-backend-memfd,id=shared,share=on,size={}M", job.memory_mib);
            command.args(["-object", &memory, "-numa", "node,memdev=shared"]);
        }
        for (number, socket) in job.vhost_user.iter().enumerate() {
            let path = comma(socket);
            command.args(["-chardev", &format!("socket,id=vhost{number},path={path}")]);
            let device = format!("vhost-user-blk-pci,chardev=vhost{number},num-queues=2");
            command.args(["-device", &device]);
        }
        let fixed = [(&files.job, true), (&files.pattern, true), (&files.contents, false)];
        let members = job.disks().map(|path| (path, false));
        for (target, (path, readonly)) in fixed.into_iter().chain(members).enumerate() {
            let mode = if readonly { "on" } else { "off" };
            // cache=unsafe: the images outlive the guest in this machine's page cache.
            command.args([
                "-drive",
                &format!(
                    "if=none,id=disk{target},file={},format=raw,cache=unsafe,readonly={mode}",
                    comma(path)
                ),
                "-device",
                &format!(
                    "scsi-hd,bus=scsi.0,drive=disk{target},scsi-id={target},lun=0,\
                     serial=RAIDLAB-{target:03}"
                ),
            ]);
        }
        let complaints = File::create(&files.complaints).map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints).spawn();
        let mut running = Running(child.map_err(|error| format!("{QEMU}: {error}"))?);
        let status = running.wait(job.limit)?;
        if !status.success() {
            return Err(format!("{QEMU}: {status}: {}", read(&files.complaints).trim()));
        }
        Ok(())
    }
}

const QEMU: &str = "qemu-system-x86_64";

/// How often a guest may try to reach its first line of a job.
const BOOTS: u32 = 3;

/// Quiet enough to be quick, loud enough for an oops; the log keeps all of a job's messages. The
/// initramfs may fill more than half of a small memory (ramfs).
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 log_buf_len=16M mitigations=off \
                            audit=0 random.trust_cpu=on rootfstype=ramfs";

/// A guest that is killed when it is let go.
struct Running(Child);

impl Running {
    fn wait(&mut self, limit: Duration) -> Result<std::process::ExitStatus, String> {
        let start = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if start.elapsed() > limit => {
                    return Err(format!("not done after {} s, killed", limit.as_secs()));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only for a guest that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is written for a run and by it.
struct Files {
    directory: PathBuf,
    job: PathBuf,
    pattern: PathBuf,
    contents: PathBuf,
    console: PathBuf,
    complaints: PathBuf,
}

impl Files {
    fn new(job: &Job, scratch: &Path) -> std::io::Result<Files> {
        assert!(job.disks().count() <= MOST_DISKS, "{}: too many disks for one boot", job.name);
        let directory = scratch.join(&job.name);
        fs::create_dir_all(&directory)?;
        let at = |name: &str| directory.join(name);
        let files = Files {
            job: at("job"),
            pattern: scratch.join("pattern"),
            contents: at("contents"),
            console: at("console.log"),
            complaints: at("qemu.log"),
            directory,
        };
        fs::write(&files.job, job.script())?;
        let copies = job.arrays.iter().flat_map(|array| &array.steps);
        let copies = copies.filter(|step| matches!(step, Step::Sha256)).count();
        let contents = File::create(&files.contents)?;
        // Never empty: the guest counts on the disk.
        contents.set_len(((copies.max(1) * CONTENTS_MIB) as u64) << 20)?;
        if !files.pattern.is_file() {
            let mut file = BufWriter::new(File::create(&files.pattern)?);
            file.write_all(pattern())?;
            file.flush()?;
        }
        Ok(files)
    }

    /// Puts the hash behind the number of bytes that each [`Step::Sha256`] has said, and removes
    /// the copies.
    fn hash_contents(&self, arrays: &mut [report::ArrayReport]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.contents.display());
        let file = File::open(&self.contents).map_err(failed)?;
        let steps = arrays.iter_mut().flat_map(|array| &mut array.steps);
        let copies = steps.filter(|(step, _)| matches!(step, Step::Sha256));
        for (number, (_, said)) in copies.enumerate() {
            let Some(said) = said.as_mut().filter(|said| said.status == Some(0)) else { continue };
            let bytes = said.output.trim().parse::<usize>();
            let bytes = bytes.map_err(|_| format!("no size of contents: {}", said.output))?;
            let mut contents = vec![0; bytes];
            file.read_exact_at(&mut contents, ((number * CONTENTS_MIB) as u64) << 20)
                .map_err(failed)?;
            said.output = format!("{bytes} {}", sha256(&contents));
        }
        fs::remove_file(&self.contents).map_err(failed)
    }

    fn port(&self, number: usize) -> PathBuf {
        self.directory.join(format!("port{number}"))
    }
}

/// The bytes that arrays are filled with: no block of them repeats.
pub fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| Rng::new(1).bytes(PATTERN_BYTES))
}

/// In qemu's options a comma is doubled.
fn comma(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn progress(arrays: &[report::ArrayReport]) -> String {
    let ended = arrays.iter().filter(|array| array.fine.is_some()).count();
    let open = arrays.iter().filter(|array| {
        array.fine.is_none() && array.steps.iter().any(|(_, report)| report.is_some())
    });
    let open: Vec<String> = open.filter_map(report::ArrayReport::failure).collect();
    format!("{ended} of {} arrays had ended; {}", arrays.len(), open.join("; "))
}
