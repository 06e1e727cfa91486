//! Exports inside TLS: the clients that people use, and those that must get nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use host::tls::ServerTls;
use raidlab_export::nbd::{Listener, Server, ServerLimits};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::serve::{array, export};

/// An authority, and what it has signed, in directories.
pub struct Authority {
    directory: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { directory: tempfile::tempdir().unwrap(), issuer }
    }

    /// A directory with the authority's certificate, and one of `whose` for these names.
    pub fn directory(&self, name: &str, whose: &[&str]) -> PathBuf {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("ca-cert.pem"), self.issuer.pem()).unwrap();
        for whose in whose {
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, *whose);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            let file = |what: &str| directory.join(format!("{whose}-{what}.pem"));
            std::fs::write(file("cert"), certificate.pem()).unwrap();
            std::fs::write(file("key"), key.serialize_pem()).unwrap();
        }
        directory
    }
}

fn serve(directory: &Path, verify_peer: bool, limits: ServerLimits) -> (Server, SocketAddr) {
    let tcp = Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = tcp.address().unwrap();
    let tls = ServerTls::load(directory, verify_peer).unwrap();
    let exports = vec![export("a", array(32))];
    (Server::start_with(vec![tcp], exports, limits, Some(tls)).unwrap(), address)
}

/// Runs a program of `scripts/tools`; `None`, and a line that says so, where it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    // runs: nbdinfo, nbdcopy, qemu-img
    match Command::new(program).args(arguments).env("PATH", "/usr/bin:/bin").output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Option<bool> {
    let output = run(program, arguments)?;
    if !output.status.success() {
        println!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Some(output.status.success())
}

#[test]
fn clients_with_certificates_copy_there_and_back_and_others_get_nothing() {
    let authority = Authority::new();
    let server = authority.directory("server", &["server"]);
    let client = authority.directory("client", &["client"]);
    let nameless = authority.directory("nameless", &[]);
    let stranger = Authority::new().directory("stranger", &["client"]);
    let (server, address) = serve(&server, true, ServerLimits::default());
    let uri = |directory: &Path| {
        format!("nbds://localhost:{}/a?tls-certificates={}", address.port(), directory.display())
    };
    let original = client.join("contents");
    let data: Vec<u8> = (0..64 << 20).map(|at: u64| ((at >> 9) ^ ((at * 31) >> 4)) as u8).collect();
    std::fs::write(&original, &data).unwrap();
    let (original, back) = (original.to_str().unwrap(), client.join("back"));
    let Some(copied) = succeeds("nbdcopy", &["--flush", original, &uri(&client)]) else { return };
    assert!(copied);
    assert!(succeeds("nbdcopy", &[&uri(&client), back.to_str().unwrap()]).unwrap());
    assert!(std::fs::read(&back).unwrap() == data);
    assert!(succeeds("nbdinfo", &["--size", &uri(&client)]).unwrap());
    // Without a certificate, with that of another authority, and without TLS.
    assert!(!succeeds("nbdinfo", &["--size", &uri(&nameless)]).unwrap());
    assert!(!succeeds("nbdinfo", &["--size", &uri(&stranger)]).unwrap());
    let plain = format!("nbd://localhost:{}/a", address.port());
    assert!(!succeeds("nbdinfo", &["--size", &plain]).unwrap());
    // QEMU.
    let object =
        format!("tls-creds-x509,id=tls0,endpoint=client,dir={},verify-peer=on", client.display());
    let image =
        format!("driver=nbd,host=localhost,port={},export=a,tls-creds=tls0", address.port());
    let compare = [
        "compare",
        "--object",
        &object,
        "--image-opts",
        &image,
        &format!("driver=raw,file.driver=file,file.filename={original}"),
    ];
    if let Some(same) = succeeds("qemu-img", &compare) {
        assert!(same);
    }
    server.stop();
}

/// Connects, takes the greeting, and requests TLS; `behind` is sent at once, too.
fn start_tls(address: SocketAddr, behind: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert!(greeting.starts_with(b"NBDMAGICIHAVEOPT"));
    let mut out = 3_u32.to_be_bytes().to_vec();
    out.extend_from_slice(b"IHAVEOPT");
    out.extend_from_slice(&5_u32.to_be_bytes());
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(behind);
    stream.write_all(&out).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply[12..16], &1_u32.to_be_bytes(), "it acknowledges");
    stream
}

/// What comes until the server closes the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    rest
}

#[test]
fn what_is_sent_around_the_beginning_of_tls_is_no_way_in() {
    let authority = Authority::new();
    let directory = authority.directory("server", &["server"]);
    let limits = ServerLimits { negotiation: Duration::from_secs(2), ..ServerLimits::default() };
    let (server, address) = serve(&directory, false, limits);
    // An option that would list the exports, behind STARTTLS in the same segment.
    let mut list = b"IHAVEOPT".to_vec();
    list.extend_from_slice(&3_u32.to_be_bytes());
    list.extend_from_slice(&0_u32.to_be_bytes());
    assert_eq!(rest(start_tls(address, &list)), b"", "no reply, and no TLS");
    // The same after the acknowledgement, and garbage: an alert at most.
    for what in [&list[..], &[0; 5000], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff]] {
        let mut stream = start_tls(address, b"");
        stream.write_all(what).unwrap();
        let rest = rest(stream);
        assert!(
            rest.len() < 100 && !rest.windows(8).any(|it| it == b"\0\x03\xe8\x89\x04\x55\x65\xa9")
        );
    }
    // Silence, and a byte now and then, end with the negotiation's time.
    let began = Instant::now();
    let silent = start_tls(address, b"");
    let mut slow = start_tls(address, b"");
    while slow.write_all(&[0x16]).is_ok() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(rest(silent), b"");
    assert!(began.elapsed() < Duration::from_secs(20));
    // A client of good faith is served all the same.
    let client = authority.directory("client", &[]);
    let uri =
        format!("nbds://localhost:{}/a?tls-certificates={}", address.port(), client.display());
    if let Some(served) = succeeds("nbdinfo", &["--size", &uri]) {
        assert!(served);
    }
    server.stop();
}

#[test]
fn a_server_stops_while_clients_in_tls_are_connected_and_silent() {
    let authority = Authority::new();
    let directory = authority.directory("server", &["server"]);
    let (server, address) = serve(&directory, false, ServerLimits::default());
    let _negotiating = TcpStream::connect(address).unwrap();
    let _shaking_hands = start_tls(address, b"");
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let directory = authority.directory("broken", &["server"]);
    let load = |verify| ServerTls::load(&directory, verify).err().map(|error| error.to_string());
    assert_eq!(load(true), None);
    let file = |name: &str| directory.join(name);
    std::fs::rename(file("ca-cert.pem"), file("other.pem")).unwrap();
    assert_eq!(load(false), None, "without verification nothing else is needed");
    assert!(load(true).unwrap().contains("ca-cert.pem: cannot read it"));
    std::fs::write(file("ca-cert.pem"), "nothing").unwrap();
    assert!(load(true).unwrap().contains("ca-cert.pem: there is no certificate in it"));
    let key = authority.directory("another", &["server"]).join("server-key.pem");
    std::fs::copy(key, file("server-key.pem")).unwrap();
    assert!(load(false).unwrap().contains("server-cert.pem: "), "another key");
    std::fs::remove_file(file("server-key.pem")).unwrap();
    assert!(load(false).unwrap().contains("server-key.pem: it is missing"));
}
