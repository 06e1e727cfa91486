//! Program specifications, `bonnie++-2.00:n=16:c=2`, and their programs.
//!
//! ```text
//! NAME[:OPTION[=VALUE]]...          fio:JOBFILE
//! ```
//! Invariant: an unknown option is refused by name, with a list of the known ones; a specification
//! can be printed and parsed again. A job file is identified by its contents, read once when it is
//! named, not by its path.

use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::error::ProgramError;
use super::options::{ProgramOptions, Sizing};
use super::tools;
use super::types::Program;

/// A tool, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// The tool's variant: `dd`.
    pub tool: &'static tools::Tool,
    /// The options as given.
    pub options: Vec<(String, Option<String>)>,
    /// Contents of its job file, with the values of variables, read when it was named.
    pub job: Option<String>,
}

impl ProgramSpec {
    /// Whether a text names a program, valid or not: it begins with a tool's name.
    pub fn is_meant(text: &str) -> bool {
        tools::find(text.split(':').next().unwrap_or(text)).is_some()
    }

    /// The program, for a target.
    ///
    /// # Errors
    /// Names the option that makes no sense, or what does not fit.
    pub fn program(&self, scale: &Sizing) -> Result<Program, ProgramError> {
        let given = ProgramOptions::new(&self.options, self.job.as_deref());
        let mut program = (self.tool.make)(&given, scale).map_err(|problem| {
            ProgramError::Spec { spec: self.to_string(), problem: Box::new(problem) }
        })?;
        program.asked = self.identity();
        program.unit_bytes()?;
        Ok(program)
    }

