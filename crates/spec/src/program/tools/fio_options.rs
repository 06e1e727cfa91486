//! fio's options (3.33): which are carried out, which have no influence here, and which would
//! change the load in a way that is not carried out.
//!
//! Invariant: an option without influence is listed; one that would change the load is named with
//! the difference, or refused where the figure would be that of another load. Called by `fio_job`.

use crate::program::error::{JobProblem, OptionError};

/// Options that say how fio works, prints and reaches its storage, or how it lays out files: here
/// they have no influence on the load.
const WITHOUT_INFLUENCE: &str = "
    description lockfile unique_filename opendir bs_unaligned blocksize_unaligned randrepeat
    allrandrepeat randseed random_generator ignore_error openfiles fallocate serialize_overlap
    io_submit_mode new_group group_reporting thread threads clocksource mem iomem lockmem
    hugepage-size hugepage_size
    verify_interval verify_offset verify_pattern verify_fatal verify_dump verify_async
    verify_backlog_batch experimental_verify verify_state_load verify_state_save do_verify
    trim_verify_zero trim_backlog trim_backlog_batch write_iolog replay_no_stall replay_redirect
    replay_scale replay_align replay_time_scale replay_skip merge_blktrace_scalars
    merge_blktrace_iters read_iolog_chunked exec_prerun exec_postrun ioscheduler
    zonesize zonecapacity zonerange zoneskip read_beyond_wp max_open_zones job_max_open_zones
    ignore_zone_limits zone_reset_threshold zone_reset_frequency
    nice prio prioclass cmdprio cmdprio_class cmdprio_percentage cmdprio_bssplit write_hint
    thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime rate_min ratemin
    rate_process rate_cycle ratecycle rate_ignore_thinktime rate_iops_min max_latency
    latency_window latency_percentile latency_run flow_id flow_sleep
    create_serialize create_fsync create_on_open create_only allow_file_create allow_mounted_write
    cpumask cpus_allowed cpus_allowed_policy numa_cpu_nodes numa_mem_policy
    unlink unlink_each_loop exitall_on_error exit_what
    per_job_logs write_bw_log write_lat_log write_iops_log write_hist_log bwavgtime iopsavgtime
    log_entries log_avg_msec log_hist_msec log_hist_coarseness log_max_value log_offset log_prio
    log_compression log_compression_cpus log_store_compressed log_unix_epoch log_alternate_epoch
    log_alternate_epoch_clock_id log_window_value log_issue_time block_error_percentiles stats
    refill_buffers scramble_buffers buffer_compress_chunk dedupe_mode
    dedupe_working_set_percentage dedupe_global
    clat_percentiles lat_percentiles slat_percentiles percentile_list significant_figures disk_util
    gtod_reduce gtod_cpu disable_lat disable_clat disable_slat disable_bw_measurement disable_bw
    unified_rw_reporting continue_on_error error_dump cgroup cgroup_nodelete cgroup_weight uid gid
    unit_base steadystate_duration ss_dur steadystate_ramp_time ss_ramp ss_interval
    thp hipri hipri_percentage uncached nowait fixedbufs registerfiles sqthread_poll
    sqthread_poll_cpu nonvectored force_async cmd_type userspace_reap readfua writefua
    sg_write_mode stream_id md_per_io_size pi_act pi_chk apptag
    hostname bindname port verb protocol nodelay listen pingpong interface ttl window_size mss
    cpuload cpuchunks cpumode exit_on_io_done stat_type program arguments grace_time std_redirect
    donorname inplace volume brick single-instance single_instance skip_bad uri clustername
    rbdname pool clientname conf busy_poll touch_objects cont chunk_size object_class svc
    namenode nfs_url hdfsdirectory
    https http_host http_mode http_user http_pass http_s3_key http_s3_keyid http_s3_region
    http_s3_sse_customer_key http_s3_sse_customer_algorithm http_s3_storage_class
    http_swift_auth_token http_verbose
    gpu_dev_id gpu_dev_ids cuda_io serverip direct_write_to_pmem busy_wait_polling
    xnvme_async xnvme_sync xnvme_admin xnvme_dev_nsid xnvme_iovec xnvme_mem
    libblkio_driver libblkio_path libblkio_pre_connect_props libblkio_num_entries
    libblkio_queue_size libblkio_pre_start_props";

