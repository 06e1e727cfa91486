//! Performs metadata writes and flushes, on one thread per device.
//!
//! ```text
//!   submit -> waiting -> channel -> thread of the device: write .. write, sync
//!                                        |
//!   collect <- channel, eventfd <--------+
//! ```
//! Invariant: a record is durable on its device before its completion is reported. Operations of
//! one device are performed in the order of their submission, those of different devices
//! concurrently. Dropping the `MetadataThreads` waits for the operations that have begun, as long
//! as operations may take, since a late write could land on a device that has been started again;
//! operations that have not begun are discarded, as by a crash. A thread whose operation does not
//! end is left behind with its device, whose lock it keeps. Called only from `metadata_writer`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use engine::{DeviceNumber, IoError, MemberError, MetaToken, Record, UpdateTimes};
use host::sys::{EventFd, Looks};
use md::ondisk::bitmap::BitmapHeader;
use md::ondisk::superblock::Superblock;
use md::ondisk::{Area, MetadataEncoder, Timestamp, UpdateError, Write};

use crate::all_late::AllLate;
use crate::member::{OpKind, cause_of};
use host::Disk;

/// Pause between two looks at a thread that is to end, when the array is dropped.
const STEP: Duration = Duration::from_millis(1);

/// Operations that a device's thread has at most; more are queued before it. A thread makes all
/// that it has durable with one sync.
const DEVICE_QUEUE: usize = 32;

/// A device that holds the metadata of an array.
pub struct MetadataDevice {
    /// Its number in the superblocks' tables.
    pub number: DeviceNumber,
    /// Where they are written.
    pub disk: Arc<dyn Disk>,
    /// Its superblock as found at assembly.
    pub superblock: Superblock,
    /// The bitmap's area, and its header as read.
    pub bitmap: Option<(Area, BitmapHeader)>,
    /// The area of the partial parity log.
    pub ppl: Option<Area>,
}

/// A device that holds the array's metadata.
pub(crate) struct DeviceMetadata {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) encoder: MetadataEncoder,
}

impl From<MetadataDevice> for DeviceMetadata {
    fn from(device: MetadataDevice) -> DeviceMetadata {
        let MetadataDevice { number, disk, superblock, bitmap, ppl } = device;
        let (number, logical_block) = (number.0, disk.logical_block());
        let encoder = MetadataEncoder { superblock, number, logical_block, bitmap, ppl };
        DeviceMetadata { disk, encoder }
    }
}

/// A metadata write, or a flush (no record).
struct MetadataOp {
    token: MetaToken,
    record: Option<Record>,
    /// The time that a superblock gets.
    updated: Timestamp,
}

/// A completed operation.
pub(crate) struct MetadataCompletion {
    pub(crate) token: MetaToken,
    pub(crate) result: Result<(), IoError>,
    /// For the administrator: why the record could not be written.
    pub(crate) note: Option<String>,
    /// Index of the device's thread.
    thread: usize,
}

struct DeviceThread {
    number: DeviceNumber,
    name: String,
    data_offset: u64,
    /// Operations that the thread does not have yet: at most those of one phase of a job.
    waiting: VecDeque<MetadataOp>,
    /// Operations that have not completed, and since when, in charged time; late ones are reported
    /// and not listed.
    pending: VecDeque<(MetaToken, u64)>,
    /// Operations that the thread has.
    at_work: usize,
    /// `None`: the thread ends when it has nothing left.
    ops: Option<SyncSender<MetadataOp>>,
    /// Operations that have not begun are discarded.
    discards: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// It has left the array: the thread ends, with its device, when its operation does.
    has_left: bool,
    /// Of the devices of the array, in the order in which they came.
    serial: u64,
}

impl DeviceThread {
    /// Passes queued operations to the thread as far as it has room.
    fn feed(&mut self) {
        let Some(ops) = &self.ops else { return };
        while self.at_work < DEVICE_QUEUE
            && let Some(op) = self.waiting.pop_front()
        {
            // The channel has room for DEVICE_QUEUE, and the thread receives until it is closed.
            ops.try_send(op).expect("the thread has room");
            self.at_work += 1;
        }
    }
}

