//! The page of `watch`, `serve` and `sweep`: its options, and what each of them shows on it.
//!
//! Invariant: a page that other hosts reach has a token and TLS; one with orders has a token.

#[cfg(feature = "run")]
mod served;
#[cfg(feature = "lab")]
mod swept;
#[cfg(feature = "lab")]
mod watched;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use clap::Args;
use export::page::{Event, Feed, PageError, PageOptions, PageServer, Severity, Token};
use host::tls::ServerTls;

use crate::error::of_option;

#[cfg(feature = "run")]
pub use served::ServedFeed;
#[cfg(feature = "lab")]
pub use swept::SweptFeed;
#[cfg(feature = "lab")]
pub use watched::WatchedFeed;

/// The port, where none is given and it is free.
const PORT: u16 = 8687;
/// Events that a page keeps.
const MAX_EVENTS: usize = 100;

/// Options of the page.
#[derive(Args)]
pub struct WebOptions {
    /// Serve a page for browsers, at [IP:]PORT; only this host reaches it, unless there are
    /// --web-token and --web-certificates [default: 127.0.0.1:8687, or a free port]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = parse_address, help_heading = "Page")]
    web: Option<WebAddress>,
    /// The page needs the token that is the first line of this file, which only its owner can
    /// read
    #[arg(long, value_name = "FILE", requires = "web", help_heading = "Page")]
    web_token: Option<PathBuf>,
    /// The page has TLS; the directory has server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR", requires = "web", help_heading = "Page")]
    web_certificates: Option<PathBuf>,
}

/// Where a page is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebAddress {
    /// At this address.
    Given(SocketAddr),
    /// On loopback, at [`PORT`] or a free port.
    Usual,
}

fn parse_address(text: &str) -> Result<WebAddress> {
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    if text.is_empty() {
        return Ok(WebAddress::Usual);
    }
    let number = text.strip_prefix("localhost:").unwrap_or(text);
    let port = number.parse::<u16>().map(local);
    let address = port.or_else(|_| text.parse::<SocketAddr>());
    let wrong = || anyhow!("no address: 8687, 127.0.0.1:8687 or [::1]:8687 is one");
    Ok(WebAddress::Given(address.map_err(|_| wrong())?))
}

impl WebOptions {
    /// Whether there is a page.
    pub fn is_given(&self) -> bool {
        self.web.is_some()
    }

    /// Serves the page, if there is one. `control`: it takes orders.
    ///
    /// # Errors
    /// When files cannot be read, or the address is refused or taken.
    pub fn start(&self, control: bool, feed: Arc<dyn Feed>) -> Result<Option<Page>> {
        let Some(web) = self.web else { return Ok(None) };
        let given = self.web_token.as_deref().map(Token::read).transpose();
        let given = given.map_err(of_option("--web-token"))?;
        let made = (control && given.is_none()).then(Token::random);
        let token = given.or_else(|| made.clone());
        let tls = self.web_certificates.as_deref();
        let tls = tls.map(|directory| ServerTls::load(directory, false)).transpose();
        let tls = tls.map_err(of_option("--web-certificates"))?;
        let at = |address| PageOptions { address, tls: tls.clone(), token: token.clone(), control };
        let local = |port| at(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let started = match web {
            WebAddress::Given(address) => PageServer::start(at(address), feed),
            WebAddress::Usual => match PageServer::start(local(PORT), feed.clone()) {
                Err(PageError::Listen { .. }) => PageServer::start(local(0), feed),
                other => other,
            },
        };
        let server = started.map_err(|error| match error {
            PageError::Open(_) => anyhow!("--web {error}: --web-token and --web-certificates"),
            error => anyhow!("--web {error}"),
        })?;
        // A token that the user chose is not written to terminals and logs.
        let fragment = made.map(|token| format!("#token={}", token.text()));
        let url = server.url() + &fragment.unwrap_or_default();
        Ok(Some(Page { _server: server, url }))
    }
}

/// A page that is served, until it is dropped.
pub struct Page {
    _server: PageServer,
    /// Where a browser finds it; with the token, if that was made for it: browsers do not send
    /// this part.
    pub url: String,
}

/// Milliseconds since 1970.
fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn now() -> u64 {
    milliseconds(SystemTime::now())
}

/// The last events.
#[derive(Default)]
struct Events {
    last: u64,
    kept: VecDeque<Event>,
}

impl Events {
    fn put(&mut self, at_ms: u64, kind: &str, severity: Severity, subject: &str, text: String) {
        self.last += 1;
        let subject = (!subject.is_empty()).then(|| subject.to_string());
        let event = Event { number: self.last, at_ms, kind: kind.into(), severity, subject, text };
        self.kept.push_back(event);
        if self.kept.len() > MAX_EVENTS {
            self.kept.pop_front();
        }
    }

    fn all(&self) -> Vec<Event> {
        self.kept.iter().cloned().collect()
    }
}

/// Shares of the busiest member's rate: heat where of no member the time is measured.
fn relative(disks: &mut [export::page::Disk]) {
    let rate = |disk: &export::page::Disk| disk.rates.map(|rates| rates.read_mb + rates.write_mb);
    let most = disks.iter().filter_map(rate).fold(0.0, f64::max);
    for disk in disks {
        disk.heat = rate(disk).map(|own| if most > 0.0 { own / most } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_or_an_ip_with_one() {
        let given = |text: &str| parse_address(text).map_err(|error| error.to_string());
        let at = |text: &str| Ok(WebAddress::Given(text.parse().expect("an address")));
        assert_eq!(given(""), Ok(WebAddress::Usual));
        assert_eq!(given("80"), at("127.0.0.1:80"));
        assert_eq!(given("localhost:80"), at("127.0.0.1:80"));
        assert_eq!(given("[::1]:80"), at("[::1]:80"));
        assert_eq!(given("0.0.0.0:0"), at("0.0.0.0:0"));
        for wrong in ["nas:80", "127.0.0.1", "70000", ":80", "::1:"] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_are_bounded_and_numbered() {
        let mut events = Events::default();
        (0..250).for_each(|at| events.put(at, "Note", Severity::Fine, "", "text".into()));
        let all = events.all();
        assert_eq!((all.len(), all[0].number, all[99].number), (MAX_EVENTS, 151, 250));
    }
}
