//! From the text of LVM's metadata to a volume group, and the extents of its logical volumes.
//!
//! Invariant: a field that must be there and is not ends the decoding; what is wrong with one
//! logical volume concerns that volume alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use thiserror::Error;

use super::group::{LogicalVolume, PhysicalVolume, Unserved, VolumeGroup};
use super::mapping::{Area, Mapping, Segment};
use super::syntax::{Section, SyntaxError, Value, parse};

/// Why a text describes no volume group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is no text of LVM.
    #[error("LVM metadata: {0}")]
    Syntax(#[from] SyntaxError),
    /// A field is missing or cannot be.
    #[error("LVM metadata: {section}: {field}: {problem}")]
    Field {
        /// The section.
        section: String,
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Extents of 1 TiB are far more than LVM allows.
const EXTENT_SECTORS_MAX: u64 = 1 << 31;

/// Decodes a text of the metadata.
///
/// # Errors
/// It does not describe a volume group.
pub fn decode(text: &[u8]) -> Result<VolumeGroup, DecodeError> {
    let text = String::from_utf8_lossy(text);
    let root = parse(&text)?;
    let field = |field, problem| {
        move |section: &str| DecodeError::Field { section: section.to_string(), field, problem }
    };
    if root.text("contents") != Some("Text Format Volume Group") {
        return Err(field("contents", "not a volume group")("the text"));
    }
    if root.number("version") != Some(1) {
        return Err(field("version", "unknown")("the text"));
    }
    let (name, group) = match &root.sections().collect::<Vec<_>>()[..] {
        [(name, group)] => (*name, *group),
        _ => return Err(field("name", "not exactly one volume group")("the text")),
    };
    let extent_sectors = group.number("extent_size").unwrap_or(0);
    if !(1..=EXTENT_SECTORS_MAX).contains(&extent_sectors) {
        return Err(field("extent_size", "missing, or out of range")(name));
    }
    let physical = group.section("physical_volumes");
    let physical = physical.ok_or_else(|| field("physical_volumes", "missing")(name))?;
    let physical = physical.sections().map(|(key, section)| physical_volume(key, section));
    let physical = physical.collect::<Result<Vec<_>, _>>()?;
    let mut keys = HashMap::new();
    for (index, it) in physical.iter().enumerate() {
        if keys.insert(it.key.as_str(), index).is_some() {
            return Err(field("physical_volumes", "two have one name")(name));
        }
    }
    let volumes = match group.section("logical_volumes") {
        Some(volumes) => volumes.sections().collect(),
        None => Vec::new(),
    };
    let reader = Reader { extent_sectors, physical: &physical, keys };
    let mut logical = reader.all(&volumes)?;
    refuse_shared(&mut logical);
    Ok(VolumeGroup {
        name: name.to_string(),
        uuid: uuid(name, group)?,
        seqno: group.number("seqno").ok_or_else(|| field("seqno", "missing")(name))?,
        extent_sectors,
        logical,
        physical,
    })
}

/// A UUID is printed and compared; anything else than LVM's letters is none.
fn uuid(name: &str, section: &Section<'_>) -> Result<String, DecodeError> {
    let plain = |text: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
    };
    let text = section.text("id").filter(plain).map(ToString::to_string);
    let (section, field, problem) = (name.to_string(), "id", "missing, or not a UUID");
    text.ok_or(DecodeError::Field { section, field, problem })
}

fn physical_volume(key: &str, section: &Section<'_>) -> Result<PhysicalVolume, DecodeError> {
    let number = |field| {
        let (section_name, problem) = (key.to_string(), "missing, or not a number");
        let wrong = DecodeError::Field { section: section_name, field, problem };
        section.number(field).ok_or(wrong)
    };
    Ok(PhysicalVolume {
        key: key.to_string(),
        uuid: uuid(key, section)?,
        device: section.text("device").map(ToString::to_string),
        first_sector: number("pe_start")?,
        extents: number("pe_count")?,
        was_missing: has(section, "flags", "MISSING") || has(section, "status", "MISSING"),
    })
}

fn has(section: &Section<'_>, list: &str, word: &str) -> bool {
    section.list(list).iter().any(|value| matches!(value, Value::Text(text) if text == word))
}

/// What the segments of volumes refer to.
struct Reader<'g> {
    extent_sectors: u64,
    physical: &'g [PhysicalVolume],
    keys: HashMap<&'g str, usize>,
}