/// The metadata threads of an array; see the module documentation.
pub(crate) struct MetadataThreads {
    devices: Vec<DeviceThread>,
    completed: Receiver<MetadataCompletion>,
    completions: Sender<MetadataCompletion>,
    wake: Arc<EventFd>,
    at_work: usize,
    /// Devices that have come so far.
    serials: u64,
    /// How long an operation may take.
    limit: Option<Duration>,
    all_late: AllLate,
    /// When late operations are looked for next, in charged time.
    judges_at: u64,
    times: UpdateTimes,
}

impl MetadataThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no eventfd or no thread.
    pub(crate) fn start(
        devices: Vec<DeviceMetadata>,
        limit: Option<Duration>,
    ) -> io::Result<MetadataThreads> {
        let wake = EventFd::new()?;
        // Bounded by what the threads can have: `DEVICE_QUEUE` each.
        let (completions, completed) = channel();
        let wake = Arc::new(wake);
        let devices_so_far = Vec::new();
        let mut it = MetadataThreads {
            devices: devices_so_far,
            completed,
            completions,
            wake,
            at_work: 0,
            serials: 0,
            limit,
            all_late: AllLate::default(),
            judges_at: 0,
            times: UpdateTimes::default(),
        };
        devices.into_iter().try_for_each(|device| it.add(device))?;
        Ok(it)
    }

    /// Starts the thread of one more device.
    ///
    /// # Errors
    /// When the system has no thread, or an earlier operation on the device has not completed.
    pub(crate) fn add(&mut self, device: DeviceMetadata) -> io::Result<()> {
        let (number, name) = (DeviceNumber(device.encoder.number), device.disk.name());
        if self.devices.iter().any(|other| other.at_work > 0 && other.name == name) {
            return Err(io::Error::other("an earlier write of its metadata has not completed"));
        }
        let data_offset = device.encoder.superblock.metadata().data_offset;
        let (ops, operations) = sync_channel(DEVICE_QUEUE);
        let discards = Arc::new(AtomicBool::new(false));
        // The place of a device that has left is used again when nothing can come of it.
        let is_over = |it: &DeviceThread| {
            it.has_left && it.at_work == 0 && it.thread.as_ref().is_none_or(JoinHandle::is_finished)
        };
        let index = self.devices.iter().position(is_over).unwrap_or(self.devices.len());
        let worker = DeviceWorker {
            device,
            index,
            ops: operations,
            completed: self.completions.clone(),
            wake: self.wake.clone(),
            discards: discards.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("raidlab-meta-{}", number.0))
            .spawn(move || worker.run())?;
        let device = DeviceThread {
            number,
            name,
            data_offset,
            waiting: VecDeque::new(),
            pending: VecDeque::new(),
            at_work: 0,
            ops: Some(ops),
            discards,
            thread: Some(thread),
            has_left: false,
            serial: self.serials,
        };
        self.serials += 1;
        match self.devices.get_mut(index) {
            Some(place) => *place = device,
            None => self.devices.push(device),
        }
        Ok(())
    }

    /// The last one that has got a number: one that has failed may have had it before.
    fn index_of(&self, number: DeviceNumber) -> Option<usize> {
        let of = |device: &DeviceThread| device.number == number && !device.has_left;
        let all = (0..self.devices.len()).filter(|at| of(&self.devices[*at]));
        all.max_by_key(|at| self.devices[*at].serial)
    }

    fn device(&mut self, number: DeviceNumber) -> Option<&mut DeviceThread> {
        self.index_of(number).map(|at| &mut self.devices[at])
    }

    /// A device's name, and the start of its data area; empty if there is no such device.
    pub(crate) fn name(&self, number: DeviceNumber) -> (&str, u64) {
        let device = self.index_of(number).map(|at| &self.devices[at]);
        device.map_or(("", 0), |device| (&device.name, device.data_offset))
    }

    /// Starts a write, or a flush if there is no record; `now` is in charged time. `false`: there
    /// is no such device.
    #[must_use]
    pub(crate) fn submit(
        &mut self,
        number: DeviceNumber,
        token: MetaToken,
        record: Option<Record>,
        now: u64,
    ) -> bool {
        let updated = match &record {
            Some(Record::Superblock(state)) => self.times.of(state, self::now()),
            _ => Timestamp::default(),
        };
        let Some(device) = self.device(number) else { return false };
        device.pending.push_back((token, now));
        device.waiting.push_back(MetadataOp { token, record, updated });
        device.feed();
        self.at_work += 1;
        true
    }

    /// The device is out of service: its operations that have not begun are discarded.
    pub(crate) fn retire(&mut self, number: DeviceNumber) {
        if let Some(device) = self.device(number) {
            device.discards.store(true, Ordering::Relaxed);
        }
    }

    /// The device has left the array: its thread ends with it, at once or when the operation that
    /// it performs has ended.
    pub(crate) fn remove(&mut self, number: DeviceNumber) {
        let of = |device: &&mut DeviceThread| device.number == number && !device.has_left;
        for device in self.devices.iter_mut().filter(of) {
            device.discards.store(true, Ordering::Relaxed);
            device.ops = None;
            self.at_work -= device.waiting.len();
            device.waiting.clear();
            // The metadata manager waits for none of them.
            device.pending.clear();
            device.has_left = true;
        }
    }

    /// The next completion, if there is one.
    pub(crate) fn completion(&mut self) -> Option<MetadataCompletion> {
        if self.at_work == 0 {
            return None;
        }
        let completion = self.completed.try_recv().ok()?;
        self.at_work -= 1;
        let device = &mut self.devices[completion.thread];
        device.at_work -= 1;
        device.pending.retain(|(token, _)| *token != completion.token);
        device.feed();
        Some(completion)
    }

    /// When the thread that collects completions has to look next, by the clock: an operation may
    /// be late then.
    pub(crate) fn deadline(&self, looks: &Looks) -> Option<u64> {
        let limit = self.limit?.as_nanos() as u64;
        let pending = self.devices.iter().filter_map(|device| device.pending.front());
        let due = pending.map(|(_, since)| since.saturating_add(limit)).min()?;
        Some(looks.next(due.max(self.judges_at)))
    }

    /// The operations of devices of which one is late: they end now, whatever the thread will
    /// report of them. Called after completions were collected.
    pub(crate) fn take_late(&mut self, looks: &Looks) -> Vec<MetaToken> {
        let Some(limit) = self.limit else { return Vec::new() };
        let now = looks.time();
        if self.at_work == 0 || now < self.judges_at {
            return Vec::new();
        }
        if !looks.is_settled() {
            self.judges_at = looks.settled_at();
            return Vec::new();
        }
        let is_late = |since: u64| since.saturating_add(limit.as_nanos() as u64) <= now;
        let oldest = self.devices.iter().filter_map(|device| device.pending.front());
        let (late, busy) = oldest.fold((0, 0), |(late, busy), (_, since)| {
            (late + usize::from(is_late(*since)), busy + 1)
        });
        if let Some(until) = self.all_late.defer(late, busy, looks) {
            tracing::debug!(late, "metadata writes of all devices are late: judged a little later");
            self.judges_at = until;
            return Vec::new();
        }
        let mut late = Vec::new();
        for device in &mut self.devices {
            if device.pending.front().is_some_and(|(_, since)| is_late(*since)) {
                device.discards.store(true, Ordering::Relaxed);
                late.extend(device.pending.drain(..).map(|(token, _)| token));
            }
        }
        late
    }

    /// Whether no operation is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.at_work == 0
    }

    /// Readable after completions, while operations are in flight; see [`MetadataThreads::woke`].
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        (self.at_work > 0).then(|| self.wake.as_fd())
    }

    /// Resets the eventfd after it was readable, before completions are collected.
    pub(crate) fn woke(&self) {
        self.wake.reset();
    }
}

