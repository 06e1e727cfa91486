//! How fast windows are scanned: random bytes, zeroes, and an image that is given.
//!
//!     cargo run --release -p raidlab-content --example scan_speed [IMAGE]

use std::time::Instant;

use raidlab_content::{FileSystems, Scan};
use testkit::Rng;

fn main() {
    let image = std::env::args().nth(1).map(|path| std::fs::read(path).expect("readable"));
    let mut known = FileSystems::new();
    if let Some(bytes) = &image {
        known.find(bytes, 0);
    }
    let mut random = vec![0; 128 << 20];
    Rng::new(1).fill(&mut random);
    let zeroes = vec![0; 128 << 20];
    println!("{} file systems known", known.list().len());
    for (name, bytes) in [("random", &random), ("zeroes", &zeroes)]
        .into_iter()
        .chain(image.as_ref().map(|i| ("image", i)))
    {
        for (what, scans) in [("find", false), ("scan", true)] {
            let begin = Instant::now();
            let mut scan = Scan::new();
            let mut others = known.clone();
            let found = match scans {
                true => {
                    known.scan(bytes, 0, &mut scan);
                    scan.len()
                }
                false => others.find(bytes, 0).len(),
            };
            let rate = bytes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
            println!("{name} {what}: {rate:.0} MB/s, {found} found");
        }
    }
}
