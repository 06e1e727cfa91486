//! What tells places of one name apart.
//!
//! Names in results are without the user's directories ([`TargetExpr::name`]): two directories, or
//! two sets of devices, may have one. Where both are measured side by side each gets a mark: the
//! last part of its path, or a number.
//!
//! Invariant: no two places of a set have the same name with its mark; a place whose name is its
//! own has none. Called by the command line.

use std::path::Path;

use crate::target::TargetExpr;

/// The places of a run, each with its mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetLabels(Vec<(String, String)>);

impl TargetLabels {
    /// Marks for what is measured side by side.
    pub fn new<'p>(places: impl IntoIterator<Item = &'p TargetExpr>) -> TargetLabels {
        let mut all: Vec<&TargetExpr> = Vec::new();
        for place in places {
            if all.iter().all(|known| known.identity() != place.identity()) {
                all.push(place);
            }
        }
        let mark = |place: &TargetExpr| {
            let alike: Vec<&&TargetExpr> =
                all.iter().filter(|other| shown(other) == shown(place)).collect();
            if alike.len() == 1 {
                return String::new();
            }
            let mut words: Vec<String> = alike.iter().map(|other| word(other)).collect();
            words.sort_unstable();
            words.dedup();
            if words.len() == alike.len() && words.iter().all(|word| !word.is_empty()) {
                return format!(" ({})", word(place));
            }
            let number = alike.iter().position(|other| other.identity() == place.identity());
            format!(" ({})", number.map_or(0, |number| number + 1))
        };
        TargetLabels(all.iter().map(|place| (place.identity(), mark(place))).collect())
    }

    /// What is to be added to the name of a place: ` (hdd)`, or nothing.
    pub fn of(&self, place: &TargetExpr) -> &str {
        let identity = place.identity();
        let found = self.0.iter().find(|(known, _)| *known == identity);
        found.map_or("", |(_, mark)| mark)
    }
}

/// The name that results show.
fn shown(place: &TargetExpr) -> String {
    match place {
        TargetExpr::Device(path) => format!("device:{}", last(path)),
        _ => place.shown(),
    }
}

/// The part of its paths that distinguishes it.
fn word(place: &TargetExpr) -> String {
    match place {
        TargetExpr::Engine => String::new(),
        TargetExpr::Path(path) | TargetExpr::Device(path) => last(path),
        TargetExpr::FileSystem(fs) => word(&fs.on),
        TargetExpr::Kernel(kernel) => {
            kernel.devices.iter().map(|path| last(path)).collect::<Vec<_>>().join("+")
        }
    }
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(texts: &[&str]) -> Vec<String> {
        let places: Vec<TargetExpr> =
            texts.iter().map(|text| text.parse().expect("a place")).collect();
        let marks = TargetLabels::new(&places);
        places.iter().map(|place| marks.of(place).to_string()).collect()
    }

    #[test]
    fn places_of_one_name_get_the_last_part_of_their_paths() {
        assert_eq!(marks(&["path:/mnt/hdd", "path:/mnt/ssd"]), [" (hdd)", " (ssd)"]);
        let kernel = ["md:/dev/sdb+/dev/sdc", "md:/dev/sdd+/dev/sde"];
        assert_eq!(marks(&kernel), [" (sdb+sdc)", " (sdd+sde)"]);
        let on = ["fs:ext4,on=device:/dev/sdb", "fs:ext4,on=device:/dev/sdc", "fs:ext4"];
        assert_eq!(marks(&on), [" (sdb)", " (sdc)", ""]);
    }

    #[test]
    fn what_a_path_does_not_tell_apart_a_number_does() {
        assert_eq!(marks(&["path:/a/mnt", "path:/b/mnt"]), [" (1)", " (2)"]);
        assert_eq!(marks(&["path:/", "path:/mnt"]), [" (1)", " (2)"]);
        let devices = ["device:/dev/sdb", "device:/dev/sdc", "device:/other/sdb"];
        assert_eq!(marks(&devices), [" (1)", "", " (2)"]);
    }

    #[test]
    fn a_place_whose_name_is_its_own_has_no_mark() {
        let texts = ["path:/mnt", "path:/mnt", "fs:ext4", "fs:ext4,data=journal", "engine"];
        assert_eq!(marks(&texts), [""; 5]);
        let knobs = ["md:/dev/a+/dev/b", "md:/dev/a+/dev/b,assume-clean"];
        assert_eq!(marks(&knobs), ["", ""]);
    }
}
