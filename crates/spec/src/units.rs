//! Rates and durations in the syntax of the command line, and how sizes are shown. Sizes are read
//! by `md::parse_size`.
//!
//! Invariant: ambiguous text is refused, and the message shows the valid syntax. Rates of buses
//! count in powers of 1000 unless they say `MiB`.

use thiserror::Error;

/// A text that is not the quantity that is required: the text, and the valid syntax.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// It is no rate.
    #[error(
        "'{0}': a rate is a number of MB/s, MiB/s, GB/s or GiB/s, as in 133MB/s, or of bits: \
         Mb/s, Mbit/s, Gb/s"
    )]
    Rate(String),
    /// It does not say whether it counts bits or bytes.
    #[error(
        "'{text}': bits or bytes? {bytes} is of bytes, {bits} of bits, eight times fewer",
        text = .0,
        bytes = spelled(.0, "B/s"),
        bits = spelled(.0, "b/s")
    )]
    BitsOrBytes(String),
    /// It is no duration.
    #[error("'{0}': a time is a number of seconds above 0, as in 0.7 or 2s or 500ms or 3min")]
    Seconds(String),
    /// It is a duration that is not above 0, or too long.
    #[error("'{0}': a time is above 0 and below 10,000,000 seconds")]
    SecondsRange(String),
}

