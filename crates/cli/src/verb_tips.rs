//! What an unknown verb was probably meant to be.
//!
//! Invariant: a word of the tables leads to verbs that only read; a verb that writes is named only
//! where one letter is wrong. Called from `main`'s library.

/// Words of the field for which there is no verb, and what does it here without writing.
const WORDS: [(&[&str], &[&str]); 9] = [
    (
        &["rescue", "recover", "restore", "salvage", "undelete", "repair", "fix"],
        &["status", "dump", "guess", "serve --read-only"],
    ),
    (&["check", "verify", "fsck"], &["scrub --check", "dump --check", "status"]),
    (&["mount", "assemble", "run", "start", "open"], &["status", "serve --read-only"]),
    (&["list", "ls", "info", "show", "scan", "query"], &["status", "detail", "examine", "volumes"]),
    (&["read", "cat", "copy", "image", "extract", "clone"], &["dump", "volumes"]),
    (&["top", "iostat", "stat", "stats"], &["watch", "status --watch"]),
    (&["monitor", "events"], &["watch", "status --events"]),
    (&["test", "benchmark", "measure", "fio", "bonnie++"], &["bench", "sweep", "programs"]),
    (&["profile", "profiles", "drives", "disks"], &["calibrate --list", "predict"]),
];

/// Verbs after which bytes of members, or what a server does, may be other ones.
const WRITERS: [&str; 13] = [
    "add",
    "create",
    "fail",
    "rebuild",
    "remove",
    "replace",
    "reshape",
    "scrub",
    "serve",
    "set",
    "stop",
    "update",
    "zero-superblock",
];

/// The refusal of a verb that does not exist, of a program with these verbs.
pub fn refusal<'v>(word: &str, verbs: impl Iterator<Item = &'v str>) -> String {
    let here: Vec<&str> = verbs.collect();
    let is_here = |verb: &&str| here.iter().any(|here| verb.split(' ').next() == Some(here));
    let meant: Vec<&str> = match WORDS.iter().find(|(words, _)| words.contains(&word)) {
        Some((_, verbs)) => verbs.iter().copied().filter(is_here).collect(),
        None => similar(word, here.iter().copied()),
    };
    let shown: String = word.chars().take(32).flat_map(char::escape_default).collect();
    let tip = match meant.as_slice() {
        [] => "'raidlab --help' lists all".to_string(),
        meant => {
            let verbs: Vec<String> = meant.iter().map(|verb| format!("'{verb}'")).collect();
            format!("tip: {}", verbs.join(", "))
        }
    };
    format!("unrecognized verb '{shown}'; {tip}")
}

/// The verbs that are spelled almost like a word, nearest first.
fn similar<'v>(word: &str, verbs: impl Iterator<Item = &'v str>) -> Vec<&'v str> {
    let near = verbs.filter_map(|verb| {
        let distance = distance(word, verb);
        let most = if WRITERS.contains(&verb) { 1 } else { verb.len() / 3 };
        (distance <= most).then_some((distance, verb))
    });
    let mut near: Vec<(usize, &str)> = near.collect();
    near.sort_unstable();
    near.into_iter().map(|(_, verb)| verb).take(3).collect()
}

/// Letters to insert, to delete, to replace or to exchange with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let above = &rows[i - 1];
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERBS: [&str; 13] = [
        "bench", "dump", "fail", "guess", "remove", "replace", "rebuild", "scrub", "serve", "set",
        "status", "stop", "watch",
    ];

    fn tip(word: &str) -> String {
        refusal(word, VERBS.into_iter())
    }

    #[test]
    fn no_word_of_the_field_leads_to_a_verb_that_writes() {
        for (words, verbs) in WORDS {
            for verb in verbs {
                let is_reading = ["serve --read-only", "scrub --check"].contains(verb);
                let first = verb.split(' ').next().unwrap();
                assert!(is_reading || !WRITERS.contains(&first), "{words:?}: {verb}");
            }
        }
        let rescue = "unrecognized verb 'rescue'; tip: 'status', 'dump', 'guess', \
                      'serve --read-only'";
        assert_eq!(tip("rescue"), rescue);
        assert!(tip("top").ends_with("tip: 'watch', 'status --watch'"));
    }

    #[test]
    fn a_part_of_the_program_names_only_its_own_verbs() {
        let part = refusal("rescue", ["status", "dump"].into_iter());
        assert!(part.ends_with("tip: 'status', 'dump'"), "{part}");
        let none = refusal("top", ["dump"].into_iter());
        assert!(none.ends_with("'raidlab --help' lists all"), "{none}");
    }

    #[test]
    fn a_verb_that_writes_is_meant_only_where_one_letter_is_wrong() {
        for (word, verb) in [("rebiuld", "rebuild"), ("fial", "fail"), ("sto", "stop")] {
            assert!(tip(word).contains(&format!("'{verb}'")), "{word}: {}", tip(word));
        }
        assert!(tip("dmup").ends_with("tip: 'dump'"));
        assert!(tip("statsu").ends_with("tip: 'status'"));
        for word in ["rebuidl2", "removal", "replica", "reset", "best-of", "", "\u{1b}[2J"] {
            assert!(tip(word).ends_with("'raidlab --help' lists all"), "{word}: {}", tip(word));
        }
        assert!(!tip("\u{1b}[2J").contains('\u{1b}'));
    }
}
