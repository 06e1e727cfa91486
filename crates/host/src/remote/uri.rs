//! NBD URIs, as <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md> defines them.
//!
//! ```text
//! nbd://HOST[:PORT]/[EXPORT]              TCP, port 10809 unless another is given
//! nbd+unix:///[EXPORT]?socket=PATH        a unix socket
//! nbds://..., nbds+unix://...             the same inside TLS, with ?tls-certificates=DIR; the
//!                                         server's certificate is for HOST, or tls-hostname=
//! ```
//! The name of the export and the values behind `?` are percent-encoded.
//!
//! Invariant: what is shown is the text as it was given. Called where a member's location is
//! opened.

use std::path::PathBuf;
use std::{fmt, io};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

use crate::Identity;

/// The port that IANA has given to NBD.
const PORT: u16 = 10809;

/// What a path has escaped in the value of a parameter; `@` begins the part of a member. The rest
/// is what no part of a URI can have (RFC 3986, section 2).
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path or a name of an export as it stands in a URI.
pub fn escaped_for_uri(text: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(text, ESCAPED)
}

/// Where an NBD server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// A name or an address, without the brackets of IPv6.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } => write!(f, "{}:{port}", host.escape_debug()),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// As it was given.
    text: String,
    /// Where the server is.
    pub endpoint: Endpoint,
    /// The export's name; the empty one is the server's default.
    pub export: String,
    /// What TLS needs, if it is required.
    pub tls: Option<UriTls>,
}

/// What a URI says of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTls {
    /// The directory of whom to trust, and of the client's own certificate and key.
    pub certificates: PathBuf,
    /// The name or address that the server's certificate must have.
    pub name: String,
}

/// Why a text is no URI of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UriProblem {
    /// Its scheme is none that is supported.
    #[error(
        "NBD is supported over TCP and unix sockets: nbd://HOST:PORT/EXPORT, \
         nbd+unix:///EXPORT?socket=PATH"
    )]
    Scheme,
    /// TLS needs to know whom to trust.
    #[error(
        "TLS needs certificates: nbds://HOST/EXPORT?tls-certificates=DIR, with ca-cert.pem in it"
    )]
    NoCertificates,
    /// There is no TLS.
    #[error("certificates are for TLS: nbds:// or nbds+unix://")]
    NotTls,
    /// The server of a unix socket has no name.
    #[error("with nbds+unix, tls-hostname=NAME says the name that the server's certificate has")]
    NoHostname,
    /// The certificate is always verified.
    #[error("the server's certificate is always verified: tls-verify-peer=true")]
    Verify,
    /// Keys that both sides know.
    #[error("TLS with pre-shared keys is not supported, only with X.509 certificates")]
    Psk,
    /// There is no host.
    #[error("the URI has no host: nbd://HOST:PORT/EXPORT")]
    NoHost,
    /// The port is none.
    #[error("the URI's port is not a number from 1 to 65535")]
    Port,
    /// A unix socket has no host.
    #[error("nbd+unix has three slashes and a socket: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// TCP has no socket.
    #[error("socket= belongs to nbd+unix")]
    Socket,
    /// A user name is for keys that both sides know.
    #[error("a user name in the URI is for TLS with pre-shared keys, which are not supported")]
    User,
    /// A parameter is unknown.
    #[error("a parameter of the URI is unknown; there are socket, tls-certificates, tls-hostname")]
    Parameter,
    /// A parameter is there twice.
    #[error("a parameter of the URI is given twice")]
    Twice,
    /// The name of the export is impossible.
    #[error("the name of an export is UTF-8 of at most 4096 bytes without NUL")]
    Export,
    /// An escape is no UTF-8, or a NUL.
    #[error("the URI is not UTF-8, or has a NUL")]
    Text,
    /// There is a fragment.
    #[error("an NBD URI has no '#' part; in a name it is %23")]
    Fragment,
}

