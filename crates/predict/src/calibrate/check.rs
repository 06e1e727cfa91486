//! What figures of a document may be: it is a file, and says anything.
//!
//! Invariant: a figure that passes is within 1e12 and no NaN; rates and times that a prediction
//! divides by are above 0. Called when a document is read.

use thiserror::Error;

use crate::calibrate::figures::{DiskFigures, Figures, ScratchFigures, WiringFigures};

/// A figure that no probe can have found, or a disk that is not among those measured.
#[derive(Debug, Error)]
#[error("{field} = {value}: {problem}")]
pub struct FigureError {
    /// Where it stands, as in `disks[0].random_ms`.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What is required.
    pub problem: &'static str,
}

/// No figure of a machine is larger; what is computed of smaller ones stays finite.
const FIGURE_MAX: f64 = 1e12;
/// Nor smaller, where predictions divide by it.
const FIGURE_MIN: f64 = 1e-12;

/// What a figure may be.
#[derive(Clone, Copy)]
enum Range {
    /// Times and rates.
    Positive,
    /// 0, too: a clock may be too coarse for it, a busy disk may do nothing.
    NotNegative,
    /// A difference of two that may both be a little off.
    Finite,
}

impl Range {
    fn check(self, of: &str, name: &str, value: f64) -> Result<(), FigureError> {
        let (fits, problem) = match self {
            Range::Positive => (value >= FIGURE_MIN, "1e-12 to 1e12 is required"),
            Range::NotNegative => (value >= 0.0, "0 to 1e12 is required"),
            Range::Finite => (true, "a number within 1e12 is required"),
        };
        // NaN is neither.
        match fits && value.abs() < FIGURE_MAX {
            true => Ok(()),
            false => Err(FigureError {
                field: format!("{of}.{name}"),
                value: value.to_string(),
                problem,
            }),
        }
    }

    fn check_all(self, of: &str, all: &[(&str, Option<f64>)]) -> Result<(), FigureError> {
        all.iter()
            .try_for_each(|(name, value)| value.map_or(Ok(()), |value| self.check(of, name, value)))
    }
}

impl Figures {
    /// What a file says may be anything; what probes find is finite, and has a sign.
    pub(crate) fn check(&self) -> Result<(), FigureError> {
        for (number, disk) in self.disks.iter().enumerate() {
            disk.check(&format!("disks[{number}]"))?;
        }
        if let Some(scratch) = &self.scratch {
            scratch.check("scratch")?;
        }
        match &self.wiring {
            Some(wiring) => wiring.check(self.disks.len()),
            None => Ok(()),
        }
    }
}

impl DiskFigures {
    fn check(&self, of: &str) -> Result<(), FigureError> {
        // All fields: a further one does not compile until it is checked.
        let DiskFigures {
            bytes: _,
            rotates: _,
            cached_us,
            cached_long_us,
            outer_mb_per_s,
            middle_mb_per_s,
            inner_mb_per_s,
            backwards_ms,
            near_ms,
            full_ms,
            random_ms,
            random_q4_iops,
            random_q32_iops,
            streams_mb_per_s,
            long_streams_mb_per_s,
            gap_ms,
            cpu_us_per_request,
            cpu_us_per_kib,
        } = *self;
        Range::Positive.check_all(
            of,
            &[
                ("cached_us", cached_us),
                ("cached_long_us", cached_long_us),
                ("outer_mb_per_s", outer_mb_per_s),
                ("middle_mb_per_s", middle_mb_per_s),
                ("inner_mb_per_s", inner_mb_per_s),
                ("backwards_ms", backwards_ms),
                ("near_ms", near_ms),
                ("full_ms", full_ms),
                ("random_ms", random_ms),
                ("random_q4_iops", random_q4_iops),
                ("random_q32_iops", random_q32_iops),
                ("streams_mb_per_s", streams_mb_per_s),
                ("long_streams_mb_per_s", long_streams_mb_per_s),
            ],
        )?;
        Range::NotNegative.check_all(
            of,
            &[("cpu_us_per_request", cpu_us_per_request), ("cpu_us_per_kib", cpu_us_per_kib)],
        )?;
        Range::Finite.check_all(of, &[("gap_ms", gap_ms)])
    }
}

impl ScratchFigures {
    fn check(&self, of: &str) -> Result<(), FigureError> {
        let ScratchFigures {
            write_mb_per_s,
            burst_mb,
            random_write_iops,
            cached_write_us,
            sync_ms,
            rewrite_mb_per_s,
        } = *self;
        Range::NotNegative.check_all(of, &[("burst_mb", burst_mb)])?;
        Range::Positive.check_all(
            of,
            &[
                ("write_mb_per_s", write_mb_per_s),
                ("random_write_iops", random_write_iops),
                ("cached_write_us", cached_write_us),
                ("sync_ms", sync_ms),
                ("rewrite_mb_per_s", rewrite_mb_per_s),
            ],
        )
    }
}

impl WiringFigures {
    fn check(&self, disks: usize) -> Result<(), FigureError> {
        let WiringFigures { together_mb_per_s, buses } = self;
        for (number, rate) in together_mb_per_s.iter().enumerate() {
            let name = format!("together_mb_per_s[{number}]");
            Range::NotNegative.check("wiring", &name, *rate)?;
        }
        for (number, bus) in buses.iter().enumerate() {
            let of = format!("wiring.buses[{number}]");
            Range::Positive.check(&of, "mb_per_s", bus.mb_per_s)?;
            let wrong = |disk: &usize, problem| {
                let (field, value) = (format!("{of}.disks"), disk.to_string());
                Err(FigureError { field, value, problem })
            };
            for (at, disk) in bus.disks.iter().enumerate() {
                if *disk >= disks {
                    return wrong(disk, "there is no such disk");
                }
                if bus.disks[..at].contains(disk) {
                    return wrong(disk, "a disk is there once");
                }
            }
            if bus.disks.is_empty() {
                return wrong(&0, "a bus has disks");
            }
        }
        Ok(())
    }
}
