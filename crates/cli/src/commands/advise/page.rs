//! The page of `advise --html`: the text's tables, and all that it has no room for.

use report::doc::{Block, Doc, Section, Table};
use spec::units::digits;

use super::second_failure;
use super::{Answer, HEADS, array_name, assumed, left_out, mix_in_words, no_rebuild, ranked};
use super::{terabytes, verify::Verification};
use crate::commands::predict::level_name;

impl Answer<'_> {
    /// What the page shows.
    pub fn page(&self) -> Doc {
        let Answer { described, question, advice, verified, .. } = self;
        let ranked = Table::of_texts(
            "Ranked",
            "x one disk: the geometric mean of the mix, of one disk's. Clear from a predicted \
             ratio of 1.2 on, probable from 1.1 on, else too close to call.",
            HEADS,
            ranked(&advice.candidates).map(|row| row.to_vec()),
        );
        let verified = verified.as_ref().map(Verification::table);
        let tables = [ranked, self.speeds(), self.failures()].into_iter().chain(verified);
        let mut notes = left_out(advice);
        notes.iter_mut().for_each(|note| *note = format!("Left out: {note}."));
        notes.extend(no_rebuild(advice));
        notes.extend(assumed(self));
        let notes = notes.into_iter().map(Block::Paragraph).collect();
        let tables = Section::new("", tables.map(Block::Table).collect());
        Doc {
            title: "Which array".into(),
            subtitle: format!(
                "{} disks ({}), {}; mix: {}",
                question.bytes.len(),
                described.disks,
                described.fs,
                mix_in_words(question)
            ),
            ..Doc::of(vec![tables, Section::new("Assumed, and left out", notes)])
        }
    }

    fn speeds(&self) -> Table {
        let mut heads = vec!["array".to_string()];
        for share in self.question.mix {
            let name = share.work.option_name();
            heads.push(format!("{name}, {}", share.work.unit()));
            heads.push("one missing".to_string());
        }
        let rows = self.advice.candidates.iter().map(|one| {
            let speeds = one.speeds.iter().flat_map(|speed| {
                [digits(speed.healthy), speed.degraded.map_or("lost".to_string(), digits)]
            });
            std::iter::once(array_name(one)).chain(speeds).collect()
        });
        let note = "Predicted by the law; with one member missing, disk operations are counted.";
        Table::of_texts("Speeds", note, heads, rows)
    }

    fn failures(&self) -> Table {
        let price = self.arguments.price;
        let cost = price.map(|price| price * self.question.bytes.len() as f64);
        let mut heads = ["array", "stacked by size", "one more failure loses it with"]
            .map(String::from)
            .to_vec();
        heads.extend(cost.map(|_| "cost a TB".to_string()));
        let rows = self.advice.candidates.iter().map(|one| {
            let second = second_failure(one).unwrap_or_else(|| "no failure is survived".into());
            let mut row = vec![level_name(&one.array), terabytes(one.capacity.stacked), second];
            row.extend(cost.map(|cost| match one.capacity.bytes {
                0 => "-".to_string(),
                bytes => digits(cost / (bytes as f64 / 1e12)),
            }));
            row
        });
        let note = cost.map_or(String::new(), |cost| format!("All disks cost {}.", digits(cost)));
        Table::of_texts("Capacity and failures", note, heads, rows)
    }
}
