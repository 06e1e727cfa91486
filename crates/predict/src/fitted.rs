//! What the law needs beside its equations: constants and the widths of intervals, as a file.
//!
//! Fitted by `benches/law`; read by every prediction.

use serde_json::{Value, json};

use crate::intervals::Intervals;
use crate::law::{Constants, ConstantsError};

/// Constants and intervals, as a file holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The constants of the law.
    pub constants: Constants,
    /// The widths of its intervals.
    pub intervals: Intervals,
}

const FITTED: &str = include_str!("../constants.json");

impl Fitted {
    /// Those that are compiled in.
    pub fn built_in() -> Fitted {
        Fitted::parse(FITTED).expect("the built-in constants are valid: a test reads them")
    }

    /// Reads what [`Fitted::document`] wrote.
    ///
    /// # Errors
    /// No such document: the entry at fault.
    pub fn parse(text: &str) -> Result<Fitted, ConstantsError> {
        let constants = Constants::parse(text)?;
        let document: Value = serde_json::from_str(text).unwrap_or_default();
        let intervals = match document.get("intervals") {
            Some(value) => Intervals::parse(value)?,
            None => Intervals::of(&[]),
        };
        Ok(Fitted { constants, intervals })
    }

    /// The document.
    pub fn document(&self, fitted_on: &str) -> Value {
        let constants = self.constants.document(fitted_on);
        json!({
            "fitted_on": fitted_on,
            "constants": constants["constants"],
            "intervals": self.intervals.document(),
        })
    }
}
