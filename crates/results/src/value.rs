//! A value of a cell: of a setting, or of a column of the exports.
//!
//! Invariant: an unknown value is `None`, never 0 or an empty text.

use std::borrow::Cow;

use spec::units;

use crate::words::{Vocabulary, Word};

/// A value; `None` is unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'c> {
    /// A text.
    Text(Option<Cow<'c, str>>),
    /// A count.
    Whole(Option<i64>),
    /// A measured number.
    Number(Option<f64>),
    /// A boolean.
    Flag(Option<bool>),
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or no number.
    None,
    /// Bytes.
    Bytes,
    /// KiB.
    Kib,
    /// 10^6 bytes per second.
    MbPerS,
    /// Seconds.
    Seconds,
}

impl Value<'_> {
    /// An unknown value of the same type.
    pub(crate) fn unknown(&self) -> Value<'static> {
        match self {
            Value::Text(_) => Value::Text(None),
            Value::Whole(_) => Value::Whole(None),
            Value::Number(_) => Value::Number(None),
            Value::Flag(_) => Value::Flag(None),
        }
    }

    /// For display: `64 KiB`, `110 MB/s`, `yes`; `None` where it is unknown.
    pub fn shown(&self, unit: Unit) -> Option<String> {
        match self {
            Value::Text(text) => text.as_deref().map(str::to_string),
            Value::Whole(number) => number.map(|number| match unit {
                Unit::Bytes => units::bytes(number.unsigned_abs()),
                Unit::Kib => units::kib(number as f64),
                _ => number.to_string(),
            }),
            Value::Number(number) => number.map(|number| match unit {
                Unit::Kib => units::kib(number),
                Unit::MbPerS => format!("{} MB/s", units::digits(number)),
                Unit::Seconds => format!("{number} s"),
                Unit::None | Unit::Bytes => number.to_string(),
            }),
            Value::Flag(flag) => flag.map(|flag| if flag { "yes" } else { "no" }.to_string()),
        }
    }
}

pub(crate) fn text(value: &str) -> Value<'_> {
    Value::Text(Some(Cow::Borrowed(value)))
}

pub(crate) fn word<V: Vocabulary>(value: &Word<V>) -> Value<'_> {
    Value::Text(Some(value.text()))
}

pub(crate) fn maybe(value: Option<&str>) -> Value<'_> {
    Value::Text(value.map(Cow::Borrowed))
}

/// A count; unknown where it is longer than a database's.
pub(crate) fn whole<'c>(value: impl TryInto<i64>) -> Value<'c> {
    Value::Whole(value.try_into().ok())
}

/// A count that may be unknown.
pub(crate) fn some<'c>(value: Option<impl TryInto<i64>>) -> Value<'c> {
    Value::Whole(value.and_then(|value| value.try_into().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_with_its_unit() {
        let table = [
            (text("mem"), Unit::None, Some("mem")),
            (whole(64), Unit::Kib, Some("64 KiB")),
            (whole(128 << 20), Unit::Bytes, Some("128 MiB")),
            (whole(4), Unit::None, Some("4")),
            (Value::Number(Some(110.0)), Unit::MbPerS, Some("110 MB/s")),
            (Value::Number(Some(0.3)), Unit::Seconds, Some("0.3 s")),
            (Value::Flag(Some(true)), Unit::None, Some("yes")),
            (some(None::<u64>), Unit::Kib, None),
        ];
        for (value, unit, shown) in table {
            assert_eq!(value.shown(unit).as_deref(), shown, "{value:?}");
        }
    }
}
