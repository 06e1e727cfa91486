//! Where NBD clients connect: sockets that are made here, and those that a service manager has made
//! and passed (socket activation).
//!
//! Invariant: every socket that was passed is served, or the server does not start: its clients
//! would wait for ever.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Error, Result, bail};
use export::nbd::{ListenError, Listener};
use host::sys::{PassedFd, take_passed_fds};

use crate::error::reworded;

/// Where NBD clients connect.
#[derive(Clone, Debug)]
pub enum NbdAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
    /// On the sockets that were passed, or on those of this name.
    Systemd(Option<String>),
}

impl NbdAddress {
    pub fn parse(text: &str) -> Result<NbdAddress> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(NbdAddress::Unix(path.into())),
            Some(("tcp", address)) => {
                let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
                let Some(address) = found else { bail!("{address}: no HOST:PORT that is known") };
                Ok(NbdAddress::Tcp(address))
            }
            Some(("systemd", name)) if !name.is_empty() => {
                Ok(NbdAddress::Systemd(Some(name.to_owned())))
            }
            None if text == "systemd" => Ok(NbdAddress::Systemd(None)),
            _ => bail!("{text}: unix:PATH or tcp:HOST:PORT, systemd or systemd:NAME"),
        }
    }

    /// Makes the socket, or takes what was passed.
    pub fn listen(&self, passed: &mut Passed, insecure: bool) -> Result<Vec<Listener>> {
        match self {
            NbdAddress::Unix(path) => Ok(vec![Listener::unix(path)?]),
            NbdAddress::Tcp(address) => Ok(vec![
                Listener::tcp(*address, insecure).map_err(|error| refused(error, "--nbd"))?,
            ]),
            NbdAddress::Systemd(name) => {
                let mine = passed.of(name.as_deref());
                let listener = |PassedFd { name, fd }| {
                    let front = format!("--nbd systemd: socket {name}");
                    Listener::passed(fd, insecure).map_err(|error| refused(error, &front))
                };
                mine.into_iter().map(listener).collect()
            }
        }
    }

    fn takes(&self, passed: &PassedFd) -> bool {
        match self {
            NbdAddress::Systemd(None) => true,
            NbdAddress::Systemd(Some(name)) => *name == passed.name,
            _ => false,
        }
    }
}

fn refused(error: ListenError, front: &str) -> Error {
    let advice = match error {
        ListenError::Exposed(_) => " (--tls-certificates, or --insecure)",
        _ => "",
    };
    reworded(error, |text| format!("{front}: {text}{advice}"))
}

/// What a service manager has passed to this process.
pub struct Passed(Vec<PassedFd>);

impl Passed {
    /// Takes it; each is one of the addresses', and each of these has one.
    pub fn take(addresses: &[NbdAddress]) -> Result<Passed> {
        let passed = take_passed_fds()?;
        for address in addresses.iter().filter(|it| matches!(it, NbdAddress::Systemd(_))) {
            if !passed.iter().any(|it| address.takes(it)) {
                let names: Vec<&str> = passed.iter().map(|it| it.name.as_str()).collect();
                let names = if names.is_empty() { "none".into() } else { names.join(", ") };
                bail!(
                    "--nbd systemd: no such socket was passed; there is {names} (a .socket unit \
                     passes them: LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES)"
                );
            }
        }
        if let Some(left) = passed.iter().find(|it| !addresses.iter().any(|to| to.takes(it))) {
            bail!("socket {} was passed, and no --nbd takes it: --nbd systemd", left.name);
        }
        Ok(Passed(passed))
    }

    /// Those of a name, or all.
    fn of(&mut self, name: Option<&str>) -> Vec<PassedFd> {
        self.0.extract_if(.., |it| name.is_none_or(|name| it.name == name)).collect()
    }
}
