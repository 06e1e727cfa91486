//! Sizes, rates and durations in the syntax of the command line.
//!
//! Invariant: ambiguous text is refused, and the message shows the valid syntax. Sizes count in
//! powers of 1024 (`4K` is 4096 bytes), rates of buses in powers of 1000 unless they say `MiB`.

/// The reason why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// The given text.
    pub text: String,
    /// The valid syntax.
    pub wanted: &'static str,
}

impl std::fmt::Display for QuantityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}': {}", self.text, self.wanted)
    }
}

impl std::error::Error for QuantityError {}

const SIZE: &str = "a size is a number with a suffix B, K, M, G or T (powers of 1024), as in 64K";
const RATE: &str = "a rate is a number of MB/s, MiB/s, GB/s or GiB/s, as in 133MB/s";
const SECONDS: &str = "a time is a number of seconds above 0, as in 0.7 or 2s or 500ms";

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Bytes: `4096`, `4K`, `64KiB`, `1M`, `2G`. Fractions work where they come to whole bytes.
///
/// # Errors
/// A message with the syntax of sizes.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let fail = || QuantityError { text: text.into(), wanted: SIZE };
    let (number, suffix) = split(text.trim());
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" | "kb" => 10,
        "m" | "mib" | "mb" => 20,
        "g" | "gib" | "gb" => 30,
        "t" | "tib" | "tb" => 40,
        _ => return Err(fail()),
    };
    let unit = 1u64 << shift;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(fail);
    }
    let bytes = number.parse::<f64>().map_err(|_| fail())? * unit as f64;
    if bytes.fract() == 0.0 && bytes < 9e15 { Ok(bytes as u64) } else { Err(fail()) }
}

/// Bytes per second: `133MB/s`, `2GB/s`, `250MiB/s`; without a unit, MB/s.
///
/// # Errors
/// A message with the syntax of rates.
pub fn parse_rate(text: &str) -> Result<u64, QuantityError> {
    let fail = || QuantityError { text: text.into(), wanted: RATE };
    let (number, unit) = split(text.trim());
    let factor = match unit.trim_end_matches("/s").to_ascii_lowercase().as_str() {
        "" | "mb" | "m" => 1e6,
        "mib" => f64::from(1 << 20),
        "gb" | "g" => 1e9,
        "gib" => f64::from(1 << 30),
        _ => return Err(fail()),
    };
    let rate = number.parse::<f64>().map_err(|_| fail())? * factor;
    if (1.0..1e15).contains(&rate) { Ok(rate as u64) } else { Err(fail()) }
}

/// Seconds: `3`, `0.5`, `2s`, `500ms`.
///
/// # Errors
/// A message with the syntax of durations.
pub fn parse_seconds(text: &str) -> Result<f64, QuantityError> {
    let fail = || QuantityError { text: text.into(), wanted: SECONDS };
    let (number, unit) = split(text.trim());
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        _ => return Err(fail()),
    };
    let seconds = number.parse::<f64>().map_err(|_| fail())? * factor;
    if seconds > 0.0 && seconds < 1e7 { Ok(seconds) } else { Err(fail()) }
}

/// `64 KiB`, `1 MiB`, `1.5 GiB`: the largest unit that shows the value in at most one decimal.
pub fn show_size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// `64K`, `1540K`, `513`: the same bytes to the last one, in the largest unit that they are whole
/// in, as [`parse_size`] reads it.
pub fn exact_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or(bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

/// `4m10s`, `12s`: for progress.
pub fn show_seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("4K", 4096),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("1.5M", 3 << 19),
            ("2G", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "4X", "-1", "1.0001K", "4 K K", "99999999999999999999", "1e3"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(show_size(960 << 10), "960 KiB");
        assert_eq!(show_size(3 << 29), "1.5 GiB");
    }

    #[test]
    fn rates_and_times_as_people_write_them() {
        assert_eq!(parse_rate("133MB/s"), Ok(133_000_000));
        assert_eq!(parse_rate("1GiB/s"), Ok(1 << 30));
        assert_eq!(parse_rate("66.7"), Ok(66_700_000));
        assert!(parse_rate("0").is_err() && parse_rate("10Mbit").is_err());
        assert_eq!(parse_seconds("500ms"), Ok(0.5));
        assert_eq!(parse_seconds("2"), Ok(2.0));
        assert!(parse_seconds("0").is_err() && parse_seconds("soon").is_err());
        assert_eq!(show_seconds(250.4), "4m10s");
    }

    proptest! {
        #[test]
        fn sizes_come_back(number in 0u64..1 << 40, suffix in 0usize..5) {
            let (name, shift) = [("", 0), ("K", 10), ("MiB", 20), ("b", 0), ("kb", 10)][suffix];
            prop_assert_eq!(parse_size(&format!("{number}{name}")), Ok(number << shift));
            // What is shown can be given: exactly where it is whole, within its decimal otherwise.
            let shown = show_size(number);
            match parse_size(&shown) {
                Ok(bytes) => prop_assert!(bytes.abs_diff(number) * 10 <= number.max(1024)),
                Err(_) => prop_assert!(shown.contains('.'), "{}", shown),
            }
        }

        #[test]
        fn no_text_is_too_strange(
            text in prop_oneof!["\\PC{0,30}", "[0-9.]{0,25}[ a-zA-Z/]{0,5}"],
        ) {
            let bytes = parse_size(&text);
            if let Err(error) = &bytes {
                prop_assert!(error.to_string().contains("as in 64K"));
            }
            if let Ok(rate) = parse_rate(&text) {
                prop_assert!(rate >= 1);
            }
            if let Ok(seconds) = parse_seconds(&text) {
                prop_assert!(seconds > 0.0 && seconds.is_finite());
                prop_assert!(std::time::Duration::try_from_secs_f64(seconds).is_ok());
            }
        }
    }

    #[test]
    fn times_and_sizes_are_shown_shortly() {
        for (seconds, text) in [(0.0, "0s"), (59.4, "59s"), (60.0, "1m00s"), (7260.0, "2h01m")] {
            assert_eq!(show_seconds(seconds), text);
        }
        for (bytes, text) in
            [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (u64::MAX, "16777216 TiB")]
        {
            assert_eq!(show_size(bytes), text);
        }
    }
}
