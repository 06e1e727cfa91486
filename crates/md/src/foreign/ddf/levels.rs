//! DDF's levels in md's terms.
//!
//! Invariant: a level is mapped only where md's mapping of it is the same; all others are named.

use super::sections::Config;
use crate::foreign::Unusable;
use crate::foreign::volume::Shape;
use crate::level::Level;

/// A level with its qualifier, in words.
pub fn level_name(config: &Config) -> String {
    let primary = match (config.level, config.qualifier) {
        (0x00, _) => "RAID 0".to_string(),
        (0x01, _) => "RAID 1".into(),
        (0x03, _) => "RAID 3".into(),
        (0x04, 0) => "RAID 4, parity first".into(),
        (0x04, _) => "RAID 4, parity last".into(),
        (0x05, 0) => "RAID 5, rotating from the first, data restart".into(),
        (0x05, 2) => "RAID 5, rotating from the last, data restart".into(),
        (0x05, 3) => "RAID 5, rotating from the last, data continue".into(),
        (0x05, other) => format!("RAID 5, qualifier {other}"),
        (0x06, 1) => "RAID 6, rotating from the first, data restart".into(),
        (0x06, 2) => "RAID 6, rotating from the last, data restart".into(),
        (0x06, 3) => "RAID 6, rotating from the last, data continue".into(),
        (0x06, other) => format!("RAID 6, qualifier {other}"),
        (0x07, _) => "MDF RAID".into(),
        (0x0f, _) => "a single disk".into(),
        (0x11, 0) => "RAID 1E, adjacent".into(),
        (0x11, 1) => "RAID 1E, offset".into(),
        (0x11, other) => format!("RAID 1E, qualifier {other}"),
        (0x15, _) => "RAID 5E".into(),
        (0x1f, _) => "concatenated disks".into(),
        (0x25, _) => "RAID 5EE".into(),
        (level, qualifier) => format!("level {level:#04x}, qualifier {qualifier}"),
    };
    if config.secondary_elements <= 1 {
        return primary;
    }
    let count = config.secondary_elements;
    let secondary = match config.secondary_level {
        0 => "striped",
        1 => "mirrored",
        2 => "concatenated",
        3 => "spanned",
        _ => "joined in an unknown way",
    };
    format!("{count} x ({primary}), {secondary}")
}

