//! Tests of the crate from outside.

mod fio_jobs;