    /// What it is, wherever it was named: as it was given, or a job file's name and what it holds,
    /// `fio:mixed.fio@0123456789abcdef`.
    pub fn identity(&self) -> String {
        let Some(job) = &self.job else { return self.to_string() };
        let path = self.options.first().map_or("", |(path, _)| path);
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        let digest = Sha256::digest(job.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{name}{JOB_MARK}{digest}", self.tool.name)
    }
}

/// Stands between a job file's name and what tells its contents from others.
const JOB_MARK: char = '@';

/// The part of [`ProgramSpec::identity`] that distinguishes programs: of a job file, only its
/// contents, so that it may be copied, moved and renamed.
pub fn canonical_id(identity: &str) -> &str {
    let is_digest = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let job = identity
        .split_once(':')
        .filter(|(name, _)| tools::find(name).is_some_and(|tool| tool.takes_path));
    let digest = job.and_then(|(_, rest)| rest.rsplit_once(JOB_MARK)).map(|(_, digest)| digest);
    digest.filter(|digest| is_digest(digest)).unwrap_or(identity)
}

impl std::fmt::Display for ProgramSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tool.name)?;
        for (name, value) in &self.options {
            match value {
                Some(value) => write!(f, ":{name}={value}")?,
                None => write!(f, ":{name}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for ProgramSpec {
    type Err = ProgramError;

    fn from_str(text: &str) -> Result<ProgramSpec, ProgramError> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let tool = tools::find(name).ok_or_else(|| ProgramError::UnknownTool {
            name: name.to_string(),
            known: tools::ALL.iter().map(|tool| tool.name).collect(),
        })?;
        let mut options: Vec<(String, Option<String>)> = Vec::new();
        if tool.takes_path {
            // A path may hold anything.
            let tool_name = tool.name;
            let path = rest.ok_or(ProgramError::NoJobFile { tool: tool_name })?;
            let job = std::fs::read_to_string(path).map_err(|source| {
                let path = path.to_string();
                ProgramError::JobFile { tool: tool_name, path, source }
            })?;
            let job = tools::resolved_fio_job(path, &job, &|name| std::env::var(name).ok())?;
            options.push((path.to_string(), None));
            return Ok(ProgramSpec { tool, options, job: Some(job) });
        }
        for option in rest.into_iter().flat_map(|rest| rest.split(':')) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (option, None),
            };
            if !tool.options.iter().any(|(known, _)| known.split('=').next() == Some(name)) {
                let name = name.to_string();
                let known = tool.options.iter().map(|(name, _)| *name).collect();
                return Err(ProgramError::UnknownOption { tool: tool.name, name, known });
            }
            if options.iter().any(|(other, _)| other == name) {
                return Err(ProgramError::OptionTwice { tool: tool.name, name: name.to_string() });
            }
            options.push((name.to_string(), value));
        }
        Ok(ProgramSpec { tool, options, job: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_come_back_as_they_were_given() {
        for text in ["dd", "dd:bs=2M:fdatasync", "bonnie++-2.00:n=0:f"] {
            assert_eq!(text.parse::<ProgramSpec>().expect(text).to_string(), text);
        }
        let short: ProgramSpec = "bonnie++".parse().expect("an alias");
        assert_eq!(short.to_string(), "bonnie++-2.00");
    }

    #[test]
    fn a_job_file_is_what_it_holds_and_not_where_it_lies() {
        let directory = tempfile::tempdir().expect("a directory");
        let choice = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("its directory")).expect("made");
            std::fs::write(&path, text).expect("written");
            format!("fio:{}", path.display()).parse::<ProgramSpec>().expect("a choice")
        };
        let one = choice("a/x.fio", "[r]\nrw=read\nsize=1M\n");
        let moved = choice("b/x.fio", "[r]\nrw=read\nsize=1M\n");
        let renamed = choice("b/y.fio", "[r]\nrw=read\nsize=1M\n");
        let other = choice("c/x.fio", "[r]\nrw=read\nsize=2M\n");
        assert_eq!(one.identity(), moved.identity());
        assert!(one.identity().starts_with("fio:x.fio@") && !one.identity().contains('/'));
        assert_ne!(one.identity(), other.identity());
        let essence = |choice: &ProgramSpec| super::canonical_id(&choice.identity()).to_string();
        assert_eq!(essence(&one), essence(&renamed));
        assert_ne!(essence(&one), essence(&other));
        // The job is the file as it was when named, and identities in records of older versions are
        // distinguished as before.
        std::fs::write(directory.path().join("a/x.fio"), "[r]\nrw=read\nsize=4M\n").expect("new");
        assert_eq!(one.program(&Sizing::default()).expect("a program").files, [1 << 20]);
        assert_eq!(one.program(&Sizing::default()).expect("a program").asked, one.identity());
        assert_eq!(canonical_id("fio:/jobs/x@1/y.fio"), "fio:/jobs/x@1/y.fio");
        assert_eq!(canonical_id("dd:bs=2M"), "dd:bs=2M");
        let missing = "fio:/no/such.fio".parse::<ProgramSpec>().expect_err("missing");
        let text = missing.to_string();
        assert!(text.starts_with("fio:/no/such.fio: cannot read it: "), "{text}");
        let ProgramError::JobFile { source, .. } = missing else { panic!("{missing:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        let unnamed = "fio".parse::<ProgramSpec>().expect_err("no job file");
        assert_eq!(unnamed.to_string(), "name the job file, as in fio:JOBFILE");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let wrong = |text: &str| match text.parse::<ProgramSpec>() {
            Err(problem) => problem.to_string(),
            Ok(choice) => choice.program(&Sizing::default()).expect_err(text).to_string(),
        };
        assert!(wrong("bonie").starts_with("no program 'bonie'; there are bonnie-1.2"));
        assert!(wrong("dd:cnt=4").starts_with("dd: no option 'cnt'; there are bs=SIZE"));
        assert_eq!(wrong("dd:direct:direct"), "dd: 'direct' is given twice");
        assert_eq!(wrong("dd:bs"), "dd:bs: 'bs' needs a value, as in bs=4");
        assert_eq!(wrong("dd:direct=1"), "dd:direct=1: 'direct' takes no value ('1')");
        assert!(wrong("dd:bs=100").contains("a multiple of 256 bytes"));
        assert!(wrong("bonnie++:c=0").contains("c=0: a number from 1 to"));
    }

    #[test]
    fn without_a_size_it_is_twice_the_memory_or_all_there_is() {
        let scale = Sizing { memory_bytes: 4 << 30, page_cache: true, ..Sizing::default() };
        assert_eq!(scale.bytes(), Ok(8 << 30));
        let small = Sizing { capacity: Some(1 << 30), ..scale };
        assert_eq!(small.bytes(), Ok(1 << 30));
        let engine = Sizing { capacity: Some(64 << 30), page_cache: false, ..scale };
        assert_eq!(engine.bytes(), Ok(64 << 30));
        let asked = Sizing { size: Some(1 << 20), ..engine };
        assert_eq!(asked.whole(8192), Ok(1 << 20));
        let error = Sizing { size: Some(2 << 30), ..small }.bytes().expect_err("too large");
        assert_eq!(error.to_string(), "--size 2 GiB: the target holds 1 GiB");
        assert!(Sizing { size: Some(100), ..scale }.whole(8192).is_err());
    }
}
