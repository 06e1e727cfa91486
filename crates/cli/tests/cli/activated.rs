//! Servers on sockets that were passed to them, as systemd does it for a `.socket` unit.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::serve::{Server, make, order};
use crate::support::Dir;

/// `raidlab serve` with this as descriptor 3, of this name.
fn activated(socket: &impl AsFd, name: &str, words: &str) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$; exec \"$0\" serve \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_raidlab")]).args(words.split_whitespace());
    let socket = socket.as_fd().try_clone_to_owned().expect("another handle");
    command.stdin(Stdio::from(socket)).env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name);
    command
}

fn refused(dir: &Dir, mut command: Command) -> String {
    let output = command.env("XDG_RUNTIME_DIR", dir.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn info(uri: &str) -> Command {
    // runs: nbdinfo
    let mut command = Command::new("nbdinfo");
    command.args(["--size", uri]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_server_serves_on_the_sockets_that_were_passed_and_leaves_them() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "--chunk 64K").join(" ");
    let path = dir.file("passed.nbd");
    let unix = UnixListener::bind(&path).expect("a socket");
    let uri = format!("nbd+unix:///data?socket={path}");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let tcp_uri = format!("nbd://{}/data", tcp.local_addr().expect("an address"));
    for (words, is_unix) in
        [("--nbd systemd", true), ("--nbd systemd:own", true), ("--nbd systemd", false)]
    {
        let uri = if is_unix { &uri } else { &tcp_uri };
        // A client that comes first is served when the server is there.
        let early = info(uri).spawn();
        let words = format!("{disks} {words}");
        let command = match is_unix {
            true => activated(&unix, "own", &words),
            false => activated(&tcp, "own", &words),
        };
        let server = Server::start_by(&dir, command);
        assert!(server.said().contains(&format!("  nbd     {uri}\n")), "{}", server.said());
        let says_the_size = |output: Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.trim(), (30 << 20).to_string(), "{output:?}");
        };
        match early {
            Ok(early) => {
                says_the_size(early.wait_with_output().expect("it ends"));
                says_the_size(info(uri).output().expect("it ends"));
            }
            Err(error) => println!("nbdinfo skipped: {error}"),
        }
        let (code, said) = server.end(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        assert!(Path::new(&path).exists(), "it is not the server's");
    }
    order(&dir, &format!("dump --sha256 {disks}")).code(0);
}

#[test]
fn sockets_that_are_missing_left_over_or_in_the_open_are_refused() {
    let dir = Dir::new();
    let disks = make(&dir, "5", 3, "").join(" ");
    let unix = UnixListener::bind(dir.file("passed.nbd")).expect("a socket");
    let says = |command: Command, text: &str| {
        let said = refused(&dir, command);
        assert!(said.contains(text), "{text}: {said}");
    };
    let passed = |words: &str| activated(&unix, "own", &format!("{disks} {words}"));
    says(passed("--nbd systemd:other"), "no such socket was passed; there is own");
    // Only with a front for NBD: without one, nothing could serve it.
    says(passed(&format!("--fuse {}", dir.file("x"))), "socket own was passed");
    let mut none = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    none.arg("serve").args(disks.split_whitespace()).args(["--nbd", "systemd"]);
    says(none, "there is none");
    // Those of another process.
    let mut other = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    other.arg("serve").args(disks.split_whitespace()).args(["--nbd", "systemd"]);
    other.envs([("LISTEN_FDS", "1"), ("LISTEN_PID", "1")]);
    says(other, "there is none");
    let open = TcpListener::bind("0.0.0.0:0").expect("a port");
    says(activated(&open, "own", &format!("{disks} --nbd systemd")), "--insecure");
    let file = std::fs::File::open("/dev/null").expect("it is there");
    says(activated(&file, "own", &format!("{disks} --nbd systemd")), "no unix or TCP socket");
    order(&dir, &format!("dump --sha256 {disks}")).code(0);
}