/// Options that would change the load: the values that do not, and what is different without them.
const LEFT_OUT: [(&str, &str, &str); 23] = [
    ("random_distribution", "random", "blocks are uniform, so fewer of them are in a cache"),
    ("ramp_time", "0 0s", "the first seconds count"),
    ("startdelay", "0 0s", "all sections of a group start together"),
    ("verify", "0 none null pattern", "what is written is compared after the clock has stopped"),
    ("iodepth_batch", "0 1", "the queue is kept full"),
    ("iodepth_batch_submit", "0 1", "the queue is kept full"),
    ("iodepth_batch_complete", "0 1", "the queue is kept full"),
    ("iodepth_batch_complete_min", "0 1", "the queue is kept full"),
    ("iodepth_batch_complete_max", "0 1", "the queue is kept full"),
    ("iodepth_low", "", "the queue is kept full"),
    ("exitall", "0", "the others run to their end"),
    ("steadystate", "", "it runs for its whole time"),
    ("ss", "", "it runs for its whole time"),
    ("zero_buffers", "0", "blocks hold data that no disk compresses"),
    ("buffer_pattern", "", "blocks hold data that no disk compresses"),
    ("buffer_compress_percentage", "0", "blocks hold data that no disk compresses"),
    ("dedupe_percentage", "0", "blocks hold data that occurs once"),
    ("blockalign", "", "blocks begin at multiples of their size"),
    ("ba", "", "blocks begin at multiples of their size"),
    ("offset_align", "0", "offsets stay as they are"),
    ("sync_file_range", "", "the kernel writes back when it will"),
    ("atomic", "0", "writes are ordinary ones"),
    ("file_append", "0", "files are written from their start"),
];

/// Options without which the figure would be that of another load: the values with which they are
/// off, and why they are refused.
const REFUSED: [(&str, &str, &str); 14] = [
    ("bs_is_seq_rand", "0", "sizes of blocks are those of reads and of writes"),
    ("rate", "0", RATE),
    ("rate_iops", "0", RATE),
    ("thinktime", "0", RATE),
    ("flow", "0", "sections run independently of each other"),
    ("latency_target", "0", "the depth that meets it is not searched for"),
    ("verify_backlog", "0", "reads between the writes are not carried out"),
    ("verify_only", "0", "there is nothing written before"),
    ("trim_percentage", "0", "trims are not carried out"),
    ("write_barrier", "0", "barriers are not carried out; fsync is"),
    ("pre_read", "0", "files begin outside of the page cache"),
    ("read_iolog", "", "a trace is not replayed"),
    ("merge_blktrace_file", "", "a trace is not replayed"),
    ("profile", "", "profiles of fio are not known; write its options"),
];

const RATE: &str = "jobs run as fast as they can; a stated load is bench's --rate-iops with a \
                    block workload";

/// What becomes of an option that is not carried out.
pub(super) enum Fate {
    /// It has no influence.
    WithoutInfluence,
    /// It is left out, and this is different.
    LeftOut(&'static str),
    /// It is refused where the load is to be carried out.
    Refused(&'static str),
}

/// The fate of an option; `None`: there is no such option.
pub(super) fn fate(given: &Given<'_>) -> Option<Fate> {
    let found = |table: &'static [(&str, &str, &'static str)]| {
        let found = table.iter().find(|(name, ..)| *name == given.name);
        found.map(|(_, off, why)| {
            let value = given.value.unwrap_or("1");
            (off.split_whitespace().any(|off| off == value), *why)
        })
    };
    if WITHOUT_INFLUENCE.split_whitespace().any(|name| name == given.name) {
        return Some(Fate::WithoutInfluence);
    }
    match (found(&LEFT_OUT), found(&REFUSED)) {
        (Some((true, _)), _) | (_, Some((true, _))) => Some(Fate::WithoutInfluence),
        (Some((false, why)), _) => Some(Fate::LeftOut(why)),
        (_, Some((false, why))) => Some(Fate::Refused(why)),
        (None, None) => None,
    }
}

/// What an I/O engine of fio's amounts to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Sync,
    Psync,
    Mmap,
    /// Many requests in flight: ours is io_uring.
    Async,
    /// It moves no blocks of storage.
    Idle,
}