/// A virtual disk's geometry, or a sentence why it has none here.
pub(super) fn shape(config: &Config, name: &str) -> Result<Shape, Unusable> {
    let members = config.elements.len() as u64;
    let joined = config.secondary_elements.max(1);
    let refuse = |why: &str| {
        let sentence = format!("Volume '{name}' is {}, which {why}.", level_name(config));
        Err(Unusable::Volume(sentence))
    };
    if !matches!(config.block_size, 0 | 512 | 0xffff) {
        return refuse("has blocks of another size than 512 bytes");
    }
    // Numbers of levels and layouts are md's.
    let (level, layout, data) = match (config.level, config.qualifier) {
        // Striped or spanned over mirrors: md's near copies. Both are the same while all mirrors
        // have one size, and this format gives them one.
        (0x01, 0 | 1) if joined > 1 && matches!(config.secondary_level, 0 | 3) && members > 0 => {
            (10, 0x100 | members as u32, u64::from(joined))
        }
        _ if joined > 1 => return refuse("is not mapped here"),
        (0x00, 0) => (0, 0, members),
        (0x01, 0 | 1) => (1, 0, 1),
        (0x04, 0) => (5, 4, members.saturating_sub(1)),
        (0x04, 1) => (4, 0, members.saturating_sub(1)),
        (0x05, 0) => (5, 1, members.saturating_sub(1)),
        (0x05, 2) => (5, 0, members.saturating_sub(1)),
        (0x05, 3) => (5, 2, members.saturating_sub(1)),
        (0x06, 1) => (6, 8, members.saturating_sub(2)),
        (0x06, 2) => (6, 9, members.saturating_sub(2)),
        (0x06, 3) => (6, 10, members.saturating_sub(2)),
        (0x11, 0) => (10, 0x102, 0),
        _ => return refuse("is not mapped here"),
    };
    let chunk = if level == Level::Raid1.number() {
        0
    } else {
        match 1_u32.checked_shl(config.strip_shift.into()) {
            Some(chunk) => chunk,
            None => return refuse("has no chunk that makes sense"),
        }
    };
    let each = if chunk == 0 {
        config.blocks
    } else {
        config.blocks / u64::from(chunk) * u64::from(chunk)
    };
    let holds = match data {
        // Two copies of everything, over all members.
        0 => each.saturating_mul(members) / 2,
        data => each.saturating_mul(data),
    };
    if config.array_blocks > holds {
        return Err(Unusable::Volume(format!(
            "Volume '{name}' has {} sectors, more than the {each} on each of its disks hold.",
            config.array_blocks
        )));
    }
    Ok(Shape { level, layout, chunk_sectors: chunk, component_sectors: each })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(level: u8, qualifier: u8, secondary: Option<(u8, u8)>) -> Config {
        Config {
            guid: [7; 24],
            timestamp: 0,
            sequence: 1,
            strip_shift: 7,
            level,
            qualifier,
            secondary_elements: secondary.map_or(1, |(count, _)| count),
            secondary_number: 0,
            secondary_level: secondary.map_or(255, |(_, level)| level),
            blocks: 4100,
            array_blocks: 4096,
            block_size: 0xffff,
            elements: vec![(1, 0), (2, 0), (3, 0), (4, 0)],
        }
    }

    #[test]
    fn levels_that_md_maps_otherwise_are_refused_by_name() {
        for (level, qualifier, secondary, name) in [
            (0x03, 0, None, "RAID 3"),
            (0x05, 1, None, "RAID 5, qualifier 1"),
            (0x06, 4, None, "RAID 6, qualifier 4"),
            (0x07, 0, None, "MDF RAID"),
            (0x0f, 0, None, "a single disk"),
            (0x11, 1, None, "RAID 1E, offset"),
            (0x15, 0, None, "RAID 5E"),
            (0x1f, 0, None, "concatenated disks"),
            (0x25, 0, None, "RAID 5EE"),
            (0x05, 3, Some((2, 0)), "2 x (RAID 5, rotating from the last, data continue), striped"),
            (0x01, 0, Some((2, 1)), "2 x (RAID 1), mirrored"),
            (0x01, 0, Some((2, 2)), "2 x (RAID 1), concatenated"),
            (0x99, 3, None, "level 0x99, qualifier 3"),
        ] {
            let error = shape(&config(level, qualifier, secondary), "data").expect_err(name);
            let error = error.to_string();
            assert_eq!(error, format!("Volume 'data' is {name}, which is not mapped here."));
        }
    }

    #[test]
    fn chunks_are_whole_and_the_volume_fits() {
        let shape_of =
            |level, array_blocks| shape(&Config { array_blocks, ..config(level, 0, None) }, "data");
        let raid0 = shape_of(0, 4 * 4096).expect("it fits");
        assert_eq!((raid0.chunk_sectors, raid0.component_sectors), (128, 4096));
        let error = shape_of(0, 4 * 4096 + 1).expect_err("it does not").to_string();
        assert!(error.contains("more than the 4096"), "{error}");
        assert_eq!(shape_of(1, 4100).expect("it fits").component_sectors, 4100);
        let large = Config { strip_shift: 40, ..config(0, 0, None) };
        assert!(shape(&large, "data").is_err());
        let blocks = Config { block_size: 4096, ..config(0, 0, None) };
        let error = shape(&blocks, "data").expect_err("blocks").to_string();
        assert!(error.contains("another size than 512"));
    }
}
