//! Parses sweep files.
//!
//! ```text
//!   title = "..."            the sweep's own keys
//!   [defaults]               options of every [[run]], by the names of the command line
//!   members = "paced:hdd-2007"
//!   [[run]]                  one matrix: every list multiplies
//!   level = ["raid0", "raid5"]
//!   disks = [2, 3, 4]
//!   host = ["alpha", "beta"]  on each of these machines; without it on any
//! ```
//!
//! Values stay texts here: the command line's parser reads them, so sweeps support every option
//! that it supports.
//!
//! Invariant: an unknown key is an error, with its line. Pure.

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed sweep file.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepFile {
    /// Its name in the results: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Title for display.
    pub title: String,
    /// The set of published figures to show beside it.
    pub published: Option<String>,
    /// The matrices, the defaults filled in.
    pub runs: Vec<SweepTable>,
}

/// One `[[run]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepTable {
    /// Its first line, from 1.
    pub line: usize,
    /// Its options, the defaults' first.
    pub options: Vec<SweepOption>,
    /// The machines to measure it on, by host name; none: any one of them.
    pub hosts: Vec<String>,
}

/// `--key=value` for each value.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepOption {
    /// The option without its dashes.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its values. `true` is an option without value: an empty list.
    pub values: Vec<String>,
}

/// An error in a sweep file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct SweepError {
    /// Line of the error, from 1.
    pub line: usize,
    /// The reason.
    #[source]
    pub problem: SweepProblem,
}

/// What is wrong in a sweep file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SweepProblem {
    /// It is no TOML.
    #[error("{}, in '{line}'", source.message())]
    Syntax {
        /// The beginning of the line at fault.
        line: String,
        /// The parser's error.
        source: Box<toml::de::Error>,
    },
    /// A table has no such key.
    #[error(
        "unknown key '{key}'{}; there are {}",
        table.map_or(String::new(), |table| format!(" in '{table}'")), known.join(", ")
    )]
    UnknownKey {
        /// The given key.
        key: String,
        /// The table; `None`: the sweep's own keys.
        table: Option<&'static str>,
        /// The keys that it may have.
        known: Vec<String>,
    },
    /// The value of a key of the sweep's own is no text.
    #[error("{0}: a text in quotes")]
    NotAText(String),
    /// `defaults` is no table.
    #[error("defaults is a table: [defaults]")]
    Defaults,
    /// `run` is no list of tables.
    #[error("each matrix is a table: [[run]]")]
    Run,
    /// The name cannot be used for a file.
    #[error("name '{0}': letters, digits, '-', '_', '.' only")]
    Name(String),
    /// The name of a machine has characters that no host name has, or is there twice.
    #[error("host '{0}': each name once; letters, digits, '-', '_', '.' only")]
    Host(String),
    /// There is no matrix.
    #[error("there is no [[run]]: nothing to measure")]
    NoRun,
    /// An option has an empty list of values.
    #[error("{0}: an empty list; leave it out")]
    EmptyList(String),
    /// The value of an option is neither a text nor a number, nor a list of them.
    #[error("{0}: texts and numbers only, or a list of them")]
    NotPlain(String),
}

/// The key of the machines of a matrix, beside the options.
const HOST: &str = "host";

const OWN_KEYS: [&str; 5] = ["name", "title", "published", "defaults", "run"];

