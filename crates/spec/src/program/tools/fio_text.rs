//! What fio takes, as sections with their options: a job file, or command lines of fio.
//!
//! ```text
//! resolved: ${VARIABLES}, $ncpus, include    sections: [global] in each section behind it
//! ```
//! Invariant: both forms give the same sections, and each option keeps its line. Variables that the
//! environment lacks stay as they are, as in fio. Called by `fio_job`, and where a job is read.

use std::path::Path;

use crate::mail;
use crate::program::error::{JobError, JobProblem};

/// An option, where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// A section: its settings, those of `[global]` before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) settings: Vec<Setting>,
}

/// Stands between the lines of an included file, which are one line of the job that includes it.
const INCLUDED: char = '\u{1f}';

/// Options that take no value in the next word of a command line.
const FLAGS: &str = "bs_unaligned blocksize_unaligned norandommap time_based verify_only exitall \
                     exitall_on_error stonewall wait_for_previous new_group thread \
                     group_reporting zero_buffers refill_buffers readonly minimal eta-newline \
                     append-terse parse-only showcmd warnings-fatal";

/// fio's own options of a command line, which say what it prints and how it is started.
const OF_FIO: &str = "output output-format minimal append-terse terse-version version eta \
                      eta-newline eta-interval status-interval bandwidth-log latency-log showcmd \
                      parse-only readonly debug max-jobs alloc-size warnings-fatal idle-prof \
                      inflate-log trigger-file trigger-timeout trigger trigger-remote aux-path \
                      section remote-config";

/// Whether a text is the options of a command line, rather than the name of a file.
pub fn is_command_line(text: &str) -> bool {
    !command_lines(&mail::decoded(text)).all.is_empty()
}

/// The text of a job with the values of variables, and with the files that it includes.
/// `variable` gives those of the environment, `path` is where the job was read.
///
/// # Errors
/// An included file that cannot be read.
pub fn resolved(
    path: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, JobError> {
    let mut out = String::with_capacity(text.len());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match stripped(line).strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
            None => out += &substituted(line, variable),
            Some(name) => {
                let beside = Path::new(path).with_file_name(name.trim());
                let file = std::fs::read_to_string(name.trim());
                let file = file.or_else(|_| std::fs::read_to_string(&beside));
                let problem = |error: std::io::Error| JobProblem::Include {
                    name: name.trim().to_string(),
                    why: error.to_string(),
                };
                let file = file.map_err(|error| fail(path, number, problem(error)))?;
                let lines: Vec<&str> = file.lines().map(stripped).collect();
                out += &substituted(&lines.join(&INCLUDED.to_string()), variable);
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// A line with the values of the variables that have one.
fn substituted(line: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut line = line.to_string();
    let mut from = 0;
    while let Some(start) = line[from..].find("${").map(|at| from + at) {
        let Some(end) = line[start..].find('}').map(|at| start + at) else { break };
        match variable(&line[start + 2..end]) {
            Some(value) => {
                line.replace_range(start..=end, &value);
                from = start + value.len();
            }
            None => from = end,
        }
    }
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    match line.contains("$ncpus") {
        true => line.replace("$ncpus", &cpus().to_string()),
        false => line,
    }
}

/// The sections of a job, in order.
///
/// # Errors
/// What is no section, or an option outside of all.
pub(super) fn sections(path: &str, text: &str) -> Result<Vec<Section>, JobError> {
    let text = &mail::decoded(text);
    let CommandLines { all, left_over } = command_lines(text);
    let sections = match (&all[..], left_over) {
        ([], _) => of_file(path, text)?,
        (_, Some((line, word))) => return Err(fail(path, line, JobProblem::LeftOver(word))),
        (lines, None) => of_command_lines(path, lines)?,
    };
    match sections.is_empty() {
        true => Err(JobError { path: path.to_string(), line: None, problem: JobProblem::NoJob }),
        false => Ok(sections),
    }
}

fn fail(path: &str, line: usize, problem: JobProblem) -> JobError {
    JobError { path: path.to_string(), line: Some(line), problem }
}

/// A line without its comment: fio's begin anywhere in a line.
fn stripped(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or("").trim_matches(['\u{feff}', ' ', '\t', '\r', '\n'])
}

/// A line of a job file as it was before a mail quoted it.
fn without_marks(line: &str) -> &str {
    if mail::is_quoted(line) { mail::unquoted(line) } else { line }
}

fn of_file(path: &str, text: &str) -> Result<Vec<Section>, JobError> {
    let mut global: Vec<Setting> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = false;
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(at, line)| (at, without_marks(line)));
    let lines = lines.flat_map(|(at, line)| line.split(INCLUDED).map(move |line| (at, line)));
    for (at, line) in lines.map(|(at, line)| (at, stripped(line))).filter(|(_, l)| !l.is_empty()) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let problem = || fail(path, at, JobProblem::NotASection(line.to_string()));
            let name = name.ok_or_else(problem)?;
            in_global = name.starts_with("global");
            if !in_global {
                sections.push(Section { name: name.into(), settings: global.clone() });
            }
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().to_string())),
            None => (line, None),
        };
        let setting = Setting { line: at, name: name.into(), value };
        match (in_global, sections.last_mut()) {
            // The name of [global] is that of no section.
            (true, _) => global.extend((setting.name != "name").then_some(setting)),
            (false, Some(section)) => section.settings.push(setting),
            (false, None) => return Err(fail(path, at, JobProblem::NoSection)),
        }
    }
    Ok(sections)
}

