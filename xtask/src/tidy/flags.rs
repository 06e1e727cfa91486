//! Every `raidlab` command line in the documents is one that the program understands.
//!
//! Looks at the lines of code blocks and at code spans that start `raidlab VERB`, `cargo run ..
//! -p raidlab-cli -- VERB` or `make bench ARGS=..`; the verb must stand in `raidlab --help`, each
//! `--flag` in `raidlab VERB --help` or in the general help.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::finding::Finding;
use crate::page::{code_spans, page_lines};
use crate::tree::Tree;

/// `raidlab predict --engine` has the options of arrays that are run.
const FORM: (&str, &str) = ("predict", "--engine");

/// What the program at `bin` prints for these words.
///
/// # Errors
/// In words, when it does not run or fails.
pub fn help(bin: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new(bin).args(words).output();
    let output = output.map_err(|error| format!("{}: {error}", bin.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`raidlab {}` ends with {}", words.join(" "), output.status)),
    }
}

/// One use of the program in a document.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    verb: String,
    flags: Vec<String>,
}

type Help<'a> = dyn Fn(&[&str]) -> Result<String, String> + 'a;

/// Compares the documents' command lines with the program's help.
pub fn check(tree: &Tree, help: &Help<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut texts: BTreeMap<Vec<String>, Result<String, String>> = BTreeMap::new();
    for (path, page) in tree.texts().filter(|(path, _)| is_manual(path)) {
        for (line, used) in uses(page) {
            if let Err(text) = compare(&used, help, &mut texts) {
                findings.push(Finding::new("flags", path, line, text));
            }
        }
    }
    findings
}

/// What the program does not understand.
fn compare(
    used: &Use,
    help: &Help<'_>,
    texts: &mut BTreeMap<Vec<String>, Result<String, String>>,
) -> Result<(), String> {
    let mut text_of = |words: &[&str]| {
        let key = words.iter().map(ToString::to_string).collect();
        texts.entry(key).or_insert_with(|| help(words)).clone()
    };
    let Use { verb, flags } = used;
    let general = text_of(&["--help"])?;
    let fix = "name one that exists, or say \"planned\" on the line";
    if !verb.is_empty() && !has_word(&general, verb) {
        return Err(format!("`raidlab {verb}` is not in `raidlab --help`; {fix}"));
    }
    // A verb whose options are others with this flag.
    let form = flags.iter().find(|flag| (&**verb, &***flag) == FORM).map(String::as_str);
    let words: Vec<&str> = [Some(&**verb), form, Some("--help")].into_iter().flatten().collect();
    let text = if verb.is_empty() { general.clone() } else { text_of(&words)? };
    let is_known =
        |flag: &&String| *flag == "--help" || has_word(&text, flag) || has_word(&general, flag);
    match flags.iter().find(|flag| !is_known(flag)) {
        Some(flag) => Err(format!("`{flag}` is not in `raidlab {verb} --help`; {fix}")),
        None => Ok(()),
    }
}

/// Pages for users; a changelog also names what is gone.
fn is_manual(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") || path.ends_with("/README.md")
}

fn has_word(help: &str, word: &str) -> bool {
    help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|other| other == word)
}

/// All uses of a page, with their lines.
fn uses(page: &str) -> Vec<(usize, Use)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in page_lines(page) {
        let planned = line.text.to_lowercase().contains("planned");
        if !line.code {
            open = None;
            if !planned {
                let spans = code_spans(line.text).into_iter();
                // A span that is only the program's name is prose.
                let spans = spans.filter(|span| span.contains(' '));
                found.extend(spans.flat_map(commands).map(|used| (line.number, used)));
            }
            continue;
        }
        let (start, text) = match open.take() {
            Some((start, text)) => (start, format!("{text} {}", line.text)),
            None => (line.number, line.text.to_string()),
        };
        match text.trim_end().strip_suffix('\\') {
            Some(more) => open = Some((start, more.to_string())),
            None if planned => {}
            None => found.extend(commands(&text).into_iter().map(|used| (start, used))),
        }
    }
    found
}

