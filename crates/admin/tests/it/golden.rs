//! Every golden array made by the kernel is read back, also without each set of members that it can
//! lose; where data cannot be served, there is a clear refusal, and the readable data are right.
//!
//! A small slice of the corpus is in the source tree; all of it is read where `../shared` is, by
//! `make test-all`.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{Disk, MemoryDisk};
use md::assemble::{Array, Candidate, Options, Plan, Verdict, assemble};
use md::ondisk::superblock::{READ_BYTES, detect};
use raidlab_admin::rescue::{Piece, StreamOptions, prepare, stream};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub struct Case {
    name: String,
    pub json: Value,
    pub disks: Vec<Arc<dyn Disk>>,
    candidates: Vec<Candidate>,
}

/// Unpacks a golden array.
pub fn load(directory: &Path) -> Case {
    let json = std::fs::read_to_string(directory.join("case.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let name = json["case"].as_str().unwrap().to_string();
    let (mut disks, mut candidates) = (Vec::new(), Vec::new());
    for member in json["members"].as_array().unwrap() {
        let file = member["file"].as_str().unwrap();
        let packed = std::fs::File::open(directory.join(file)).unwrap();
        let mut bytes = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
        decoder.read_to_end(&mut bytes).unwrap();
        let image = MemoryDisk::new(file, bytes);
        let detection = detect(image.sectors(), |candidate| {
            let mut bytes = vec![0; READ_BYTES];
            image.read(candidate.sector, &mut bytes).map(|()| bytes)
        });
        let (superblock, checksum) = detection.superblock().expect("a superblock");
        candidates.push(Candidate::new(file, image.sectors(), 512, superblock, checksum));
        disks.push(Arc::new(image) as Arc<dyn Disk>);
    }
    Case { name, json, disks, candidates }
}

/// What came out: the contents, what is lost, and the notes.
struct Contents {
    bytes: Vec<u8>,
    lost: Vec<Range<u64>>,
    notes: Vec<String>,
}

impl Case {
    /// Reads the array by its read-only plan, whether that runs or not.
    fn read(&self, array: &Array, candidates: &[Candidate], disks: &[Arc<dyn Disk>]) -> Contents {
        let plan = &array.read_only;
        let kernels = parity::Kernels::best();
        let prepared = prepare(array, plan, candidates, disks, kernels).expect(&self.name);
        let (mut bytes, mut lost) = (Vec::new(), Vec::new());
        let view = &prepared.view;
        stream(view, 0..view.sectors(), StreamOptions::default(), |piece| {
            let Piece::Data { at, bytes: part, lost: more } = piece else {
                panic!("memory has no holes");
            };
            assert_eq!(at * 512, bytes.len() as u64, "in order");
            bytes.extend_from_slice(part);
            lost.extend_from_slice(more);
            Ok::<(), ()>(())
        })
        .unwrap();
        Contents { bytes, lost, notes: prepared.notes }
    }

    /// Reads it whole, and without every set of at most `most_lost` members.
    fn check_all(&self, most_lost: usize) -> [usize; 2] {
        let found = assemble(&self.candidates, &Options::default());
        assert_eq!(found.arrays.len(), 1, "{}: one array", self.name);
        let array = &found.arrays[0];
        let verdict = &array.read_only.verdict;
        assert!(verdict.runs(), "{}: {verdict:?}", self.name);
        let whole = self.read(array, &self.candidates, &self.disks);
        assert_eq!(whole.lost, [], "{}", self.name);
        let expected = self.json["sha256_of_array_contents"].as_str().unwrap();
        let sha256: String = Sha256::digest(&whole.bytes).iter().map(hex).collect();
        assert_eq!(sha256, expected, "{}: contents; {:?}", self.name, whole.notes);
        let serving: Vec<usize> =
            array.read_only.slots.iter().flatten().map(|source| source.candidate).collect();
        let mut counts = [0, 0];
        for mask in 0..(1_u32 << self.disks.len()) - 1 {
            let lost = self.disks.len() - mask.count_ones() as usize;
            if lost <= most_lost {
                self.check_without(mask, &whole.bytes, &serving, &mut counts);
            }
        }
        counts
    }

    /// `serving`: the members that the whole array is read from.
    fn check_without(&self, mask: u32, whole: &[u8], serving: &[usize], counts: &mut [usize; 2]) {
        let kept = (0..self.disks.len()).filter(|number| mask >> number & 1 == 1);
        let kept: Vec<usize> = kept.collect();
        let candidates: Vec<_> = kept.iter().map(|at| self.candidates[*at].clone()).collect();
        let disks: Vec<_> = kept.iter().map(|at| self.disks[*at].clone()).collect();
        let found = assemble(&candidates, &Options::default());
        let [array] = &found.arrays[..] else {
            // Only spares are left.
            assert!(found.arrays.is_empty(), "{}: {mask:b}", self.name);
            return;
        };
        if array.shape.is_err() || array.read_only.slots.iter().all(Option::is_none) {
            assert!(!array.read_only.verdict.runs(), "{}: {mask:b}", self.name);
            return;
        }
        let context = format!("{} with {mask:b}: {:?}", self.name, array.read_only.verdict);
        let part = self.read(array, &candidates, &disks);
        match &array.read_only.verdict {
            verdict if verdict.runs() => {
                counts[0] += 1;
                assert_eq!(part.lost, [], "{context}");
                let differs = first_difference(&part.bytes, whole);
                let Plan { warnings, doubts, .. } = &array.read_only;
                let explained = warnings.iter().chain(doubts).any(|warning| {
                    ["in use when it stopped", "journal"].iter().any(|sign| warning.contains(sign))
                });
                assert!(
                    differs.is_none() || explained,
                    "{context} differs at byte {differs:?}, {:?}",
                    part.notes
                );
                if differs.is_some() {
                    println!("{context} differs at {differs:?}: {warnings:?} {doubts:?}");
                }
                assert_eq!(part.bytes.len(), whole.len(), "{context}");
            }
            Verdict::NeedsForce { risk: why, .. } | Verdict::Refused { why } => {
                counts[1] += 1;
                assert!(why.len() > 40 && why.ends_with('.'), "{context}: not a clear refusal");
                // Readable data are right, and the rest is reported as lost.
                let logged = candidates.iter().any(|candidate| candidate.metadata.has_journal);
                // A member that the array continued without has no record of that: alone, it has
                // old data.
                let mut sources = array.read_only.slots.iter().flatten();
                let fresh = sources.any(|source| serving.contains(&kept[source.candidate]));
                if fresh && part.bytes.len() == whole.len() && !self.is_dirty() && !logged {
                    let mut expected = whole.to_vec();
                    for range in &part.lost {
                        let bytes = range.start as usize * 512..range.end as usize * 512;
                        expected[bytes].fill(0);
                    }
                    let differs = first_difference(&part.bytes, &expected);
                    assert_eq!(differs, None, "{context}");
                }
                // Without its journal nothing seems to be missing.
                let without_log = logged && why.contains("journal");
                assert!(without_log || !part.lost.is_empty(), "{context}: nothing is lost");
            }
            verdict => panic!("{}: {verdict:?}", self.name),
        }
    }

    fn is_dirty(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.metadata.resync_offset.is_some())
    }
}

/// The first byte in which they differ.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    // Blocks first: byte by byte is slow without optimisation.
    let block = a.chunks(4096).zip(b.chunks(4096)).position(|(a, b)| a != b)?;
    let in_block = a[block * 4096..].iter().zip(&b[block * 4096..]).position(|(a, b)| a != b);
    in_block.map(|byte| block * 4096 + byte)
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let cases = entries.map(|entry| entry.path()).filter(|path| path.join("case.json").exists());
    let mut cases: Vec<_> = cases.collect();
    cases.sort();
    cases
}

fn check_folder(folder: &Path, most_lost: usize) -> usize {
    let cases = cases(folder);
    let mut counts = [0, 0];
    for directory in &cases {
        let [read, refused] = load(directory).check_all(most_lost);
        counts = [counts[0] + read, counts[1] + refused];
    }
    println!("{} arrays; without members: {} read, {} refused", cases.len(), counts[0], counts[1]);
    cases.len()
}

#[test]
fn the_slice_in_the_source_tree_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/corpus");
    assert!(check_folder(&folder, 3) >= 5, "there is a slice");
}

#[test]
fn the_whole_corpus_is_read() {
    if !testkit::runs_all() {
        println!("skipped: slow; RAIDLAB_TEST=all runs it");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    if !folder.exists() {
        println!("skipped: no ../shared/reference/md-corpus beside the project");
        return;
    }
    assert!(check_folder(&folder, 3) >= 60, "the corpus is whole");
}
