//! Performs a fixed number of requests of each kind, one kind after the other: what
//! `cargo xtask gate` runs under callgrind, which counts.
//!
//! ```text
//!   set-up, warm requests | mark | requests of the row | mark | set-up ... of the next row
//! ```
//! Each row is announced on standard output, as `NAME REQUESTS`, before its first mark.
//!
//! Invariant: the same program makes the same requests: seeds, sizes and depths are fixed. Members
//! are in memory, and too small to be written past the caches, which is decided by the clock.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use admin::{CreateOptions, Opened, StartOptions, start_shards};
use array::{
    Array, ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, Lease, MemMember,
    MemberSpec, NullMember,
};
use export::Access;
use export::nbd::{Listener, NbdExport, Server, ServerLimits};
use host::Disk;
use md::assemble::{Options, assemble};
use md::create::{BitmapOption, Device, Request};
use md::ondisk::superblock::Policy;
use md::ondisk::{Timestamp, Uuid};
use md::{Layout, Level, MemberIdx, Sector};

const MEMBERS: u64 = 6;
const MEMBER_SECTORS: u64 = 8 << 11;
/// Of devices with metadata, which are looked through before they become members.
const DISK_SECTORS: u64 = 4 << 11;
const CHUNK_SECTORS: u64 = 128;
const STRIPE_BYTES: usize = 5 * (64 << 10);

/// Requests before those that are counted: lists grow, and buffers are touched.
const WARM: u64 = 512;
const COUNTED: u64 = 2048;
/// Of long requests.
const FEW: u64 = 128;

/// What is requested.
#[derive(Clone, Copy)]
struct Load {
    write: bool,
    bytes: usize,
    depth: u64,
    /// Offsets; otherwise one after the other.
    random: bool,
    requests: u64,
}

const READ: Load = Load { write: false, bytes: 4096, depth: 32, random: true, requests: COUNTED };
const WRITE: Load = Load { write: true, ..READ };
const LONG: Load = Load { bytes: 1 << 20, depth: 16, random: false, requests: FEW, ..READ };
const STRIPES: Load = Load { write: true, bytes: STRIPE_BYTES, ..LONG };

/// Callgrind begins a new profile at each call: `--dump-before=*gate::mark`.
#[inline(never)]
fn mark() {
    black_box(());
}

fn counted(row: &str, requests: u64, run: impl FnOnce()) {
    println!("{row} {requests}");
    mark();
    run();
    mark();
}

/// Offsets, the same in each run.
struct Offsets {
    state: u64,
    next: u64,
}

impl Offsets {
    fn new() -> Offsets {
        Offsets { state: 1, next: 0 }
    }

    fn next(&mut self, load: Load, array_bytes: u64) -> u64 {
        let blocks = array_bytes / load.bytes as u64;
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.next += 1;
        let block = if load.random { (self.state >> 33) % blocks } else { self.next % blocks };
        block * load.bytes as u64
    }
}

fn options() -> DriverOptions {
    DriverOptions { leases: 64, huge_pages: false, ..DriverOptions::default() }
}

fn spec(level: Level, null: bool) -> ArraySpec {
    let member = |_| match null {
        true => MemberSpec::ready(NullMember::new(MEMBER_SECTORS)),
        false => MemberSpec::ready(MemMember::new(MEMBER_SECTORS).expect("memory")),
    };
    ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors: if level == Level::Raid1 { 0 } else { CHUNK_SECTORS },
        members: (0..if level == Level::Raid1 { 2 } else { MEMBERS }).map(member).collect(),
        data_plane: DataPlaneConfig::default(),
    }
}

/// A driver and its host, on one thread.
struct Host {
    driver: Driver,
    done: Vec<Completion>,
    leases: Vec<Lease>,
}

impl Host {
    fn new(driver: Driver) -> Host {
        let mut host = Host { driver, done: Vec::new(), leases: Vec::new() };
        let blocks = host.bytes() / LONG.bytes as u64;
        // What was never written is not copied when it is read.
        host.run(Load { write: true, requests: blocks, ..LONG });
        host
    }

    fn bytes(&self) -> u64 {
        self.driver.info().sectors * 512
    }

