//! What systemd is sent about the service's state (sd_notify(3)).
//!
//! Invariant: without systemd nothing happens, and a message that cannot be sent changes nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The array is served.
pub fn ready(name: &str) {
    send(&format!("READY=1\nSTATUS=serving {}\n", name.replace('\n', " ")));
}

/// The array is being stopped.
pub fn stopping() {
    send("STOPPING=1\nSTATUS=stopping\n");
}

fn send(message: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(message.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
