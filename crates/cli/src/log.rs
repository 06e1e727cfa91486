//! The log of the libraries' events, on stderr: off, unless `RAIDLAB_LOG` is set.
//!
//! Invariant: only the environment turns it on; messages of commands do not go through it.

use std::env::VarError;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

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
    let given = directives.parse::<Targets>().map_err(|error| {
        anyhow::anyhow!("{VARIABLE}={directives}: {error}; use error, warn, info or debug")
    })?;
    // `array` is the crate `raidlab_array`, too.
    let ours = given.iter().map(|(target, level)| (format!("raidlab_{target}"), level));
    let filter = given.clone().with_targets(ours);
    let lines = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}