    fn run(&mut self, load: Load) {
        let (mut offsets, mut begun, mut ended) = (Offsets::new(), 0, 0);
        let fits = |lease: &Lease| lease.len() == load.bytes;
        if self.leases.len() as u64 != load.depth || !self.leases.iter().all(fits) {
            self.leases.clear();
            let take = |_| self.driver.leases().take(load.bytes).expect("a lease");
            self.leases.extend((0..load.depth).map(take));
        }
        while ended < load.requests {
            while begun < load.requests
                && let Some(lease) = self.leases.pop()
            {
                let op = if load.write { HostOp::Write { fua: false } } else { HostOp::Read };
                let at = Sector(offsets.next(load, self.bytes()) / 512);
                let sectors = load.bytes as u64 / 512;
                self.driver.submit(op, at, sectors, Some(lease), 0).expect("there is room");
                begun += 1;
            }
            self.driver.poll(&mut self.done);
            if self.done.is_empty() {
                // It waits for a thread of metadata, which valgrind may never give a turn else.
                std::thread::yield_now();
            }
            for end in self.done.drain(..) {
                end.result.expect("memory does not fail");
                self.leases.extend(end.lease);
                ended += 1;
            }
        }
    }

    fn row(&mut self, name: &str, load: Load) {
        self.run(Load { requests: WARM.min(2 * load.requests), ..load });
        counted(name, load.requests, || self.run(load));
    }
}

fn drivers() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let mut host = Host::new(Driver::new(spec(level, false), &options()).expect("an array"));
        host.row(&format!("{level}-read"), READ);
        host.row(&format!("{level}-write"), WRITE);
        if level == Level::Raid5 {
            // What a batch costs, however short.
            host.row("raid5-single-read", Load { depth: 1, ..READ });
            host.row("raid5-single-write", Load { depth: 1, ..WRITE });
            host.driver.fail_member(MemberIdx(1));
            host.row("raid5-degraded-read", READ);
            host.row("raid5-degraded-write", WRITE);
        }
    }
    // Without the bytes, which would be most of it.
    let mut host = Host::new(Driver::new(spec(Level::Raid5, true), &options()).expect("an array"));
    host.row("raid5-long-read", LONG);
    host.row("raid5-full-stripes", STRIPES);
}

/// A device in memory that has metadata.
struct MemDisk(String, Mutex<Vec<u8>>);

impl MemDisk {
    fn with(&self, sector: u64, bytes: usize, on: impl FnOnce(&mut [u8])) -> std::io::Result<()> {
        let start = sector as usize * 512;
        on(&mut self.1.lock().expect("no thread has panicked")[start..start + bytes]);
        Ok(())
    }
}

impl Disk for MemDisk {
    fn sectors(&self) -> u64 {
        DISK_SECTORS
    }

    fn logical_block(&self) -> u32 {
        512
    }

