//! `docs/format` against the code: every table of fields there says what the constants say.
//!
//! A table that is checked has a marker on a line of its own before it:
//!
//! - `<!-- fields: ID -->`: columns offset, size, name, and anything after them. The rows are
//!   compared with the structure of that id in `STRUCTURES` below; together they cover the
//!   structure without gap or overlap.
//! - `<!-- values: ID -->`: columns value, name, and anything after them, compared with `VALUES`.
//!
//! Both ways: a marker without an entry below fails, and so does an entry without its table. To add
//! a structure, add its line to `STRUCTURES` and its table to a page.

use std::collections::BTreeMap;
use std::path::Path;

use md::ondisk::{Field, bitmap, journal, ppl, superblock};

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
            assert!(["fields", "values"].contains(&table.kind.as_str()), "{}", table.place());
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
}
