//! `docs/format` against the code: every table of fields there says what the constants say.
//!
//! A table that is checked has a marker on a line of its own before it:
//!
//! - `<!-- fields: ID -->`: columns offset, size, name, and anything after them. The rows are
//!   compared with the structure of that id in `STRUCTURES` below; together they cover the
//!   structure without gap or overlap.
//! - `<!-- values: ID -->`: columns value, name, and anything after them, compared with `VALUES`.
//! - `<!-- computed: ID -->`: the first cells of every row are what the function of that id in
//!   `COMPUTED` gives. A failure prints the rows as they should be.
//!
//! Both ways: a marker without an entry below fails, and so does an entry without its table. To add
//! a structure, add its line to `STRUCTURES` and its table to a page.

use std::collections::BTreeMap;
use std::path::Path;

use raidlab_md::create::{BitmapOption, Device, Request, plan};
use raidlab_md::foreign::{ddf, imsm};
use raidlab_md::geometry::{Geometry, GeometrySpec, Kind, Parity};
use raidlab_md::ondisk::superblock::Policy;
use raidlab_md::ondisk::{
    Area, Field, Timestamp, Uuid, Version, bitmap, journal, ppl, reshape_backup, superblock,
};
use raidlab_md::{Layout, Level, MemberIdx, Raid5Layout, Raid6Layout, RowRole, Sector, StripeNo};

struct Structure {
    id: &'static str,
    fields: &'static [Field],
    /// Where the last field ends.
    bytes: usize,
}

const STRUCTURES: &[Structure] = &[
    Structure {
        id: "superblock-1",
        fields: superblock::V1_FIELDS,
        bytes: superblock::V1_HEADER_BYTES,
    },
    Structure { id: "superblock-0.90", fields: superblock::V0_FIELDS, bytes: superblock::V0_BYTES },
    Structure { id: "superblock-0.90-disk", fields: superblock::V0_DISK_FIELDS, bytes: 128 },
    Structure { id: "bitmap", fields: bitmap::BITMAP_FIELDS, bytes: bitmap::HEADER_BYTES },
    Structure { id: "ppl-header", fields: ppl::PPL_HEADER_FIELDS, bytes: ppl::PPL_HEADER_BYTES },
    Structure { id: "ppl-entry", fields: ppl::PPL_ENTRY_FIELDS, bytes: 24 },
    Structure {
        id: "journal-meta-block",
        fields: journal::META_BLOCK_FIELDS,
        bytes: journal::BLOCK_BYTES,
    },
    Structure { id: "journal-payload", fields: journal::PAYLOAD_FIELDS, bytes: 16 },
    Structure {
        id: "reshape-backup",
        fields: reshape_backup::BACKUP_FIELDS,
        bytes: reshape_backup::BACKUP_HEADER_BYTES,
    },
    Structure { id: "imsm", fields: imsm::FIELDS, bytes: imsm::HEADER_BYTES },
    Structure { id: "imsm-disk", fields: imsm::DISK_FIELDS, bytes: 48 },
    Structure { id: "imsm-volume", fields: imsm::VOLUME_FIELDS, bytes: 112 },
    Structure { id: "imsm-map", fields: imsm::MAP_FIELDS, bytes: 48 },
    Structure { id: "ddf-header", fields: ddf::HEADER_FIELDS, bytes: ddf::HEADER_BYTES },
    Structure { id: "ddf-section", fields: ddf::SECTION_FIELDS, bytes: 64 },
    Structure { id: "ddf-disk", fields: ddf::DISK_FIELDS, bytes: 64 },
    Structure { id: "ddf-virtual", fields: ddf::VIRTUAL_FIELDS, bytes: 64 },
    Structure { id: "ddf-config", fields: ddf::CONFIG_FIELDS, bytes: ddf::CONFIG_BYTES },
    Structure { id: "ddf-own", fields: ddf::OWN_FIELDS, bytes: 512 },
];

