//! Who may read, and who may give orders.
//!
//! ```text
//!   every request   Host is one of this server's (loopback: a name that was rebound is not)
//!   data            not from a page of another origin; with a token: the token, or its cookie
//!   orders          permitted at all; not from another origin; the token itself, as a header
//! ```
//! Invariant: a cookie permits reads only: browsers send it to every port of a host, where another
//! user's server may listen. Secrets are compared in constant time.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use subtle::ConstantTimeEq;
use thiserror::Error;

/// The least length of a token that was chosen.
const LEAST_TOKEN: usize = 16;
/// The longest.
const MOST_TOKEN: usize = 256;
/// Bytes of a random secret.
const SECRET_BYTES: usize = 20;

/// Set by browsers: how the origin of a request relates to this one.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds no token.
    #[error("{}: its first line is no token: 16 to 256 letters, digits, '-' or '_'", .0.display())]
    Form(PathBuf),
    /// Other users of this machine can read it.
    #[error("{}: others can read it: chmod 600", .0.display())]
    Readable(PathBuf),
}

/// What clients must give, to read or to change anything.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new one, of the kernel's random numbers.
    pub fn random() -> Token {
        Token(secret())
    }

    /// The first line of a file that only its owner can read.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        use std::os::unix::fs::PermissionsExt;
        let read = |source| TokenError::Read { path: path.to_owned(), source };
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::Readable(path.to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let token = text.lines().next().unwrap_or_default().trim();
        let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        match plain && (LEAST_TOKEN..=MOST_TOKEN).contains(&token.len()) {
            true => Ok(Token(token.into())),
            false => Err(TokenError::Form(path.to_owned())),
        }
    }

    /// The text: for the one line that shows it to the user who started the server.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token")
    }
}