type Named<'s, 't> = (&'t str, &'s Section<'t>);

impl Reader<'_> {
    fn all(&self, volumes: &[Named<'_, '_>]) -> Result<Vec<LogicalVolume>, DecodeError> {
        let names: HashSet<&str> = volumes.iter().map(|(name, _)| *name).collect();
        // The volume that each other one is a part of, and the roles of snapshots.
        let mut part_of = BTreeMap::new();
        let mut roles = BTreeMap::new();
        for (name, section) in volumes {
            for segment in segments(section) {
                if segment.text("type") == Some("snapshot") {
                    roles.extend(snapshot(segment));
                    continue;
                }
                for used in references(segment, &names).filter(|used| used != name) {
                    part_of.entry(used.to_string()).or_insert_with(|| (*name).to_string());
                }
            }
        }
        let mut all = Vec::new();
        for (name, section) in volumes {
            // Only the link between an origin and its snapshot.
            if segments(section).any(|segment| segment.text("type") == Some("snapshot")) {
                continue;
            }
            let (sectors, mapping) = self.mapping(section, &names);
            let mapping = match roles.get(*name) {
                Some(role) => Err(role.clone()),
                None => mapping,
            };
            // LVM shows a snapshot in place of its link, which alone is marked so.
            let is_snapshot = matches!(roles.get(*name), Some(Unserved::Snapshot { .. }));
            let is_visible = is_snapshot || has(section, "status", "VISIBLE");
            all.push(LogicalVolume {
                name: (*name).to_string(),
                uuid: uuid(name, section)?,
                sectors,
                is_visible,
                part_of: part_of.get(*name).filter(|_| !is_visible).cloned(),
                mapping,
            });
        }
        Ok(all)
    }

    /// The size that the segments give, and what they map.
    fn mapping(
        &self,
        section: &Section<'_>,
        names: &HashSet<&str>,
    ) -> (u64, Result<Mapping, Unserved>) {
        let mut read = Vec::new();
        for segment in segments(section) {
            match self.range(segment) {
                Ok(range) => read.push((range, segment)),
                Err(problem) => return (0, Err(Unserved::Segments(problem))),
            }
        }
        read.sort_by_key(|(range, _)| range.start);
        let end = read.last().map_or(0, |(range, _)| range.end);
        let mut at = 0;
        for (range, _) in &read {
            if range.start != at {
                return (end, Err(Unserved::Segments("its segments overlap, or leave gaps")));
            }
            at = range.end;
        }
        if read.is_empty() {
            return (0, Err(Unserved::Segments("it has no segments")));
        }
        let mapped = read.into_iter().map(|(range, segment)| self.segment(range, segment, names));
        (end, mapped.collect::<Result<_, _>>().map(Mapping::new))
    }

    /// The sectors of a segment.
    fn range(&self, segment: &Section<'_>) -> Result<std::ops::Range<u64>, &'static str> {
        let number = |field| segment.number(field);
        let (Some(start), Some(count)) = (number("start_extent"), number("extent_count")) else {
            return Err("a segment has no start or no length");
        };
        let sector = |extent: u64| extent.checked_mul(self.extent_sectors);
        let end = start.checked_add(count).and_then(sector);
        match (sector(start), end) {
            (Some(start), Some(end)) if start < end => Ok(start..end),
            (Some(_), Some(_)) => Err("a segment is empty"),
            _ => Err("a segment ends beyond 2^64 sectors"),
        }
    }

    fn segment(
        &self,
        sectors: std::ops::Range<u64>,
        segment: &Section<'_>,
        names: &HashSet<&str>,
    ) -> Result<Segment, Unserved> {
        let wrong = |problem| Err(Unserved::Segments(problem));
        let name = segment.text("type").unwrap_or_default();
        if name != "striped" && name != "linear" {
            let mut of: Vec<String> = references(segment, names).map(ToString::to_string).collect();
            of.dedup();
            return Err(Unserved::Type { name: name.to_string(), of });
        }
        let stripes = segment.list("stripes");
        let count = stripes.len() as u64 / 2;
        if count == 0
            || !stripes.len().is_multiple_of(2)
            || segment.number("stripe_count") != Some(count)
        {
            return wrong("the number of stripes is not that of their places");
        }
        let stripe_sectors = segment.number("stripe_size").unwrap_or(0);
        let all = sectors.end - sectors.start;
        let length = all / count;
        if !all.is_multiple_of(count) || !length.is_multiple_of(self.extent_sectors) {
            return wrong("its stripes are not of one length");
        }
        if count > 1 && (stripe_sectors == 0 || !length.is_multiple_of(stripe_sectors)) {
            return wrong("its stripe size is missing, or does not divide the stripes");
        }
        let areas = stripes.chunks_exact(2).map(|pair| match pair {
            [Value::Text(on), Value::Number(extent)] => self.area(on, *extent, length, names),
            _ => Err(Unserved::Segments("a stripe has no place")),
        });
        Ok(Segment { sectors, stripe_sectors, areas: areas.collect::<Result<_, _>>()? })
    }

    fn area(
        &self,
        on: &str,
        extent: u64,
        length: u64,
        names: &HashSet<&str>,
    ) -> Result<Area, Unserved> {
        let Some(&physical) = self.keys.get(on) else {
            return match names.contains(on) {
                true => Err(Unserved::OnVolume { name: on.to_string() }),
                false => Err(Unserved::Segments("a stripe is on no physical volume of the group")),
            };
        };
        let volume = &self.physical[physical];
        let beyond = Unserved::Segments("a stripe ends beyond its physical volume");
        let end = extent.checked_add(length / self.extent_sectors);
        if end.is_none_or(|end| end > volume.extents) {
            return Err(beyond);
        }
        let sector = extent.checked_mul(self.extent_sectors);
        let sector = sector.and_then(|sector| sector.checked_add(volume.first_sector));
        let sector = sector.filter(|sector| sector.checked_add(length).is_some()).ok_or(beyond)?;
        Ok(Area { physical, sector })
    }
}

/// The segments of a volume, whatever its `segment_count` is.
fn segments<'s, 't>(volume: &'s Section<'t>) -> impl Iterator<Item = &'s Section<'t>> {
    volume.sections().filter(|(name, _)| name.starts_with("segment")).map(|(_, section)| section)
}

/// The volumes of the group that a segment names.
fn references<'s>(
    segment: &'s Section<'_>,
    names: &'s HashSet<&str>,
) -> impl Iterator<Item = &'s str> {
    // These are words of LVM or of the administrator.
    let is_word = |key: &str| ["type", "tags"].contains(&key) || key.starts_with("cache_");
    let entries =
        segment.entries.iter().filter(move |(key, _)| !is_word(key) || *key == "cache_pool");
    let values = entries.flat_map(|(key, _)| segment.list(key));
    values.filter_map(|value| match value {
        Value::Text(text) if names.contains(text.as_ref()) => Some(text.as_ref()),
        _ => None,
    })
}