/// Named numbers: feature bits, state bits, special roles.
const VALUES: &[(&str, &[(&str, u64)])] = &[
    ("superblock-1-features", superblock::V1_FEATURES),
    ("superblock-1-roles", superblock::V1_ROLES),
    ("superblock-0.90-states", superblock::V0_STATES),
    ("superblock-0.90-disk-states", superblock::V0_DISK_STATES),
    ("bitmap-versions", bitmap::BITMAP_VERSIONS),
    ("bitmap-states", bitmap::BITMAP_STATES),
    ("journal-payload-types", journal::PAYLOAD_TYPES),
    ("imsm-disk-states", imsm::DISK_STATES),
    ("imsm-map-states", imsm::MAP_STATES),
    ("imsm-migrations", imsm::MIGRATIONS),
    ("ddf-magics", ddf::MAGICS),
    ("ddf-disk-states", ddf::DISK_STATES),
    ("ddf-virtual-states", ddf::VIRTUAL_STATES),
];

/// Worked examples: a row is its cells, with ` | ` between them.
type Computed = (&'static str, fn() -> Vec<String>);

const COMPUTED: &[Computed] = &[
    ("raid0-chunks", raid0_chunks),
    ("raid5-rows", raid5_rows),
    ("raid6-rows", raid6_rows),
    ("raid6-exponents", raid6_exponents),
    ("raid10-rows", raid10_rows),
    ("raid10-sizes", raid10_sizes),
    ("superblock-sectors", superblock_sectors),
    ("data-offsets", data_offsets),
    ("places", places),
];

/// A table with its marker.
#[derive(Debug)]
struct Table {
    page: String,
    /// Line of the page where the marker is, from 1.
    line: usize,
    kind: String,
    id: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn place(&self) -> String {
        format!("{}:{} ({} {})", self.page, self.line, self.kind, self.id)
    }
}

/// The marked tables of a page.
fn tables_of(page: &str, text: &str) -> Vec<Table> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut tables = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let marker = line.strip_prefix("<!--").and_then(|line| line.strip_suffix("-->"));
        let Some((kind, id)) = marker.and_then(|marker| marker.trim().split_once(": ")) else {
            continue;
        };
        let rows = lines[index + 1..]
            .iter()
            .skip_while(|line| line.is_empty())
            .take_while(|line| line.starts_with('|'))
            // The head and the rule under it.
            .skip(2)
            .map(|line| {
                let cells = line.trim_matches('|').split('|');
                cells.map(|cell| cell.trim().trim_matches('`').to_string()).collect()
            })
            .collect();
        tables.push(Table {
            page: page.to_string(),
            line: index + 1,
            kind: kind.to_string(),
            id: id.to_string(),
            rows,
        });
    }
    tables
}

fn pages() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format");
    let mut pages: Vec<(String, String)> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    pages.sort();
    assert!(!pages.is_empty(), "no pages in docs/format");
    pages
}

/// The marked tables of one kind, by id.
fn tables(kind: &str) -> BTreeMap<String, Table> {
    let mut tables = BTreeMap::new();
    for (page, text) in pages() {
        for table in tables_of(&page, &text) {
            let kinds = ["fields", "values", "computed"];
            assert!(kinds.contains(&table.kind.as_str()), "{}", table.place());
            if table.kind == kind {
                let place = table.place();
                assert!(tables.insert(table.id.clone(), table).is_none(), "{place}: a second one");
            }
        }
    }
    tables
}

/// Decimal, hexadecimal with 0x, or a power written `2^n`.
fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    match text.split_once('^') {
        Some((base, power)) => base.parse::<u64>().ok()?.checked_pow(power.parse().ok()?),
        None => text.parse().ok(),
    }
}

/// The problem with a table of fields, if there is one.
fn compare_fields(table: &Table, fields: &[Field]) -> Result<(), String> {
    let place = table.place();
    if table.rows.len() != fields.len() {
        return Err(format!("{place}: {} rows, {} fields", table.rows.len(), fields.len()));
    }
    for (row, field) in table.rows.iter().zip(fields) {
        let documented = (number(&row[0]), number(&row[1]), row[2].as_str());
        let meant = (Some(field.offset as u64), Some(field.size as u64), field.name);
        if documented != meant {
            return Err(format!("{place}: the page says {documented:?}, the code {meant:?}"));
        }
    }
    Ok(())
}

