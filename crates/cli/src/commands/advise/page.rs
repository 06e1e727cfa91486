//! The page of `advise --html`: sentences, picture, tables and assumptions, one printed page.

use predict::advise::{Candidate, years};
use report::choices::{Choice, draw};
use report::doc::{Block, Chart, Doc, Item, Items, Section, Table};
use spec::units::digits;

use super::Answer;
use super::text::{HEADS, assumed, heading, notes, ranked};
use super::verify::Verification;
use super::words::{array, array_name, terabytes};

/// Chances that the picture tells apart: from every year to one in a million.
const YEARS_MAX: f64 = 1e6;

impl Answer<'_> {
    /// What the page shows.
    pub fn page(&self) -> Doc {
        let sentences = self.sentences();
        let mut all = sentences.all().cloned();
        let subtitle = all.next().unwrap_or_default();
        let item = |sentence: String| match sentence.split_once(": ") {
            Some((lead, text)) => {
                Item { lead: format!("{lead}:"), text: text.into(), ..Item::default() }
            }
            None => Item { text: sentence, ..Item::default() },
        };
        let mut answer: Vec<Block> =
            Items::block("", all.map(item).collect()).into_iter().collect();
        answer.push(Block::Charts(vec![self.picture()]));
        let ranked = Table::of_texts(
            "Ranked",
            "* is recommended. x one disk: the geometric mean of the mix, of one disk's. Clear \
             from a predicted ratio of 1.2 on, probable from 1.1 on, else too close to call.",
            HEADS,
            ranked(self).map(|row| row.to_vec()),
        );
        let verified = self.verified.as_ref().map(Verification::table);
        let tables = [ranked, self.speeds()].into_iter().chain(verified);
        let notes = notes(self).into_iter().chain(assumed(self));
        let chosen = &self.advice.candidates[self.found.place].array;
        Doc {
            title: format!("{} of {}", array(chosen), self.disks()),
            subtitle,
            ..Doc::of(vec![
                Section::new("", answer),
                Section::new("", tables.map(Block::Table).collect()),
                Section::new(
                    "Assumed, and left out",
                    std::iter::once(format!("{}.", heading(self)))
                        .chain(notes)
                        .map(Block::Paragraph)
                        .collect(),
                ),
            ])
        }
    }

    /// Room, speed and the chance of a loss of each array, side by side.
    fn picture(&self) -> Chart {
        let all = &self.advice.candidates;
        let most = |of: fn(&Candidate) -> f64| all.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let room = most(|one| one.capacity.bytes as f64);
        let speed = most(|one| one.score);
        let each = all.iter().zip(&self.found.outlooks).enumerate();
        let choices = each.map(|(place, (one, outlook))| {
            // Longer is better: powers of ten of years.
            let power = |chance: f64| (1.0 / chance.max(1.0 / YEARS_MAX)).log10();
            let (safe, words) = outlook.map_or((0.0, "not known".to_string()), |outlook| {
                let chance = outlook.chance;
                (power(chance) / YEARS_MAX.log10(), years(chance))
            });
            Choice {
                label: array(&one.array),
                is_chosen: place == self.found.place,
                bars: vec![
                    (one.capacity.bytes as f64 / room, terabytes(one.capacity.bytes)),
                    (one.score / speed, format!("{:.2}x", one.score)),
                    (safe, words),
                ],
            }
        });
        let choices: Vec<Choice> = choices.collect();
        let heads = [("usable", 0.28), ("speed, x one disk", 0.28), ("anything lost, 1 in", 0.44)];
        let title = "What there is to choose from";
        let desc = "Bars for each array: usable capacity, speed at the mix, and in how many years \
                    anything is lost, in powers of ten. Longer is better.";
        Chart {
            title: title.into(),
            detail: "longer is better; years by powers of ten".into(),
            svg: draw(title, desc, &heads, &choices),
            table: None,
        }
    }

    fn speeds(&self) -> Table {
        let mut heads = vec!["array".to_string()];
        for share in self.question.mix {
            heads.push(format!("{}, {}", share.work.option_name(), share.work.unit()));
        }
        let rows = self.advice.candidates.iter().map(|one| {
            let speeds = one.speeds.iter().map(|speed| {
                let degraded = speed.degraded.map_or("lost".to_string(), digits);
                format!("{} / {degraded}", digits(speed.healthy))
            });
            std::iter::once(array_name(one)).chain(speeds).collect()
        });
        Table::of_texts("Speeds, healthy / one missing", "", heads, rows)
    }
}
