//! How often disks fail: published counts by model and by class, and an interval.
//!
//! A model's rate is drawn to its class as far as its failures are few: rates of models are taken
//! as gamma-distributed around the class's, with the spread that the logarithms of the table's
//! rates have beyond chance, so that a model with `f` failures in `t` years has a gamma
//! distribution of shape `a + f` and rate `b + t` (`a / b` is the class's rate). A model without
//! figures has the distribution of the class's models itself. Intervals hold 80 %.
//! docs/models/advise.md has the source.
//!
//! Invariant: low < annual < high, all of them positive.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::{Disk, of_model, plain, rows};

/// Published counts: docs/models/advise.md describes the columns.
const FAILURES: &str = include_str!("../../data/failures.csv");

/// Counts of a model, or of a whole class.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    /// Beginning of the model number; `*hdd` and `*ssd` are whole classes.
    pub model_prefix: String,
    /// The model, for people.
    pub model: String,
    /// 10^9 bytes.
    pub capacity_gb: Option<f64>,
    /// Disks at the end of the report.
    pub drives: Option<u64>,
    /// Days that disks ran.
    pub drive_days: f64,
    /// Disks that failed.
    pub failures: f64,
    /// Who counted, and until when.
    pub report: String,
    /// How sure it is.
    pub confidence: String,
}

/// What a rate is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Counts of this model, drawn to its class.
    Model,
    /// The models of its class: of this one there are no counts.
    Class,
    /// Stated by the caller.
    Stated,
}

/// Failures of a disk in a year.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRate {
    /// The rate, as a share of the disks.
    pub annual: f64,
    /// The lower end of the 80 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// What it is of.
    pub basis: Basis,
    /// Failures that were counted; 0 where it is stated.
    pub failures: f64,
    /// Years of disks in which they were.
    pub disk_years: f64,
    /// The model and the report, in words.
    pub source: String,
}

/// Days of a year.
const DAYS: f64 = 365.25;

/// Standard deviations of a normal distribution that hold 80 %.
const Z: f64 = 1.2816;

impl Counts {
    fn years(&self) -> f64 {
        self.drive_days / DAYS
    }

    fn is_class(&self) -> bool {
        self.model_prefix.starts_with('*')
    }

    /// By the catalogue, or as its model says; those of a maker that does not are listed.
    fn is_flash(&self) -> bool {
        const OTHERS: [&str; 2] = ["DELLBOSS", "MTFD"];
        match of_model(&self.model_prefix) {
            Some(disk) => disk.kind.is_flash(),
            None => {
                self.model_prefix == "*ssd"
                    || self.model.contains("SSD")
                    || OTHERS.iter().any(|other| self.model_prefix.starts_with(other))
            }
        }
    }

    /// Of a model of that disk: its number begins like the disk's.
    fn is_of(&self, prefixes: &[String]) -> bool {
        let own = plain(&self.model_prefix);
        let mut prefixes = prefixes.iter().map(|prefix| plain(prefix));
        !self.is_class() && prefixes.any(|prefix| !prefix.is_empty() && own.starts_with(&prefix))
    }

    /// How much of a longer model number of that disk this one is.
    fn length_in(&self, prefixes: &[String]) -> Option<usize> {
        let own = plain(&self.model_prefix);
        let mut prefixes = prefixes.iter().map(|prefix| plain(prefix));
        let is_in = !self.is_class() && prefixes.any(|prefix| prefix.starts_with(&own));
        is_in.then_some(own.len())
    }
}

/// The counts of a disk: of all of its models; else of the longest beginning of its number.
fn of_disk(prefixes: &[String]) -> Vec<&'static Counts> {
    let all: Vec<&Counts> = counts().iter().filter(|one| one.is_of(prefixes)).collect();
    if !all.is_empty() {
        return all;
    }
    let longest = counts().iter().filter_map(|one| Some((one.length_in(prefixes)?, one)));
    longest.max_by_key(|(length, _)| *length).map(|(_, one)| one).into_iter().collect()
}

pub(super) fn counts() -> &'static [Counts] {
    static COUNTS: OnceLock<Vec<Counts>> = OnceLock::new();
    COUNTS.get_or_init(|| rows(FAILURES).expect("the counts are valid: a test reads them"))
}

