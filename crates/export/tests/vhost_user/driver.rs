//! What QEMU and its guest's driver do: memory that is shared, rings in it, requests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::Array;
use raidlab_export::Access;
use raidlab_export::vhost_user::VhostUser;
use rustix::fs::MemfdFlags;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk as blk;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use crate::support_array::raid5;

/// A RAID 5 in memory, of 64 MiB, with this many buffers.
pub fn array(leases: usize) -> Arc<Array> {
    Arc::new(raid5(32 << 11, 128, leases))
}

/// A front on a socket in a directory of its own.
pub struct Served {
    pub front: VhostUser,
    pub directory: tempfile::TempDir,
}

impl Served {
    pub fn start(store: Arc<dyn raidlab_export::store::Store>) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let access = Arc::new(Access::new(store).expect("a thread"));
        Served { front: VhostUser::start(access, &socket, "a-disk").expect("it starts"), directory }
    }

    pub fn path(&self) -> &Path {
        self.front.path()
    }
}

pub const MEMORY_BYTES: usize = 16 << 20;
const RING_ENTRIES: u16 = 128;
/// Where the descriptors of a ring are; its other parts follow.
fn ring_at(ring: usize) -> u64 {
    0x4000 * (ring as u64 + 1)
}
/// Where data of requests begin: each ring has a MiB.
const DATA: u64 = 1 << 20;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor: address, length, flags, the next one.
pub type Descriptor = (u64, u32, u16, u16);

/// A virtual machine with its guest.
pub struct Machine {
    pub frontend: Frontend,
    pub memory: GuestMemoryMmap<()>,
    pub features: u64,
    rings: Vec<Ring>,
}

struct Ring {
    kick: EventFd,
    call: EventFd,
    available: u16,
    used: u16,
}

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

impl Machine {
    /// Connects, and starts this many rings.
    pub fn connect(socket: &Path, rings: usize) -> Machine {
        Machine::try_connect(socket, rings).expect("it connects")
    }

    pub fn try_connect(socket: &Path, rings: usize) -> vhost::Result<Machine> {
        let mut frontend = Frontend::connect(socket, 16)?;
        let wanted = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        frontend.set_owner()?;
        let features = frontend.get_features()?;
        assert_ne!(features & wanted, 0);
        let protocol = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK;
        assert!(frontend.get_protocol_features()?.contains(protocol));
        frontend.set_protocol_features(protocol)?;
        assert!(frontend.get_queue_num()? >= rings as u64);
        // Without events' indices: every end is notified.
        frontend.set_features(features & !(1 << 29))?;
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        let file = std::fs::File::from(file);
        file.set_len(MEMORY_BYTES as u64).expect("its size");
        let range = (GuestAddress(0), MEMORY_BYTES, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).expect("memory");
        let region = memory.iter().next().expect("a region");
        let region = VhostUserMemoryRegionInfo::from_guest_region(region)?;
        frontend.set_mem_table(&[region])?;
        let mut machine = Machine { frontend, memory, features, rings: Vec::new() };
        for ring in 0..rings {
            machine.start(ring)?;
        }
        Ok(machine)
    }

    fn start(&mut self, ring: usize) -> vhost::Result<()> {
        let event = || EventFd::new(0).expect("an eventfd");
        let (kick, call) = (event(), event());
        let base = self.memory.iter().next().expect("a region").as_ptr() as u64 + ring_at(ring);
        let frontend = &mut self.frontend;
        frontend.set_vring_num(ring, RING_ENTRIES)?;
        frontend.set_vring_base(ring, 0)?;
        let data = VringConfigData {
            queue_max_size: RING_ENTRIES,
            queue_size: RING_ENTRIES,
            flags: 0,
            desc_table_addr: base,
            avail_ring_addr: base + 0x1000,
            used_ring_addr: base + 0x2000,
            log_addr: None,
        };
        frontend.set_vring_addr(ring, &data)?;
        frontend.set_vring_call(ring, &call)?;
        frontend.set_vring_kick(ring, &kick)?;
        frontend.set_vring_enable(ring, true)?;
        self.rings.push(Ring { kick, call, available: 0, used: 0 });
        Ok(())
    }