fn secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    let mut got = 0;
    while got < bytes.len() {
        // Without flags it waits until the kernel has gathered enough, and is interrupted only
        // before that.
        match rustix::rand::getrandom(&mut bytes[got..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => got += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel has no random numbers: {error}"),
        }
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn equal(given: &[u8], own: &str) -> bool {
    given.ct_eq(own.as_bytes()).into()
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The status.
    pub status: StatusCode,
    /// The reason.
    pub why: &'static str,
}

const fn denied(status: StatusCode, why: &'static str) -> Denied {
    Denied { status, why }
}

/// The rules of one server.
pub struct Access {
    /// Names of this server, with its port; `None`: every name, because the certificate has the
    /// name.
    hosts: Option<Vec<String>>,
    /// `http` or `https`.
    scheme: &'static str,
    token: Option<Token>,
    /// Name and value of the cookie.
    cookie: (String, String),
    has_orders: bool,
}

impl Access {
    /// The rules of a server with this address.
    pub fn new(
        address: SocketAddr,
        has_tls: bool,
        token: Option<Token>,
        has_orders: bool,
    ) -> Access {
        let port = address.port();
        let own = address.ip().to_canonical();
        let scheme = if has_tls { "https" } else { "http" };
        let usual = if has_tls { 443 } else { 80 };
        let mut names = vec!["localhost".to_string()];
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for address in loopback.into_iter().chain([own]) {
            match address {
                IpAddr::V4(address) => {
                    // In an IPv6 address, too; browsers write that in hexadecimal digits.
                    let [.., high, low] = address.to_ipv6_mapped().segments();
                    let mapped = [
                        format!("[{}]", address.to_ipv6_mapped()),
                        format!("[::ffff:{high:x}:{low:x}]"),
                    ];
                    names.push(address.to_string());
                    names.extend(mapped);
                }
                IpAddr::V6(address) => names.push(format!("[{address}]")),
            }
        }
        let hosts = names.into_iter().flat_map(|name| {
            let plain = (port == usual).then(|| name.clone());
            [Some(format!("{name}:{port}")), plain].into_iter().flatten()
        });
        Access {
            hosts: own.is_loopback().then(|| hosts.collect()),
            scheme,
            token,
            cookie: (format!("raidlab-{port}"), secret()),
            has_orders,
        }
    }

    /// Whether orders are permitted at all.
    pub fn has_orders(&self) -> bool {
        self.has_orders
    }

    /// Whether a token is needed to read.
    pub fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Every request.
    pub fn host(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let wrong = denied(StatusCode::MISDIRECTED_REQUEST, "this is not a name of this server");
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(wrong) };
        let host = host.to_str().map_err(|_| wrong)?.to_ascii_lowercase();
        match &self.hosts {
            Some(own) if !own.contains(&host) => Err(wrong),
            _ => Ok(()),
        }
    }

    /// Requests of pages of other origins are refused. `is_navigation`: except that a link leads
    /// here.
    pub fn origin(&self, headers: &HeaderMap, is_navigation: bool) -> Result<(), Denied> {
        let other = denied(StatusCode::FORBIDDEN, "a page of another origin may not request this");
        let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
        let is_own = site.is_none_or(|site| site == b"same-origin" || site == b"none");
        if !is_own && !is_navigation {
            return Err(other);
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let own = host.map(|host| format!("{}://{host}", self.scheme));
        match origin.to_str().is_ok_and(|origin| own.is_some_and(|own| own == origin)) {
            true => Ok(()),
            false => Err(other),
        }
    }

    /// The token as a header: `Authorization: Bearer TOKEN`.
    pub fn has_token(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map(|given| given.as_bytes());
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        match (&self.token, given) {
            (Some(token), Some(given)) => equal(given, &token.0),
            _ => false,
        }
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let (name, value) = &self.cookie;
        let lines = headers.get_all(header::COOKIE).into_iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs
            .filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.any(|given| equal(given, value))
    }

    /// Whether a request may read data.
    pub fn may_read(&self, headers: &HeaderMap) -> bool {
        self.token.is_none() || self.has_token(headers) || self.has_cookie(headers)
    }

    /// As [`Access::may_read`].
    pub fn read(&self, headers: &HeaderMap) -> Result<(), Denied> {
        self.origin(headers, false)?;
        match self.may_read(headers) {
            true => Ok(()),
            false => Err(denied(StatusCode::UNAUTHORIZED, "the token is needed")),
        }
    }

    /// Whether a request may give an order.
    pub fn order(&self, headers: &HeaderMap) -> Result<(), Denied> {
        self.origin(headers, false)?;
        if !self.has_orders {
            return Err(denied(StatusCode::FORBIDDEN, "nothing can be changed here: read-only"));
        }
        let json = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
        if json != Some(b"application/json") {
            return Err(denied(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an order is application/json"));
        }
        match self.has_token(headers) {
            true => Ok(()),
            false => Err(denied(StatusCode::UNAUTHORIZED, "the token is needed, as a header")),
        }
    }

    /// The line that gives a browser the cookie.
    pub fn set_cookie(&self) -> String {
        let (name, value) = &self.cookie;
        let secure = if self.scheme == "https" { "; Secure" } else { "" };
        format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/{secure}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().expect("a value"));
        }
        map
    }

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("an address")
    }

    fn access(token: bool, orders: bool) -> Access {
        let token = token.then(|| Token("secret-of-a-test".into()));
        Access::new(at("127.0.0.1:8000"), false, token, orders)
    }

    #[test]
    fn only_own_names_are_served_on_loopback() {
        let access = access(false, false);
        let host = |lines: &[(&'static str, &str)]| access.host(&headers(lines)).is_ok();
        for good in ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"] {
            assert!(host(&[("host", good)]), "{good}");
        }
        let bad = ["evil.example:8000", "127.0.0.1", "127.0.0.1:80", "localhost:8000.evil", ""];
        for bad in bad {
            assert!(!host(&[("host", bad)]), "{bad}");
        }
        assert!(!host(&[]));
        assert!(!host(&[("host", "localhost:8000"), ("host", "localhost:8000")]));
        let usual = Access::new(at("[::1]:80"), false, None, false);
        assert!(usual.host(&headers(&[("host", "localhost")])).is_ok());
        let open = Access::new(at("192.0.2.1:8000"), true, None, false);
        assert!(open.host(&headers(&[("host", "nas.example:8000")])).is_ok());
        // The address that was given, as it may be written.
        for given in ["127.0.0.2:8000", "[::ffff:127.0.0.2]:8000"] {
            let access = Access::new(at(given), false, None, false);
            let is_own = |host: &str| access.host(&headers(&[("host", host)])).is_ok();
            let good = ["127.0.0.2:8000", "[::ffff:127.0.0.2]:8000", "[::ffff:7f00:2]:8000"];
            for good in good.into_iter().chain(["localhost:8000", "127.0.0.1:8000"]) {
                assert!(is_own(good), "{given}: {good}");
            }
            assert!(!is_own("127.0.0.3:8000") && !is_own("127.0.0.2:80"), "{given}");
        }
    }

    #[test]
    fn pages_of_other_origins_get_nothing() {
        let access = access(false, false);
        let host = ("host", "localhost:8000");
        let read = |more: &[(&'static str, &str)]| {
            access.read(&headers(&[&[host], more].concat())).is_ok()
        };
        assert!(read(&[]) && read(&[("sec-fetch-site", "same-origin")]));
        assert!(read(&[("origin", "http://localhost:8000"), ("sec-fetch-site", "none")]));
        for site in ["cross-site", "same-site", "anything"] {
            assert!(!read(&[("sec-fetch-site", site)]), "{site}");
        }
        let others = ["http://localhost:8001", "https://localhost:8000", "null", "http://evil"];
        for origin in others {
            assert!(!read(&[("origin", origin)]), "{origin}");
        }
        let link = headers(&[host, ("sec-fetch-site", "cross-site")]);
        assert!(access.origin(&link, true).is_ok(), "a link leads here");
    }

    #[test]
    fn the_cookie_reads_and_the_token_orders() {
        let access = access(true, true);
        let cookie = access.set_cookie().split(';').next().unwrap().to_string();
        let base = [("host", "localhost:8000"), ("content-type", "application/json")];
        let with = |more: &[(&'static str, &str)]| headers(&[&base[..], more].concat());
        let bearer = ("authorization", "Bearer secret-of-a-test");
        let (none, token) = (with(&[]), with(&[bearer]));
        let cookies = format!("a=b; {cookie}; c");
        let cookie = with(&[("cookie", &cookies)]);
        assert!(access.read(&none).is_err() && access.read(&token).is_ok());
        assert!(access.read(&cookie).is_ok());
        assert_eq!(access.order(&cookie).unwrap_err().status, StatusCode::UNAUTHORIZED);
        assert!(access.order(&token).is_ok());
        for wrong in ["Bearer secret-of-a-tesT", "Bearer ", "secret-of-a-test", "Bearer secret"] {
            assert!(access.order(&with(&[("authorization", wrong)])).is_err(), "{wrong}");
        }
        let other = with(&[bearer, ("origin", "http://evil")]);
        assert_eq!(access.order(&other).unwrap_err().status, StatusCode::FORBIDDEN);
        let form = headers(&[base[0], bearer, ("content-type", "text/plain")]);
        let status = access.order(&form).unwrap_err().status;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let read_only = self::access(true, false);
        assert_eq!(read_only.order(&token).unwrap_err().status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn a_token_is_a_secret_of_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(file.path(), text).expect("written");
        write("0123456789abcdef\nmore\n");
        assert_eq!(Token::read(file.path()).expect("a token").text(), "0123456789abcdef");
        for bad in ["", "short", "0123456789abcde f", "0123456789abcdef\u{e4}"] {
            write(bad);
            assert!(matches!(Token::read(file.path()), Err(TokenError::Form(_))), "{bad:?}");
        }
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file.path(), open).expect("its mode");
        assert!(matches!(Token::read(file.path()), Err(TokenError::Readable(_))));
        assert_ne!(Token::random().text(), Token::random().text());
        assert_eq!(format!("{:?}", Token::random()), "Token");
    }
}