/// The engines, and whether they reach other storage than files and block devices.
const ENGINES: [(Engine, bool, &str); 6] = [
    (Engine::Sync, false, "sync vsync"),
    (Engine::Psync, false, "psync pvsync pvsync2 splice sg libzbc"),
    (Engine::Mmap, false, "mmap"),
    (
        Engine::Async,
        false,
        "libaio io_uring io_uring_cmd posixaio solarisaio windowsaio guasi libblkio xnvme",
    ),
    (
        Engine::Psync,
        true,
        "http libcufile libpmem pmemblk dev-dax mtd ime_psync ime_psyncv libhdfs gfapi",
    ),
    (Engine::Async, true, "ime_aio dfs rbd rados nbd nfs gfapi_async libiscsi"),
];

/// Engines that move no blocks of storage.
const IDLE: &str = "null cpp_null cpuio exec net netsplice rdma librpma_apm_client
    librpma_apm_server librpma_gpspm_client librpma_gpspm_server falloc ftruncate filecreate
    filestat filedelete dircreate dirstat dirdelete e4defrag";

fn found_engine(name: &str) -> Option<&'static (Engine, bool, &'static str)> {
    ENGINES.iter().find(|(.., names)| names.split_whitespace().any(|known| known == name))
}

/// The engine of a name.
pub(super) fn engine(name: &str) -> Option<Engine> {
    let is_idle = IDLE.split_whitespace().any(|known| known == name);
    found_engine(name).map(|(engine, ..)| *engine).or(is_idle.then_some(Engine::Idle))
}

/// Whether an engine reaches other storage than files and block devices.
pub(super) fn is_remote(engine: &str) -> bool {
    found_engine(engine).is_some_and(|(_, remote, _)| *remote)
}

/// A number of bytes, or a share of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    Percent(u64),
}

/// Sizes of blocks, each with its share.
pub(super) type Sizes = Vec<(u64, u32)>;

/// An option as it was given, to be read.
pub(super) struct Given<'a> {
    pub(super) name: &'a str,
    pub(super) value: Option<&'a str>,
    /// `kb_base`: what `k` is; `kib` is the other.
    pub(super) kb_base: u64,
}

/// Sizes that `bsrange` may stand for.
const RANGE_MAX: u64 = 1024;

impl<'a> Given<'a> {
    /// An error that names the valid values.
    pub(super) fn invalid(&self, wanted: impl Into<String>) -> JobProblem {
        let (name, value) = (self.name.to_string(), self.value.unwrap_or("").to_string());
        if let Some((_, rest)) = value.split_once("${")
            && let Some((variable, _)) = rest.split_once('}')
        {
            let variable = variable.to_string();
            return JobProblem::Unset { option: format!("{name}={value}"), variable };
        }
        OptionError::Value { name, value, wanted: wanted.into().into() }.into()
    }

