//! Layouts: md's numbers and mdadm's names for where a level puts parity and copies.
//!
//! Invariant: for every layout of every level, number and name lead back to the same layout.
//! Whether a layout fits a member count is decided in [`crate::geometry`], not here.
//!
//! Called by the command line (names), the superblock codecs (numbers), and `geometry`.

use crate::level::Level;
use std::fmt;

/// How RAID 0 starts a zone when members have different sizes (docs/format/geometry.md, RAID 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// Not recorded (number 0): fine while it does not matter, refused when it does.
    Unrecorded,
    /// Kernels before 3.14: chunks are counted from the start of the array.
    Original,
    /// Kernels 3.14 to 5.3: chunks are counted from the start of the zone.
    Alternate,
}

/// Where RAID 5 puts parity and the first data chunk of a row (docs/format/geometry.md, RAID 4 and
/// 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid5Layout {
    /// Parity moves down from the last member; data in slot order.
    LeftAsymmetric,
    /// Parity moves up from the first member; data in slot order.
    RightAsymmetric,
    /// Parity moves down; data starts behind parity and wraps. md's default.
    LeftSymmetric,
    /// Parity moves up; data starts behind parity and wraps.
    RightSymmetric,
    /// Parity always on the first member.
    ParityFirst,
    /// Parity always on the last member (RAID 4 as RAID 5).
    ParityLast,
}

/// Where RAID 6 puts P, Q and data, and in which order Q counts (docs/format/geometry.md, RAID 6,
/// P and Q).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid6Layout {
    /// P moves down from the last member, Q behind it; data in slot order.
    LeftAsymmetric,
    /// P moves up from the first member, Q behind it; data in slot order.
    RightAsymmetric,
    /// P moves down, Q behind it; data starts behind Q and wraps. md's default.
    LeftSymmetric,
    /// P moves up, Q behind it; data starts behind Q and wraps.
    RightSymmetric,
    /// P and Q always on the first two members.
    ParityFirst,
    /// P and Q always on the last two members.
    ParityLast,
    /// DDF: as right-asymmetric, Q counts slots.
    DdfZeroRestart,
    /// DDF: as left-asymmetric one row later, Q counts slots.
    DdfNRestart,
    /// DDF: P moves down, Q before it, data starts behind P; Q counts slots.
    DdfNContinue,
    /// RAID 5 left-asymmetric on all but the last member, Q on the last.
    LeftAsymmetric6,
    /// RAID 5 right-asymmetric on all but the last member, Q on the last.
    RightAsymmetric6,
    /// RAID 5 left-symmetric on all but the last member, Q on the last.
    LeftSymmetric6,
    /// RAID 5 right-symmetric on all but the last member, Q on the last.
    RightSymmetric6,
    /// P on the first member, Q on the last.
    ParityFirst6,
}

/// Which members the far copies of RAID 10 rotate over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarSets {
    /// Over all members (mode 0; what mdadm makes).
    None,
    /// Over sets of `members / far` members (mode 1, bit 17).
    Old,
    /// Over sets of `near x far` members (mode 2, bit 18).
    Current,
}

/// Copies of RAID 10 (docs/format/geometry.md, RAID 10). Every chunk has `near * far` copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies side by side in one row, at least 1.
    pub near: u8,
    /// Copies in distant sections (or, with `offset`, in the following rows), at least 1.
    pub far: u8,
    /// Far copies lie in the rows just below instead of a distant section.
    pub offset: bool,
    /// Which members the far copies rotate over.
    pub far_sets: FarSets,
}

/// The layout of an array, of the kind its level has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The level has no layouts: linear, RAID 1, RAID 4. md stores 0 and ignores it.
    None,
    /// RAID 0.
    Raid0(Raid0Layout),
    /// RAID 5.
    Raid5(Raid5Layout),
    /// RAID 6.
    Raid6(Raid6Layout),
    /// RAID 10.
    Raid10(Raid10Layout),
}