fn compare_values(table: &Table, values: &[(&str, u64)]) -> Result<(), String> {
    let documented: Vec<(&str, Option<u64>)> =
        table.rows.iter().map(|row| (row[1].as_str(), number(&row[0]))).collect();
    let meant: Vec<(&str, Option<u64>)> =
        values.iter().map(|&(name, value)| (name, Some(value))).collect();
    match documented == meant {
        true => Ok(()),
        false => {
            Err(format!("{}: the page says {documented:?}, the code {meant:?}", table.place()))
        }
    }
}

fn compare_computed(table: &Table, computed: &[String]) -> Result<(), String> {
    let begins = |row: &Vec<String>, line: &String| {
        let cells: Vec<&str> = line.split(" | ").collect();
        cells.len() <= row.len() && cells.iter().zip(row).all(|(cell, given)| cell == given)
    };
    let rows = &table.rows;
    if rows.len() == computed.len()
        && rows.iter().zip(computed).all(|(row, line)| begins(row, line))
    {
        return Ok(());
    }
    let lines = computed.iter().map(|line| format!("\n| {line} |"));
    Err(format!("{}: the code computes{}", table.place(), lines.collect::<String>()))
}

fn geometry(level: Level, layout: Layout, chunk_sectors: u64, sizes: &[u64]) -> Geometry {
    let member_sectors = sizes.to_vec();
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors }).unwrap()
}

fn joined(cells: impl IntoIterator<Item = impl ToString>, between: &str) -> String {
    cells.into_iter().map(|cell| cell.to_string()).collect::<Vec<_>>().join(between)
}

/// Chunks of both layouts by member row; members of 2, 5, 4 and 3 chunks.
fn raid0_chunks() -> Vec<String> {
    let mut rows = vec![vec!["-".to_string(); 8]; 5];
    for number in [1, 2] {
        let layout = Layout::from_number(Level::Raid0, number).unwrap();
        let geometry = geometry(Level::Raid0, layout, 8, &[16, 40, 32, 24]);
        let Kind::Striped(striped) = geometry.kind() else { panic!() };
        for chunk in 0..geometry.array_sectors() / 8 {
            let place = striped.locate(Sector(chunk * 8));
            let column = place.member.index() + if number == 1 { 0 } else { 4 };
            rows[place.sector.0 as usize / 8][column] = chunk.to_string();
        }
    }
    rows.iter()
        .enumerate()
        .map(|(row, cells)| format!("{row} | {}", joined(cells, " | ")))
        .collect()
}

/// What `text` says of each of `stripes` rows of a layout, behind its number and name.
fn parity_line(
    (level, layout): (Level, Layout),
    (members, stripes): (usize, u64),
    text: fn(&Parity, StripeNo) -> String,
) -> String {
    let geometry = geometry(level, layout, 8, &vec![80; members]);
    let Kind::Parity(parity) = geometry.kind() else { panic!() };
    let rows = (0..stripes).map(|stripe| text(parity, StripeNo(stripe)));
    format!("{} | {layout} | {}", layout.number(), joined(rows, " | "))
}

fn roles(parity: &Parity, stripe: StripeNo) -> String {
    let role = |role: &RowRole| match role {
        RowRole::P => "P".to_string(),
        RowRole::Q => "Q".to_string(),
        RowRole::Data(index) => format!("D{index}"),
    };
    joined(parity.row(stripe).role.iter().map(role), " ")
}

fn raid5_rows() -> Vec<String> {
    let line = |layout| parity_line((Level::Raid5, Layout::Raid5(layout)), (4, 4), roles);
    Raid5Layout::all().map(line).collect()
}

fn raid6_rows() -> Vec<String> {
    let line = |layout| parity_line((Level::Raid6, Layout::Raid6(layout)), (5, 5), roles);
    Raid6Layout::all().map(line).collect()
}

/// Only layouts whose exponents are not the data indices.
fn raid6_exponents() -> Vec<String> {
    let exponents = |parity: &Parity, stripe| joined(&parity.row(stripe).exponent, " ");
    let line = |layout| parity_line((Level::Raid6, Layout::Raid6(layout)), (5, 5), exponents);
    let differs = |line: &String| line.split(" | ").skip(2).any(|cell| cell != "0 1 2");
    Raid6Layout::all().map(line).filter(differs).collect()
}

