//! The causes that a diagnosis can name.

/// What limits an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The members do what they can: the limit of a healthy machine.
    Members,
    /// A path that members share: PCI, PCIe lanes, a port multiplier, a hub.
    Bus,
    /// A channel on which one disk at a time has a command, as on parallel ATA.
    Channel,
    /// A member's own link is narrower than its ends permit.
    Link,
    /// Transfers without DMA: a link far below what any disk needs.
    DmaOff,
    /// The network between the array and the program.
    Network,
    /// CPU time of one thread of the program.
    ProgramCpu,
    /// CPU time per byte, of the program and the kernel.
    Cpu,
    /// CPU time of small requests.
    RequestCpu,
    /// All CPUs are busy.
    AllCpus,
    /// The thread of a parity array.
    RaidThread,
    /// A lock of md.
    Lock,
    /// Windows of read-ahead that do not reach all members.
    ReadAhead,
    /// The stripe cache holds fewer rows than the members need.
    StripeCache,
    /// Rows that are written in parts: members are read to compute parity.
    PartialStripes,
    /// Requests so small that their fixed costs count.
    SmallRequests,
    /// Fewer requests in flight than members.
    QueueDepth,
    /// One member is slower than the others.
    SlowMember,
    /// One member gets more requests than the others.
    Unbalanced,
    /// The write-intent bitmap: a write and a flush of all members before data is written.
    Bitmap,
    /// Flushes of a journal or of barriers.
    Flush,
    /// Resync, rebuild, check or reshape beside the workload, or another program's traffic.
    Background,
    /// Background work in requests of 4 KiB: the plug limit with many members.
    PlugLimit,
    /// md's limit of background work.
    SyncSpeed,
    /// md's least rate of background work, to which other requests hold it back.
    SyncSpeedMin,
    /// A limit of a control group.
    IoLimit,
    /// The thread that writes dirty pages of the array back.
    Flusher,
    /// Threads that encrypt.
    Encryption,
    /// Write caches of members are off.
    WriteCacheOff,
    /// What passing over a chunk costs a member.
    Gap,
    /// A member is missing.
    Degraded,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 31] = [
        Cause::Members,
        Cause::Bus,
        Cause::Channel,
        Cause::Link,
        Cause::DmaOff,
        Cause::Network,
        Cause::ProgramCpu,
        Cause::Cpu,
        Cause::RequestCpu,
        Cause::AllCpus,
        Cause::RaidThread,
        Cause::Lock,
        Cause::ReadAhead,
        Cause::StripeCache,
        Cause::PartialStripes,
        Cause::SmallRequests,
        Cause::QueueDepth,
        Cause::SlowMember,
        Cause::Unbalanced,
        Cause::Bitmap,
        Cause::Flush,
        Cause::Background,
        Cause::PlugLimit,
        Cause::SyncSpeed,
        Cause::SyncSpeedMin,
        Cause::IoLimit,
        Cause::Flusher,
        Cause::Encryption,
        Cause::WriteCacheOff,
        Cause::Gap,
        Cause::Degraded,
    ];

    /// Its name in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Members => "members",
            Cause::Bus => "shared bus",
            Cause::Channel => "shared channel",
            Cause::Link => "narrow link",
            Cause::DmaOff => "no DMA",
            Cause::Network => "network",
            Cause::ProgramCpu => "program's CPU",
            Cause::Cpu => "CPU per byte",
            Cause::RequestCpu => "CPU per request",
            Cause::AllCpus => "all CPUs",
            Cause::RaidThread => "raid thread",
            Cause::Lock => "md lock",
            Cause::ReadAhead => "read-ahead",
            Cause::StripeCache => "stripe cache",
            Cause::PartialStripes => "partial stripes",
            Cause::SmallRequests => "small requests",
            Cause::QueueDepth => "queue depth",
            Cause::SlowMember => "slow member",
            Cause::Unbalanced => "unbalanced members",
            Cause::Bitmap => "bitmap",
            Cause::Flush => "flushes",
            Cause::Background => "background work",
            Cause::PlugLimit => "plug limit",
            Cause::SyncSpeed => "sync_speed_max",
            Cause::SyncSpeedMin => "sync_speed_min",
            Cause::IoLimit => "cgroup io.max",
            Cause::Flusher => "flusher",
            Cause::Encryption => "dm-crypt",
            Cause::WriteCacheOff => "write cache off",
            Cause::Gap => "gaps",
            Cause::Degraded => "degraded",
        }
    }

    /// What can be done about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Cause::Members => "more or faster members; the array does what they can",
            Cause::Bus => "spread the members over more buses or lanes; another slot or controller",
            Cause::Channel => "one disk on each channel",
            Cause::Link => "another slot, cable or port: the link was trained below its best",
            Cause::DmaOff => "turn DMA on (hdparm -d1), or use the controller's own driver; cables",
            Cause::Network => "a faster link, or several; the array can do more",
            Cause::ProgramCpu => "several programs or threads, larger requests, O_DIRECT",
            Cause::Cpu => "O_DIRECT or io_uring, less copying, a faster CPU",
            Cause::RequestCpu => "more jobs, larger requests; io_uring and polling, a newer kernel",
            Cause::AllCpus => "less work beside it, or more CPUs",
            Cause::RaidThread => "group_thread_cnt: more threads for parity",
            Cause::Lock => "a newer kernel; fewer threads on one array",
            Cause::ReadAhead => "blockdev --setra: two rows at least",
            Cause::StripeCache => "stripe_cache_size: larger; it needs memory of all members",
            Cause::PartialStripes => {
                "align partitions and file system with rows, write whole rows, a larger \
                 stripe_cache_size"
            }
            Cause::SmallRequests => "larger requests, or several at a time",
            Cause::QueueDepth => "more requests at a time: io_uring or threads, larger requests",
            Cause::SlowMember => "test that disk (smartctl), its cable and its port; replace it",
            Cause::Unbalanced => "a stride that is no multiple of the row; another chunk",
            Cause::Bitmap => "a larger bitmap chunk (mdadm --bitmap-chunk), or a bitmap elsewhere",
            Cause::Flush => "fewer syncs, a disk with power-loss protection, a journal elsewhere",
            Cause::Background => "wait until it has ended, or lower sync_speed_max",
            Cause::PlugLimit => "a kernel of 5.16 or later, or fewer members",
            Cause::SyncSpeed => "raise md/sync_speed_max, where the load of the array permits it",
            Cause::SyncSpeedMin => {
                "raise md/sync_speed_min: md holds background work at it while the array, or \
                 another partition of its disks, has other requests"
            }
            Cause::IoLimit => "raise or remove the limit of the control group (io.max)",
            Cause::Flusher => {
                "see what it computes (perf top): an allocator that searches (ext4 with stripe=, \
                 a full file system); another kernel, or O_DIRECT"
            }
            Cause::Encryption => {
                "AES in the CPU (cryptsetup benchmark), dm-crypt without its work queues \
                 (no_read_workqueue, no_write_workqueue), more CPUs"
            }
            Cause::WriteCacheOff => "hdparm -W1 where a power cut does not matter, or a bitmap",
            Cause::Gap => "a chunk of 1 MiB or more, or read-ahead of 16 rows",
            Cause::Degraded => "replace the missing member, and let it be rebuilt",
        }
    }
}
