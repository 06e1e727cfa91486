//! The answer in sentences: what to make, what would change it, how often anything is lost.
//!
//! Invariant: every figure is one of the tables below it; what is said to change the recommendation
//! was tried.

use predict::advise::{Alternative, Assumption, Candidate, Change, Condition, Outlook, in_years};
use predict::disks::Basis;
use spec::units::{digits, kib, short};

use super::{
    Answer,
    words::{array, terabytes},
};

/// The sentences of an answer, one for each line.
pub struct Sentences {
    /// What to make, and what else there is.
    pub make: String,
    /// What would change it.
    pub change: String,
    /// The chance of losing anything, and what decides it.
    pub chance: String,
    /// What is to be feared of these disks.
    pub warnings: Vec<String>,
}

impl Sentences {
    /// All of them, the first things first.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        [&self.make].into_iter().chain(&self.warnings).chain([&self.change, &self.chance])
    }
}

/// The default of mdadm.
const CHUNK_KIB: f64 = 512.0;

/// Others that the first sentence names, at most.
const OTHERS: usize = 2;

impl Answer<'_> {
    /// The answer in sentences.
    pub fn sentences(&self) -> Sentences {
        Sentences {
            make: self.make(),
            change: self.change(),
            chance: self.chance(),
            warnings: self.warnings(),
        }
    }

    fn chosen(&self) -> &Candidate {
        &self.advice.candidates[self.found.place]
    }

    fn make(&self) -> String {
        let one = self.chosen();
        let mut out = format!(
            "Make a {} of {} {}: {} usable, {}, {}x the speed of one disk at this mix",
            array(&one.array),
            in_words(one.array.members),
            self.disks(),
            terabytes(one.capacity.bytes),
            survives(one.risk.tolerates),
            digits(one.score),
        );
        if one.array.level.has_chunks() && one.array.chunk_kib != CHUNK_KIB {
            out += &format!(", with a chunk of {}", kib(one.array.chunk_kib));
        }
        if let Some(cost) = self.question.needs.cost(one.array.members) {
            out += &format!(", for {}", short(cost));
        }
        for (what, place) in self.found.alternatives.iter().take(OTHERS) {
            out += &format!("; {}", self.other(*what, &self.advice.candidates[*place]));
        }
        out + "."
    }

    /// The disks by name, without their number.
    pub fn disks(&self) -> String {
        match &self.asked.described.bought[..] {
            [(disk, _)] => disk.name.clone(),
            [] => {
                let words = &self.asked.described.disks;
                let is_one = !words.contains('+');
                let name = words.rsplit_once('*').filter(|_| is_one).map(|(name, _)| name);
                format!("disks ({})", name.unwrap_or(words))
            }
            _ => format!("disks ({})", self.asked.described.disks),
        }
    }

    /// What another array has, and what it costs.
    fn other(&self, what: Alternative, other: &Candidate) -> String {
        let own = self.chosen();
        let mut parts = Vec::new();
        let (ours, theirs) = (own.risk.tolerates, other.risk.tolerates);
        if ours != theirs {
            parts.push(format!("survive {}", failures(theirs)));
        }
        if own.array.members != other.array.members {
            parts.push(format!("take {} disks", in_words(other.array.members)));
        }
        if own.capacity.bytes != other.capacity.bytes {
            parts.push(format!("hold {}", terabytes(other.capacity.bytes)));
        }
        let speed = format!("be {}x as fast", digits(other.score / own.score));
        if what == Alternative::Faster {
            parts.insert(0, speed);
        } else {
            parts.push(speed);
        }
        // What is less safe says so.
        let chance = |one: &Candidate| one.risk.anything_in_year.unwrap_or(0.0);
        if chance(other) > 2.0 * chance(own) {
            parts.push(format!("lose anything {}", in_years(chance(other))));
        }
        format!("{} would {}", array(&other.array), listed(&parts))
    }

    fn change(&self) -> String {
        let changes = &self.found.changes;
        if changes.is_empty() {
            return "What would change it: nothing of what was varied (share of writes, requests in \
                    flight, failures to survive, the assumptions within their ranges)."
                .to_string();
        }
        let each = changes.iter().map(|change| {
            let Change { condition, to } = change;
            let with = match *condition {
                Condition::WritesAbove(0.0) => "with any writes".to_string(),
                Condition::WritesBelow(1.0) => "with any reads".to_string(),
                Condition::WritesAbove(share) => {
                    format!("with writes above {:.0} % of the mix", 100.0 * share)
                }
                Condition::WritesBelow(share) => {
                    format!("with writes below {:.0} % of the mix", 100.0 * share)
                }
                Condition::Depth(1.0) => "with one random request in flight".to_string(),
                Condition::Depth(depth) => format!("with {depth} random requests in flight"),
                Condition::Survive(count) => format!("to survive {}", failures(count)),
                Condition::Assumed(assumption, value) => {
                    format!("with {}", assumption.value_in_words(value))
                }
            };
            format!("{with} {}", array(to))
        });
        format!("What would change it: {}.", each.collect::<Vec<_>>().join("; "))
    }

    fn chance(&self) -> String {
        let Some(outlook) = &self.found.outlooks[self.found.place] else {
            return "The chance of losing anything in a year is not known: the rate of a rebuild is \
                    not. A RAID is no backup."
                .to_string();
        };
        let mut out = format!(
            "The chance of losing anything in a year: {}{}.",
            in_years(outlook.chance),
            self.interval(outlook)
        );
        if let Some(decides) = &outlook.decides {
            let (words, (best, of_best)) = (decides.assumption.words(), decides.best);
            let (worst, of_worst) = decides.worst;
            let value = |value| decides.assumption.value_in_words(value);
            out += &match decides.assumption {
                // Its ends are those of the interval.
                Assumption::AnnualFailureRate => format!(
                    " It is decided by {words}: {} to {} % of them in a year.",
                    short(100.0 * best),
                    short(100.0 * worst)
                ),
                _ => format!(
                    " It is decided by {words}: {} with {}, {} with {}.",
                    in_years(of_best),
                    value(best),
                    in_years(of_worst),
                    value(worst)
                ),
            };
        }
        out + " Fire, theft, mistakes and software are not in it: a RAID is no backup."
    }

    fn interval(&self, outlook: &Outlook) -> String {
        match self.asked.failures.basis {
            Basis::Stated => String::new(),
            Basis::Model | Basis::Class => {
                let (low, high) = (in_years(outlook.low), in_years(outlook.high));
                let high = high.trim_end_matches(" years");
                format!(" (80 %: between {high} and {low}, by how often such disks fail)")
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.question.machine.is_shingled {
            all.push(
                "Beware: these disks are shingled. Rewriting and rebuilding take many times as \
                 long as on others, and arrays with parity have lost members over it; buy others \
                 for an array that is written to."
                    .to_string(),
            );
        }
        let transfers = self
            .asked
            .described
            .bought
            .iter()
            .any(|(disk, _)| disk.actuators.is_some_and(|count| count > 1));
        if transfers {
            all.push(
                "These disks have two actuators, of which speeds here count one: give md both \
                 halves of each disk as two members of different arrays."
                    .to_string(),
            );
        }
        all
    }
}

fn survives(failures: u32) -> String {
    match failures {
        0 => "lost with the first disk that fails".to_string(),
        _ => format!("survives {}", self::failures(failures)),
    }
}

/// `any two failures`.
fn failures(count: u32) -> String {
    match count {
        0 => "no failure".to_string(),
        1 => "any one failure".to_string(),
        _ => format!("any {} failures", in_words(count)),
    }
}

/// A number of disks.
fn in_words(count: u32) -> String {
    const WORDS: [&str; 13] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    WORDS.get(count as usize).map_or(count.to_string(), |word| (*word).to_string())
}

fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use md::Level;
    use predict::law::{Array, Copies};

    #[test]
    fn arrays_are_named_as_people_say_them() {
        let far = Array { copies: Copies::Far(2), ..Array::new(Level::Raid10, 6, 512.0) };
        assert_eq!(array(&far), "RAID 10 f2");
        assert_eq!(array(&Array::new(Level::Raid6, 6, 512.0)), "RAID 6");
    }

    #[test]
    fn numbers_and_lists_are_words() {
        assert_eq!((in_words(6).as_str(), in_words(24).as_str()), ("six", "24"));
        assert_eq!(failures(2), "any two failures");
        let parts = ["a", "b", "c"].map(String::from);
        assert_eq!(listed(&parts), "a, b and c");
    }
}
