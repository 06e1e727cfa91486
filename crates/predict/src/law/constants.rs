//! The constants of the law, each with a prior from physics, and the file that holds fitted values.
//!
//! Invariant: every constant is finite, positive and within what its equation can take.

use std::fmt;
use std::ops::Index;

use serde_json::{Map, Value, json};

/// The constants, in the order of [`PARAMETERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Loss of striping, sequential read.
    A0,
    /// Further loss of the far layout, read.
    Af,
    /// Stall when parity is passed over, since 2.6.20.
    Sn,
    /// The same before 2.6.20.
    So,
    /// Cost of jumping over a skipped chunk.
    Tj,
    /// Loss of striping or mirroring, sequential write.
    Aw,
    /// Partial stripes, write-back by pages.
    Kp,
    /// Partial stripes, write-back by extents.
    Kb,
    /// Partial stripes, raw device.
    Kr,
    /// Exponent of the chunk in the cost of partial stripes.
    Dl,
    /// Exponent of the stripe cache in it.
    Ga,
    /// Far layout, raw sequential write.
    Ff,
    /// Rewriting against reading and writing.
    H,
    /// Exponent of the busy members.
    Al,
    /// Weight of an operation of a small write.
    Ps,
    /// Seeks of a disk.
    Ka,
    /// Many streams on stripes.
    Mr,
    /// Many streams on mirrors and parity, without the sequential rate of one disk.
    M2,
    /// What windows of many streams reach of a member's sequential rate.
    Ms,
    /// Exponent of the data members: many streams, write, without parity.
    Ws,
    /// The same with parity.
    Wp,
    /// Many streams, write, of the far layout.
    Fw,
    /// md's latency of a write with flush.
    L0,
    /// The same per member.
    L1,
    /// CPU of a small request without md.
    T1,
    /// md's CPU of a small request, RAID 0.
    O0,
    /// The same, mirrors.
    O1,
    /// The same, parity.
    O5,
    /// Loss of large direct I/O.
    Ab,
    /// What one thread of a parity array writes.
    Rt,
    /// Gain of a queue of platters.
    Qg,
    /// Far layout, random reads.
    Fr,
    /// Reads before a small parity write on platters.
    Rm,
    /// An update of an internal bitmap on platters.
    Bw,
    /// Requests that share one.
    Bs,
    /// md's CPU of a small write, mirrors.
    Ow,
    /// The thread of a parity array, of a small write.
    T5,
    /// Exponent of the threads of a group.
    Gt,
    /// CPU of one reader.
    Cr,
    /// CPU of one writer.
    Cw,
    /// Rate of a resync.
    Rs,
    /// The same with many members and the plug limit.
    Rp,
    /// A jump of one deep stream over what is read of another copy.
    Jm,
}

/// A constant: its prior and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Which.
    pub symbol: Symbol,
    /// Its name in documents and files.
    pub name: &'static str,
    /// A neutral guess from physics.
    pub prior: f64,
    /// One standard deviation of the prior, as a factor.
    pub spread: f64,
    /// The unit; empty for pure numbers.
    pub unit: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

macro_rules! parameters {
    ($($symbol:ident $name:literal $prior:literal $spread:literal $unit:literal
       $meaning:literal;)*) => {
        /// All constants of the law.
        pub const PARAMETERS: [Parameter; 43] = [$(Parameter {
            symbol: Symbol::$symbol,
            name: $name,
            prior: $prior,
            spread: $spread,
            unit: $unit,
            meaning: $meaning,
        }),*];
    };
}