    /// Where requests of a ring may have their data.
    pub fn data(ring: usize) -> u64 {
        DATA * (ring as u64 + 1)
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).expect("inside");
    }

    pub fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read_slice(&mut data, GuestAddress(at)).expect("inside");
        data
    }

    /// Writes descriptors, the first at `first`.
    pub fn describe(&self, ring: usize, first: u16, descriptors: &[Descriptor]) {
        for (number, descriptor) in (first..).zip(descriptors) {
            self.put(ring_at(ring) + 16 * u64::from(number), &raw(descriptor));
        }
    }

    /// Makes a chain available, and kicks.
    pub fn submit(&mut self, ring: usize, head: u16) {
        let available = self.rings[ring].available;
        let entry = u64::from(available % RING_ENTRIES);
        self.put(ring_at(ring) + 0x1000 + 4 + 2 * entry, &head.to_le_bytes());
        self.set_available(ring, available.wrapping_add(1));
    }

    /// Sets the index of the available ring, and kicks.
    pub fn set_available(&mut self, ring: usize, index: u16) {
        self.rings[ring].available = index;
        self.memory
            .store(
                index,
                GuestAddress(ring_at(ring) + 0x1002),
                std::sync::atomic::Ordering::Release,
            )
            .expect("inside");
        self.rings[ring].kick.write(1).expect("an eventfd");
    }

    /// The next end: the chain and how much was written. `None`: not in this time.
    pub fn ended(&mut self, ring: usize, patience: Duration) -> Option<(u32, u32)> {
        let until = Instant::now() + patience;
        let used = self.rings[ring].used;
        let at = GuestAddress(ring_at(ring) + 0x2002);
        while self.memory.load::<u16>(at, std::sync::atomic::Ordering::Acquire).unwrap() == used {
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let entry = ring_at(ring) + 0x2004 + 8 * u64::from(used % RING_ENTRIES);
        self.rings[ring].used = used.wrapping_add(1);
        let word = |at| u32::from_le_bytes(self.get(at, 4).try_into().unwrap());
        Some((word(entry), word(entry + 4)))
    }

    /// How often a ring has been called.
    pub fn calls(&self, ring: usize) -> u64 {
        self.rings[ring].call.read().expect("it was called")
    }

    /// Puts a request in place: header and status in the first page of the ring's data, data behind
    /// it in pieces of `piece` bytes. With `incoming` the device writes the data.
    pub fn prepare(
        &self,
        ring: usize,
        kind: u32,
        sector: u64,
        data: Data<'_>,
        piece: usize,
    ) -> u16 {
        let at = Machine::data(ring);
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.put(at, &header);
        self.put(at + 512, &[0xee]);
        let (bytes, flags) = match data {
            Data::Outgoing(bytes) => {
                self.put(at + 4096, bytes);
                (bytes.len(), NEXT)
            }
            Data::Incoming(bytes) => (bytes, NEXT | WRITE),
        };
        let mut descriptors = vec![(at, 16, NEXT, 1)];
        let mut done = 0;
        while done < bytes {
            let length = piece.min(bytes - done);
            let next = descriptors.len() as u16 + 1;
            descriptors.push((at + 4096 + done as u64, length as u32, flags, next));
            done += length;
        }
        descriptors.push((at + 512, 1, WRITE, 0));
        self.describe(ring, 0, &descriptors);
        0
    }

    /// Submits a request, waits for it, and returns its status.
    pub fn request(&mut self, ring: usize, kind: u32, sector: u64, data: Data<'_>) -> u8 {
        let head = self.prepare(ring, kind, sector, data, 300_000);
        self.submit(ring, head);
        let ended = self.ended(ring, PATIENCE).expect("an answer");
        assert_eq!(ended.0, u32::from(head));
        self.status(ring)
    }

    pub fn status(&self, ring: usize) -> u8 {
        self.get(Machine::data(ring) + 512, 1)[0]
    }

    pub fn write(&mut self, ring: usize, sector: u64, bytes: &[u8]) {
        let status = self.request(ring, blk::VIRTIO_BLK_T_OUT, sector, Data::Outgoing(bytes));
        assert_eq!(status, OK);
    }

    pub fn read(&mut self, ring: usize, sector: u64, bytes: usize) -> Vec<u8> {
        let status = self.request(ring, blk::VIRTIO_BLK_T_IN, sector, Data::Incoming(bytes));
        assert_eq!(status, OK);
        self.get(Machine::data(ring) + 4096, bytes)
    }

    /// The first bytes of the configuration space.
    pub fn configuration(&mut self) -> Vec<u8> {
        let space = self.frontend.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]);
        space.expect("the configuration space").1
    }
}

pub const OK: u8 = blk::VIRTIO_BLK_S_OK as u8;
pub const IO_ERROR: u8 = blk::VIRTIO_BLK_S_IOERR as u8;
pub const UNSUPPORTED: u8 = blk::VIRTIO_BLK_S_UNSUPP as u8;

/// What a request carries.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    Outgoing(&'a [u8]),
    Incoming(usize),
}

pub const NOTHING: Data<'static> = Data::Outgoing(&[]);

/// A descriptor as it stands in memory.
pub fn raw((address, length, flags, next): &Descriptor) -> Vec<u8> {
    let parts = [
        &address.to_le_bytes()[..],
        &length.to_le_bytes(),
        &flags.to_le_bytes(),
        &next.to_le_bytes(),
    ];
    parts.concat()
}
