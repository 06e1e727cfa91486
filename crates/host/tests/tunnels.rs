//! Tunnels between a client and a server, over a pair of sockets.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use raidlab_host::tls::{ClientTls, HandshakeError, ServerTls, Tunnel};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

fn authority(name: &str, serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(serial));
    params
}

fn issuer() -> CertifiedIssuer<'static, KeyPair> {
    CertifiedIssuer::self_signed(authority("root", 1), KeyPair::generate().unwrap()).unwrap()
}

/// Puts a certificate for `localhost` into a directory, and its authority's.
fn certify(directory: &Path, issuer: &CertifiedIssuer<'_, KeyPair>, whose: &str) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    std::fs::write(directory.join("ca-cert.pem"), issuer.pem()).unwrap();
    std::fs::write(directory.join(format!("{whose}-cert.pem")), certificate.pem()).unwrap();
    std::fs::write(directory.join(format!("{whose}-key.pem")), key.serialize_pem()).unwrap();
}

fn patience() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

type Side = Result<Tunnel, HandshakeError>;

/// Both sides of a session, for a server of this name.
fn connect(verify_peer: bool, has_certificate: bool, name: &str) -> (Side, Side) {
    let directory = tempfile::tempdir().unwrap();
    let issuer = issuer();
    certify(directory.path(), &issuer, "server");
    if has_certificate {
        certify(directory.path(), &issuer, "client");
    }
    let server = ServerTls::load(directory.path(), verify_peer).unwrap();
    let client = ClientTls::load(directory.path(), name).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let accepting = std::thread::spawn(move || {
        Tunnel::accept(OwnedFd::from(one), &server, patience(), &|| false)
    });
    let client = Tunnel::connect(OwnedFd::from(other), &client, patience());
    (accepting.join().unwrap(), client)
}

/// A blocking handle on the plain end.
fn plain(tunnel: &Tunnel) -> UnixStream {
    let plain = UnixStream::from(tunnel.plain().try_clone_to_owned().unwrap());
    plain.set_nonblocking(false).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain
}

#[test]
fn megabytes_go_both_ways_at_once_and_none_is_lost_at_the_end() {
    let (server, client) = connect(true, true, "localhost");
    let (server, client) = (server.unwrap(), client.unwrap());
    let data: Vec<u8> = (0..20 << 20).map(|at: u32| (at / 1000) as u8).collect();
    std::thread::scope(|scope| {
        for tunnel in [&server, &client] {
            let (mut one, data) = (plain(tunnel), &data);
            scope.spawn(move || one.write_all(data).unwrap());
        }
        for tunnel in [&server, &client] {
            let (mut one, data) = (plain(tunnel), &data);
            scope.spawn(move || {
                let mut back = vec![0; data.len()];
                one.read_exact(&mut back).unwrap();
                assert!(back == *data);
            });
        }
    });
    // What was written before the end arrives, and then the end.
    let mut last = plain(&client);
    plain(&server).write_all(b"the last words").unwrap();
    drop(server);
    let mut words = Vec::new();
    last.read_to_end(&mut words).unwrap();
    assert_eq!(words, b"the last words");
}

#[test]
fn a_direction_that_is_full_does_not_hold_the_other_one() {
    let (server, client) = connect(false, false, "localhost");
    let (server, client) = (server.unwrap(), client.unwrap());
    let data: Vec<u8> = (0..20 << 20).map(|at: u32| (at / 1000) as u8).collect();
    std::thread::scope(|scope| {
        let (mut writes, mut reads, data) = (plain(&server), plain(&server), &data);
        writes.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        scope.spawn(move || writes.write_all(data).unwrap());
        scope.spawn(move || {
            let mut back = vec![0; data.len()];
            reads.read_exact(&mut back).unwrap();
            assert!(back == *data);
        });
        // The client reads nothing until it has written everything.
        std::thread::sleep(Duration::from_millis(200));
        let mut both = plain(&client);
        both.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        both.write_all(data).unwrap();
        let mut back = vec![0; data.len()];
        both.read_exact(&mut back).unwrap();
        assert!(back == *data);
    });
}