parameters! {
    A0 "a0" 0.06 1.6 "" "loss of striping, sequential read";
    Af "af" 0.04 2.0 "" "further loss of the far layout, read";
    Sn "sN" 0.2 2.5 "ms/row" "stall when a row's parity is passed over, kernel 2.6.20 and later";
    So "sO" 0.6 3.3 "ms/row" "the same, kernel before 2.6.20";
    Tj "tj" 0.6 1.3 "rev" "cost of jumping over a skipped chunk";
    Aw "aw" 0.08 1.6 "" "loss of striping or mirroring, sequential write";
    Kp "kP" 4.0 2.2 "ms/MB" "partial stripes, write-back by pages (ext3, old XFS)";
    Kb "kB" 0.8 2.2 "ms/MB" "partial stripes, write-back by extents (ext4, XFS)";
    Kr "kR" 1.5 2.7 "ms/MB" "partial stripes, raw device or O_DIRECT";
    Dl "dl" 0.3 1.6 "" "exponent of the chunk in the cost of partial stripes";
    Ga "ga" 0.5 1.6 "" "exponent of 256/stripe_cache_size in it";
    Ff "ff" 0.8 1.2 "" "far layout, raw sequential write, of near";
    H "h" 1.2 1.1 "" "rewrite: its time, of the time to read and to write";
    Al "al" 1.0 1.2 "" "seeks: exponent of the number of busy members";
    Ps "ps" 1.0 1.5 "" "seeks: an operation of a small write, of a read";
    Ka "ka" 2.0 1.5 "" "seeks per second of one disk, of 1/(seek + latency)";
    Mr "mr" 0.9 1.2 "" "many streams, read: stripes, of what the members' pieces permit";
    M2 "m2" 0.75 1.3 "" "many streams, read, on flash: mirrors and parity, of members x single";
    Ms "ms" 0.6 1.3 "" "many streams, read: a member's most, of its sequential rate";
    Ws "ws" 0.85 1.2 "" "many streams, write: exponent of the data members";
    Wp "wp" 0.25 1.6 "" "the same with parity";
    Fw "fw" 0.7 1.2 "" "the same of the far layout, of near";
    L0 "L0" 5.0 2.7 "us" "md's latency of a write with flush";
    L1 "L1" 0.5 2.7 "us" "the same for each member";
    T1 "t1" 4.5 1.5 "us" "CPU of a small request without md";
    O0 "o0" 1.0 2.0 "us" "md's CPU of a small request, RAID 0";
    O1 "o1" 1.2 2.0 "us" "the same, RAID 1 and 10, reading";
    O5 "o5" 1.0 2.0 "us" "the same, RAID 5 and 6, reading";
    Ab "ab" 0.1 1.8 "" "loss of large direct I/O over fast members";
    Rt "rt" 1100.0 1.5 "MB/s" "what one thread of a parity array writes";
    Qg "qg" 0.2 1.5 "" "random reads of platters: exponent of the requests in flight at a disk";
    Fr "fr" 1.25 1.1 "" "far layout, random reads of platters: shorter seeks";
    Rm "rm" 1.3 1.2 "" "small parity writes on platters: time of the reads before, of one read";
    Bw "bw" 1.5 1.3 "" "internal bitmap on platters: time of an update, of one read";
    Bs "bs" 0.25 1.4 "" "the same: requests in flight that share an update";
    Ow "ow" 2.1 2.0 "us" "md's CPU of a small write, RAID 1 and 10";
    T5 "t5" 6.4 1.6 "us" "the thread of a parity array, of a small write";
    Gt "gt" 0.7 1.4 "" "exponent of the threads of a group";
    Cr "cr" 0.28 1.6 "us/KiB" "CPU of one reader of flash";
    Cw "cw" 0.40 1.6 "us/KiB" "CPU of one writer of flash";
    Rs "rs" 0.9 1.1 "" "resync, of the member's own rate";
    Rp "rp" 0.4 2.2 "" "the same, more than 16 members, kernel 2.6.39 to 5.15";
    Jm "jm" 1.1 1.3 "rev" "one deep stream on near copies: a jump over what another copy reads";
}

/// The values of all constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    values: [f64; PARAMETERS.len()],
}

/// The constants that are compiled in: `benches/law` fits them to cells of Linux md.
const FITTED: &str = include_str!("../../constants.json");

impl Constants {
    /// The priors.
    pub fn priors() -> Constants {
        Constants { values: PARAMETERS.map(|parameter| parameter.prior) }
    }

    /// Those that are compiled in.
    pub fn built_in() -> Constants {
        Constants::parse(FITTED).expect("the built-in constants are valid: a test reads them")
    }