/// Failures of a class.
struct Class {
    counts: &'static Counts,
    /// Shape of the distribution of its models' rates.
    shape: f64,
}

impl Class {
    fn of(is_flash: bool) -> Class {
        let name = if is_flash { "*ssd" } else { "*hdd" };
        let counts = counts().iter().find(|one| one.model_prefix == name).expect("a test has it");
        let mean = counts.failures / counts.years();
        let models: Vec<&Counts> = self::counts()
            .iter()
            .filter(|one| !one.is_class() && one.is_flash() == is_flash)
            .collect();
        Class { counts, shape: shape(mean, &models) }
    }

    fn mean(&self) -> f64 {
        self.counts.failures / self.counts.years()
    }
}

/// Shape of the gamma distribution of models' rates around their mean, by the variance of their
/// logarithms beyond chance: that of a gamma distribution is about 1/a + 1/(2 a^2). A few very bad
/// models do not decide it.
fn shape(mean: f64, models: &[&Counts]) -> f64 {
    const USUAL: f64 = 2.0;
    // With fewer failures to be expected a rate is chance.
    const EXPECTED_MIN: f64 = 10.0;
    let counted = models.iter().filter(|one| mean * one.years() >= EXPECTED_MIN);
    let logs: Vec<(f64, f64)> = counted
        .map(|one| {
            let failures = one.failures.max(0.5);
            ((failures / one.years()).ln(), 1.0 / failures)
        })
        .collect();
    if logs.len() < 5 {
        return USUAL;
    }
    let count = logs.len() as f64;
    let middle = logs.iter().map(|(log, _)| log).sum::<f64>() / count;
    let seen = logs.iter().map(|(log, _)| (log - middle).powi(2)).sum::<f64>() / (count - 1.0);
    let chance = logs.iter().map(|(_, chance)| chance).sum::<f64>() / count;
    let between = (seen - chance).max(0.01);
    ((1.0 + (1.0 + 2.0 * between).sqrt()) / (2.0 * between)).clamp(1.0, 50.0)
}

/// A quantile of a gamma distribution by Wilson and Hilferty: within 8 % from a shape of 1 on.
fn quantile(shape: f64, rate: f64, deviations: f64) -> f64 {
    let root = 1.0 - 1.0 / (9.0 * shape) + deviations / (3.0 * shape.sqrt());
    shape * root.max(0.05).powi(3) / rate
}

/// How often a disk fails in a year: by its model, else by its class.
pub fn failure_rate(disk: Option<&Disk>, is_flash: bool) -> FailureRate {
    let class = Class::of(is_flash);
    let prior_rate = class.shape / class.mean();
    let of_model = disk.map_or(Vec::new(), |disk| of_disk(&disk.model_prefixes));
    let failures: f64 = of_model.iter().map(|one| one.failures).sum();
    let years: f64 = of_model.iter().map(|one| one.years()).sum();
    let (shape, rate) = (class.shape + failures, prior_rate + years);
    let (basis, source) = match of_model.first() {
        Some(first) => (Basis::Model, format!("{}, {}", first.model, first.report)),
        None => {
            let kind = if is_flash { "flash disks" } else { "disks with platters" };
            (Basis::Class, format!("all {kind}, {}", class.counts.report))
        }
    };
    let counted = if basis == Basis::Model {
        (failures, years)
    } else {
        (class.counts.failures, class.counts.years())
    };
    FailureRate {
        annual: share(shape / rate),
        low: share(quantile(shape, rate, -Z)),
        high: share(quantile(shape, rate, Z)),
        basis,
        failures: counted.0,
        disk_years: counted.1,
        source,
    }
}

/// Failures per disk and year as the share of disks that fail in one.
fn share(rate: f64) -> f64 {
    1.0 - (-rate).exp()
}

impl FailureRate {
    /// A rate that the caller states: it has no interval.
    pub fn stated(annual: f64) -> FailureRate {
        FailureRate {
            annual,
            low: annual,
            high: annual,
            basis: Basis::Stated,
            failures: 0.0,
            disk_years: 0.0,
            source: "stated".into(),
        }
    }

