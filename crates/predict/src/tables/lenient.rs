//! Reading values that people wrote: keys in any spelling, numbers with units, ranges.

use serde_json::{Map, Value};
use spec::units::{QuantityError, parse_rate};

/// An object whose keys are found in any spelling: `Stripe-Cache_Size` is `stripecachesize`.
#[derive(Clone, Copy)]
pub struct Fields<'a>(pub Option<&'a Map<String, Value>>);

impl<'a> Fields<'a> {
    /// The fields of a value, none if it is no object.
    pub fn of(value: Option<&'a Value>) -> Fields<'a> {
        Fields(value.and_then(Value::as_object))
    }

    /// The first of the keys that is there and not null.
    pub fn get(self, keys: &[&str]) -> Option<&'a Value> {
        let map = self.0?;
        keys.iter().find_map(|key| {
            let exact = map.get(*key);
            let plain = |name: &String| plain_key(name) == plain_key(key);
            let found = exact.or_else(|| map.iter().find(|(name, _)| plain(name)).map(|kv| kv.1));
            found.filter(|value| !value.is_null())
        })
    }

    /// A positive number below any of the keys.
    pub fn number(self, keys: &[&str]) -> Option<f64> {
        keys.iter().find_map(|key| number(self.get(&[key])?))
    }

    /// A rate in MB/s below any of the keys: see [`rate`].
    pub fn rate(self, keys: &[&str]) -> Option<f64> {
        keys.iter().find_map(|key| rate(self.get(&[key])?))
    }

    /// A text below any of the keys; numbers as they are written.
    pub fn text(self, keys: &[&str]) -> Option<String> {
        match self.get(keys)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Whether it is true, or a text such as `yes`.
    pub fn flag(self, keys: &[&str]) -> Option<bool> {
        match self.get(keys)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" => Some(true),
                "no" | "false" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Letters and digits, in lower case.
pub fn plain_key(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// A positive finite number: plain, `{"value": ...}`, a text that begins with one (`8.5 ms`,
/// `~110`), or a range (`64-2048`), of which it is the geometric mean.
pub fn number(value: &Value) -> Option<f64> {
    let found = match value {
        Value::Number(number) => number.as_f64()?,
        Value::Object(map) => number(map.get("value")?)?,
        Value::String(text) => number_in(text)?,
        _ => return None,
    };
    (found.is_finite() && found > 0.0).then_some(found)
}

/// A rate in MB/s: a number is MB/s, a text may count bits (`1Gb/s`) or have any unit of the
/// options (`2GB/s`). A text whose unit may be of bits or of bytes (`1gb/s`) is none.
pub fn rate(value: &Value) -> Option<f64> {
    let Value::String(text) = value else { return number(value) };
    match parse_rate(text.trim().trim_start_matches(['~', '<', '>', '=', ' '])) {
        Ok(bytes) => Some(bytes as f64 / 1e6),
        // "mb/s" is MB/s in what people publish; a larger unit is not guessed at.
        Err(QuantityError::BitsOrBytes(_)) => {
            let of_millions = text.to_ascii_lowercase().contains("mb");
            number(value).filter(|_| of_millions)
        }
        Err(_) => number(value),
    }
}

fn number_in(text: &str) -> Option<f64> {
    let text = text.trim().trim_start_matches(['~', '<', '>', '=', ' ']);
    let (first, rest) = leading_number(text)?;
    let rest = rest.trim_start();
    match rest.strip_prefix('-').and_then(|rest| leading_number(rest.trim_start())) {
        Some((last, _)) if last >= first && first > 0.0 => Some((first * last).sqrt()),
        _ => Some(first),
    }
}

/// The number that a text begins with, and the rest.
pub fn leading_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.').parse().ok()?;
    Some((number, &text[end..]))
}

/// A size in KiB: a number is KiB, a text may end in K, M or B.
pub fn kib(value: &Value) -> Option<f64> {
    let size = number(value)?;
    let Value::String(text) = value else { return Some(size) };
    let unit = text.trim().trim_end_matches(['B', 'b', 'i']);
    Some(match unit.chars().last() {
        Some('M' | 'm') => size * 1024.0,
        Some('G' | 'g') => size * 1024.0 * 1024.0,
        _ => size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (value, expected) in [
            (json!(64), Some(64.0)),
            (json!("8.5 ms"), Some(8.5)),
            (json!("~110"), Some(110.0)),
            (json!("7200rpm"), Some(7200.0)),
            (json!("64-256"), Some(128.0)),
            (json!({"value": "5400", "source": "sheet"}), Some(5400.0)),
            (json!(0), None),
            (json!(-3), None),
            (json!("fast"), None),
            (json!(null), None),
            (json!([1]), None),
            (json!(""), None),
        ] {
            assert_eq!(number(&value), expected, "{value}");
        }
        assert_eq!(kib(&json!("1M")), Some(1024.0));
        assert_eq!(kib(&json!("512 KiB")), Some(512.0));
        assert_eq!(kib(&json!(64)), Some(64.0));
    }

    #[test]
    fn rates_of_bits_are_an_eighth() {
        for (value, expected) in [
            (json!(110), Some(110.0)),
            (json!("140 MB/s"), Some(140.0)),
            (json!("~110"), Some(110.0)),
            (json!("1Gb/s"), Some(125.0)),
            (json!("10 Gbit/s"), Some(1250.0)),
            (json!("2GB/s"), Some(2000.0)),
            (json!("100 mb/s"), Some(100.0)),
            (json!("1gb/s"), None),
            (json!("90-110 MB/s"), Some((90.0f64 * 110.0).sqrt())),
            (json!(null), None),
        ] {
            assert_eq!(rate(&value), expected, "{value}");
        }
    }

    #[test]
    fn keys_are_found_in_any_spelling() {
        let value = json!({"Stripe-Cache size": 4096, "rpm": null});
        let fields = Fields::of(Some(&value));
        assert_eq!(fields.number(&["stripe_cache", "stripe_cache_size"]), Some(4096.0));
        assert_eq!(fields.number(&["rpm"]), None);
    }
}
