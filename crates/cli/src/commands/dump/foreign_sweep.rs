//! One byte of one member's metadata changed, over every golden array with metadata of another
//! format than md's: a dump that ends with 0 has the right contents.
//!
//! Invariant: the verdict is that of `dump`, reached by the same calls in this process. Checksums
//! are made right again in three of four changes. `RAIDLAB_TEST=all` changes every byte that is not
//! padding, otherwise a sample is drawn, and `RAIDLAB_SEED` repeats it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use host::MemoryDisk;
use md::foreign::Metadata;
use sha2::{Digest, Sha256};

use super::DumpArguments;
use super::sweep::{End, Random, cases, unpack};
use admin::{Member, Members};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    dump: DumpArguments,
}

/// A part of the metadata with a checksum of its own.
#[derive(Clone, Debug)]
struct Structure {
    sector: u64,
    bytes: usize,
    sum: Sum,
}

#[derive(Clone, Copy, Debug)]
enum Sum {
    /// CRC of all of it, at byte 4.
    Ddf,
    /// Sum of the words of the metadata, of which the rest lies before the anchor.
    Imsm,
}

struct Golden {
    name: String,
    images: Vec<Arc<Vec<u8>>>,
    members: Vec<Member>,
    structures: Vec<Vec<Structure>>,
    volumes: Vec<(DumpArguments, String)>,
}

fn member(name: &str, disk: MemoryDisk) -> Member {
    Member::read(name.to_string(), Arc::new(disk))
}

/// The structures of a member's metadata, both copies of DDF's.
fn structures(metadata: &Metadata) -> Vec<Structure> {
    match metadata {
        Metadata::Imsm(table) => {
            let (sector, bytes) = (table.first_sector, table.bytes.len());
            vec![Structure { sector, bytes, sum: Sum::Imsm }]
        }
        Metadata::Ddf(tables) => {
            let header = &tables.copy.header;
            let ddf = |sector, bytes| Structure { sector, bytes, sum: Sum::Ddf };
            let mut all = vec![ddf(tables.sector, 512)];
            for base in [header.primary, header.secondary] {
                all.push(ddf(base, 512));
                for (offset, sectors) in [header.disks, header.virtuals, header.own] {
                    all.push(ddf(base + u64::from(offset), sectors as usize * 512));
                }
                let length = usize::from(header.record_sectors);
                for record in 0..tables.copy.configs.len() {
                    let offset = u64::from(header.configs.0) + (record * length) as u64;
                    all.push(ddf(base + offset, length * 512));
                }
            }
            all
        }
    }
}

impl Golden {
    fn load(directory: &Path) -> Golden {
        let text = std::fs::read_to_string(directory.join("case.json")).expect("case.json");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let list = |key: &str| json[key].as_array().expect("a list").clone();
        let images: Vec<(String, Arc<Vec<u8>>)> = list("members")
            .iter()
            .map(|member| {
                let file = member["file"].as_str().expect("a file");
                let name = file.trim_end_matches(".zst").to_string();
                (name, Arc::new(unpack(&directory.join(file))))
            })
            .collect();
        let of = |(name, image): &(String, Arc<Vec<u8>>)| {
            member(name, MemoryDisk::new(name.clone(), image.clone()))
        };
        let members: Vec<Member> = images.iter().map(of).collect();
        let structures = members.iter().map(|it| structures(it.foreign.as_ref().expect("some")));
        let volumes = list("volumes").into_iter().map(|volume| {
            let name = volume["name"].as_str().expect("a name");
            let line = ["dump", "any", "--sha256", "--array", name];
            let arguments = Line::try_parse_from(line).expect("it parses").dump;
            (arguments, volume["sha256"].as_str().expect("a hash").to_string())
        });
        let golden = Golden {
            name: json["case"].as_str().expect("a name").to_string(),
            structures: structures.collect(),
            volumes: volumes.collect(),
            images: images.into_iter().map(|(_, image)| image).collect(),
            members,
        };
        assert_eq!(golden.end(golden.members.clone()), End::Right, "{}", golden.name);
        golden
    }

    /// The bytes of a structure in their order in memory: of Intel's the last sector comes first.
    fn bytes(&self, at: usize, structure: &Structure) -> Vec<u8> {
        let Metadata::Imsm(table) = self.members[at].foreign.as_ref().expect("some") else {
            let start = structure.sector as usize * 512;
            return self.images[at][start..start + structure.bytes].to_vec();
        };
        table.bytes.clone()
    }

