//! Slots and lists in the sentences of the decision.

use crate::units::MemberIdx;

/// `slot 2`, `slots 1 and 3`, `slots 0, 1 and 4`.
pub(super) fn slots(list: &[MemberIdx]) -> String {
    let word = if list.len() == 1 { "slot" } else { "slots" };
    format!("{word} {}", and(list.iter().map(MemberIdx::to_string)))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn and(list: impl IntoIterator<Item = String>) -> String {
    let mut items: Vec<String> = list.into_iter().collect();
    match items.pop() {
        None => "none".to_string(),
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} and {last}", items.join(", ")),
    }
}

/// How a member that is out of date differs from the freshest: `3 updates behind`, or with as many
/// of them `of another moment`.
pub(super) fn behind(updates: u64) -> String {
    match updates {
        0 => "of another moment".to_string(),
        count => format!("{} behind", self::updates(count)),
    }
}

/// `1 update`, `3 updates`.
pub(super) fn updates(count: u64) -> String {
    if count == 1 { "1 update".to_string() } else { format!("{count} updates") }
}
