//! The words of a record: levels, layouts, targets, kinds of access.
//!
//! Invariant: a word is written as it was read, byte for byte. A word that this version does not
//! have (another tool's, a newer version's, another form of a name) is kept as text; nothing is
//! derived from it. Used by `record`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use md::{Layout, Level, Raid0Layout, Raid6Layout, Raid10Layout};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spec::case::BenchLevel;
use spec::target::TargetKind;
use spec::workload::{AccessKind, Kind};

/// A set of words with a meaning.
pub trait Vocabulary: Copy + PartialEq {
    /// The word in records.
    fn word(self) -> Cow<'static, str>;

    /// The meaning of a word; `None` for every text that [`Vocabulary::word`] does not give.
    fn meaning(word: &str) -> Option<Self>;
}

/// A word of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word<V> {
    /// A word with a meaning.
    Known(V),
    /// Any other text, as written. Never a word of `V`: values are made by [`From`]. Empty where
    /// the record says nothing.
    Other(String),
}

impl<V: Vocabulary> Word<V> {
    /// Its meaning.
    pub fn known(&self) -> Option<V> {
        match self {
            Word::Known(known) => Some(*known),
            Word::Other(_) => None,
        }
    }

    /// The text, as written.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Word::Known(known) => known.word(),
            Word::Other(text) => Cow::Borrowed(text),
        }
    }

    /// Whether the record says nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Word::Other(text) if text.is_empty())
    }
}

impl<V> Default for Word<V> {
    fn default() -> Word<V> {
        Word::Other(String::new())
    }
}

impl<V: Vocabulary> From<&str> for Word<V> {
    fn from(text: &str) -> Word<V> {
        V::meaning(text).map_or_else(|| Word::Other(text.to_string()), Word::Known)
    }
}

impl<V: Vocabulary> From<String> for Word<V> {
    fn from(text: String) -> Word<V> {
        V::meaning(&text).map_or(Word::Other(text), Word::Known)
    }
}

impl<V: Vocabulary> From<V> for Word<V> {
    fn from(known: V) -> Word<V> {
        Word::Known(known)
    }
}

impl<V: Vocabulary> PartialEq<V> for Word<V> {
    fn eq(&self, other: &V) -> bool {
        self.known() == Some(*other)
    }
}

impl<V: Vocabulary> fmt::Display for Word<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl<V: Vocabulary> Serialize for Word<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de, V: Vocabulary> Deserialize<'de> for Word<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<V>, D::Error> {
        struct AsWord<V>(PhantomData<V>);
        impl<V: Vocabulary> Visitor<'_> for AsWord<V> {
            type Value = Word<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Word<V>, E> {
                Ok(text.into())
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Word<V>, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(AsWord(PhantomData))
    }
}

impl Vocabulary for BenchLevel {
    fn word(self) -> Cow<'static, str> {
        Cow::Borrowed(self.name())
    }

    fn meaning(word: &str) -> Option<BenchLevel> {
        BenchLevel::named(word)
    }
}

impl Vocabulary for TargetKind {
    fn word(self) -> Cow<'static, str> {
        Cow::Borrowed(self.name())
    }

    fn meaning(word: &str) -> Option<TargetKind> {
        TargetKind::named(word)
    }
}

impl Vocabulary for AccessKind {
    fn word(self) -> Cow<'static, str> {
        Cow::Borrowed(self.name())
    }

    fn meaning(word: &str) -> Option<AccessKind> {
        AccessKind::named(word)
    }
}

impl From<Kind> for Word<AccessKind> {
    fn from(kind: Kind) -> Word<AccessKind> {
        Word::Known(kind.into())
    }
}

/// A layout by its name in records. A name is read without its level: RAID 5 and 6 share some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutName {
    /// Of a level without layouts.
    None,
    /// Of RAID 0.
    Raid0(Raid0Layout),
    /// Of RAID 5 or 6: RAID 6 has all the names of RAID 5.
    Parity(Raid6Layout),
    /// Of RAID 10.
    Raid10(Raid10Layout),
}

