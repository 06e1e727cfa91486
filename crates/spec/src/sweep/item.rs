//! The items of a sweep, and their keys.
//!
//! Invariant: pure data.

/// Key of a measurement: equal for the same measurement with the same settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey(pub String);

/// An item to be measured, by its stable key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its stable key.
    pub key: ItemKey,
    /// Description for display.
    pub what: String,
}