impl SweepFile {
    /// Reads a sweep. `stem` is its name where it gives none; `known` are the options that a matrix
    /// may set.
    ///
    /// # Errors
    /// The first error, with its line.
    pub fn parse(text: &str, stem: &str, known: &[&str]) -> Result<SweepFile, SweepError> {
        let reader = Reader { text, known };
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.lines().nth(reader.line(at) - 1).unwrap_or_default().trim();
            let line = line.chars().take(60).collect();
            reader.fail(at, SweepProblem::Syntax { line, source: Box::new(error) })
        })?;
        let mut file = SweepFile {
            name: stem.into(),
            title: String::new(),
            published: None,
            runs: Vec::new(),
        };
        let mut defaults = Vec::new();
        let mut tables = Vec::new();
        for (key, value) in document.get_ref() {
            let at = key.span().start;
            match key.get_ref().as_ref() {
                "name" => file.name = reader.text_of(key, value)?,
                "title" => file.title = reader.text_of(key, value)?,
                "published" => file.published = Some(reader.text_of(key, value)?),
                "defaults" => match value.get_ref() {
                    DeValue::Table(table) => defaults = reader.options(table, "[defaults]")?,
                    _ => return Err(reader.fail(at, SweepProblem::Defaults)),
                },
                "run" => match value.get_ref() {
                    DeValue::Array(array) => tables = array.iter().collect(),
                    _ => return Err(reader.fail(at, SweepProblem::Run)),
                },
                other => return Err(reader.unknown(at, other, None, &OWN_KEYS)),
            }
        }
        if !is_name(&file.name) {
            return Err(reader.fail(0, SweepProblem::Name(file.name)));
        }
        if file.title.is_empty() {
            file.title.clone_from(&file.name);
        }
        if tables.is_empty() {
            return Err(reader.fail(0, SweepProblem::NoRun));
        }
        for table in tables {
            let line = reader.line(table.span().start);
            let DeValue::Table(own) = table.get_ref() else {
                let at = table.span().start;
                return Err(reader.fail(at, SweepProblem::Run));
            };
            let own = reader.options(own, "[[run]]")?;
            let named = |key: &str| own.iter().any(|option| option.key == key);
            let mut options: Vec<SweepOption> =
                defaults.iter().filter(|option| !named(&option.key)).cloned().collect();
            options.extend(own);
            let hosts = take_hosts(&mut options)?;
            file.runs.push(SweepTable { line, options, hosts });
        }
        Ok(file)
    }
}

/// The machines of a matrix: they are no option.
fn take_hosts(options: &mut Vec<SweepOption>) -> Result<Vec<String>, SweepError> {
    let Some(at) = options.iter().position(|option| option.key == HOST) else {
        return Ok(Vec::new());
    };
    let SweepOption { line, values, .. } = options.remove(at);
    let mut hosts: Vec<String> = Vec::new();
    // `host = true` has no value.
    let values = if values.is_empty() { vec![String::new()] } else { values };
    for host in values.iter().flat_map(|value| value.split(',')).map(str::trim) {
        if !is_name(host) || hosts.iter().any(|known| known == host) {
            return Err(SweepError { line, problem: SweepProblem::Host(host.into()) });
        }
        hosts.push(host.into());
    }
    Ok(hosts)
}

/// Whether a text can be a file's or a machine's name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

struct Reader<'a> {
    text: &'a str,
    known: &'a [&'a str],
}

