//! Images that the kernel made: pieces of them in the repository, the whole corpus where it is
//! found: in the directory that RAIDLAB_MD_CORPUS names, or beside the project.

use raidlab_md::ondisk::{MemberMetadata, Role, superblock};
use raidlab_md::{Geometry, GeometrySpec, Layout, Level};
use serde_json::Value;
use std::convert::Infallible;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A range of an image, as `pieces/README.md` lists them.
pub fn piece(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/logs/pieces");
    decompress(&directory.join(format!("{name}.zst")))
}

pub struct Member {
    pub image: Vec<u8>,
    pub metadata: MemberMetadata,
}

impl Member {
    /// Sectors of the whole device.
    pub fn sectors(&self, sector: u64, sectors: u64) -> &[u8] {
        &self.image[sector as usize * 512..(sector + sectors) as usize * 512]
    }

    pub fn data(&self) -> &[u8] {
        self.sectors(self.metadata.data_offset, self.metadata.data_sectors)
    }
}

/// An array of the corpus.
pub struct Case {
    pub json: Value,
    pub members: Vec<Member>,
    pub geometry: Geometry,
}

impl Case {
    /// The members with a slot, in slot order.
    pub fn slots(&self) -> Vec<&Member> {
        let mut slots: Vec<(u16, &Member)> = Vec::new();
        for member in &self.members {
            if let Role::Slot(slot) = member.metadata.role {
                slots.push((slot, member));
            }
        }
        slots.sort_by_key(|(slot, _)| *slot);
        assert_eq!(slots.len(), self.geometry.members());
        slots.into_iter().map(|(_, member)| member).collect()
    }
}

/// A case of the corpus; `None`, after a line that says so, where there is no corpus.
pub fn case(name: &str) -> Option<Case> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    let corpus = std::env::var_os("RAIDLAB_MD_CORPUS").map_or(beside, PathBuf::from);
    if !corpus.is_dir() {
        println!("skipped: no corpus beside the project, and RAIDLAB_MD_CORPUS names none");
        return None;
    }
    let directory = corpus.join(name);
    let text = std::fs::read_to_string(directory.join("case.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let files = json["members"].as_array().unwrap().iter();
    let members: Vec<Member> = files
        .map(|member| load(decompress(&directory.join(member["file"].as_str().unwrap()))))
        .collect();
    let geometry = geometry(&members[0].metadata);
    Some(Case { json, members, geometry })
}

fn load(image: Vec<u8>) -> Member {
    let detection = superblock::detect(image.len() as u64 / 512, |candidate| {
        let start = candidate.sector as usize * 512;
        let end = (start + superblock::READ_BYTES).min(image.len());
        Ok::<_, Infallible>(&image[start..end])
    });
    let (superblock, checksum) = detection.superblock().expect("a superblock");
    assert!(checksum.is_correct());
    let metadata = superblock.metadata();
    Member { image, metadata }
}

fn geometry(metadata: &MemberMetadata) -> Geometry {
    let level = Level::from_number(metadata.level).unwrap();
    let spec = GeometrySpec {
        level,
        layout: Layout::from_number(level, metadata.layout as i32).unwrap(),
        chunk_sectors: metadata.chunk_sectors.into(),
        member_sectors: vec![metadata.used_sectors; metadata.raid_disks as usize],
    };
    Geometry::new(&spec).unwrap()
}

fn decompress(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).unwrap();
    let mut image = Vec::new();
    decoder.read_to_end(&mut image).unwrap();
    image
}
