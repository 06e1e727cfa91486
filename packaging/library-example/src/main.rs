//! Says what array the named members form, reads its first bytes, and predicts its reads.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<_> = std::env::args_os().skip(1).collect();
    if names.is_empty() {
        return Err("usage: library-example MEMBER...".into());
    }
    let members = raidlab::open(names)?;
    for array in members.arrays() {
        println!("{} ({}): {}, {} bytes", array.name(), array.uuid(), array.state(), array.bytes());
        for member in array.members() {
            println!("  {}: {}", member.name, member.state);
        }
        let contents = array.read(&raidlab::ReadOptions::default())?;
        let mut first = [0; 16];
        contents.read_at(&mut first, 0)?;
        println!("  begins with {first:02x?}");
        if let Some(level) = array.level() {
            let configuration = raidlab::Configuration::new(level, array.raid_devices(), 512.0);
            match raidlab::predict(&configuration, "hdd-2016", "seq-read") {
                Ok(found) => println!("  {:.0} {} on disks of 2016", found.rate, found.unit),
                Err(why) => println!("  no prediction: {why}"),
            }
        }
    }
    Ok(())
}
