//! A record in a Parquet file: the rows of [`crate::parquet`], and the record itself beside them.
//!
//! ```text
//!   item.parquet = rows, one for each cell (pandas, pyarrow) + "raidlab.record": the record, JSON
//! ```
//! A data set is a directory of such files, one for each item: the rows of all of them are a table,
//! and reports read the records, of which the rows have only a part.
//!
//! Invariant: what is read is what was written, field by field. A file is untrusted input: its size
//! is limited by the caller, and a file without a record is an error.

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use thiserror::Error;

use crate::export::parquet_with;
use crate::record::Record;

/// Key of the record in the file's metadata.
const KEY: &str = "raidlab.record";

/// Why a Parquet file has no record.
#[derive(Debug, Error)]
pub enum RecordFileError {
    /// It is no Parquet file.
    #[error("not a Parquet file: {0}")]
    Parquet(#[from] ParquetError),
    /// It is one of other software, or of `report --parquet`, which has rows only.
    #[error("a Parquet file without a record: it is not of a data set of `sweep`")]
    NoRecord,
    /// The record in it cannot be read.
    #[error("the record in it: {0}")]
    Record(#[from] serde_json::Error),
}

/// A record as a file of a data set.
///
/// # Errors
/// An error of the Parquet writer; none is known for a buffer in memory.
pub fn parquet_of_record(record: &Record) -> Result<Vec<u8>, ParquetError> {
    let text = serde_json::to_string(record).expect("a record is plain data");
    parquet_with(std::slice::from_ref(record), vec![(KEY.to_string(), text)])
}

/// The record in a file of a data set.
///
/// # Errors
/// [`RecordFileError`].
pub fn record_of_parquet(bytes: Vec<u8>) -> Result<Record, RecordFileError> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes))?;
    let facts = reader.metadata().file_metadata().key_value_metadata();
    let text = facts.into_iter().flatten().find(|fact| fact.key == KEY);
    let text = text.and_then(|fact| fact.value.as_ref()).ok_or(RecordFileError::NoRecord)?;
    Ok(Record::from_json(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_record_is_read_back_and_anything_else_is_refused() {
        let record = fixture::record();
        let bytes = parquet_of_record(&record).expect("a buffer");
        assert_eq!(record_of_parquet(bytes.clone()).expect("a record"), record);
        let rows_only = crate::parquet(std::slice::from_ref(&record)).expect("a buffer");
        let refused = |bytes: Vec<u8>| record_of_parquet(bytes).expect_err("refused").to_string();
        assert!(refused(rows_only).contains("without a record"));
        assert!(refused(b"PAR1 and no more".to_vec()).contains("not a Parquet file"));
        for cut in [0, 4, bytes.len() / 2, bytes.len() - 1] {
            assert!(refused(bytes[..cut].to_vec()).contains("not a Parquet file"), "{cut}");
        }
    }
}