/// A layout number or name that the level does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// The level of the layout.
    pub level: Level,
    /// The number or name given.
    pub given: String,
    /// The problem.
    pub problem: &'static str,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layout: '{}' for {}: {}", self.given, self.level, self.problem)
    }
}

impl std::error::Error for LayoutError {}

/// Number, name, further names.
type Names<L> = &'static [(L, i32, &'static str, &'static [&'static str])];

const RAID0: Names<Raid0Layout> = &[
    (Raid0Layout::Unrecorded, 0, "unrecorded", &["unspecified", "dangerous"]),
    (Raid0Layout::Original, 1, "original", &[]),
    (Raid0Layout::Alternate, 2, "alternate", &[]),
];

const RAID5: Names<Raid5Layout> = &[
    (Raid5Layout::LeftAsymmetric, 0, "left-asymmetric", &["la", "ddf-n-restart"]),
    (Raid5Layout::RightAsymmetric, 1, "right-asymmetric", &["ra", "ddf-zero-restart"]),
    (Raid5Layout::LeftSymmetric, 2, "left-symmetric", &["ls", "ddf-n-continue"]),
    (Raid5Layout::RightSymmetric, 3, "right-symmetric", &["rs"]),
    (Raid5Layout::ParityFirst, 4, "parity-first", &["pf"]),
    (Raid5Layout::ParityLast, 5, "parity-last", &["pl"]),
];

const RAID6: Names<Raid6Layout> = &[
    (Raid6Layout::LeftAsymmetric, 0, "left-asymmetric", &["la"]),
    (Raid6Layout::RightAsymmetric, 1, "right-asymmetric", &["ra"]),
    (Raid6Layout::LeftSymmetric, 2, "left-symmetric", &["ls"]),
    (Raid6Layout::RightSymmetric, 3, "right-symmetric", &["rs"]),
    (Raid6Layout::ParityFirst, 4, "parity-first", &["pf"]),
    (Raid6Layout::ParityLast, 5, "parity-last", &["pl", "parity-last-6"]),
    (Raid6Layout::DdfZeroRestart, 8, "ddf-zero-restart", &[]),
    (Raid6Layout::DdfNRestart, 9, "ddf-N-restart", &[]),
    (Raid6Layout::DdfNContinue, 10, "ddf-N-continue", &[]),
    (Raid6Layout::LeftAsymmetric6, 16, "left-asymmetric-6", &["la-6", "la6"]),
    (Raid6Layout::RightAsymmetric6, 17, "right-asymmetric-6", &["ra-6", "ra6"]),
    (Raid6Layout::LeftSymmetric6, 18, "left-symmetric-6", &["ls-6", "ls6"]),
    (Raid6Layout::RightSymmetric6, 19, "right-symmetric-6", &["rs-6", "rs6"]),
    (Raid6Layout::ParityFirst6, 20, "parity-first-6", &["pf-6", "pf6"]),
];

impl Raid0Layout {
    /// Every layout, by number.
    pub fn all() -> impl Iterator<Item = Raid0Layout> {
        RAID0.iter().map(|row| row.0)
    }
}

impl Raid5Layout {
    /// Every layout, by number.
    pub fn all() -> impl Iterator<Item = Raid5Layout> {
        RAID5.iter().map(|row| row.0)
    }
}

impl Raid6Layout {
    /// Every layout, by number.
    pub fn all() -> impl Iterator<Item = Raid6Layout> {
        RAID6.iter().map(|row| row.0)
    }

    /// Whether Q's exponent is the slot number (DDF) rather than the position behind Q (md).
    pub const fn is_ddf(self) -> bool {
        matches!(
            self,
            Raid6Layout::DdfZeroRestart | Raid6Layout::DdfNRestart | Raid6Layout::DdfNContinue
        )
    }
}

impl Raid10Layout {
    /// `copies` near copies, mdadm's `n2`, `n3`.
    pub const fn near(copies: u8) -> Raid10Layout {
        Raid10Layout { near: copies, far: 1, offset: false, far_sets: FarSets::None }
    }