/// Chunks by member row, members of four chunks.
fn raid10_rows() -> Vec<String> {
    let table = [
        (0x102, 3),
        (0x103, 4),
        (0x201, 4),
        (0x1_0201, 3),
        (0x202, 6),
        (0x4_0201, 5),
        (0x2_0201, 6),
    ];
    let line = |&(number, members): &(i32, usize)| {
        let layout = Layout::from_number(Level::Raid10, number).unwrap();
        let geometry = geometry(Level::Raid10, layout, 8, &vec![32; members]);
        let Kind::Mirrored(mirrored) = geometry.kind() else { panic!() };
        let chunk = |row: u64, member: usize| {
            let at = mirrored.array_sector_of(MemberIdx(member as u16), Sector(row * 8));
            at.map_or("-".to_string(), |at| (at.0 / 8).to_string())
        };
        let rows = (0..4).map(|row| joined((0..members).map(|member| chunk(row, member)), " "));
        format!("{number:#x} | {layout} | {members} | {}", joined(rows, " | "))
    };
    table.iter().map(line).collect()
}

fn raid10_sizes() -> Vec<String> {
    let table = [(0x102, 3, 1024), (0x102, 5, 1024), (0x201, 3, 1024), (0x301, 5, 14336)];
    let line = |&(number, members, size): &(i32, usize, u64)| {
        let layout = Layout::from_number(Level::Raid10, number).unwrap();
        let geometry = geometry(Level::Raid10, layout, 128, &vec![size; members]);
        let (used, array) = (geometry.member_used_sectors(MemberIdx(0)), geometry.array_sectors());
        format!("{layout} | {members} | {size} | {used} | {array}")
    };
    table.iter().map(line).collect()
}

const VERSIONS: [Version; 4] = [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];

fn superblock_sectors() -> Vec<String> {
    let line = |sectors: u64| {
        let place = |version| superblock::location(version, sectors);
        let cells = VERSIONS.map(|version| place(version).map_or("-".into(), |at| at.to_string()));
        format!("{sectors} | {}", joined(cells, " | "))
    };
    [23, 24, 131_072, 131_199, 131_200].map(line).to_vec()
}