/// Words of a line behind `fio`, each with its line.
type Words = Vec<(usize, String)>;

/// The command lines of a text.
#[derive(Default)]
struct CommandLines {
    all: Vec<Words>,
    /// The first option, with its line, that is of none.
    left_over: Option<(usize, String)>,
}

/// The command lines of a text that is no job file: of a shell's prompt or of a mail that quotes
/// them, continued by `\` or by options on the next line. What stands between them, as fio's
/// output, is left out.
fn command_lines(text: &str) -> CommandLines {
    let mut found = CommandLines::default();
    if text.lines().any(is_section) {
        return found;
    }
    // How the line before ended: it may be continued, and it must be.
    let (mut goes_on, mut continued, mut quoted) = (false, false, false);
    for (at, line) in (1..).zip(text.lines()) {
        let (line, ends) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, false),
            None => (line, true),
        };
        let is_marked = mail::is_quoted(line);
        let bare = words(if is_marked { mail::unquoted(line) } else { line });
        // A shell's prompt of a continued line looks as quoted; its redirection does, too.
        let is_redirection = is_marked && !quoted && continued && !is_option(bare.first());
        let words = if is_redirection { words(line) } else { bare };
        if words.is_empty() {
            continue;
        }
        let options = is_option(words.first());
        let commands = words.split(|word| is_separator(word));
        let last = words.iter().filter(|word| is_separator(word)).count();
        for (place, words) in commands.enumerate() {
            let ends = ends || place < last;
            let name = |word: &String| word.rsplit('/').next() == Some("fio");
            let fio = words.iter().position(name).filter(|at| {
                let next = words.get(at + 1);
                next.is_none_or(|word| is_option(Some(word))) && (next.is_some() || !ends)
            });
            let headless = options && place == 0 && found.all.is_empty();
            let words = match fio.map(|at| at + 1).or(headless.then_some(0)) {
                Some(first) => {
                    found.all.push(Vec::new());
                    quoted = is_marked;
                    &words[first..]
                }
                None if place == 0 && goes_on && (continued || options) => words,
                None => {
                    if place == 0 && options && !continued && found.left_over.is_none() {
                        found.left_over = Some((at, words[0].clone()));
                    }
                    (goes_on, continued) = (false, !ends);
                    continue;
                }
            };
            // A mailer may have broken the line behind the sign.
            let broken = words.last().is_some_and(|word| word.ends_with('='));
            (goes_on, continued) = (place == last, !ends || broken);
            let kept = without_redirections(words).map(|word| (at, word.clone()));
            found.all.last_mut().expect("one has begun").extend(kept);
        }
    }
    found.all.retain(|words| !words.is_empty());
    found
}

/// Whether a word ends a command of a shell.
fn is_separator(word: &str) -> bool {
    word.starts_with(['|', ';']) || word == "&" || word == "&&"
}

/// What a shell does with the output is no option: `> x`, `2>&1`, `&>x`.
fn without_redirections(words: &[String]) -> impl Iterator<Item = &String> {
    let sign = |word: &str| {
        let rest = word.trim_start_matches(|first: char| first.is_ascii_digit() || first == '&');
        rest.starts_with(['>', '<']).then(|| rest.trim_start_matches(['>', '<', '&']).is_empty())
    };
    let is_target = move |at: usize| at > 0 && sign(&words[at - 1]) == Some(true);
    let kept = words.iter().enumerate();
    kept.filter(move |(at, word)| sign(word).is_none() && !is_target(*at)).map(|(_, word)| word)
}

fn is_option(word: Option<&String>) -> bool {
    word.is_some_and(|word| option_name(word).is_some())
}

/// Whether a line is `[a name]`, and not the prompt of a shell, as in `[root@host ~]# fio`.
fn is_section(line: &str) -> bool {
    let line = without_marks(line.trim_start_matches('\u{feff}')).trim();
    let rest = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    rest.is_some_and(|(_, rest)| {
        let is_prompt = ["# ", "$ "].iter().any(|sign| rest.starts_with(sign));
        !is_prompt && (rest.is_empty() || rest.trim_start().starts_with([';', '#']))
    })
}

/// The name of `--name=value` or `-name`, also where a dash has become a longer one.
fn option_name(word: &str) -> Option<&str> {
    let name = word.trim_start_matches(['-', '\u{2013}', '\u{2014}']);
    let name = (name.len() < word.len()).then(|| name.split('=').next().unwrap_or(name));
    name.filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
}