    /// `copies` far copies, mdadm's `f2`, `f3`.
    pub const fn far(copies: u8) -> Raid10Layout {
        Raid10Layout { near: 1, far: copies, offset: false, far_sets: FarSets::None }
    }

    /// `copies` copies in consecutive rows, mdadm's `o2`, `o3`.
    pub const fn offset(copies: u8) -> Raid10Layout {
        Raid10Layout { near: 1, far: copies, offset: true, far_sets: FarSets::None }
    }

    /// Number of copies of every chunk.
    pub const fn copies(self) -> usize {
        self.near as usize * self.far as usize
    }

    /// md's number: near in bits 0-7, far in 8-15, offset in 16, far sets in 17-18.
    pub const fn number(self) -> i32 {
        let sets = match self.far_sets {
            FarSets::None => 0,
            FarSets::Old => 1,
            FarSets::Current => 2,
        };
        self.near as i32 | (self.far as i32) << 8 | (self.offset as i32) << 16 | sets << 17
    }

    fn from_number(number: i32) -> Result<Raid10Layout, &'static str> {
        if number >> 19 != 0 {
            return Err("bits above 18 are set");
        }
        let far_sets = match number >> 17 & 3 {
            0 => FarSets::None,
            1 => FarSets::Old,
            2 => FarSets::Current,
            _ => return Err("far-set mode 3 does not exist"),
        };
        let layout = Raid10Layout {
            near: (number & 0xff) as u8,
            far: (number >> 8 & 0xff) as u8,
            offset: number >> 16 & 1 == 1,
            far_sets,
        };
        layout.checked()
    }

    /// `n2`, `f2`, `o2`, `n2f2`, `n2o2`, each with `-far-sets` or `-old-far-sets` behind it.
    fn parse(text: &str) -> Result<Raid10Layout, &'static str> {
        const FORM: &str = "not of the form n2, f2, o2, n2f2 or n2o2 (with -far-sets)";
        let (copies, far_sets) = if let Some(copies) = text.strip_suffix("-old-far-sets") {
            (copies, FarSets::Old)
        } else if let Some(copies) = text.strip_suffix("-far-sets") {
            (copies, FarSets::Current)
        } else {
            (text, FarSets::None)
        };
        let mut layout = Raid10Layout { near: 1, far: 1, offset: false, far_sets };
        let (near, rest) = match copies.strip_prefix('n') {
            Some(rest) => {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                (Some(&rest[..digits]), &rest[digits..])
            }
            None => (None, copies),
        };
        if let Some(near) = near {
            layout.near = count(near).ok_or(FORM)?;
        }
        match rest.chars().next() {
            None if near.is_some() => {}
            Some(kind @ ('f' | 'o')) => {
                layout.far = count(&rest[1..]).ok_or(FORM)?;
                layout.offset = kind == 'o';
            }
            _ => return Err(FORM),
        }
        layout.checked()
    }

    fn checked(self) -> Result<Raid10Layout, &'static str> {
        if self.near == 0 || self.far == 0 {
            return Err("the number of copies is 0");
        }
        if self.copies() < 2 {
            return Err("there is only one copy");
        }
        Ok(self)
    }
}

/// A decimal number of copies, digits only.
fn count(digits: &str) -> Option<u8> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl fmt::Display for Raid10Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.offset { 'o' } else { 'f' };
        if self.near > 1 {
            write!(f, "n{}", self.near)?;
        }
        if self.far > 1 || self.offset {
            write!(f, "{kind}{}", self.far)?;
        }
        match self.far_sets {
            FarSets::None => Ok(()),
            FarSets::Old => f.write_str("-old-far-sets"),
            FarSets::Current => f.write_str("-far-sets"),
        }
    }
}

