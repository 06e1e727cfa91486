//! Serves a RAID 0 in memory as an NBD export, until its standard input ends: what is compared with
//! other servers in docs/perf/nbd.md.
//!
//! ```text
//! cargo run --release -p raidlab-export --example nbd_memory SOCKET [MIB [MEMBERS [SHARDS]]]
//! ```

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, MemberSpec};
use md::{Layout, Level};
use raidlab_export::Access;
use raidlab_export::nbd::{Listener, NbdExport, Server, ServerLimits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("usage: nbd_memory SOCKET [MIB [MEMBERS [SHARDS]]]")?;
    let numbers: Vec<u64> = arguments.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (mib, members, shards) = (number(0, 1024), number(1, 4), number(2, 1));
    let member = |_| MemMember::new((mib << 11) / members).map(MemberSpec::ready);
    let spec = ArraySpec {
        level: Level::Raid0,
        layout: Layout::default_for(Level::Raid0),
        chunk_sectors: 1024,
        members: (0..members).map(member).collect::<Result<_, _>>()?,
        data_plane: DataPlaneConfig::default(),
    };
    let options = DriverOptions { shards: shards as u16, ..DriverOptions::default() };
    let array = Arc::new(Array::start(spec, &options)?);
    let export = NbdExport {
        name: String::new(),
        description: "an array in memory".into(),
        access: Arc::new(Access::new(array)?),
        read_only: false,
    };
    let listener = Listener::unix(Path::new(&socket))?;
    let server = Server::start(vec![listener], vec![export], ServerLimits::default())?;
    println!("serving");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for (_, statistics) in server.statistics() {
        println!("{statistics:?}");
    }
    server.stop();
    Ok(())
}
