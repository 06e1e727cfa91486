//! What an array of Linux md would deliver, by the law of ceilings.
//!
//! Invariant: a rate has an interval and the ceiling that limits it, or there is a reason why there
//! is no rate.

use drive::Profile;
use predict::fitted::Fitted;
use predict::law::Work;
use predict::question::Question;

use crate::error::{Error, Kind, Result};

pub use predict::law::{Array as Configuration, Copies};

/// A predicted rate.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// `MB/s` or `/s`.
    pub unit: &'static str,
    /// The rate.
    pub rate: f64,
    /// The rates of 80 % of healthy machines.
    pub interval: (f64, f64),
    /// What limits it.
    pub limit: &'static str,
}

/// Predicts a workload, as in `seq-read` or `random-write`, on an array of drives of a profile, as
/// in `hdd-2016`: a machine of today whose buses do not limit, as `raidlab predict --members` takes
/// it.
///
/// # Errors
/// There is no such workload or profile ([`Kind::NotFound`]), the array is impossible
/// ([`Kind::Usage`]), or there is no equation ([`Kind::Refused`]).
pub fn predict(array: &Configuration, profile: &str, workload: &str) -> Result<Prediction> {
    let none = |what, known: Vec<String>| {
        Error::new(Kind::NotFound, format!("{what}: there are {}", known.join(", ")))
    };
    let profile = Profile::named(profile).ok_or_else(|| {
        none(format!("profile '{profile}'"), Profile::names().map(String::from).collect())
    })?;
    let work = Work::ALL.into_iter().find(|work| work.option_name() == workload);
    let work = work.ok_or_else(|| {
        none(format!("workload '{workload}'"), Work::ALL.map(Work::option_name).into())
    })?;
    if !array.is_possible() {
        let text = "1 to 1920 members, 2 to 16 copies, a chunk of 1 to 4194304 KiB are required";
        return Err(Error::new(Kind::Usage, text));
    }
    let answer = Question::of_profile(profile).answer(array, work, &Fitted::built_in());
    match (answer.found, answer.interval) {
        (Ok(found), Some(interval)) => Ok(Prediction {
            unit: work.unit(),
            rate: found.value,
            interval,
            limit: found.limit().name(),
        }),
        (Err(why), _) => Err(Error::new(Kind::Refused, why.to_string())),
        (Ok(_), None) => unreachable!("a prediction has an interval"),
    }
}