    pub(super) fn text(&self) -> Result<&'a str, JobProblem> {
        let name = || self.name.to_string();
        let value = self.value.filter(|value| !value.is_empty());
        value.ok_or_else(|| OptionError::NoValue { name: name(), example: None }.into())
    }

    /// A flag, set without a value; of a boolean value, 0 or 1.
    pub(super) fn flag(&self) -> Result<bool, JobProblem> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.invalid("0 or 1")),
        }
    }

    pub(super) fn number(&self, least: u64, most: u64) -> Result<u64, JobProblem> {
        let number = self.bytes(self.text()?).filter(|number| (least..=most).contains(number));
        let most = if most == u64::MAX { String::new() } else { format!(" to {most}") };
        number.ok_or_else(|| self.invalid(format!("a number from {least}{most}")))
    }

    /// Parts that commas separate, for reads and writes: a part that is missing is that before it,
    /// an empty one keeps what was there (trims have a third, which is not looked at).
    pub(super) fn directions<T: Clone>(
        &self,
        there: &mut [T; 2],
        part: impl Fn(&str) -> Result<T, JobProblem>,
    ) -> Result<(), JobProblem> {
        let parts: Vec<&str> = self.text()?.split(',').map(str::trim).collect();
        for direction in 0..2 {
            match parts.get(direction).copied().or(parts.last().copied()) {
                Some("") | None => {}
                Some(text) => there[direction] = part(text)?,
            }
        }
        Ok(())
    }

    /// The size of a block.
    pub(super) fn block(&self, text: &str) -> Result<Sizes, JobProblem> {
        match self.bytes(text) {
            Some(bytes @ 1..=BLOCK_MAX) => Ok(vec![(bytes, 1)]),
            _ => Err(self.invalid("a size above 0, at most 16M")),
        }
    }

    /// A range of block sizes, as `4k-64k`: multiples of the smallest.
    pub(super) fn range(&self, text: &str) -> Result<Sizes, JobProblem> {
        let ends = text.split_once(['-', ':']);
        let ends = ends.and_then(|(a, b)| Some((self.bytes(a)?, self.bytes(b)?)));
        match ends.map(|(a, b)| (a.min(b), a.max(b))) {
            Some((a, b)) if a > 0 && b <= BLOCK_MAX && b / a <= RANGE_MAX => {
                Ok((1..=b / a).map(|times| (a * times, 1)).collect())
            }
            _ => Err(self.invalid("two sizes above 0, at most 16M, as in 4k-64k")),
        }
    }

    /// A mix of block sizes, as `4k/60:64k/40`: what has no share has equal parts of the rest.
    pub(super) fn split(&self, text: &str) -> Result<Sizes, JobProblem> {
        let wrong = || self.invalid("sizes with shares, as in 4k/60:64k/40, together 100 percent");
        let mut sizes: Vec<(u64, Option<u32>)> = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let share = match share.trim().trim_end_matches('%') {
                "" => None,
                share => {
                    let share = share.parse::<u32>().ok().filter(|share| *share <= 100);
                    Some(share.ok_or_else(wrong)?)
                }
            };
            let size = self.bytes(size).filter(|size| (1..=BLOCK_MAX).contains(size));
            sizes.push((size.ok_or_else(wrong)?, share));
        }
        let known: u32 = sizes.iter().filter_map(|(_, share)| *share).sum();
        let others = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
        if known > 100 || (others == 0 && known != 100) {
            return Err(wrong());
        }
        // In parts that are whole for all.
        let scale = others.max(1);
        let sizes = sizes.into_iter().map(|(size, share)| match share {
            Some(share) => (size, share * scale),
            None => (size, 100 - known),
        });
        Ok(sizes.filter(|(_, share)| *share > 0).collect())
    }

    /// Bytes, or percent.
    pub(super) fn amount(&self) -> Result<Amount, JobProblem> {
        // A comma at the end, as in size=1g, is nothing to fio.
        let text = self.text()?.trim_end_matches(',');
        let percent = text.strip_suffix('%').map(|text| text.trim().parse().ok());
        match percent {
            Some(Some(percent @ 0..=100)) => Ok(Amount::Percent(percent)),
            None => {
                let bytes = self.bytes(text).filter(|bytes| *bytes <= BYTES_MAX);
                bytes.map(Amount::Bytes).ok_or_else(|| self.invalid(A_SIZE))
            }
            Some(_) => Err(self.invalid("at most 100%")),
        }
    }

    /// A size above 0.
    pub(super) fn size(&self) -> Result<Amount, JobProblem> {
        match self.amount()? {
            Amount::Bytes(0) | Amount::Percent(0) => Err(self.invalid("a size above 0")),
            amount => Ok(amount),
        }
    }

    /// Milliseconds; `None`: 0, which is no time.
    pub(super) fn milliseconds(&self) -> Result<Option<u64>, JobProblem> {
        let text = self.text()?.to_ascii_lowercase();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let factor = match text[end..].trim() {
            "" | "s" | "sec" => Some(1e3),
            "ms" | "msec" => Some(1.0),
            "us" | "usec" => Some(1e-3),
            "m" => Some(60e3),
            "h" => Some(3600e3),
            "d" => Some(86400e3),
            _ => None,
        };
        let number = text[..end].parse::<f64>().ok();
        let milliseconds = factor.zip(number).map(|(factor, number)| factor * number);
        match milliseconds.filter(|milliseconds| *milliseconds < 1e13) {
            Some(0.0) => Ok(None),
            Some(milliseconds) => Ok(Some((milliseconds as u64).max(1))),
            None => Err(self.invalid("a time, as in 30, 30s, 5m, 2h or 500ms")),
        }
    }

    /// Whether the value has a unit of which fio means the other.
    pub(super) fn has_reversed_unit(&self) -> bool {
        let value = self.value.unwrap_or("").to_ascii_lowercase();
        self.kb_base == 1024 && ["kib", "mib", "gib", "tib"].iter().any(|unit| value.contains(unit))
    }

    /// A number with fio's units: decimal or `0x`; `k` is `kb_base`, and `kib` 1000 where that is
    /// 1024, 1024 where it is 1000.
    fn bytes(&self, text: &str) -> Option<u64> {
        let text = text.trim().to_ascii_lowercase();
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (&*text, 10),
        };
        let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
        let number = u64::from_str_radix(&digits[..end], radix).ok()?;
        let unit = digits[end..].trim();
        let reversed = if self.kb_base == 1024 { 1000 } else { 1024 };
        let power = ["", "k", "m", "g", "t", "p"].iter().position(|sign| {
            unit.strip_prefix(sign).is_some_and(|rest| ["", "b", "i", "ib"].contains(&rest))
                && (!sign.is_empty() || ["", "b"].contains(&unit))
        })?;
        let base: u64 = if unit.ends_with("ib") { reversed } else { self.kb_base };
        number.checked_mul(base.checked_pow(power as u32)?)
    }
}

