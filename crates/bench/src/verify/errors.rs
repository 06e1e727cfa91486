//! Wrong data and failed requests of a run.

use array::RequestError;

/// Position of data that differs from the written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscompare {
    /// Number of the file; 0 for the area of block workloads.
    pub file: u32,
    /// First wrong byte, as an offset in the file or area.
    pub at: u64,
}

/// Wrong data and failed requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyErrors {
    /// Reads, or units of a file in a check, with wrong data.
    pub wrong_reads: u64,
    /// The first wrong byte.
    pub first_wrong: Option<Miscompare>,
    /// Requests that ended with an error. A program ends with such an error instead.
    pub failed_requests: u64,
    /// The first error.
    pub first_error: Option<RequestError>,
}

impl VerifyErrors {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.wrong_reads == 0 && self.failed_requests == 0
    }

    /// Counts a read with wrong data.
    pub fn wrong(&mut self, position: Miscompare) {
        self.wrong_reads += 1;
        self.first_wrong.get_or_insert(position);
    }

    /// Counts a request that ended with an error.
    pub fn failed(&mut self, error: RequestError) {
        self.failed_requests += 1;
        self.first_error.get_or_insert(error);
    }

    /// Adds the errors of another part of the run.
    pub fn add(&mut self, other: &VerifyErrors) {
        self.wrong_reads += other.wrong_reads;
        self.failed_requests += other.failed_requests;
        self.first_wrong = self.first_wrong.or(other.first_wrong);
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}