/// A rate whose unit was in lower case, with its prefix and this unit.
fn spelled(text: &str, unit: &str) -> String {
    let (number, rest) = split(text.trim());
    format!("{number}{}{unit}", rest[..rest.len().min(1)].to_ascii_uppercase())
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Bytes per second: `133MB/s`, `2GB/s`, `250MiB/s`; without a unit, MB/s. Of bits: `100Mb/s`,
/// `1Gbit/s`, `100Mbps`. In lower case, `mb/s` may be either, and is refused with both spellings.
/// No encoding of a line is taken off: what a name such as SATA says is known by its name.
///
/// # Errors
/// A message with the syntax of rates.
pub fn parse_rate(text: &str) -> Result<u64, QuantityError> {
    let fail = || QuantityError::Rate(text.into());
    let (number, unit) = split(text.trim());
    let (unit, by_word) = match unit.strip_suffix("ps") {
        Some(unit) => (unit, true),
        None => (unit.trim_end_matches("/s"), false),
    };
    let factor = match unit {
        "" if by_word => return Err(fail()),
        "" | "M" | "m" | "MB" => 1e6,
        "MiB" | "mib" | "MIB" => f64::from(1 << 20),
        "G" | "g" | "GB" => 1e9,
        "GiB" | "gib" | "GIB" => f64::from(1 << 30),
        "kb" | "Kb" | "kbit" | "Kbit" | "kbits" | "Kbits" => 1e3 / 8.0,
        "Mb" | "Mbit" | "mbit" | "Mbits" | "mbits" => 1e6 / 8.0,
        "Gb" | "Gbit" | "gbit" | "Gbits" | "gbits" => 1e9 / 8.0,
        "mb" | "gb" if !number.is_empty() => {
            return Err(QuantityError::BitsOrBytes(text.into()));
        }
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
    match parse_any_seconds(text)? {
        seconds if seconds > 0.0 && seconds < 1e7 => Ok(seconds),
        _ => Err(QuantityError::SecondsRange(text.into())),
    }
}

/// As [`parse_seconds`], of any length from 0 on: for a caller that has its own range.
///
/// # Errors
/// The text is no time.
pub fn parse_any_seconds(text: &str) -> Result<f64, QuantityError> {
    let fail = || QuantityError::Seconds(text.into());
    let (number, unit) = split(text.trim());
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(fail()),
    };
    Ok(number.parse::<f64>().map_err(|_| fail())? * factor)
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
/// in, as [`md::parse_size`] reads it.
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

/// A number of KiB in words: `4 KiB`, `1 MiB`, `0.5 KiB`, `2300 bytes`.
pub fn kib(kib: f64) -> String {
    match kib {
        _ if (kib * 2.0).fract() != 0.0 => match (kib * 1024.0).fract() {
            0.0 => format!("{} bytes", kib * 1024.0),
            _ => format!("{} KiB", digits(kib)),
        },
        _ if kib >= 1048576.0 && kib % 1048576.0 == 0.0 => format!("{} GiB", kib / 1048576.0),
        _ if kib >= 1024.0 && kib % 1024.0 == 0.0 => format!("{} MiB", kib / 1024.0),
        _ => format!("{kib} KiB"),
    }
}

/// Bytes in words, to three digits: `128 MiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let text = if value.fract() == 0.0 { format!("{value}") } else { digits(value) };
    format!("{text} {}", units[unit])
}

/// About three digits without an exponent: `0.63`, `15.2`, `155`, `12345`.
pub fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.0995 => format!("{value:.2}"),
        _ if value >= 0.00995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// The same without zeroes at its end: `24`, `7.68`.
pub fn short(value: f64) -> String {
    let text = digits(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A latency in words: `85.0 us`, `1.25 ms`, `2.1 s`.
pub fn latency(us: f64) -> String {
    match us {
        _ if us >= 999_500.0 => format!("{} s", digits(us / 1e6)),
        _ if us >= 999.5 => format!("{} ms", digits(us / 1e3)),
        _ => format!("{} us", digits(us)),
    }
}

#[cfg(test)]
mod tests {
    use md::{BareNumber, parse_size};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_and_times_as_people_write_them() {
        assert_eq!(parse_rate("133MB/s"), Ok(133_000_000));
        assert_eq!(parse_rate("1GiB/s"), Ok(1 << 30));
        assert_eq!(parse_rate("66.7"), Ok(66_700_000));
        assert!(parse_rate("0").is_err() && parse_rate("10ps").is_err());
        for bits in ["1Gb/s", "1Gbit/s", "1Gbps", "1000Mb/s", "1000Mbit", "1000 Mbps"] {
            assert_eq!(parse_rate(bits), Ok(125_000_000), "{bits}");
        }
        // Bits or bytes: the text does not say.
        for text in ["400mb/s", "1gb/s", "100 mb/s", "1gb", "6gbps"] {
            let refused = parse_rate(text).expect_err(text).to_string();
            let (bytes, bits) =
                (refused.contains("B/s is of bytes"), refused.contains("b/s of bits"));
            assert!(bytes && bits, "{refused}");
        }
        let refused = parse_rate("100 mb/s").expect_err("either").to_string();
        assert!(refused.contains("100MB/s") && refused.contains("100Mb/s"), "{refused}");
        assert_eq!(parse_rate("10 Gbit/s"), Ok(1_250_000_000));
        assert_eq!(parse_rate("6Gbps"), Ok(750_000_000));
        assert_eq!(parse_seconds("500ms"), Ok(0.5));
        assert_eq!(parse_seconds("2"), Ok(2.0));
        assert!(parse_seconds("0").is_err() && parse_seconds("soon").is_err());
        assert_eq!(show_seconds(250.4), "4m10s");
    }

    proptest! {
        #[test]
        fn sizes_come_back(number in 0u64..1 << 40, suffix in 0usize..5) {
            let (name, shift) = [("", 0), ("K", 10), ("MiB", 20), ("b", 0), ("kb", 10)][suffix];
            let parse = |text: &str| parse_size(text, BareNumber::Bytes);
            prop_assert_eq!(parse(&format!("{number}{name}")), Ok(number << shift));
            prop_assert_eq!(parse(&exact_size(number)), Ok(number));
            // What is shown can be given: exactly where it is whole, within its decimal otherwise.
            let shown = show_size(number);
            match parse(&shown.replace("bytes", "B")) {
                Ok(bytes) => prop_assert!(bytes.abs_diff(number) * 10 <= number.max(1024)),
                Err(_) => prop_assert!(shown.contains('.'), "{}", shown),
            }
        }

        #[test]
        fn no_text_is_too_strange(
            text in prop_oneof!["\\PC{0,30}", "[0-9.]{0,25}[ a-zA-Z/]{0,5}"],
        ) {
            // With a unit, what a number without one means makes no difference.
            let size = parse_size(&text, BareNumber::Refused);
            if let Ok(bytes) = size {
                prop_assert_eq!(parse_size(&text, BareNumber::Bytes), Ok(bytes));
                prop_assert_eq!(parse_size(&text, BareNumber::Kib), Ok(bytes));
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

    #[test]
    fn numbers_are_short_and_say_their_unit() {
        let table = [
            (0.0, "0"),
            (0.004, "0.0040"),
            (0.0136, "0.014"),
            (0.63, "0.63"),
            (9.99, "9.99"),
            (9.996, "10.0"),
            (82.44, "82.4"),
            (155.2, "155"),
            (4.0, "4.00"),
            (161_234.4, "161234"),
        ];
        for (value, text) in table {
            assert_eq!(digits(value), text);
        }
        for (value, text) in [(24.0, "24"), (7.68, "7.68"), (0.5, "0.5"), (120.0, "120")] {
            assert_eq!(short(value), text);
        }
        assert_eq!(latency(85.0), "85.0 us");
        assert_eq!(latency(999.6), "1.00 ms");
        assert_eq!(latency(12_500.0), "12.5 ms");
        assert_eq!(latency(2_100_000.0), "2.10 s");
        assert_eq!(
            (kib(4.0).as_str(), kib(1024.0).as_str(), kib(1536.0).as_str()),
            ("4 KiB", "1 MiB", "1536 KiB")
        );
        let odd = [0.5, 2300.0 / 1024.0, 4.000_052_906_982_698].map(kib);
        assert_eq!(odd, ["0.5 KiB", "2300 bytes", "4.00 KiB"]);
        assert_eq!(bytes(128 << 20), "128 MiB");
    }
}