/// The words of a line as a shell splits it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn of_command_lines(path: &str, lines: &[Words]) -> Result<Vec<Section>, JobError> {
    let mut sections: Vec<Section> = Vec::new();
    for words in lines {
        let (mut global, first) = (Vec::new(), sections.len());
        let mut words = words.iter().peekable();
        while let Some((at, word)) = words.next() {
            let Some(name) = option_name(word) else {
                return Err(fail(path, *at, JobProblem::NotAnOption(word.clone())));
            };
            let is_in = |list: &str| list.split_whitespace().any(|known| known == name);
            let mut value = word.split_once('=').map(|(_, value)| value.to_string());
            if value.as_deref().is_none_or(str::is_empty) && !is_in(FLAGS) {
                let next = words.next_if(|(_, next)| option_name(next).is_none());
                value = next.map(|(_, next)| next.clone()).or(value);
            }
            if is_in(OF_FIO) {
                continue;
            }
            if name == "name" {
                let name = value.unwrap_or_default();
                let mut settings = Vec::clone(&global);
                if sections.len() == first && first > 0 {
                    let (line, name) = (*at, "stonewall".to_string());
                    settings.push(Setting { line, name, value: None });
                }
                sections.push(Section { name, settings });
                continue;
            }
            let setting = Setting { line: *at, name: name.replace('-', "_"), value };
            match sections.len() == first {
                true => global.push(setting),
                false => sections.last_mut().expect("of this command").settings.push(setting),
            }
        }
        if sections.len() == first && !global.is_empty() {
            sections.push(Section { name: "fio".into(), settings: global });
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name: option=value option`, a section a line.
    fn read(text: &str) -> String {
        let setting = |one: &Setting| match &one.value {
            Some(value) => format!("{}={value}", one.name),
            None => one.name.clone(),
        };
        let section = |one: &Section| {
            let settings: Vec<String> = one.settings.iter().map(setting).collect();
            format!("{}: {}", one.name, settings.join(" "))
        };
        let sections = sections("x", text).expect(text);
        sections.iter().map(section).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_end_a_line_and_global_may_come_again() {
        let text = "\u{feff}; x\r\n[global]\r\nbs=4k # blocks\r\n[a] ; one\r\nrw = read\r\n\
                    [global]\nbs=8k\n[ b ]\n  rw=write;x\n\n#[c]\n";
        assert_eq!(read(text), "a: bs=4k rw=read\nb: bs=4k bs=8k rw=write");
    }

    #[test]
    fn command_lines_are_sections() {
        for (line, expected) in [
            (
                "fio --name=x --rw=read --size 1g --thread --direct=1",
                "x: rw=read size=1g thread direct=1",
            ),
            ("--name=x --rw=read", "x: rw=read"),
            ("[root@host ~]# fio -rw=read -name=x -bs 4k -thread", "x: rw=read bs=4k thread"),
            ("$ sudo /usr/bin/fio \u{2013}name=x \u{2014}bs=4k", "x: bs=4k"),
            (
                "# fio --bs=4k --name=a --rw=read --name=b --rw=write",
                "a: bs=4k rw=read\nb: bs=4k rw=write",
            ),
            (
                "BS=4k fio --name='a b' --filename=\"/x y\" \\\n  --bs=4k \\\n--rw=read | tee log",
                "a b: filename=/x y bs=4k rw=read",
            ),
            ("fio --name=x --filename=\n/dev/md0 --bs=4k", "x: filename=/dev/md0 bs=4k"),
            (
                "fio --name=x --bs=4k\\\n--rw=read --output-format=json --output y\nx: (g=0)\n",
                "x: bs=4k rw=read",
            ),
            (
                "fio --name=a --bs=4k > x\nfio --name=b --rw=read 2>&1",
                "a: bs=4k\nb: stonewall rw=read",
            ),
            ("fio --rw=read --bs=4k", "fio: rw=read bs=4k"),
            ("fio \\\n --name=x", "x: "),
            // As a mail quotes and wraps it, and as a shell's second prompt has it.
            (
                "> fio --name=x \n> --rw=read\n> --filename=\n> /dev/md0",
                "x: rw=read filename=/dev/md0",
            ),
            (">> fio -name=x\n>> -bs=4k -rw=read\n\n>> -thread", "x: bs=4k rw=read thread"),
            ("$ fio --name=x \\\n> --rw=read \\\n> log", "x: rw=read"),
            ("fio --name=a > x --bs=4k && fio --name=b 2>&1 | tee -a y", "a: bs=4k\nb: stonewall"),
            ("fio --name=3Dx --rw=3Dread --bs=\n=3D4k", "x: rw=read bs=4k"),
            ("> [a]\n> rw=read\n> [b]\n> rw=write", "a: rw=read\nb: rw=write"),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
    #[test]
    fn an_option_of_no_command_is_refused() {
        for (text, line) in
            [("fio --name=x\nx: (g=0)\n--rw=read", 3), ("fio --name=x | tee log\n> --rw=read", 2)]
        {
            let error = sections("x", text).expect_err(text);
            assert_eq!(error.line, Some(line), "{text}");
            assert_eq!(error.problem, JobProblem::LeftOver("--rw=read".into()));
        }
        assert_eq!(read("fio --name=x | tee \\\n --append log"), "x: ");
    }
}