fn request(level: Level, version: Version, sizes: &[u64]) -> Request {
    let device = |(number, &sectors): (usize, &u64)| Device {
        label: format!("disk{number}"),
        sectors,
        logical_block: 512,
        uuid: Uuid([number as u8 + 1; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let devices = sizes.iter().enumerate().map(device).collect();
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    let mut request = Request::new(level, devices, Uuid([7; 16]), now);
    request.version = version;
    request.bitmap = BitmapOption::None;
    request
}

/// In MiB and sectors: without chunks, with chunks of 64 KiB and of 512 KiB.
fn data_offsets() -> Vec<String> {
    let line = |mib: u64| {
        let of = |level, chunk| {
            let mut request = request(level, Version::V1_2, &[mib * 2048; 3]);
            request.chunk_sectors = chunk;
            plan(&request).unwrap().places[0].data_offset
        };
        let (none, small) = (of(Level::Raid1, None), of(Level::Raid5, Some(128)));
        format!("{mib} | {none} | {small} | {}", of(Level::Raid5, None))
    };
    [16, 1024, 10 << 10, 100 << 10, 150 << 10, 20 << 20].map(line).to_vec()
}

/// RAID 5 over three devices of 10 GiB, with 512 KiB chunks.
fn places() -> Vec<String> {
    let area = |area: Option<Area>| match area {
        Some(area) => format!("{} + {}", area.sector, area.sectors),
        None => "-".to_string(),
    };
    let mut lines = Vec::new();
    for version in VERSIONS {
        for policy in [Policy::Resync, Policy::Bitmap, Policy::Ppl] {
            let mut request = request(Level::Raid5, version, &[10 << 21; 3]);
            request.policy = Some(policy);
            if policy == Policy::Bitmap {
                request.bitmap = BitmapOption::Internal { chunk_bytes: None };
            }
            // Metadata 0.90 has no partial parity log.
            let Ok(plan) = plan(&request) else { continue };
            let place = &plan.places[0];
            let (name, log) = match policy {
                Policy::Bitmap => ("bitmap", area(place.bitmap)),
                Policy::Ppl => ("PPL", area(place.ppl)),
                _ => ("none", area(None)),
            };
            let (sector, bad) = (place.super_sector, area(place.bad_blocks));
            let (offset, data, used) = (place.data_offset, place.data_sectors, plan.used_sectors);
            lines.push(format!(
                "{version} | {name} | {sector} | {log} | {bad} | {offset} | {data} | {used}"
            ));
        }
    }
    lines
}

#[test]
fn the_pages_give_what_the_code_computes() {
    let mut tables = tables("computed");
    for (id, compute) in COMPUTED {
        let missing = || panic!("no page has 'computed: {id}': {:#?}", compute());
        let table = tables.remove(*id).unwrap_or_else(missing);
        compare_computed(&table, &compute()).unwrap_or_else(|problem| panic!("{problem}"));
    }
    assert!(tables.is_empty(), "tables without an entry in COMPUTED: {:?}", tables.keys());
}

#[test]
fn the_pages_give_the_fields_of_the_code() {
    let mut tables = tables("fields");
    for structure in STRUCTURES {
        let id = structure.id;
        let table = tables.remove(id).unwrap_or_else(|| panic!("no page has 'fields: {id}'"));
        compare_fields(&table, structure.fields).unwrap_or_else(|problem| panic!("{problem}"));
    }
    assert!(tables.is_empty(), "tables without an entry in STRUCTURES: {:?}", tables.keys());
}

#[test]
fn the_pages_give_the_named_values_of_the_code() {
    let mut tables = tables("values");
    for (id, values) in VALUES {
        let table = tables.remove(*id).unwrap_or_else(|| panic!("no page has 'values: {id}'"));
        compare_values(&table, values).unwrap_or_else(|problem| panic!("{problem}"));
    }
    assert!(tables.is_empty(), "tables without an entry in VALUES: {:?}", tables.keys());
}

#[test]
fn fields_cover_their_structure_without_gap_or_overlap() {
    for structure in STRUCTURES {
        let mut end = 0;
        for field in structure.fields {
            assert_eq!(field.offset, end, "{}: {} begins elsewhere", structure.id, field.name);
            end += field.size;
        }
        assert_eq!(end, structure.bytes, "{}: its end", structure.id);
    }
}

#[test]
fn a_page_that_differs_is_noticed() {
    let page = "text\n<!-- fields: thing -->\n\n| off | size | name | |\n|--:|--:|---|---|\n\
                | 0 | 4 | `magic` | x |\n| 4 | 0x8 | events | y |\n\nmore\n";
    let fields =
        [Field { name: "magic", offset: 0, size: 4 }, Field { name: "events", offset: 4, size: 8 }];
    let tables = tables_of("page.md", page);
    assert_eq!((tables.len(), tables[0].line, tables[0].id.as_str()), (1, 2, "thing"));
    assert_eq!(compare_fields(&tables[0], &fields), Ok(()));
    for change in [
        |fields: &mut [Field; 2]| fields[0].name = "magik",
        |fields: &mut [Field; 2]| fields[1].offset = 5,
        |fields: &mut [Field; 2]| fields[1].size = 4,
    ] {
        let mut other = fields;
        change(&mut other);
        assert!(compare_fields(&tables[0], &other).is_err(), "{other:?}");
    }
    assert!(compare_fields(&tables[0], &fields[..1]).is_err());
    let values = tables_of("p", "<!-- values: bits -->\n| v | n |\n|---|---|\n| 0x10 | A |\n");
    assert_eq!(compare_values(&values[0], &[("A", 16)]), Ok(()));
    assert!(compare_values(&values[0], &[("A", 8)]).is_err());
    assert!(compare_values(&values[0], &[("B", 16)]).is_err());
    assert!(compare_values(&values[0], &[]).is_err());
    let rows = tables_of("p", "<!-- computed: c -->\n| a | b | |\n|---|---|---|\n| 1 | 2 | x |\n");
    let row = |text: &str| vec![text.to_string()];
    assert_eq!(compare_computed(&rows[0], &row("1 | 2")), Ok(()));
    for other in [vec![], row("1 | 3"), row("1 | 2 | x | y"), [row("1 | 2"), row("1 | 2")].concat()]
    {
        assert!(compare_computed(&rows[0], &other).is_err(), "{other:?}");
    }
}
