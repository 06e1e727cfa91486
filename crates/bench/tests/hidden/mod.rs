//! Drives of which every number is changed by a factor that a seed hides.

use std::fmt::Write as _;

use drive::{Number, Profile};
use testkit::Rng;

pub fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * (rng.below(1 << 30) as f64 / (1u64 << 30) as f64)
}

/// A factor from 1/`most` to `most`.
pub fn factor(rng: &mut Rng, most: f64) -> f64 {
    most.powf(between(rng, -1.0, 1.0))
}

fn document(class: &str, numbers: &[Number]) -> String {
    let profile = Profile::named(class).expect("built in");
    let kind = match profile.kind() {
        drive::Kind::Rotating => "rotating",
        drive::Kind::Solid => "solid",
    };
    let mut text =
        format!("name = \"hidden\"\ndescription = \"hidden\"\nkind = \"{kind}\"\n[numbers]\n");
    for Number { field, value, .. } in numbers {
        let number =
            format!("{{ value = {value:.6}, source = \"a seed\", confidence = \"assumed\" }}");
        let _ = writeln!(text, "{field} = {number}");
    }
    text
}

/// A drive of a class, and the document of its profile.
pub fn drive_of(class: &str, rng: &mut Rng) -> (Profile, String) {
    let profile = Profile::named(class).expect("built in");
    let mut numbers = profile.numbers().to_vec();
    let seek = factor(rng, 1.5);
    let media = factor(rng, 1.5);
    for number in &mut numbers {
        number.value *= match &*number.field {
            "capacity_bytes" | "queue_depth" | "flush_drains_queue" | "page_kib" => 1.0,
            "power_loss_protection" | "slc_cache_gb" | "spare_percent" => 1.0,
            "rpm" => 1.0,
            field if field.starts_with("seek_") => seek,
            field if field.starts_with("media_outer") => media,
            field if field.starts_with("media_inner") => media * between(rng, 0.85, 1.15),
            "link_mb_per_s" => 1.0,
            "read_mb_per_s" | "write_mb_per_s" | "direct_write_mb_per_s" => factor(rng, 1.4),
            "dies" => [0.5, 1.0, 2.0][rng.index(3)],
            _ => factor(rng, 1.8),
        };
        let whole = number.field.ends_with("_kib")
            || ["dies", "write_cache_extents", "read_segments"].contains(&&*number.field);
        if whole {
            number.value = number.value.round().max(4.0);
        }
        if number.field == "rpm" {
            number.value = [5400.0, 7200.0, 7200.0, 10_000.0][rng.index(4)];
        }
    }
    let document = document(class, &numbers);
    let profile = Profile::parse(&document).expect("within the ranges");
    (profile, document)
}

/// The same drive with other numbers.
#[allow(dead_code)] // Only one of the two tests has sick ones.
pub fn with(profile: &Profile, class: &str, change: impl Fn(&str, f64) -> f64) -> Profile {
    let mut numbers = profile.numbers().to_vec();
    for number in &mut numbers {
        number.value = change(&number.field, number.value);
    }
    Profile::parse(&document(class, &numbers)).expect("within the ranges")
}