impl Layout {
    /// mdadm's default layout: `original` for RAID 0, `left-symmetric` for RAID 5
    /// and 6, `n2` for RAID 10.
    pub const fn default_for(level: Level) -> Layout {
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Layout::None,
            Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
            Level::Raid5 => Layout::Raid5(Raid5Layout::LeftSymmetric),
            Level::Raid6 => Layout::Raid6(Raid6Layout::LeftSymmetric),
            Level::Raid10 => Layout::Raid10(Raid10Layout::near(2)),
        }
    }

    /// The layout of a superblock's number. Levels without layouts ignore it, as md does.
    ///
    /// # Errors
    /// A number the level does not have.
    pub fn from_number(level: Level, number: i32) -> Result<Layout, LayoutError> {
        const UNKNOWN: &str = "no such layout number";
        let found = match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Ok(Layout::None),
            Level::Raid0 => by_number(RAID0, number).map(Layout::Raid0).ok_or(UNKNOWN),
            Level::Raid5 => by_number(RAID5, number).map(Layout::Raid5).ok_or(UNKNOWN),
            Level::Raid6 => by_number(RAID6, number).map(Layout::Raid6).ok_or(UNKNOWN),
            Level::Raid10 => Raid10Layout::from_number(number).map(Layout::Raid10),
        };
        found.map_err(|problem| LayoutError { level, given: format!("{number:#x}"), problem })
    }

    /// The layout of a name, in any case: mdadm's names and abbreviations (`left-symmetric`, `ls`,
    /// `ddf-zero-restart`, `f2`), and for RAID 10 also combinations (`n2f2`).
    ///
    /// # Errors
    /// A name the level does not have.
    pub fn parse(level: Level, name: &str) -> Result<Layout, LayoutError> {
        const UNKNOWN: &str = "no such layout name";
        let lower = name.to_ascii_lowercase();
        let found = match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => match lower.as_str() {
                "none" => Ok(Layout::None),
                _ => Err("the level has no layouts"),
            },
            Level::Raid0 => by_name(RAID0, &lower).map(Layout::Raid0).ok_or(UNKNOWN),
            Level::Raid5 => by_name(RAID5, &lower).map(Layout::Raid5).ok_or(UNKNOWN),
            Level::Raid6 => by_name(RAID6, &lower).map(Layout::Raid6).ok_or(UNKNOWN),
            Level::Raid10 => Raid10Layout::parse(&lower).map(Layout::Raid10),
        };
        found.map_err(|problem| LayoutError { level, given: name.to_string(), problem })
    }

    /// md's number, as the superblock holds it.
    pub fn number(self) -> i32 {
        match self {
            Layout::None => 0,
            Layout::Raid0(layout) => row_of(RAID0, layout).1,
            Layout::Raid5(layout) => row_of(RAID5, layout).1,
            Layout::Raid6(layout) => row_of(RAID6, layout).1,
            Layout::Raid10(layout) => layout.number(),
        }
    }

    /// Whether this is a layout of `level`'s kind.
    pub const fn fits(self, level: Level) -> bool {
        matches!(
            (level, self),
            (Level::Linear | Level::Raid1 | Level::Raid4, Layout::None)
                | (Level::Raid0, Layout::Raid0(_))
                | (Level::Raid5, Layout::Raid5(_))
                | (Level::Raid6, Layout::Raid6(_))
                | (Level::Raid10, Layout::Raid10(_))
        )
    }
}

/// The name that [`Layout::parse`] reads back; `none` for levels without layouts.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Layout::None => f.pad("none"),
            Layout::Raid0(layout) => f.pad(row_of(RAID0, layout).2),
            Layout::Raid5(layout) => f.pad(row_of(RAID5, layout).2),
            Layout::Raid6(layout) => f.pad(row_of(RAID6, layout).2),
            Layout::Raid10(layout) => f.pad(&layout.to_string()),
        }
    }
}

fn by_number<L: Copy>(names: Names<L>, number: i32) -> Option<L> {
    names.iter().find(|row| row.1 == number).map(|row| row.0)
}

