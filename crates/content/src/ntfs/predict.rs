//! What must stand where in NTFS, and what it says twice.

use super::boot::Boot;
use super::known::{Entry, Ntfs, of_directory, stated};
use super::record::{self, DATA};
use super::runs::Runs;
use crate::bytes::{Bytes, take};
use crate::files;
use crate::prediction::{CrossChecks, Prediction, PredictionKind, thin};

/// The record of the bitmap of clusters; the attribute of the MFT that is the bitmap of records.
const BITMAP_RECORD: u64 = 6;
const BITMAP: u32 = 0xb0;
/// Bytes of a bitmap that are read at most.
const BITMAP_MAX: usize = 1 << 20;
/// The first record that is no reserved one.
const FIRST_FREE: u64 = 24;

impl Ntfs {
    /// Predictions from what was learned.
    pub fn predictions(&self) -> Vec<Prediction> {
        let records = self.records.iter();
        records.flat_map(|(number, entry)| from_entry(&self.boot, *number, entry)).collect()
    }

    /// Predictions from what is read: records, what they name, the boot sector.
    pub fn predictions_through(&self, through: &dyn Bytes, limit: usize) -> Vec<Prediction> {
        let mut found = vec![self.boot_prediction()];
        let mut numbers = self.used_records(through);
        thin(&mut numbers, limit);
        for number in numbers {
            let Some(address) = self.record_address(number) else { continue };
            if let Some(record) = self.record(through, number)
                && let Some(entry) = self.entry(&record)
            {
                found.extend(from_entry(&self.boot, number, &entry));
            }
            let boot = self.boot.clone();
            let holds = move |bytes: &[u8]| {
                let mut copy = bytes.to_vec();
                stated(&boot, bytes) == Some(number) && record::undo_fix_up(&mut copy)
            };
            let len = self.boot.record;
            found.push(Prediction::new(PredictionKind::Inode, address, len, holds));
        }
        found.retain(|prediction| prediction.kind != PredictionKind::FileStart);
        found
    }

    fn boot_prediction(&self) -> Prediction {
        let own = self.boot.clone();
        let holds = move |bytes: &[u8]| Boot::decode(bytes).is_some_and(|boot| boot == own);
        Prediction::new(PredictionKind::Header, 0, 512, holds)
    }

    /// Records in use by the MFT's bitmap; the first ones where that cannot be read.
    fn used_records(&self, through: &dyn Bytes) -> Vec<u64> {
        let bitmap = self
            .record(through, 0)
            .and_then(|record| self.attribute_bytes(through, &record, BITMAP));
        let count = self.record_count();
        match bitmap {
            Some(bitmap) => (0..count.min(8 * bitmap.len() as u64))
                .filter(|number| is_set(&bitmap, *number))
                .filter(|number| *number < 12 || *number >= FIRST_FREE)
                .collect(),
            None => (0..count.min(12)).collect(),
        }
    }

    /// The contents of an attribute without a name, at most 1 MiB of them.
    fn attribute_bytes(&self, through: &dyn Bytes, record: &[u8], kind: u32) -> Option<Vec<u8>> {
        let mut attributes = record::attributes(record);
        let attribute = attributes.find(|found| found.kind == kind && !found.named)?;
        if let Some(value) = attribute.value() {
            return Some(value.to_vec());
        }
        let runs = Runs::of(&self.boot, &attribute)?;
        let mut bytes = Vec::new();
        let cluster = u64::from(self.boot.cluster);
        while (bytes.len() as u64) < runs.bytes && bytes.len() < BITMAP_MAX {
            let at = runs.address(&self.boot, bytes.len() as u64)?;
            bytes.extend(take(through, at, cluster as usize)?);
        }
        bytes.truncate(usize::try_from(runs.bytes).unwrap_or(usize::MAX));
        Some(bytes)
    }