/// What the link of a snapshot says of the two volumes.
fn snapshot(segment: &Section<'_>) -> Vec<(String, Unserved)> {
    let text = |field| segment.text(field).map(ToString::to_string);
    let Some(origin) = text("origin") else { return Vec::new() };
    if let Some(store) = text("merging_store") {
        let merging = Unserved::Merging { snapshot: store.clone() };
        return vec![(origin.clone(), merging), (store, Unserved::Snapshot { origin })];
    }
    text("cow_store").map(|store| (store, Unserved::Snapshot { origin })).into_iter().collect()
}

/// Takes the mapping from volumes that share extents: at most one of them can be right.
fn refuse_shared(logical: &mut [LogicalVolume]) {
    let mut areas: Vec<(usize, u64, u64, usize)> = Vec::new();
    for (index, volume) in logical.iter().enumerate() {
        for (physical, range) in volume.mapping.iter().flat_map(Mapping::areas) {
            areas.push((physical, range.start, range.end, index));
        }
    }
    areas.sort_unstable();
    let mut shared: Vec<(usize, usize)> = Vec::new();
    let mut widest: Option<(usize, u64, usize)> = None;
    for (physical, start, end, index) in areas {
        match widest {
            Some((on, until, other)) if on == physical && start < until => {
                shared.extend([(index, other), (other, index)]);
                if end > until {
                    widest = Some((physical, end, index));
                }
            }
            _ => widest = Some((physical, end, index)),
        }
    }
    for (index, other) in shared {
        let with = logical[other].name.clone();
        logical[index].mapping = Err(Unserved::Shared { with });
    }
}