fn by_name<L: Copy>(names: Names<L>, lower: &str) -> Option<L> {
    names
        .iter()
        .find(|row| row.2.eq_ignore_ascii_case(lower) || row.3.contains(&lower))
        .map(|row| row.0)
}

fn row_of<L: PartialEq>(
    names: Names<L>,
    layout: L,
) -> &'static (L, i32, &'static str, &'static [&'static str]) {
    names.iter().find(|row| row.0 == layout).expect("the table has every layout")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number up to well above the largest, for all levels: what is accepted comes back.
    #[test]
    fn every_accepted_number_and_its_name_come_back() {
        let mut accepted = 0;
        for level in Level::ALL.into_iter().filter(|level| !Layout::default_for(*level).is_none()) {
            for number in (-3..0x10_0000).chain([i32::MIN, i32::MAX]) {
                let Ok(layout) = Layout::from_number(level, number) else { continue };
                assert_eq!(layout.number(), number);
                assert_eq!(Layout::parse(level, &layout.to_string()), Ok(layout));
                let upper = layout.to_string().to_uppercase();
                assert_eq!(Layout::parse(level, &upper), Ok(layout));
                assert!(layout.fits(level));
                accepted += 1;
            }
        }
        // raid0 3, raid5 6, raid6 14; raid10: 255 * 255 - 1 copies x offset x three set modes.
        assert_eq!(accepted, 3 + 6 + 14 + (255 * 255 - 1) * 2 * 3);
    }

    impl Layout {
        fn is_none(self) -> bool {
            self == Layout::None
        }
    }

    #[test]
    fn mdadm_names_mean_mdadm_numbers() {
        let table = [
            (Level::Raid5, "la", 0),
            (Level::Raid5, "ddf-N-restart", 0),
            (Level::Raid5, "ddf-zero-restart", 1),
            (Level::Raid5, "ddf-N-continue", 2),
            (Level::Raid5, "left-symmetric", 2),
            (Level::Raid5, "parity-first", 4),
            (Level::Raid5, "parity-last", 5),
            (Level::Raid6, "ls", 2),
            (Level::Raid6, "ddf-zero-restart", 8),
            (Level::Raid6, "ddf-N-restart", 9),
            (Level::Raid6, "ddf-N-continue", 10),
            (Level::Raid6, "left-symmetric-6", 18),
            (Level::Raid6, "parity-first-6", 20),
            (Level::Raid6, "parity-last-6", 5),
            (Level::Raid10, "n2", 0x102),
            (Level::Raid10, "f2", 0x201),
            (Level::Raid10, "o2", 0x1_0201),
            (Level::Raid10, "n2f2", 0x202),
            (Level::Raid10, "n2o2", 0x1_0202),
            (Level::Raid10, "f2-far-sets", 0x4_0201),
            (Level::Raid10, "f2-old-far-sets", 0x2_0201),
            (Level::Raid0, "original", 1),
            (Level::Raid0, "alternate", 2),
        ];
        for (level, name, number) in table {
            assert_eq!(Layout::parse(level, name).unwrap().number(), number, "{level} {name}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for name in ["", "n", "n0", "n1", "f1", "n2f", "2", "x2", "n+2", "f2n2", "n256", "n2f2x"] {
            let error = Layout::parse(Level::Raid10, name).unwrap_err();
            assert!(error.to_string().starts_with("layout: '"), "{error}");
        }
        for number in [6, 7, 11, 15, 21] {
            assert!(Layout::from_number(Level::Raid6, number).is_err());
        }
        assert!(Layout::from_number(Level::Raid5, 6).is_err());
        assert!(Layout::parse(Level::Raid1, "n2").is_err());
        let error = Layout::from_number(Level::Raid10, 0x6_0201).unwrap_err();
        assert_eq!(
            error.to_string(),
            "layout: '0x60201' for raid10: far-set mode 3 does not exist"
        );
    }
}
