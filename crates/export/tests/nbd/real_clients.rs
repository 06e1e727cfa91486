//! The clients that people use, where they are installed.

use std::path::Path;
use std::process::{Command, Output};

use raidlab_export::nbd::{Listener, NbdExport, Server, ServerLimits};

use super::serve::{Served, array, export};

/// Runs a program of `scripts/tools`; `None`, and a line that says so, where it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    // Debian's Python, which nbdsh starts, is the one that has the module.
    // runs: nbdinfo, nbdcopy, nbdsh, qemu-img, qemu-io, fio
    match Command::new(program).args(arguments).env("PATH", "/usr/bin:/bin").output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// The same, of a program that must succeed; its standard output.
fn good(program: &str, arguments: &[&str]) -> Option<String> {
    let output = run(program, arguments)?;
    let (out, err) = (&output.stdout, &output.stderr);
    let text = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    Some(text)
}

fn uri(served: &Served, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", served.path().display())
}

/// A file of as many bytes as the export has, of which parts repeat and others do not.
fn contents(directory: &Path, bytes: u64) -> String {
    let path = directory.join("contents");
    let data: Vec<u8> = (0..bytes).map(|at| ((at >> 9) ^ ((at * 31) >> 4)) as u8).collect();
    std::fs::write(&path, data).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn nbdinfo_finds_what_the_server_can() {
    let read_only = NbdExport { read_only: true, ..export("b", array(16)) };
    let served = Served::start(vec![export("a", array(16)), read_only], ServerLimits::default());
    let Some(all) = good("nbdinfo", &["--list", &uri(&served, "")]) else { return };
    assert!(all.contains("export=\"a\"") && all.contains("export=\"b\""), "{all}");
    for what in ["cache", "df", "fast-zero", "flush", "fua", "multi-conn", "trim", "zero", "write"]
    {
        good("nbdinfo", &["--can", what, &uri(&served, "a")]);
    }
    for what in ["trim", "zero", "write"] {
        let no = run("nbdinfo", &["--can", what, &uri(&served, "b")]).unwrap();
        assert_eq!(no.status.code(), Some(2), "{what}");
    }
    let size = good("nbdinfo", &["--size", &uri(&served, "a")]).unwrap();
    assert_eq!(size.trim(), (64_u64 << 20).to_string());
    let map = good("nbdinfo", &["--map", &uri(&served, "a")]).unwrap();
    assert!(map.contains("67108864") && map.contains("hole,zero"), "{map}");
    let unknown = run("nbdinfo", &[&uri(&served, "c")]).unwrap();
    assert!(!unknown.status.success());
}

#[test]
fn nbdcopy_copies_there_and_back() {
    let served = Served::one(array(32));
    let directory = tempfile::tempdir().unwrap();
    let original = contents(directory.path(), 64 << 20);
    let back = directory.path().join("back");
    let back = back.to_str().unwrap();
    if good("nbdcopy", &["--flush", &original, &uri(&served, "")]).is_none() {
        return;
    }
    good("nbdcopy", &[&uri(&served, ""), back]);
    assert!(std::fs::read(&original).unwrap() == std::fs::read(back).unwrap());
    let statistics = served.server.as_ref().unwrap().statistics();
    assert!(statistics[0].1.sessions > 2, "several connections: {statistics:?}");
}

#[test]
fn clients_see_what_was_never_written_and_do_not_copy_it() {
    let store = array(32);
    store.write_at(&[0x77; 1 << 20], 8 << 20).unwrap();
    let served = Served::one(store);
    let (directory, uri) = (tempfile::tempdir().unwrap(), uri(&served, ""));
    let back = directory.path().join("back");
    let mut expected = vec![0; 64 << 20];
    expected[8 << 20..9 << 20].fill(0x77);
    if let Some(map) = good("nbdinfo", &["--map", &uri]) {
        let lines: Vec<Vec<&str>> =
            map.lines().map(|line| line.split_whitespace().collect()).collect();
        let line = |at: &'static str, bytes, kind, words| vec![at, bytes, kind, words];
        let wanted = [
            line("0", "8388608", "3", "hole,zero"),
            line("8388608", "1048576", "0", "data"),
            line("9437184", "57671680", "3", "hole,zero"),
        ];
        assert_eq!(lines, wanted, "{map}");
    }
    if let Some(map) = good("qemu-img", &["map", "-f", "raw", "--output=json", &uri]) {
        let data = map.lines().filter(|line| line.contains("\"data\": true")).count();
        assert_eq!(data, 1, "{map}");
        assert!(map.contains("\"start\": 8388608, \"length\": 1048576"), "{map}");
    }
    let read = || served.server.as_ref().unwrap().statistics()[0].1.read_bytes;
    let back = back.to_str().unwrap();
    for (program, arguments) in [
        ("nbdcopy", vec![uri.as_str(), back]),
        ("qemu-img", vec!["convert", "-f", "raw", "-O", "raw", &uri, back]),
    ] {
        let before = read();
        if good(program, &arguments).is_some() {
            assert!(std::fs::read(back).unwrap() == expected, "{program}");
            let copied = read() - before;
            assert!(copied < 2 << 20, "{program} has read {copied} bytes for 1 MiB of data");
            std::fs::remove_file(back).unwrap();
        }
    }
}

#[test]
fn qemu_reads_and_writes_and_finds_no_difference() {
    let served = Served::one(array(32));
    let directory = tempfile::tempdir().unwrap();
    let original = contents(directory.path(), 64 << 20);
    let uri = uri(&served, "");
    if good("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &original, &uri]).is_none() {
        return;
    }
    good("qemu-img", &["compare", "-f", "raw", "-F", "raw", &original, &uri]);
    let script = [
        "write -P 0xa5 1000 5000",
        "read -P 0xa5 1000 5000",
        "write -f -P 0x5a 1M 3M",
        "read -P 0x5a 1M 3M",
        "aio_write -P 0x11 8M 1M",
        "aio_write -P 0x22 9M 1M",
        "aio_flush",
        "read -P 0x11 8M 1M",
        "read -P 0x22 9M 1M",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "write -z -u 8M 1000",
        "read -P 0 8M 1000",
        "read -P 0x11 8193000 1000",
        "discard 16M 8M",
        "flush",
        "read -P 0x22 9M 1M",
    ];
    // 8M + 1000 bytes are zeroes by then, what is behind is not.
    let script = script.map(|line| line.replace("8193000", "8389608"));
    let mut arguments = vec!["-f", "raw"];
    for line in &script {
        arguments.extend(["-c", line]);
    }
    arguments.push(&uri);
    let said = good("qemu-io", &arguments).unwrap_or_default();
    assert!(!said.contains("Pattern verification failed") && !said.contains("failed"), "{said}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let served = Served::one(array(64));
    let uri = format!("--uri={}", uri(&served, ""));
    let engines = run("fio", &["--enghelp"]);
    let Some(engines) = engines else { return };
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        return println!("skipped: this fio has no engine for NBD");
    }
    let directory = tempfile::tempdir().unwrap();
    let state = format!("--aux-path={}", directory.path().display());
    good(
        "fio",
        &[
            "--name=a",
            "--ioengine=nbd",
            &uri,
            &state,
            "--rw=randrw",
            "--bsrange=512-256k",
            "--iodepth=32",
            "--size=64m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randrepeat=1",
        ],
    );
}

#[test]
fn libnbd_reads_over_tcp_what_it_wrote_over_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let unix = Listener::unix(&path).unwrap();
    let tcp = Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let port = tcp.address().unwrap().port();
    let exports = vec![export("a", array(16))];
    let server = Server::start(vec![unix, tcp], exports, ServerLimits::default()).unwrap();
    let script = format!(
        "h.connect_uri('nbd+unix:///a?socket={}')\n\
         h.pwrite(b'written', 12345, nbd.CMD_FLAG_FUA)\n\
         o = nbd.NBD()\n\
         o.connect_uri('nbd://127.0.0.1:{port}/a')\n\
         assert o.pread(7, 12345) == b'written'\n\
         assert o.get_size() == {}\n\
         assert o.get_structured_replies_negotiated()\n\
         h.zero(4096, 12345)\n\
         assert o.pread(7, 12345) == bytes(7)\n\
         h.trim(4096, 0)\n\
         h.cache(4096, 0)\n\
         h.set_strict_mode(0)\n\
         for call in (lambda: h.pread(10, o.get_size() - 5), lambda: h.pread(0, 0)):\n\
         \x20   try:\n\
         \x20       call()\n\
         \x20       assert False\n\
         \x20   except nbd.Error as error:\n\
         \x20       assert error.errno == 'EINVAL', error.errno\n\
         h.shutdown()\n",
        path.display(),
        64 << 20
    );
    good("nbdsh", &["-c", &script]);
    server.stop();
}