    fn name(&self) -> String {
        self.0.clone()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    /// As one, it is not searched for data of unknown types.
    fn is_block_device(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.with(sector, buf.len(), |bytes| buf.copy_from_slice(bytes))
    }

    fn write(&self, sector: u64, buf: &[u8]) -> std::io::Result<()> {
        self.with(sector, buf.len(), |bytes| bytes.copy_from_slice(buf))
    }

    fn write_zeroes(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.with(range.start, (range.end - range.start) as usize * 512, |bytes| bytes.fill(0))
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

/// Arrays that write down which ranges are being written.
fn policies() {
    for (name, policy) in [("bitmap", Policy::Bitmap), ("ppl", Policy::Ppl)] {
        let disk = |number| {
            let bytes = Mutex::new(vec![0; DISK_SECTORS as usize * 512]);
            Arc::new(MemDisk(format!("disk {number}"), bytes)) as Arc<dyn Disk>
        };
        let disks: Vec<Arc<dyn Disk>> = (0..MEMBERS).map(disk).collect();
        let device = |(number, disk): (usize, &Arc<dyn Disk>)| Device {
            label: disk.name(),
            sectors: disk.sectors(),
            logical_block: 512,
            uuid: Uuid([number as u8 + 1; 16]),
            data_offset: None,
            write_mostly: false,
            failfast: false,
        };
        let devices = disks.iter().enumerate().map(device).collect();
        let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
        let mut request = Request::new(Level::Raid5, devices, Uuid([7; 16]), now);
        request.chunk_sectors = Some(CHUNK_SECTORS);
        request.assume_clean = true;
        request.policy = Some(policy);
        if policy == Policy::Bitmap {
            request.bitmap = BitmapOption::Internal { chunk_bytes: None };
        }
        let plan = md::create::plan(&request).expect("a plan");
        let all: Vec<_> = disks.iter().cloned().map(Some).collect();
        admin::create(&plan, &all, CreateOptions { force: true }).expect("an array");
        let opened = disks.into_iter().map(|disk| Opened::disk(disk).expect("a member"));
        let opened: Vec<Opened> = opened.collect();
        let candidates: Vec<_> = opened.iter().map(Opened::candidate).collect();
        let array = assemble(&candidates, &Options::default()).arrays.remove(0);
        let how = StartOptions { driver: options(), ..StartOptions::default() };
        let driver = start_shards(&array, &opened, &how).expect("it starts").remove(0);
        let mut host = Host::new(driver);
        host.row(&format!("raid5-{name}-write"), WRITE);
        host.driver.stop();
    }
}

/// Through the threads of an array: as many requests as the depth at a time.
fn api() {
    let array = Array::start(spec(Level::Raid5, false), &options()).expect("an array");
    let run = |load: Load| {
        let mut offsets = Offsets::new();
        let mut pending = Vec::new();
        for _ in 0..load.requests / load.depth {
            for _ in 0..load.depth {
                let lease = array.lease(load.bytes);
                let at = offsets.next(load, array.len_bytes());
                pending.push(if load.write {
                    array.write(lease, at)
                } else {
                    array.read(lease, at)
                });
            }
            pending.drain(..).for_each(|one| drop(one.wait().expect("memory does not fail")));
        }
    };
    run(Load { write: true, requests: array.len_bytes() / LONG.bytes as u64, ..LONG });
    for (name, load) in [("raid5-array-read", READ), ("raid5-array-write", WRITE)] {
        run(Load { requests: WARM, ..load });
        counted(name, load.requests, || run(load));
    }
    array.stop().expect("it is clean");
}

/// Requests of the client that are sent at once: their bytes fit one buffer of the socket.
const NBD_DEPTH: u64 = 4;

/// The server's side of NBD: the client is another process, which callgrind does not count.
fn nbd() {
    let array = Arc::new(Array::start(spec(Level::Raid5, false), &options()).expect("an array"));
    let directory = std::env::temp_dir().join(format!("raidlab-gate-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let socket = directory.join("nbd");
    let export = NbdExport {
        name: String::new(),
        description: String::new(),
        access: Arc::new(Access::new(array.clone()).expect("threads")),
        read_only: false,
    };
    let listener = Listener::unix(&socket).expect("a socket");
    let server = Server::start(vec![listener], vec![export], ServerLimits::default());
    let server = server.expect("a server");
    let mut client = Command::new(std::env::current_exe().expect("this program"))
        .arg(&socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut to = client.stdin.take().expect("a pipe");
    let mut from = BufReader::new(client.stdout.take().expect("a pipe")).lines();
    let mut run = |load: &str| {
        writeln!(to, "{load}").expect("the client listens");
        from.next().expect("the client answers").expect("a line");
    };
    run("fill");
    for (name, load) in [("raid5-nbd-read", "read"), ("raid5-nbd-write", "write")] {
        run(load);
        counted(name, COUNTED, || run(load));
    }
    drop(to);
    client.wait().expect("the client ends");
    server.stop();
    std::fs::remove_dir_all(&directory).expect("it is empty");
}

/// The client: does what each line of standard input names, and answers with a line.
fn client(socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("a server");
    let mut input = [0; 1 << 16];
    // docs/format of NBD: the greeting, the client's flags, EXPORT_NAME of the only export.
    stream.read_exact(&mut input[..18]).expect("a greeting");
    stream.write_all(&[0, 0, 0, 3]).expect("it listens");
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").expect("it listens");
    stream.read_exact(&mut input[..10]).expect("the export");
    let bytes = u64::from_be_bytes(input[..8].try_into().expect("eight"));
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let load = match line.as_str() {
            "read" => Load { depth: NBD_DEPTH, ..READ },
            "write" => Load { depth: NBD_DEPTH, ..WRITE },
            _ => Load { depth: 1, bytes: 64 << 10, requests: bytes >> 16, write: true, ..LONG },
        };
        let mut offsets = Offsets::new();
        for _ in 0..load.requests / load.depth {
            let mut out = Vec::new();
            for cookie in 0..load.depth {
                out.extend(0x2560_9513_u32.to_be_bytes());
                out.extend(u32::from(load.write).to_be_bytes());
                out.extend(cookie.to_be_bytes());
                out.extend(offsets.next(load, bytes).to_be_bytes());
                out.extend((load.bytes as u32).to_be_bytes());
                out.resize(out.len() + if load.write { load.bytes } else { 0 }, 7);
            }
            stream.write_all(&out).expect("the server reads");
            let reply = 16 + if load.write { 0 } else { load.bytes };
            for _ in 0..load.depth {
                stream.read_exact(&mut input[..reply]).expect("a reply");
                assert_eq!(input[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no error");
            }
        }
        println!("done");
    }
}

fn main() {
    if let Some(socket) = std::env::args_os().nth(1) {
        return client(Path::new(&socket));
    }
    drivers();
    policies();
    api();
    nbd();
}