    /// The member with other bytes of a structure.
    fn changed(&self, at: usize, structure: &Structure, bytes: &[u8]) -> Member {
        let name = self.members[at].name.clone();
        let disk = MemoryDisk::new(name.clone(), self.images[at].clone());
        let Metadata::Imsm(table) = self.members[at].foreign.as_ref().expect("some") else {
            return member(&name, disk.with(structure.sector, bytes.to_vec()));
        };
        // The rest lies directly before the first block.
        let block = table.block_bytes as usize;
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().next_multiple_of(block), 0);
        whole.rotate_left(block);
        member(&name, disk.with(table.first_sector, whole))
    }

    /// A repair of what is whole changes nothing: structures and sums are where they are said to
    /// be.
    fn checksums_are_where_they_are_repaired(&self) {
        for (at, structures) in self.structures.iter().enumerate() {
            for structure in structures {
                let before = self.bytes(at, structure);
                let mut bytes = before.clone();
                repair(&mut bytes, structure.sum);
                assert!(bytes == before, "{}: member {at}, {structure:?}", self.name);
            }
        }
    }

    /// The worst end of dumps of all volumes.
    fn end(&self, members: Vec<Member>) -> End {
        let members = Members::of(members.into_iter());
        let ends = self.volumes.iter().map(|(arguments, hash)| {
            let Ok(source) = arguments.rescue(&members) else { return End::Said };
            if !source.doubts.is_empty() {
                return End::Said;
            }
            let mut buf = vec![0; source.view.sectors().min(16384) as usize * 512];
            let lost = source.view.read(0, &mut buf);
            if !lost.is_empty() || !source.view.comparison().differing.is_empty() {
                return End::Said;
            }
            let digest: String =
                Sha256::digest(&buf).iter().map(|byte| format!("{byte:02x}")).collect();
            if digest == *hash { End::Right } else { End::Wrong }
        });
        ends.max_by_key(|end| *end as u8).expect("a volume")
    }
}

fn repair(bytes: &mut [u8], sum: Sum) {
    match sum {
        Sum::Ddf => {
            bytes[4..8].fill(0xff);
            let mut hash = crc32fast::Hasher::new_with_initial(!0);
            hash.update(bytes);
            bytes[4..8].copy_from_slice(&(!hash.finalize()).to_be_bytes());
        }
        Sum::Imsm => {
            bytes[32..36].fill(0);
            let words = bytes.chunks_exact(4);
            let words = words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
            let sum = words.fold(0_u32, u32::wrapping_add);
            bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// A change: member, structure, offset, value, and whether the checksum is made right.
type Poke = (usize, usize, usize, u8, bool);

fn every_byte(golden: &Golden) -> Vec<Poke> {
    let mut all = Vec::new();
    for (at, structures) in golden.structures.iter().enumerate() {
        for (number, structure) in structures.iter().enumerate() {
            let bytes = golden.bytes(at, structure);
            for (offset, &byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0xff) {
                for value in [byte.wrapping_add(1), byte ^ 0x80, 0xff] {
                    all.push((at, number, offset, value, true));
                }
                all.push((at, number, offset, byte ^ 1, false));
            }
        }
    }
    all
}

fn drawn(golden: &Golden, random: &mut Random) -> Poke {
    let at = random.below(golden.members.len());
    let number = random.below(golden.structures[at].len());
    let bytes = golden.bytes(at, &golden.structures[at][number]);
    let used: Vec<usize> = (0..bytes.len()).filter(|&offset| bytes[offset] != 0xff).collect();
    let offset = match random.below(4) {
        0 => random.below(bytes.len().min(1024)),
        _ => used[random.below(used.len())],
    };
    let by = [1, 255, 128, 2, 16][random.below(5)];
    (at, number, offset, bytes[offset].wrapping_add(by), random.below(4) > 0)
}

#[test]
fn no_changed_byte_of_foreign_metadata_gives_wrong_contents_with_success() {
    let all = std::env::var("RAIDLAB_TEST").is_ok_and(|value| value == "all");
    let seed = std::env::var("RAIDLAB_SEED")
        .map_or(20_261_125, |seed| seed.parse().expect("RAIDLAB_SEED is a number"));
    println!("replay: RAIDLAB_SEED={seed} cargo test -p raidlab-cli no_changed_byte_of_foreign");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/foreign");
    let paths: Vec<PathBuf> = cases(&corpus);
    let (mut counts, mut wrong, mut possible) = ([0_u64; 3], Vec::new(), 0);
    for path in paths {
        let golden = Golden::load(&path);
        let mut random = Random(seed ^ golden.images.len() as u64 | 1);
        golden.checksums_are_where_they_are_repaired();
        let every = every_byte(&golden);
        possible += every.len();
        let pokes =
            if all { every } else { (0..120).map(|_| drawn(&golden, &mut random)).collect() };
        for (at, number, offset, value, repaired) in pokes {
            let structure = &golden.structures[at][number];
            let mut bytes = golden.bytes(at, structure);
            bytes[offset] = value;
            if repaired {
                repair(&mut bytes, structure.sum);
            }
            let mut members = golden.members.clone();
            let changed = golden.changed(at, structure, &bytes);
            let is_same = changed.foreign == members[at].foreign;
            members[at] = changed;
            // What decodes to the same is not read again.
            let end = if is_same { End::Right } else { golden.end(members) };
            counts[end as usize] += 1;
            if end == End::Wrong {
                let name = &golden.name;
                wrong.push(format!(
                    "{name}: member {at}, {structure:?}, byte {offset}: {value:02x}"
                ));
            }
        }
    }
    let [said, right, bad] = counts;
    let tried = said + right + bad;
    println!("{tried} changes, of {possible} that RAIDLAB_TEST=all makes");
    println!("{said} dumps ended with an error, {right} were right, {bad} were wrong");
    assert!(said > 0 && right > 0, "the sweep does nothing");
    assert!(wrong.is_empty(), "wrong with exit code 0:\n{}", wrong.join("\n"));
}
