//! Which peer a connection is of, as far as this host can say.
//!
//! ```text
//!   of another host     its address; of IPv6 the network of 64 bits
//!   of this host        the user whose process has the other end
//! ```
//! Invariant: a user of this host is one peer, whatever addresses the connections come from: all of
//! 127.0.0.0/8 is there for every process. A peer is for counting; it permits nothing.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Another host, or a network of IPv6.
    Host(IpAddr),
    /// A user of this host.
    User(u32),
    /// A user of this host who is not known: the connection has ended, or the kernel does not say.
    Unknown,
}

impl Peer {
    /// Of a connection from `theirs` to `own`.
    pub fn of(theirs: SocketAddr, own: SocketAddr) -> Peer {
        match theirs.ip().to_canonical() {
            address if address.is_loopback() => match user_of(theirs, own) {
                Some(user) => Peer::User(user),
                None => Peer::Unknown,
            },
            IpAddr::V6(address) => {
                Peer::Host(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)))
            }
            address => Peer::Host(address),
        }
    }
}

// Of sock_diag(7) and netlink(7).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_HEAD: usize = 16;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Where an answer has the state of the socket, and its user.
const STATE_AT: usize = NLMSG_HEAD + 1;
const USER_AT: usize = NLMSG_HEAD + 64;

/// The user who has the socket with the address `theirs`, connected to `own`.
fn user_of(theirs: SocketAddr, own: SocketAddr) -> Option<u32> {
    let family = match theirs.ip().to_canonical() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut request = Vec::with_capacity(NLMSG_HEAD + 56);
    // Head: length, type, flags, sequence, sender.
    request.extend((NLMSG_HEAD as u32 + 56).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    // Family, protocol, no extensions; states: all.
    request.extend([family.as_raw() as u8, IPPROTO_TCP, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    // Ports and addresses of the socket and of its peer; any interface.
    request.extend(theirs.port().to_be_bytes());
    request.extend(own.port().to_be_bytes());
    request.extend(sixteen(theirs.ip()));
    request.extend(sixteen(own.ip()));
    request.extend([0; 4]);
    request.extend(NO_COOKIE);

    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG)).ok()?;
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request, SendFlags::empty(), &kernel).ok()?;
    let mut answer = [0; 512];
    // The answer is there when the request has been sent.
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    let answer = &answer[..length.min(512)];
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    // The user of one that its process has left is no longer known.
    if kind != SOCK_DIAG_BY_FAMILY || *answer.get(STATE_AT)? != TCP_ESTABLISHED {
        return None;
    }
    Some(u32::from_ne_bytes(answer.get(USER_AT..USER_AT + 4)?.try_into().ok()?))
}

/// An address in the 16 bytes that a request has for it.
fn sixteen(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn hosts_are_addresses_and_networks() {
        let of = |address: &str| {
            let theirs = SocketAddr::new(address.parse().expect("an address"), 1);
            Peer::of(theirs, "[2001:db8::1]:80".parse().expect("an address"))
        };
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("127.0.0.1"), Peer::Unknown, "there is no such connection");
    }

    #[test]
    fn of_this_host_the_user_counts() {
        for address in ["127.0.0.1:0", "[::1]:0", "127.0.0.7:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("{address} skipped: it cannot be had here");
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).expect("it listens");
            let (server, theirs) = listener.accept().expect("a connection");
            let peer = Peer::of(theirs, server.local_addr().unwrap());
            if peer == Peer::Unknown {
                println!("skipped: the kernel has no sock_diag");
                return;
            }
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(peer, Peer::User(own), "{address}");
            drop(client);
            let peer = Peer::of(theirs, server.local_addr().unwrap());
            assert_eq!(peer, Peer::Unknown, "{address}: it has ended");
        }
    }
}
