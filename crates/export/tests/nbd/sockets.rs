//! Sockets: who may connect, and what becomes of files that were there.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use nbd::Style;
use raidlab_export::nbd::{ListenError, Listener, Server, ServerError, ServerLimits};
use raidlab_export::socket::SocketError;

use super::client::Client;
use super::serve::{Served, array, export};

#[test]
fn a_unix_socket_is_private_and_goes_with_its_server() {
    let served = Served::one(array(4));
    let mode = std::fs::symlink_metadata(served.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let path = served.path().to_path_buf();
    let (server, _directory) = (served.server, served.directory);
    server.unwrap().stop();
    assert!(!path.exists());
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_that_of_a_live_one_is_not() {
    let served = Served::one(array(4));
    let live = Listener::unix(served.path()).unwrap_err();
    assert!(matches!(live, ListenError::Unix(SocketError::Live(_))), "{live}");
    assert!(live.to_string().ends_with("a server listens on this socket already"));
    Client::connect(served.path(), "", Style::Simple).read(0, 512).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stale");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a server that is killed leaves it");
    let server = start(Listener::unix(&path).unwrap());
    Client::connect(&path, "", Style::Simple).read(0, 512).unwrap();
    // Another server has the name by now: its socket stays.
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    server.stop();
    assert!(path.exists());
    drop(other);
}

fn start(listener: Listener) -> Server {
    Server::start(vec![listener], vec![export("", array(4))], ServerLimits::default()).unwrap()
}

#[test]
fn servers_that_start_together_do_not_take_each_others_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    for _ in 0..20 {
        drop(UnixListener::bind(&path).unwrap());
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Listener::unix(&path))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let got = listeners.iter().filter(|listener| listener.is_ok()).count();
        assert_eq!(got, 1, "{listeners:?}");
        assert!(path.exists());
        drop(listeners);
        assert!(!path.exists());
    }
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "contents").unwrap();
    let error = Listener::unix(&path).unwrap_err();
    assert!(matches!(error, ListenError::Unix(SocketError::NotASocket(_))), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"contents");
    let long = directory.path().join("x".repeat(120));
    assert!(matches!(Listener::unix(&long), Err(ListenError::Unix(SocketError::Path { .. }))));
    let missing = directory.path().join("no/directory");
    assert!(matches!(Listener::unix(&missing), Err(ListenError::Unix(SocketError::Path { .. }))));
}

#[test]
fn tcp_is_refused_where_other_hosts_reach_it() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809", "[::ffff:192.0.2.1]:1"] {
        let address: SocketAddr = address.parse().unwrap();
        let error = Listener::tcp(address, false).unwrap_err();
        assert!(matches!(error, ListenError::Exposed(_)), "{error}");
    }
    let open = Listener::tcp("0.0.0.0:0".parse().unwrap(), true).unwrap();
    assert_ne!(open.address().unwrap().port(), 0);
}

#[test]
fn names_are_checked() {
    let start = |names: &[&str]| {
        let exports = names.iter().map(|name| export(name, array(4))).collect();
        Server::start(Vec::new(), exports, ServerLimits::default()).err()
    };
    assert!(matches!(start(&[]), Some(ServerError::Empty)));
    assert!(matches!(start(&["a", "b", "a"]), Some(ServerError::Twice(_))));
    assert!(matches!(start(&["a\0"]), Some(ServerError::Name(_))));
    assert!(matches!(start(&[&"x".repeat(4097)]), Some(ServerError::Name(_))));
    assert!(start(&["", "a"]).is_none());
}
