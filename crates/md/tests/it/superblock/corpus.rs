//! Golden members: images that the kernel and mdadm wrote, with what `case.json` says of them.

use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

pub struct Member {
    /// Case and file, for messages.
    pub name: String,
    pub json: Value,
    pub image: Vec<u8>,
}

pub struct Case {
    pub name: String,
    pub json: Value,
    pub members: Vec<Member>,
}

/// The slice in the repository.
pub fn slice() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// The whole corpus, if it is somewhere.
pub fn whole() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/md-corpus");
    let corpus = std::env::var_os("RAIDLAB_MD_CORPUS").map_or(beside, PathBuf::from);
    corpus.is_dir().then_some(corpus)
}

/// Calls `visit` with every case, one at a time: together they are large.
pub fn for_each_case(corpus: &Path, mut visit: impl FnMut(&Case)) {
    let mut directories: Vec<PathBuf> = std::fs::read_dir(corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").is_file())
        .collect();
    directories.sort();
    for directory in directories {
        visit(&load(&directory));
    }
}

fn load(directory: &Path) -> Case {
    let text = std::fs::read_to_string(directory.join("case.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let name = json["case"].as_str().unwrap().to_string();
    let members = json["members"].as_array().unwrap().iter().map(|member| {
        let file = member["file"].as_str().unwrap();
        Member {
            name: format!("{name}/{file}"),
            json: member.clone(),
            image: decompress(&directory.join(file)),
        }
    });
    Case { members: members.collect(), name, json }
}

fn decompress(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice()).unwrap();
    let mut image = Vec::new();
    decoder.read_to_end(&mut image).unwrap();
    image
}