    /// At most about `limit` comparisons: records with the MFT's bitmap, their clusters with the
    /// volume's.
    pub fn cross_checks(&self, through: &dyn Bytes, limit: usize) -> CrossChecks {
        let mut checks = CrossChecks::default();
        let mut bitmap = |number: u64, kind: u32| {
            let record = self.record(through, number);
            let bytes = record.and_then(|record| self.attribute_bytes(through, &record, kind));
            checks.unreadable += u32::from(bytes.is_none());
            bytes
        };
        let (records, clusters) = (bitmap(0, BITMAP), bitmap(BITMAP_RECORD, DATA));
        let Some(records) = records else { return checks };
        let count = self.record_count().min(8 * records.len() as u64);
        let mut numbers: Vec<u64> = (FIRST_FREE..count).collect();
        thin(&mut numbers, limit / 2 + 1);
        for number in numbers {
            self.check_record(
                through,
                number,
                is_set(&records, number),
                clusters.as_deref(),
                &mut checks,
            );
        }
        checks
    }

    fn check_record(
        &self,
        through: &dyn Bytes,
        number: u64,
        in_use: bool,
        clusters: Option<&[u8]>,
        checks: &mut CrossChecks,
    ) {
        let Some(address) = self.record_address(number) else { return };
        let Some(mut bytes) = take(through, address, self.boot.record as usize) else {
            checks.unreadable += 1;
            return;
        };
        let is_record =
            stated(&self.boot, &bytes) == Some(number) && record::undo_fix_up(&mut bytes);
        let is_used = is_record && crate::field::le16(&bytes, 22) & 1 != 0;
        checks.compare(is_used == in_use, address, || {
            let bitmap = if in_use { "in use" } else { "free" };
            format!("record {number}: the bitmap of the MFT says that it is {bitmap}")
        });
        let entry = self.entry(&bytes).filter(|_| is_used && in_use);
        let (Some(entry), Some(clusters)) = (entry, clusters) else { return };
        let (Entry::File(runs) | Entry::Directory(runs)) = &entry;
        let Some(at) = runs.address(&self.boot, 0) else { return };
        let cluster = at / u64::from(self.boot.cluster);
        if cluster < 8 * clusters.len() as u64 {
            checks.compare(is_set(clusters, cluster), at, || {
                format!("cluster {cluster} of record {number} is free by the volume's bitmap")
            });
        }
        if let Entry::Directory(_) = entry
            && let Some(index) = take(through, at, self.boot.index as usize)
        {
            let own = index.starts_with(b"INDX")
                && of_directory(&self.boot, &index).is_none_or(|parent| parent == number);
            checks.compare(own, at, || {
                format!("the index block at which directory {number} begins is not its own")
            });
        }
    }
}

/// What a record says of other places.
fn from_entry(boot: &Boot, number: u64, entry: &Entry) -> Vec<Prediction> {
    match entry {
        Entry::Directory(runs) => {
            let Some(at) = runs.address(boot, 0) else { return Vec::new() };
            let own = boot.clone();
            let holds = move |bytes: &[u8]| {
                bytes.starts_with(b"INDX")
                    && of_directory(&own, bytes).is_none_or(|parent| parent == number)
            };
            vec![Prediction::new(PredictionKind::Index, at, boot.index, holds).weak(0.7)]
        }
        Entry::File(runs) => {
            let (size, block) = (runs.bytes, boot.cluster.min(4096));
            let first = runs.address(boot, 0).filter(|_| size >= 8);
            let start = first.map(|at| files::start(at, block));
            let (unit, byte) = (u64::from(block), size.saturating_sub(1));
            let last = (size > 0).then(|| runs.address(boot, byte / unit * unit)).flatten();
            let end = last.and_then(|at| files::end(at, block, (size % unit) as u32));
            start.into_iter().chain(end).collect()
        }
    }
}

fn is_set(bitmap: &[u8], bit: u64) -> bool {
    bitmap.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