    /// Sets one.
    pub fn set(&mut self, symbol: Symbol, value: f64) {
        assert!(is_possible(symbol, value), "{symbol:?} = {value}");
        self.values[symbol as usize] = value;
    }

    /// Reads `{"constants": {"a0": 0.05, ...}}`, or the object of constants alone. Constants that
    /// are not named keep their prior.
    ///
    /// # Errors
    /// No JSON, no object, or the first constant that is unknown or impossible.
    pub fn parse(text: &str) -> Result<Constants, ConstantsError> {
        let error = |name: &str, problem: String| ConstantsError { name: name.into(), problem };
        let document: Value = serde_json::from_str(text)
            .map_err(|problem| error("document", format!("no JSON: {problem}")))?;
        let object = document.get("constants").unwrap_or(&document);
        let Value::Object(object) = object else {
            return Err(error("constants", "not an object".into()));
        };
        let mut constants = Constants::priors();
        for (name, value) in object {
            let Some(parameter) = PARAMETERS.iter().find(|parameter| parameter.name == name) else {
                return Err(error(name, "the law has no such constant".into()));
            };
            let Some(number) = value.as_f64() else {
                return Err(error(name, "not a number".into()));
            };
            if !is_possible(parameter.symbol, number) {
                return Err(error(name, format!("{number} is not possible")));
            }
            constants.values[parameter.symbol as usize] = number;
        }
        Ok(constants)
    }

    /// The document that [`Constants::parse`] reads.
    pub fn document(&self, fitted_on: &str) -> Value {
        let value = |parameter: &Parameter| {
            let digits = 4 - self[parameter.symbol].log10().floor() as i32;
            let scale = 10f64.powi(digits.clamp(0, 12));
            ((self[parameter.symbol] * scale).round() / scale).into()
        };
        let constants: Map<String, Value> =
            PARAMETERS.iter().map(|parameter| (parameter.name.into(), value(parameter))).collect();
        json!({ "fitted_on": fitted_on, "constants": constants })
    }
}

/// Losses stay below 1, everything is positive and of a sensible size.
fn is_possible(symbol: Symbol, value: f64) -> bool {
    let most = match symbol {
        Symbol::A0 | Symbol::Af | Symbol::Aw | Symbol::Ab | Symbol::Qg => 0.9,
        Symbol::Dl | Symbol::Ga | Symbol::Al | Symbol::Gt | Symbol::Ws | Symbol::Wp => 3.0,
        Symbol::Bs | Symbol::Ms => 1.0,
        _ => 1e6,
    };
    value.is_finite() && value > 0.0 && value <= most
}

impl Index<Symbol> for Constants {
    type Output = f64;

    fn index(&self, symbol: Symbol) -> &f64 {
        &self.values[symbol as usize]
    }
}

/// An invalid document of constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstantsError {
    /// The constant at fault, or `document`.
    pub name: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for ConstantsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constants: {}: {}", self.name, self.problem)
    }
}

impl std::error::Error for ConstantsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_stand_in_the_order_of_their_symbols() {
        for (index, parameter) in PARAMETERS.iter().enumerate() {
            assert_eq!(parameter.symbol as usize, index, "{}", parameter.name);
            assert!(is_possible(parameter.symbol, parameter.prior));
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let constants = Constants::built_in();
        let text = constants.document("a table").to_string();
        assert_eq!(Constants::parse(&text), Ok(constants));
    }

    #[test]
    fn what_is_no_document_of_constants_is_refused_with_its_name() {
        for (text, name) in [
            ("", "document"),
            ("[]", "constants"),
            ("{\"constants\": 3}", "constants"),
            ("{\"zz\": 1}", "zz"),
            ("{\"a0\": \"x\"}", "a0"),
            ("{\"a0\": 0}", "a0"),
            ("{\"a0\": 1.5}", "a0"),
            ("{\"h\": -1}", "h"),
        ] {
            assert_eq!(Constants::parse(text).unwrap_err().name, name, "{text}");
        }
    }
}