impl LayoutName {
    /// A layout of md with the name.
    fn of_md(self) -> Layout {
        match self {
            LayoutName::None => Layout::None,
            LayoutName::Raid0(layout) => Layout::Raid0(layout),
            LayoutName::Parity(layout) => Layout::Raid6(layout),
            LayoutName::Raid10(layout) => Layout::Raid10(layout),
        }
    }

    /// Whether it is what its level has by default, or says no more than the level.
    pub fn is_usual(self) -> bool {
        matches!(
            self,
            LayoutName::None
                | LayoutName::Raid0(Raid0Layout::Original | Raid0Layout::Unrecorded)
                | LayoutName::Parity(Raid6Layout::LeftSymmetric)
        )
    }
}

impl Vocabulary for LayoutName {
    fn word(self) -> Cow<'static, str> {
        Cow::Owned(self.of_md().to_string())
    }

    fn meaning(word: &str) -> Option<LayoutName> {
        let of = |level| Layout::parse(level, word).ok();
        let found = [Level::Raid0, Level::Raid6, Level::Raid10, Level::Linear];
        let found = found.into_iter().find_map(of).map(|layout| match layout {
            Layout::Raid0(layout) => LayoutName::Raid0(layout),
            Layout::Raid6(layout) => LayoutName::Parity(layout),
            Layout::Raid10(layout) => LayoutName::Raid10(layout),
            Layout::None | Layout::Raid5(_) => LayoutName::None,
        });
        // md also takes short forms, in any case.
        found.filter(|found| found.word() == word)
    }
}

/// A layout of md; none where the level has none.
pub fn layout(layout: Layout) -> Option<Word<LayoutName>> {
    (layout != Layout::None).then(|| layout.to_string().into())
}

#[cfg(test)]
mod tests {
    use md::Raid5Layout;

    use super::*;

    fn same_word<V: Vocabulary + fmt::Debug>(all: impl IntoIterator<Item = V>) {
        for known in all {
            let word: Word<V> = known.word().as_ref().into();
            assert_eq!(word, Word::Known(known), "{known:?}");
        }
    }

    #[test]
    fn each_word_leads_back_to_its_meaning() {
        same_word(Level::ALL.map(BenchLevel::Md));
        same_word([BenchLevel::Single]);
        same_word(TargetKind::ALL);
        same_word(AccessKind::ALL);
        same_word(Raid0Layout::all().map(LayoutName::Raid0));
        same_word(Raid6Layout::all().map(LayoutName::Parity));
        let raid10 = [Raid10Layout::near(2), Raid10Layout::far(3), Raid10Layout::offset(2)];
        same_word(raid10.map(LayoutName::Raid10));
        same_word([LayoutName::None]);
        for raid5 in Raid5Layout::all().map(Layout::Raid5) {
            let word = layout(raid5).expect("RAID 5 has layouts");
            assert!(matches!(word, Word::Known(LayoutName::Parity(_))), "{word}");
            assert_eq!(word.text(), raid5.to_string());
        }
        assert_eq!(layout(Layout::None), None);
    }

    #[test]
    fn another_form_of_a_word_stays_as_it_was_written() {
        for text in ["", "5", "RAID5", "raid-5", "raid7", "stripe", "\u{e9}"] {
            let level: Word<BenchLevel> = text.into();
            assert_eq!(level, Word::Other(text.into()));
            assert_eq!((level.to_string().as_str(), level.is_empty()), (text, text.is_empty()));
        }
        for text in ["ls", "LEFT-SYMMETRIC", "F2", "n1", "n02", "f2f2", "dangerous", "None"] {
            assert_eq!(Word::<LayoutName>::from(text), Word::Other(text.into()));
        }
        let json = "\"seq-\\u0061ppend\"";
        let escaped: Word<AccessKind> = serde_json::from_str(json).expect("a string");
        assert_eq!(escaped.text(), "seq-append");
    }
}