    /// That of a set of disks: the mean of each of them, with the ends of its parts.
    pub fn of_set(parts: &[(FailureRate, u32)]) -> Option<FailureRate> {
        let count: u32 = parts.iter().map(|(_, count)| count).sum();
        let mean = |of: fn(&FailureRate) -> f64| {
            let sum: f64 = parts.iter().map(|(rate, count)| of(rate) * f64::from(*count)).sum();
            sum / f64::from(count.max(1))
        };
        let (first, _) = parts.first()?;
        let mut sources: Vec<&str> = parts.iter().map(|(rate, _)| rate.source.as_str()).collect();
        sources.dedup();
        let worst = parts.iter().any(|(rate, _)| rate.basis == Basis::Class);
        Some(FailureRate {
            annual: mean(|rate| rate.annual),
            low: mean(|rate| rate.low),
            high: mean(|rate| rate.high),
            basis: if worst { Basis::Class } else { first.basis },
            failures: parts.iter().map(|(rate, _)| rate.failures).sum(),
            disk_years: parts.iter().map(|(rate, _)| rate.disk_years).sum(),
            source: sources.join("; "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_count_and_the_classes_are_there() {
        let all = counts();
        for one in all {
            assert!(one.drive_days > 0.0 && one.failures >= 0.0, "{one:?}");
            assert!(!one.model.is_empty() && !one.report.is_empty(), "{one:?}");
            assert!(one.drives.is_none_or(|drives| drives > 0), "{one:?}");
        }
        for class in ["*hdd", "*ssd"] {
            assert_eq!(all.iter().filter(|one| one.model_prefix == class).count(), 1, "{class}");
        }
        let mut prefixes: Vec<String> = all.iter().map(|one| plain(&one.model_prefix)).collect();
        prefixes.sort_unstable();
        assert!(prefixes.windows(2).all(|two| two[1] != two[0]), "{prefixes:?}");
    }

    #[test]
    fn quantiles_are_those_of_the_gamma_distribution() {
        // Chi-squared of 2 f degrees of freedom, halved.
        for (shape, low, high) in
            [(1.0, 0.1054, 2.303), (4.0, 1.7448, 6.6808), (25.0, 18.84, 31.58)]
        {
            for (deviations, expected) in [(-Z, low), (Z, high)] {
                let found = quantile(shape, 1.0, deviations);
                assert!((found / expected - 1.0).abs() < 0.08, "{shape}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_model_with_few_failures_is_drawn_to_its_class() {
        let disk = |prefix: &str| {
            let mut disk = super::super::catalogue()[0].clone();
            disk.model_prefixes = vec![prefix.to_string()];
            disk
        };
        let class = failure_rate(None, false);
        assert_eq!(class.basis, Basis::Class);
        let unknown = failure_rate(Some(&disk("NOSUCHMODEL")), false);
        assert_eq!((unknown.annual, unknown.basis), (class.annual, Basis::Class));
        let mean = Class::of(false).mean();
        for one in counts().iter().filter(|one| !one.is_class() && !one.is_flash()) {
            let found = failure_rate(Some(&disk(&one.model_prefix)), false);
            assert!(found.low < found.annual && found.annual < found.high, "{found:?}");
            assert_eq!(found.basis, Basis::Model);
            // With those whose number begins alike.
            let all = of_disk(std::slice::from_ref(&one.model_prefix));
            let sum = |of: fn(&Counts) -> f64| all.iter().map(|one| of(one)).sum::<f64>();
            let raw = share(sum(|one| one.failures) / sum(Counts::years));
            let (low, high) = (raw.min(share(mean)), raw.max(share(mean)));
            assert!((low..=high).contains(&found.annual), "{one:?}: {found:?}");
            if one.failures > 100.0 {
                assert!((found.annual / raw - 1.0).abs() < 0.1, "{one:?}: {found:?}");
                assert!(found.high / found.low < class.high / class.low, "{found:?}");
            }
        }
    }

    #[test]
    fn a_set_has_the_mean_of_its_disks() {
        let parts = [(FailureRate::stated(0.01), 3), (FailureRate::stated(0.05), 1)];
        let both = FailureRate::of_set(&parts).expect("a set");
        assert!((both.annual - 0.02).abs() < 1e-12);
        assert_eq!(FailureRate::of_set(&[]), None);
    }
}