impl Drop for MetadataThreads {
    fn drop(&mut self) {
        for device in &mut self.devices {
            device.discards.store(true, Ordering::Relaxed);
            device.ops = None;
        }
        let mut looks = Looks::new(self.limit, 0);
        let start = Instant::now();
        for device in &mut self.devices {
            let Some(thread) = device.thread.take() else { continue };
            // An operation that is late has had its time.
            let is_late = device.at_work > device.pending.len();
            let limit = self.limit.map(|limit| if is_late { Duration::ZERO } else { limit });
            while limit.is_some_and(|limit| u128::from(looks.time()) < limit.as_nanos())
                && !thread.is_finished()
            {
                std::thread::sleep(STEP);
                looks.look(start.elapsed().as_nanos() as u64);
            }
            if limit.is_some() && !thread.is_finished() {
                tracing::error!(
                    device = device.name,
                    "a write of metadata has not completed: the device is left open until it does"
                );
                continue;
            }
            // A panic of an operation is its result: see `DeviceWorker::guarded`.
            let _ = thread.join();
        }
    }
}

/// What a device's thread owns.
struct DeviceWorker {
    device: DeviceMetadata,
    index: usize,
    ops: Receiver<MetadataOp>,
    completed: Sender<MetadataCompletion>,
    wake: Arc<EventFd>,
    discards: Arc<AtomicBool>,
}

