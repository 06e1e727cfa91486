//! The workloads that have an equation.

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// One stream, reading.
    Read,
    /// One stream, writing, with the write-back at its end.
    Write,
    /// bonnie's rewrite: read a block, change it, write it back.
    Rewrite,
    /// bonnie's seeks: a few processes read small blocks, a tenth is written back.
    Seeks,
    /// Small random reads.
    RandomRead,
    /// Small random writes.
    RandomWrite,
    /// Many files or streams at a time, reading.
    StreamsRead,
    /// Many files or streams at a time, writing.
    StreamsWrite,
    /// Small writes, each with a flush, one after the other.
    SyncWrite,
    /// Large direct reads with many jobs.
    DirectRead,
    /// Large direct writes with many jobs.
    DirectWrite,
    /// Resync or rebuild, per member.
    Resync,
    /// Check, per member.
    Check,
}

impl Work {
    /// All of them.
    pub const ALL: [Work; 13] = [
        Work::Read,
        Work::Write,
        Work::Rewrite,
        Work::Seeks,
        Work::RandomRead,
        Work::RandomWrite,
        Work::StreamsRead,
        Work::StreamsWrite,
        Work::SyncWrite,
        Work::DirectRead,
        Work::DirectWrite,
        Work::Resync,
        Work::Check,
    ];

    /// Its name in tables and options.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Read => "seq read",
            Work::Write => "seq write",
            Work::Rewrite => "rewrite",
            Work::Seeks => "seeks",
            Work::RandomRead => "random read",
            Work::RandomWrite => "random write",
            Work::StreamsRead => "streams read",
            Work::StreamsWrite => "streams write",
            Work::SyncWrite => "sync write",
            Work::DirectRead => "direct read",
            Work::DirectWrite => "direct write",
            Work::Resync => "resync",
            Work::Check => "check",
        }
    }

    /// The same in one word, as in `--mix`: `seq-read`.
    pub fn option_name(self) -> String {
        self.name().replace(' ', "-")
    }

    /// Whether its figures are operations per second; otherwise they are MB/s.
    pub const fn is_rate_of_operations(self) -> bool {
        matches!(self, Work::Seeks | Work::RandomRead | Work::RandomWrite | Work::SyncWrite)
    }

    /// `MB/s` or `/s`.
    pub const fn unit(self) -> &'static str {
        if self.is_rate_of_operations() { "/s" } else { "MB/s" }
    }
}

/// How the file system writes dirty pages back: which stripes are written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteBack {
    /// Page by page: ext2, ext3, old XFS.
    Pages,
    /// By extents: ext4, XFS since 2.6.39, btrfs.
    Extents,
    /// None: a raw device, or O_DIRECT.
    Raw,
}

/// A file that a benchmark writes at random, bytes, where its size is not stated.
pub const FILE_BYTES: f64 = 4e9;

/// A workload as it was run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Its kind.
    pub work: Work,
    /// Requests in flight, of all jobs together; 1 without a queue.
    pub depth: f64,
    /// Whether the requests in flight are stated: otherwise `depth` is 1, or that of one disk.
    pub depth_is_stated: bool,
    /// Jobs or threads.
    pub jobs: f64,
    /// The file system's write-back.
    pub write_back: WriteBack,
    /// O_DIRECT: no read-ahead.
    pub direct: bool,
    /// Bytes in flight of requests in order past the page cache, of all jobs together, where they
    /// are stated.
    pub in_flight_bytes: Option<f64>,
    /// Bytes of the array that random requests reach; `None`: a file's of a file system, all of a
    /// raw device.
    pub area_bytes: Option<f64>,
}

impl Access {
    /// One job, one request in flight.
    pub fn new(work: Work, write_back: WriteBack) -> Access {
        let (depth, jobs) = (1.0, 1.0);
        let (in_flight_bytes, area_bytes) = (None, None);
        Access {
            work,
            depth,
            depth_is_stated: false,
            jobs,
            write_back,
            direct: false,
            in_flight_bytes,
            area_bytes,
        }
    }

    /// Jobs, each with `depth` requests of a random workload in flight.
    pub fn of_jobs(work: Work, write_back: WriteBack, jobs: f64, depth: f64) -> Access {
        let random = matches!(work, Work::RandomRead | Work::RandomWrite);
        Access {
            depth: if random { depth * jobs } else { jobs },
            depth_is_stated: random,
            jobs,
            direct: matches!(work, Work::DirectRead | Work::DirectWrite),
            ..Access::new(work, write_back)
        }
    }
}