/// The uses in one command line, which may be a pipeline or a list.
fn commands(line: &str) -> Vec<Use> {
    let line = line.trim().strip_prefix("$ ").unwrap_or(line.trim());
    let line = line.split(" # ").next().unwrap_or("");
    line.split(['|', ';', '&']).filter_map(command).collect()
}

fn command(text: &str) -> Option<Use> {
    let text = text.replace(['"', '\'', '[', ']'], " ");
    let mut words = text.split_whitespace().peekable();
    let is_setting = |word: &&str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    while words.next_if(|word| *word == "sudo" || is_setting(word)).is_some() {}
    let program = words.next()?;
    let mut arguments: Vec<&str> = words.collect();
    match program.rsplit('/').next()? {
        "raidlab" => {}
        "cargo" => {
            let ours = arguments.windows(2).any(|pair| pair == ["-p", "raidlab-cli"]);
            let start = arguments.iter().position(|word| *word == "--")?;
            arguments = arguments.split_off(start + 1);
            if !ours {
                return None;
            }
        }
        "make" if arguments.first() == Some(&"bench") => {
            arguments.retain(|word| !is_setting(word));
        }
        _ => return None,
    }
    let verb = arguments.iter().find(|word| !word.starts_with('-')).copied().unwrap_or("");
    // `raidlab VERB` in a syntax line stands for all of them.
    let verb = if verb.chars().any(|c| !(c.is_ascii_lowercase() || c == '-')) { "" } else { verb };
    let flags = arguments.iter().filter(|word| word.starts_with("--") && word.len() > 2);
    let name = |flag: &&str| {
        let end = flag.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        flag[..end.unwrap_or(flag.len())].to_string()
    };
    Some(Use { verb: verb.into(), flags: flags.map(name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(page: &str) -> Vec<(usize, String)> {
        let help = |words: &[&str]| match words {
            ["--help"] => Ok("verbs: bench, dump\n  --json  machine output\n".to_string()),
            ["bench", "--help"] => Ok("--level L, --html=FILE\n".to_string()),
            _ => Err("`raidlab dump --help` ends with 2".to_string()),
        };
        let findings = check(&Tree::of(&[("docs/a.md", page)]), &help);
        let start = |text: &str| text.split(';').next().unwrap_or_default().to_string();
        findings.into_iter().map(|finding| (finding.line, start(&finding.text))).collect()
    }

    #[test]
    fn true_command_lines_pass() {
        for good in [
            "`raidlab bench --level 5 --json` and `raidlab --json`",
            "```\n$ sudo ./target/release/raidlab bench \\\n   --html=a.html | less --wild\n```",
            "```sh\nmake bench ARGS=\"--level 5\"\ncargo run -p raidlab-cli -- bench --json\n```",
            "`raidlab VERB --help` `raidlab bench [--json]` `raidlab`",
            "`raidlab predict --wild` is planned",
            "raidlab bench --wild in prose is not code; `mdadm --wild` is not ours",
        ] {
            assert_eq!(whats(good), [], "{good}");
        }
    }

    #[test]
    fn unknown_verbs_and_flags_are_found() {
        let flag = "`--wild` is not in `raidlab bench --help`";
        for (bad, line, what) in [
            ("`raidlab bench --wild`", 1, flag),
            ("`raidlab bench [--wild]`", 1, flag),
            ("```\nraidlab bench --level 5 \\\n  --wild=3\n```", 2, flag),
            ("```\nA=1 sudo raidlab bench --json && raidlab bench --wild\n```", 2, flag),
            ("```\nmake bench ARGS='--wild 1'\n```", 2, flag),
            ("`cargo run -p raidlab-cli -- bench --wild`", 1, flag),
            ("`raidlab rescue`", 1, "`raidlab rescue` is not in `raidlab --help`"),
            ("`raidlab dump a`", 1, "`raidlab dump --help` ends with 2"),
        ] {
            assert_eq!(whats(bad), [(line, what.to_string())], "{bad}");
        }
    }
}