/// An error of an operation, and its text; no text for one that has not begun.
type Failure = (IoError, Option<String>);

impl DeviceWorker {
    fn run(mut self) {
        host::sys::touch_stack();
        let mut batch: Vec<MetadataOp> = Vec::new();
        let mut results: Vec<Result<(), Failure>> = Vec::new();
        while let Ok(first) = self.ops.recv() {
            batch.push(first);
            batch.extend(self.ops.try_iter().take(DEVICE_QUEUE - 1));
            for op in &batch {
                let result = self.write(op);
                results.push(result);
            }
            if results.iter().any(Result::is_ok) {
                let synced = self.guarded(OpKind::Flush, |device| device.disk.sync());
                for result in &mut results {
                    if result.is_ok() {
                        result.clone_from(&synced);
                    }
                }
            }
            for (MetadataOp { token, record, .. }, result) in batch.drain(..).zip(results.drain(..))
            {
                let name = self.device.disk.name();
                let text = result.as_ref().err().and_then(|(_, text)| text.as_ref());
                let note = text
                    .filter(|_| record.is_some())
                    .map(|text| format!("{name}: its metadata cannot be written: {text}."));
                let result = result.map_err(|(error, _)| error);
                // Fails only when the array is gone.
                let completion = MetadataCompletion { token, result, note, thread: self.index };
                let _ = self.completed.send(completion);
            }
            self.wake.signal();
        }
    }

    /// Writes an operation's record, without a sync.
    fn write(&mut self, op: &MetadataOp) -> Result<(), Failure> {
        if self.discards.load(Ordering::Relaxed) {
            return Err((IoError::of_metadata(MemberError::Gone, None), None));
        }
        let Some(record) = &op.record else { return Ok(()) };
        self.guarded(OpKind::Write { fua: false }, |device| device.write(record, op.updated))
    }

    /// Performs a part of an operation. A panic is an error of the device: a thread that ends
    /// would leave the array waiting for its completions.
    fn guarded(
        &mut self,
        kind: OpKind,
        part: impl FnOnce(&mut DeviceMetadata) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match catch_unwind(AssertUnwindSafe(|| part(&mut self.device))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let cause = cause_of(&error, kind);
                Err((IoError::of_metadata(cause.kind, cause.errno), Some(error.to_string())))
            }
            Err(_) => {
                let error = IoError::of_metadata(MemberError::Gone, None);
                Err((error, Some("the operation has panicked".into())))
            }
        }
    }
}

impl DeviceMetadata {
    fn write(&mut self, record: &Record, updated: Timestamp) -> io::Result<()> {
        let failed = io::Error::other::<UpdateError>;
        match record {
            Record::Superblock(state) => {
                let write = self.encoder.superblock(state, updated).map_err(failed)?;
                self.perform(write)
            }
            Record::Bitmap(page) => {
                let header = page.header.map(|header| (header.events, header.events_cleared));
                let write = self.encoder.bitmap_page(page.page, header, &page.bits);
                write.map_err(failed)?.map_or(Ok(()), |write| self.perform(write))
            }
            Record::EndPpl => self.encoder.end_ppl().map_or(Ok(()), |write| self.perform(write)),
            Record::EmptyPpl => {
                self.encoder.empty_ppl().map_or(Ok(()), |write| self.perform(write))
            }
        }
    }

    fn perform(&self, write: Write) -> io::Result<()> {
        match write {
            Write::Zeroes(area) => self.disk.write_zeroes(area.sector..area.sector + area.sectors),
            Write::Bytes { sector, bytes } => self.disk.write(sector, &bytes),
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp { seconds: since.map_or(0, |since| since.as_secs()), micros: 0 }
}
