//! Certificates and keys, in directories with the names that GnuTLS's users know:
//!
//! ```text
//!  ca-cert.pem                          whom to trust
//!  ca-crl.pem                           what was revoked; may be missing
//!  server-cert.pem  server-key.pem      of a server
//!  client-cert.pem  client-key.pem      of a client; may both be missing
//! ```
//! *Invariant*: a client always verifies the server's certificate and name. A list of what was
//! revoked counts for every certificate of a chain whose issuer it is of; an authority without a
//! list has revoked nothing. A file that may be missing, and of which the system does not say
//! whether it is, is an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, pem,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

/// Why certificates cannot be used.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsError {
    /// The file or directory.
    pub path: PathBuf,
    /// Problem with it.
    #[source]
    pub problem: TlsProblem,
}

/// What is wrong with certificates.
#[derive(Debug, Error)]
pub enum TlsProblem {
    /// A file cannot be read.
    #[error("cannot read it: {}", crate::sys::reason(.0))]
    System(std::io::Error),
    /// It is no PEM file of the kind that it should be.
    #[error("it is not the PEM file that it should be: {0}")]
    Pem(String),
    /// There is no certificate in it.
    #[error("there is no certificate in it")]
    Empty,
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("{0}")]
    Unfit(String),
    /// A key without a certificate, or the other way round.
    #[error("it is missing, and its counterpart is there")]
    Half,
    /// The name of the server is none.
    #[error("{0:?} is not a name that a certificate could have")]
    Name(String),
}

/// What a server needs for TLS.
#[derive(Clone, Debug)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

impl ServerTls {
    /// For servers that have sockets of their own.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.0
    }

    /// Reads the server's certificate and key; with `verify_peer`, clients need a certificate that
    /// the authority of `ca-cert.pem` has signed.
    ///
    /// # Errors
    /// Names the file and the problem.
    pub fn load(directory: &Path, verify_peer: bool) -> Result<ServerTls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unfit = |error: &dyn std::fmt::Display| fail(directory, unfit(error));
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| unfit(&error))?;
        let builder = match verify_peer {
            false => builder.with_no_client_auth(),
            true => {
                let roots = Arc::new(authorities(directory)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .with_crls(revoked(directory)?)
                    .allow_unknown_revocation_status();
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unfit(&error))?)
            }
        };
        let (chain, key) = identity(directory, "server")?
            .ok_or_else(|| fail(&directory.join("server-cert.pem"), missing()))?;
        let config = builder.with_single_cert(chain, key).map_err(|error| {
            fail(&directory.join("server-cert.pem"), TlsProblem::Unfit(error.to_string()))
        })?;
        Ok(ServerTls(Arc::new(config)))
    }
}

/// What a client needs for TLS with one server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl ClientTls {
    /// Reads whom to trust, and the client's own certificate and key if they are there. `name`: the
    /// name or address that the server's certificate must have.
    ///
    /// # Errors
    /// Names the file and the problem.
    pub fn load(directory: &Path, name: &str) -> Result<ClientTls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unfit = |error: &dyn std::fmt::Display| fail(directory, unfit(error));
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| fail(directory, TlsProblem::Name(name.to_owned())))?;
        let roots = Arc::new(authorities(directory)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(revoked(directory)?)
            .allow_unknown_revocation_status();
        let verifier = verifier.build().map_err(|error| unfit(&error))?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| unfit(&error))?;
        let builder = builder.with_webpki_verifier(verifier);
        let config = match identity(directory, "client")? {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                fail(&directory.join("client-cert.pem"), TlsProblem::Unfit(error.to_string()))
            })?,
        };
        Ok(ClientTls { config: Arc::new(config), name: server })
    }
}

fn fail(path: &Path, problem: TlsProblem) -> TlsError {
    TlsError { path: path.to_owned(), problem }
}

fn unfit(error: &dyn std::fmt::Display) -> TlsProblem {
    TlsProblem::Unfit(error.to_string())
}

fn missing() -> TlsProblem {
    TlsProblem::System(std::io::ErrorKind::NotFound.into())
}

fn parsed<T>(path: &Path, read: Result<T, pem::Error>) -> Result<T, TlsError> {
    read.map_err(|error| {
        fail(
            path,
            match error {
                pem::Error::Io(error) => TlsProblem::System(error),
                other => TlsProblem::Pem(other.to_string()),
            },
        )
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = parsed(path, CertificateDer::pem_file_iter(path))?;
    let all = parsed(path, all.collect::<Result<Vec<_>, _>>())?;
    if all.is_empty() { Err(fail(path, TlsProblem::Empty)) } else { Ok(all) }
}

/// Whom to trust.
fn authorities(directory: &Path) -> Result<RootCertStore, TlsError> {
    let path = directory.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        roots.add(certificate).map_err(|error| fail(&path, unfit(&error)))?;
    }
    Ok(roots)
}

/// Whether there is such a file: not, what it is, and whether it can be read.
fn is_there(path: &Path) -> Result<bool, TlsError> {
    path.try_exists().map_err(|error| fail(path, TlsProblem::System(error)))
}

fn revoked(directory: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let path = directory.join("ca-crl.pem");
    if !is_there(&path)? {
        return Ok(Vec::new());
    }
    let all = parsed(&path, CertificateRevocationListDer::pem_file_iter(&path))?;
    parsed(&path, all.collect())
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate, with those that lead to an authority, and its key; `None`: both are missing.
fn identity(directory: &Path, whose: &str) -> Result<Option<Identity>, TlsError> {
    let certificate = directory.join(format!("{whose}-cert.pem"));
    let key = directory.join(format!("{whose}-key.pem"));
    match (is_there(&certificate)?, is_there(&key)?) {
        (false, false) => return Ok(None),
        (true, false) => return Err(fail(&key, TlsProblem::Half)),
        (false, true) => return Err(fail(&certificate, TlsProblem::Half)),
        (true, true) => {}
    }
    let chain = certificates(&certificate)?;
    Ok(Some((chain, parsed(&key, PrivateKeyDer::from_pem_file(&key))?)))
}