impl Reader<'_> {
    /// The line of a place in the text, from 1.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    fn fail(&self, at: usize, problem: SweepProblem) -> SweepError {
        SweepError { line: self.line(at), problem }
    }

    fn unknown(
        &self,
        at: usize,
        key: &str,
        table: Option<&'static str>,
        known: &[&str],
    ) -> SweepError {
        let known = known.iter().map(|key| (*key).to_string()).collect();
        self.fail(at, SweepProblem::UnknownKey { key: key.into(), table, known })
    }

    fn text_of(
        &self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<String, SweepError> {
        let text = value.get_ref().as_str().map(|text| text.trim().to_string());
        let name = key.get_ref();
        text.ok_or_else(|| self.fail(key.span().start, SweepProblem::NotAText(name.to_string())))
    }

    fn options(
        &self,
        table: &DeTable<'_>,
        name_of: &'static str,
    ) -> Result<Vec<SweepOption>, SweepError> {
        let mut options = Vec::new();
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if name != HOST && !self.known.contains(&name) {
                let known = [self.known, &[HOST]].concat();
                return Err(self.unknown(at, name, Some(name_of), &known));
            }
            let values = match value.get_ref() {
                DeValue::Boolean(true) => Vec::new(),
                DeValue::Boolean(false) => continue,
                DeValue::Array(array) if array.is_empty() => {
                    return Err(self.fail(at, SweepProblem::EmptyList(name.into())));
                }
                DeValue::Array(array) => {
                    let each = array.iter().map(|one| self.plain(name, one));
                    each.collect::<Result<_, _>>()?
                }
                _ => vec![self.plain(name, value)?],
            };
            options.push(SweepOption { key: name.into(), line: self.line(at), values });
        }
        // The parser does not keep the order of keys; the line numbers do.
        options.sort_by_key(|option| option.line);
        Ok(options)
    }

    fn plain(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, SweepError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().into()),
            DeValue::Float(number) => Ok(number.as_str().into()),
            _ => Err(self.fail(value.span().start, SweepProblem::NotPlain(key.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["level", "disks", "members", "seconds"];

    fn parse(text: &str) -> Result<SweepFile, SweepError> {
        SweepFile::parse(text, "stem", &KNOWN)
    }

    #[test]
    fn defaults_go_into_each_matrix_that_does_not_say_otherwise() {
        let text = "title = 'T'\npublished = 'wiki'\n[defaults]\nmembers = 'mem'\nseconds = 0.5\n\
                    [[run]]\nlevel = ['raid0', 'raid5,raid6']\ndisks = [2, 3]\n\
                    [[run]]\nseconds = 2\ndisks = 4\n";
        let file = parse(text).expect("a sweep");
        assert_eq!((file.name.as_str(), file.title.as_str()), ("stem", "T"));
        assert_eq!(file.published.as_deref(), Some("wiki"));
        let shown = |table: &SweepTable| {
            let each = table.options.iter().map(|o| format!("{}:{}={:?}", o.line, o.key, o.values));
            each.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(&file.runs[0]),
            "4:members=[\"mem\"] 5:seconds=[\"0.5\"] 7:level=[\"raid0\", \"raid5,raid6\"] \
             8:disks=[\"2\", \"3\"]"
        );
        assert_eq!(shown(&file.runs[1]), r#"4:members=["mem"] 10:seconds=["2"] 11:disks=["4"]"#);
        assert_eq!((file.runs[0].line, file.runs[1].line), (6, 9));
    }

    #[test]
    fn hosts_are_of_a_matrix_and_no_option() {
        let text = "[defaults]\nhost = 'gamma'\n[[run]]\ndisks = 2\nhost = ['alpha', 'beta,b-2']\n\
                    [[run]]\ndisks = 3\n";
        let file = parse(text).expect("a sweep");
        assert_eq!(file.runs[0].hosts, ["alpha", "beta", "b-2"]);
        assert_eq!(file.runs[1].hosts, ["gamma"]);
        assert!(file.runs.iter().flat_map(|run| &run.options).all(|option| option.key == "disks"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, part) in [
            ("titel = 'x'\n[[run]]\n", 1, "unknown key 'titel'; there are name, title"),
            (
                "[[run]]\nlevel = 'raid0'\nlevels = 'raid5'\n",
                3,
                "unknown key 'levels' in '[[run]]'",
            ),
            (
                "\n[defaults]\nfoo = 1\n[[run]]\n",
                3,
                "unknown key 'foo' in '[defaults]'; there are level",
            ),
            ("title = 'x'\n", 1, "no [[run]]"),
            ("[run]\nlevel = 'raid0'\n", 1, "[[run]]"),
            ("[[run]]\nlevel = [['raid0']]\n", 2, "texts and numbers only"),
            ("[[run]]\nlevel = []\n", 2, "empty list"),
            ("[[run]]\n\ndisks = \n", 3, ""),
            ("[[run]]\ndisks = 1\ndisks = 2\n", 3, "duplicate key, in 'disks = 2'"),
            ("name = 'a b'\n[[run]]\n", 1, "letters, digits"),
            ("title = 5\n[[run]]\n", 1, "title: a text"),
            ("[[run]]\nhost = ['a', 'b', 'a']\n", 2, "host 'a': each name once"),
            ("[[run]]\nhost = 'a b'\n", 2, "host 'a b': each name once; letters"),
            ("[[run]]\n\nhost = true\n", 3, "host ''"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
