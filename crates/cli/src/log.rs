//! The log of the libraries' events, on stderr: off, unless `RAIDLAB_LOG` is set.
//!
//! Invariant: only the environment turns it on; messages of commands do not go through it.

use std::env::VarError;

use tracing_subscriber::EnvFilter;

/// The environment variable: a level, or levels by crate, as in `raidlab_array=debug,warn`.
const VARIABLE: &str = "RAIDLAB_LOG";

/// Starts the log if the environment says so.
pub(crate) fn start() -> anyhow::Result<()> {
    let directives = match std::env::var(VARIABLE) {
        Ok(directives) if !directives.is_empty() => directives,
        Ok(_) | Err(VarError::NotPresent) => return Ok(()),
        Err(VarError::NotUnicode(text)) => {
            return Err(anyhow::anyhow!("{VARIABLE}={}: not UTF-8", text.display()));
        }
    };
    let filter = EnvFilter::builder().parse(&directives).map_err(|error| {
        anyhow::anyhow!("{VARIABLE}={directives}: {error}; use error, warn, info or debug")
    })?;
    let writer = std::io::stderr;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer).init();
    Ok(())
}