#[test]
fn a_session_needs_the_certificates_that_are_demanded() {
    let (server, client) = connect(false, false, "localhost");
    assert!(server.is_ok() && client.is_ok());
    let (server, client) = connect(false, false, "elsewhere");
    assert!(server.is_err());
    let error = client.err().unwrap().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");
    // The client has said all that it has to before the server can refuse it.
    let (server, client) = connect(true, false, "localhost");
    assert!(server.is_err());
    if let Ok(client) = client {
        assert!(matches!(plain(&client).read(&mut [0; 1]), Ok(0)));
    }
}

/// Both sides of a session, with the certificates of these directories.
fn connect_with(server: &Path, client: &Path) -> (Side, Side) {
    let server = ServerTls::load(server, false).unwrap();
    let client = ClientTls::load(client, "localhost").unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let accepting = std::thread::spawn(move || {
        Tunnel::accept(OwnedFd::from(one), &server, patience(), &|| false)
    });
    let client = Tunnel::connect(OwnedFd::from(other), &client, patience());
    (accepting.join().unwrap(), client)
}

#[test]
fn an_authority_between_that_was_revoked_is_not_trusted() {
    let (server, client) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = issuer();
    let key = KeyPair::generate().unwrap();
    let between = CertifiedIssuer::signed_by(authority("between", 7), key, &root).unwrap();
    certify(server.path(), &between, "server");
    let certificate = server.path().join("server-cert.pem");
    let chain = std::fs::read_to_string(&certificate).unwrap() + &between.pem();
    std::fs::write(&certificate, chain).unwrap();
    std::fs::write(client.path().join("ca-cert.pem"), root.pem()).unwrap();
    for (revoked, is_trusted) in [(8, true), (7, false)] {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(revoked as u64),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&root).unwrap().pem().unwrap();
        std::fs::write(client.path().join("ca-crl.pem"), list).unwrap();
        let (_, connected) = connect_with(server.path(), client.path());
        match connected {
            Ok(_) => assert!(is_trusted, "{revoked}: it is revoked"),
            Err(error) => assert!(!is_trusted && error.to_string().contains("Revoked"), "{error}"),
        }
    }
}

#[test]
fn a_file_of_which_nothing_can_be_said_is_not_a_missing_one() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path(), &issuer(), "server");
    for name in ["ca-crl.pem", "client-cert.pem"] {
        let path = directory.path().join(name);
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let error = ClientTls::load(directory.path(), "localhost").unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("symbolic links"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
    ClientTls::load(directory.path(), "localhost").unwrap();
}

#[test]
fn an_abort_sends_nothing_more_and_ends_at_once() {
    let (server, client) = connect(false, false, "localhost");
    let (server, client) = (server.unwrap(), client.unwrap());
    // The server does not read: what the client writes stays with it.
    let mut one = plain(&client);
    one.set_nonblocking(true).unwrap();
    while one.write(&[7; 100_000]).is_ok() {}
    let began = Instant::now();
    client.abort();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(one);
    let mut rest = Vec::new();
    let _ = plain(&server).read_to_end(&mut rest);
    assert!(rest.iter().all(|byte| *byte == 7));
}

#[test]
fn a_peer_that_says_nothing_is_given_up_by_the_deadline_or_by_the_caller() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path(), &issuer(), "server");
    let server = ServerTls::load(directory.path(), false).unwrap();
    let (one, _silent) = UnixStream::pair().unwrap();
    let soon = Instant::now() + Duration::from_millis(100);
    let late = Tunnel::accept(one.into(), &server, soon, &|| false);
    assert!(matches!(late, Err(HandshakeError::Socket(_))));
    let (one, _silent) = UnixStream::pair().unwrap();
    let given_up = Tunnel::accept(one.into(), &server, patience(), &|| true);
    assert!(matches!(given_up, Err(HandshakeError::GivenUp)));
}
