//! Records as CSV and as Parquet: one row per cell, the same columns in both.
//!
//! Invariant: only columns documented as rounded are rounded; an unknown value is empty, never 0.

use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::columns::{Column, columns};
use crate::record::{Cell, Record};
use crate::value::Value;

/// One row per cell of all records, a heading first (RFC 4180, lines end with a newline).
pub fn csv(records: &[Record]) -> String {
    let line = |fields: Vec<String>| fields.join(",") + "\n";
    let mut out = line(columns().iter().map(|column| column.name.to_string()).collect());
    for (record, cell) in rows(records) {
        let fields = columns().iter().map(|column| match column.value(record, cell) {
            Value::Text(text) => quoted(&text.unwrap_or_default()),
            Value::Whole(number) => number.map_or(String::new(), |number| number.to_string()),
            Value::Number(number) => number.map_or(String::new(), |number| number.to_string()),
            Value::Flag(flag) => flag.map_or(String::new(), |flag| flag.to_string()),
        });
        out.push_str(&line(fields.collect()));
    }
    out
}

fn rows(records: &[Record]) -> impl Iterator<Item = (&Record, &Cell)> {
    records.iter().flat_map(|record| record.cells.iter().map(move |cell| (record, cell)))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

/// The same rows as a Parquet file: one row group, every column optional, without compression.
///
/// # Errors
/// An error of the Parquet writer; none is known for a buffer in memory.
pub fn parquet(records: &[Record]) -> Result<Vec<u8>, ParquetError> {
    parquet_with(records, Vec::new())
}

/// The same with facts beside the rows, by name, in the file's metadata.
pub(crate) fn parquet_with(
    records: &[Record],
    facts: Vec<(String, String)>,
) -> Result<Vec<u8>, ParquetError> {
    let rows: Vec<(&Record, &Cell)> = rows(records).collect();
    let fields = columns().iter().map(|column| field(column.name, &column.kind()).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("cells").with_fields(fields).build()?;
    let mut out = Vec::new();
    let facts = facts.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect::<Vec<_>>();
    let facts = (!facts.is_empty()).then_some(facts);
    let properties = WriterProperties::builder().set_key_value_metadata(facts).build();
    let properties = Arc::new(properties);
    let mut file = SerializedFileWriter::new(&mut out, Arc::new(schema), properties)?;
    let mut group = file.next_row_group()?;
    for column in columns() {
        let mut writer = group.next_column()?.expect("the schema has as many columns");
        write_column(column, &rows, &mut writer)?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(out)
}

fn field(name: &str, kind: &Value<'_>) -> Result<Type, ParquetError> {
    let (physical, converted) = match kind {
        Value::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        Value::Whole(_) => (Physical::INT64, ConvertedType::NONE),
        Value::Number(_) => (Physical::DOUBLE, ConvertedType::NONE),
        Value::Flag(_) => (Physical::BOOLEAN, ConvertedType::NONE),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(converted)
        .build()
}

/// The known values, and for each row whether it has one (definition level 1) or not (0).
fn write_column(
    column: &Column,
    rows: &[(&Record, &Cell)],
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    let (mut texts, mut wholes, mut numbers, mut flags) = (vec![], vec![], vec![], vec![]);
    let mut levels = Vec::with_capacity(rows.len());
    for (record, cell) in rows {
        let there = match column.value(record, cell) {
            Value::Text(value) => {
                value.map(|v| texts.push(ByteArray::from(v.into_owned().into_bytes())))
            }
            Value::Whole(value) => value.map(|v| wholes.push(v)),
            Value::Number(value) => value.map(|v| numbers.push(v)),
            Value::Flag(value) => value.map(|v| flags.push(v)),
        };
        levels.push(i16::from(there.is_some()));
    }
    let levels = Some(&levels[..]);
    let written = match column.kind() {
        Value::Text(_) => writer.typed::<ByteArrayType>().write_batch(&texts, levels, None),
        Value::Whole(_) => writer.typed::<Int64Type>().write_batch(&wholes, levels, None),
        Value::Number(_) => writer.typed::<DoubleType>().write_batch(&numbers, levels, None),
        Value::Flag(_) => writer.typed::<BoolType>().write_batch(&flags, levels, None),
    };
    written.map(|_| ())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::fixture;

    #[test]
    fn csv_has_a_row_for_each_cell_and_quotes_what_needs_it() {
        let mut record = fixture::record();
        record.cells[1].derived.warnings = vec!["say \"no\", twice".into()];
        let text = csv(&[record.clone(), record.clone()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * record.cells.len());
        assert!(lines[0].starts_with("started,raidlab,host,kernel,cpu,target,place,level,"));
        assert!(lines[1].starts_with("2009-02-13T23:31:30Z,"), "{}", lines[1]);
        assert!(lines[2].contains(",\"say \"\"no\"\", twice\","), "{}", lines[2]);
        assert!(
            lines[1].contains(",single,,,1,0,paced:hdd-2007,"),
            "unknown is empty: {}",
            lines[1]
        );
    }

    #[test]
    fn phases_of_programs_are_rows_and_what_did_not_apply_is_empty() {
        let mut record = fixture::record();
        record.cells.truncate(2);
        for (cell, phase) in record.cells.iter_mut().zip(["put-block", "putc"]) {
            (cell.case.program, cell.case.phase) = (Some("bonnie++".into()), Some(phase.into()));
        }
        let nothing = &mut record.cells[1];
        (nothing.derived.mb_per_s, nothing.derived.iops, nothing.measured.samples) =
            (0.0, 0.0, Vec::new());
        let text = csv(std::slice::from_ref(&record));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let at = |name: &str| lines[0].iter().position(|head| *head == name).expect(name);
        let of = |row: usize, name: &str| lines[row][at(name)];
        assert_eq!((of(1, "phase"), of(2, "phase")), ("put-block", "putc"));
        assert!(of(1, "mb_per_s").parse::<f64>().expect("a number") > 0.0);
        assert_eq!((of(2, "mb_per_s"), of(2, "iops")), ("", ""));
    }

    #[test]
    fn parquet_reads_back_value_by_value() {
        let mut record = fixture::record();
        record.cells[0].case.chunk_kib = None;
        record.cells[0].derived.steady = None;
        let bytes = parquet(std::slice::from_ref(&record)).expect("a file");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("Parquet");
        let rows: Vec<_> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), record.cells.len());
        let at = |name: &str| columns().iter().position(|column| column.name == name).expect(name);
        for (row, cell) in rows.iter().zip(&record.cells) {
            assert_eq!(row.get_string(at("level")).expect("a text"), &cell.case.level.text());
            assert_eq!(row.get_long(at("disks")).expect("a count"), i64::from(cell.case.disks));
            assert_eq!(row.get_double(at("mb_per_s")).expect("a number"), cell.derived.mb_per_s);
            assert!(row.get_bool(at("verified")).expect("a flag"));
            let chunk = row.get_long(at("chunk_kib")).ok();
            assert_eq!(chunk, cell.case.chunk_kib.map(|chunk| chunk as i64));
        }
        assert!(parquet(&[]).expect("no cells are a file too").starts_with(b"PAR1"));
    }

    #[test]
    fn words_that_are_not_ours_are_exported_as_they_were_written() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.case.target, cell.case.level) = ("zfs".into(), "raidz2".into());
        (cell.case.layout, cell.case.workload) = (Some("LS".into()), "rand-append".into());
        let text = csv(std::slice::from_ref(&record));
        let row = text.lines().nth(1).expect("a row");
        assert!(row.contains(",zfs,,raidz2,LS,,") && row.contains(",rand-append,"), "{row}");
        let bytes = parquet(std::slice::from_ref(&record)).expect("a file");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("Parquet");
        let row = reader.get_row_iter(None).expect("rows").next().expect("one").expect("a row");
        let at = |name: &str| columns().iter().position(|column| column.name == name).expect(name);
        for (name, wanted) in
            [("target", "zfs"), ("level", "raidz2"), ("layout", "LS"), ("workload", "rand-append")]
        {
            assert_eq!(row.get_string(at(name)).expect("a text"), wanted, "{name}");
        }
    }
}