/// Schemes that are about NBD, also those that are not supported.
const SCHEMES: [(&str, Option<(bool, bool)>); 7] = [
    // (unix socket, TLS)
    ("nbd", Some((false, false))),
    ("nbds", Some((false, true))),
    ("nbd+unix", Some((true, false))),
    ("nbds+unix", Some((true, true))),
    ("nbd+vsock", None),
    ("nbds+vsock", None),
    ("nbd+ssh", None),
];

impl NbdUri {
    /// Whether a text is meant as a URI of an export: a file of such a name is `./nbd:...`.
    pub fn is_meant(text: &str) -> bool {
        split(text).is_some()
    }

    /// Parses a URI.
    ///
    /// # Errors
    /// Its problem.
    pub fn parse(text: &str) -> Result<NbdUri, UriProblem> {
        let ((_, kind), rest) = split(text).ok_or(UriProblem::Scheme)?;
        let (is_unix, has_tls) = kind.ok_or(UriProblem::Scheme)?;
        if rest.contains('#') {
            return Err(UriProblem::Fragment);
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if authority.contains('@') {
            return Err(UriProblem::User);
        }
        let mut query = Query::parse(query)?;
        let endpoint = match (is_unix, query.socket.take()) {
            (true, Some(socket)) if authority.is_empty() => Endpoint::Unix(socket.into()),
            (true, _) => return Err(UriProblem::NoSocket),
            (false, Some(_)) => return Err(UriProblem::Socket),
            (false, None) => tcp(authority)?,
        };
        let export = decoded(path).ok_or(UriProblem::Export)?;
        if export.len() > nbd::MAX_STRING_BYTES {
            return Err(UriProblem::Export);
        }
        let tls = query.tls(has_tls, &endpoint)?;
        Ok(NbdUri { text: text.to_owned(), endpoint, export, tls })
    }

    /// The same export, for a process in another directory: the paths in it are absolute.
    ///
    /// # Errors
    /// When there is no current directory, or its name is not UTF-8.
    pub fn absolute(&self) -> io::Result<NbdUri> {
        let Some((place, query)) = self.text.split_once('?') else { return Ok(self.clone()) };
        let mut text = format!("{place}?");
        for (number, pair) in query.split('&').enumerate() {
            if number > 0 {
                text.push('&');
            }
            match pair.split_once('=') {
                Some((key @ ("socket" | "tls-certificates"), value)) => {
                    let value = decoded(value).unwrap_or_default();
                    let path = std::path::absolute(value)?;
                    let path = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
                    text.extend([key, "="]);
                    text.extend(utf8_percent_encode(path, ESCAPED));
                }
                _ => text.push_str(pair),
            }
        }
        NbdUri::parse(&text).map_err(io::Error::other)
    }

    /// Identifies the export: the same for two URIs that name it by the same words, and for all
    /// paths of one unix socket. Other names of one host or export are not found out.
    pub fn identity(&self) -> Identity {
        match &self.endpoint {
            Endpoint::Unix(path) => {
                let real = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
                let endpoint = Endpoint::Unix(real.unwrap_or_else(|_| path.clone()));
                Identity::of_export(&(&endpoint, &self.export))
            }
            tcp => Identity::of_export(&(tcp, &self.export)),
        }
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

type Scheme = (&'static str, Option<(bool, bool)>);

fn split(text: &str) -> Option<(Scheme, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let known = SCHEMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(scheme))?;
    Some((known, rest))
}

/// The parameters, decoded.
#[derive(Default)]
struct Query {
    socket: Option<String>,
    certificates: Option<String>,
    hostname: Option<String>,
    verify: Option<String>,
}

impl Query {
    fn parse(text: &str) -> Result<Query, UriProblem> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match key {
                "socket" => &mut query.socket,
                "tls-certificates" => &mut query.certificates,
                "tls-hostname" => &mut query.hostname,
                "tls-verify-peer" => &mut query.verify,
                "tls-psk-file" | "tls-username" => return Err(UriProblem::Psk),
                _ => return Err(UriProblem::Parameter),
            };
            let value = decoded(value).ok_or(UriProblem::Text)?;
            if place.replace(value).is_some() {
                return Err(UriProblem::Twice);
            }
        }
        let has = |value: &String| !value.is_empty();
        match query.socket.as_ref().is_none_or(has) {
            true => Ok(query),
            false => Err(UriProblem::NoSocket),
        }
    }

    fn tls(self, required: bool, endpoint: &Endpoint) -> Result<Option<UriTls>, UriProblem> {
        let Query { certificates, hostname, verify, .. } = self;
        if !required {
            let said = certificates.is_some() || hostname.is_some() || verify.is_some();
            return if said { Err(UriProblem::NotTls) } else { Ok(None) };
        }
        if !matches!(verify.as_deref(), None | Some("true" | "1" | "on" | "yes")) {
            return Err(UriProblem::Verify);
        }
        let certificates = certificates.filter(|it| !it.is_empty());
        let certificates = certificates.ok_or(UriProblem::NoCertificates)?.into();
        let host = match endpoint {
            Endpoint::Tcp { host, .. } => Some(host.clone()),
            Endpoint::Unix(_) => None,
        };
        let name = hostname.or(host).ok_or(UriProblem::NoHostname)?;
        Ok(Some(UriTls { certificates, name }))
    }
}

fn tcp(authority: &str) -> Result<Endpoint, UriProblem> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or(UriProblem::NoHost)?;
            match behind {
                "" => (host, None),
                _ => (host, Some(behind.strip_prefix(':').ok_or(UriProblem::Port)?)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let host = decoded(host).ok_or(UriProblem::Text)?;
    if host.is_empty() {
        return Err(UriProblem::NoHost);
    }
    let port = match port {
        None | Some("") => PORT,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(UriProblem::Port)?,
    };
    Ok(Endpoint::Tcp { host, port })
}

/// Percent-decoded; `None` if that is no text.
fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port }
    }

    #[test]
    fn every_form_of_the_specification_is_parsed_and_shown_as_it_was_given() {
        let unix = |path: &str| Endpoint::Unix(path.into());
        for (text, endpoint, export) in [
            ("nbd://host", tcp("host", 10809), ""),
            ("nbd://host/", tcp("host", 10809), ""),
            ("nbd://host:1/a", tcp("host", 1), "a"),
            ("NBD://192.0.2.1:65535/a/b%2Fc%20d", tcp("192.0.2.1", 65535), "a/b/c d"),
            ("nbd://[::1]/x", tcp("::1", 10809), "x"),
            ("nbd://[fe80::1]:7//x", tcp("fe80::1", 7), "/x"),
            ("nbd://h/%C3%A4", tcp("h", 10809), "ä"),
            ("nbd+unix:///?socket=/run/a%20b.sock", unix("/run/a b.sock"), ""),
            ("nbd+unix:///data?socket=/run/data.nbd", unix("/run/data.nbd"), "data"),
            ("nbd+unix:///data?socket=here", unix("here"), "data"),
        ] {
            let uri = NbdUri::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!((&uri.endpoint, uri.export.as_str()), (&endpoint, export), "{text}");
            assert_eq!(uri.to_string(), text);
            assert!(NbdUri::is_meant(text));
        }
    }

    #[test]
    fn tls_has_certificates_and_the_name_of_the_server() {
        for (text, certificates, name) in [
            ("nbds://h/x?tls-certificates=/etc/pki/a%20b", "/etc/pki/a b", "h"),
            ("nbds://[::1]/?tls-certificates=d&tls-hostname=h", "d", "h"),
            ("nbds+unix:///?socket=s&tls-certificates=d&tls-hostname=h", "d", "h"),
        ] {
            let tls = NbdUri::parse(text).expect(text).tls;
            let wanted = UriTls { certificates: certificates.into(), name: name.into() };
            assert_eq!(tls, Some(wanted), "{text}");
        }
        assert_eq!(NbdUri::parse("nbd://h/x").expect("a URI").tls, None);
    }

    #[test]
    fn paths_are_made_absolute_and_the_rest_stays() {
        let here = std::env::current_dir().expect("a directory");
        let here = here.to_str().expect("UTF-8");
        for (text, absolute) in [
            ("nbd://h:1/a?", "nbd://h:1/a?".to_owned()),
            ("nbd+unix:///%64?socket=/s%20", "nbd+unix:///%64?socket=/s%20".into()),
            ("nbd+unix:///d?socket=a%26b%408", format!("nbd+unix:///d?socket={here}/a%26b%408")),
            (
                "nbds+unix:///d?tls-hostname=h&socket=s&tls-certificates=pki",
                format!(
                    "nbds+unix:///d?tls-hostname=h&socket={here}/s&tls-certificates={here}/pki"
                ),
            ),
        ] {
            let uri = NbdUri::parse(text).expect(text);
            let made = uri.absolute().expect("there is a directory");
            assert_eq!(made.to_string(), absolute);
            assert_eq!(made.identity(), uri.identity(), "{text}");
            assert_eq!(made.absolute().expect("again"), made);
        }
    }

    #[test]
    fn two_paths_of_a_socket_are_one_export() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let uri = |name: &str| {
            let text = format!("nbd+unix:///d?socket={}", path(name).display());
            NbdUri::parse(&text).expect("a URI").identity()
        };
        let _listener = std::os::unix::net::UnixListener::bind(path("s")).expect("a socket");
        std::os::unix::fs::symlink("s", path("alias")).expect("a link");
        assert_eq!(uri("s"), uri("alias"));
        assert_eq!(uri("s"), uri("./s"));
        assert_ne!(uri("s"), uri("other"));
    }

    #[test]
    fn impossible_uris_are_refused_by_their_problem() {
        let long = format!("nbd://h/{}", "x".repeat(4097));
        for (text, problem) in [
            ("nbd:///x", UriProblem::NoHost),
            ("nbd://:10809/x", UriProblem::NoHost),
            ("nbd://[::1/x", UriProblem::NoHost),
            ("nbd://h:0/x", UriProblem::Port),
            ("nbd://h:65536/x", UriProblem::Port),
            ("nbd://[::1]x/x", UriProblem::Port),
            ("nbd://h:1:2/x", UriProblem::Port),
            ("nbd://h/x?socket=/s", UriProblem::Socket),
            ("nbd+unix:///x", UriProblem::NoSocket),
            ("nbd+unix:///x?socket=", UriProblem::NoSocket),
            ("nbd+unix://h/x?socket=/s", UriProblem::NoSocket),
            ("nbd+unix:///x?socket=/s&socket=/t", UriProblem::Twice),
            ("nbd+unix:///x?sock=/s", UriProblem::Parameter),
            ("nbd://u@h/x", UriProblem::User),
            ("nbd+vsock://1/x", UriProblem::Scheme),
            ("nbd+ssh://h/x", UriProblem::Scheme),
            ("nbds://h/x", UriProblem::NoCertificates),
            ("nbds://h/x?tls-certificates=", UriProblem::NoCertificates),
            ("nbds://h/x?tls-certificates=d&tls-verify-peer=false", UriProblem::Verify),
            ("nbds://h/x?tls-psk-file=keys", UriProblem::Psk),
            ("nbds+unix:///x?socket=/s&tls-certificates=d", UriProblem::NoHostname),
            ("nbd://h/x?tls-certificates=d", UriProblem::NotTls),
            ("nbd://h/x#y", UriProblem::Fragment),
            ("nbd://h/%00", UriProblem::Export),
            ("nbd://h/%FF", UriProblem::Export),
            (&long, UriProblem::Export),
        ] {
            assert_eq!(NbdUri::parse(text), Err(problem), "{text}");
        }
        for file in ["nbd", "nbd:/x", "./nbd://h/x", "http://h/x", "/dev/nbd0", "nbd:h:1"] {
            assert!(!NbdUri::is_meant(file), "{file}");
        }
    }

    #[test]
    fn two_uris_of_one_export_are_the_same() {
        let identity = |text: &str| NbdUri::parse(text).expect(text).identity();
        assert_eq!(identity("nbd://h/x"), identity("nbd://h:10809/%78"));
        for other in ["nbd://h/y", "nbd://i/x", "nbd://h:1/x", "nbd+unix:///x?socket=h"] {
            assert_ne!(identity("nbd://h/x"), identity(other), "{other}");
        }
    }
}