/// The largest block, bytes.
pub(super) const BLOCK_MAX: u64 = 16 << 20;

/// The largest size, bytes: sums of some thousands remain numbers.
const BYTES_MAX: u64 = 1 << 50;

const A_SIZE: &str = "a whole number up to 1024t, with a unit k, m, g or t where it has one, as in \
                      64k, or a percentage";

#[cfg(test)]
mod tests {
    use super::*;

    fn given<'a>(name: &'a str, value: &'a str, kb_base: u64) -> Given<'a> {
        Given { name, value: Some(value), kb_base }
    }

    #[test]
    fn units_are_those_of_fio() {
        for (text, kb_base, bytes) in [
            ("4096", 1024, 4096),
            ("0x1000", 1024, 4096),
            ("4k", 1024, 4096),
            ("4kb", 1024, 4096),
            ("4Ki", 1024, 4096),
            ("4KiB", 1024, 4000),
            ("4KiB", 1000, 4096),
            ("4k", 1000, 4000),
            ("1m", 1024, 1 << 20),
            ("2 GB", 1024, 2 << 30),
            ("8b", 1024, 8),
        ] {
            assert_eq!(given("size", text, kb_base).amount().ok(), Some(Amount::Bytes(bytes)));
        }
        for text in ["", "x", "1.5m", "4kk", "4i", "-1", "101%", "99999999t"] {
            assert!(given("size", text, 1024).amount().is_err(), "{text}");
        }
        assert_eq!(given("size", "50%", 1024).amount().ok(), Some(Amount::Percent(50)));
        for (text, milliseconds) in
            [("30", Some(30_000)), ("5M", Some(300_000)), ("0s", None), ("250ms", Some(250))]
        {
            let found = given("runtime", text, 1024).milliseconds().ok();
            assert_eq!(found, Some(milliseconds), "{text}");
        }
    }

    #[test]
    fn block_sizes_may_be_several() {
        let of = |text: &str| given("bssplit", text, 1024).split(text).ok();
        assert_eq!(of("4k/60:64k/40"), Some(vec![(4096, 60), (65536, 40)]));
        assert_eq!(of("4k/50:8k/:16k/"), Some(vec![(4096, 100), (8192, 50), (16384, 50)]));
        assert_eq!(of("4k/100:8k/0"), Some(vec![(4096, 100)]));
        assert_eq!(of("4k/60:8k/60"), None);
        assert_eq!(of("4k/60:8k/30"), None);
        let range = given("bsrange", "", 1024).range("1k-3k").ok();
        assert_eq!(range, Some(vec![(1024, 1), (2048, 1), (3072, 1)]));
    }

    #[test]
    fn options_have_one_fate() {
        for names in [&LEFT_OUT[..], &REFUSED[..]] {
            for (name, ..) in names {
                let inert = WITHOUT_INFLUENCE.split_whitespace().any(|other| other == *name);
                assert!(!inert, "{name}");
            }
        }
        assert!(fate(&given("no_such_option", "1", 1024)).is_none());
        assert!(matches!(fate(&given("rate_iops", "0", 1024)), Some(Fate::WithoutInfluence)));
        assert!(matches!(fate(&given("rate_iops", "9", 1024)), Some(Fate::Refused(_))));
    }
}
