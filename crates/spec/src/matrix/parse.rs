//! Values of options on the command line that have limits of their own.
//!
//! Invariant: a message says what is required; clap puts the option and the text before it.

use std::error::Error;

use md::BareNumber;

use crate::units::{QuantityError, parse_any_seconds, parse_seconds};
use crate::workload::Rate;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A size in bytes, which needs a unit: `64K`, `64KiB`.
pub(super) fn parse_bytes(text: &str) -> Result<u64> {
    let bytes = md::parse_size(text.trim(), BareNumber::Refused);
    bytes.map_err(|error| error.problem.to_string().into())
}

pub(super) fn parse_block(text: &str) -> Result<u64> {
    match parse_bytes(text)? {
        bytes @ 512..=0x100_0000 if bytes.is_multiple_of(512) => Ok(bytes),
        _ => Err("a block is a multiple of 512 bytes, at most 16M".into()),
    }
}

pub(super) fn parse_rate_iops(text: &str) -> Result<u32> {
    match text.parse::<u32>() {
        Ok(rate @ 1..=Rate::MOST) => Ok(rate),
        _ => Err(format!("requests per second, 1 to {}", Rate::MOST).into()),
    }
}

/// The length of a sample, seconds.
///
/// # Errors
/// The text is no time, or the sample would be too short or too long.
pub fn parse_sample(text: &str) -> Result<f64> {
    let seconds = parse_any_seconds(text)?;
    if (1e-3..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err("a sample takes 1ms to 86400s (a day)".into())
}

pub(super) fn parse_warm_up(text: &str) -> std::result::Result<f64, QuantityError> {
    if matches!(text, "0" | "0s") { Ok(0.0) } else { parse_seconds(text) }
}

/// A number of members.
pub(super) fn parse_count(text: &str) -> Result<u32> {
    text.parse().map_err(|_| "a whole number; several are written with commas, as in 4,5,6".into())
}
