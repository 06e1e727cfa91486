//! The list of programs that the tests start: `scripts/tools`, which the set-up installs from.
//!
//! Invariant: a line that does not read is an error, so that no program is left out in silence.
//! Called by the step `tools` of `ci` and by the check `tools` of `tidy`.

use std::path::Path;

/// Where the list is, from the project's root.
pub const PATH: &str = "scripts/tools";

/// When the set-up installs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// With `--with-tests`.
    Tests,
    /// With `--with-tests`, as root.
    Root,
    /// Never on this machine: it is unpacked for the guest.
    Guest,
    /// Never; no required test needs it.
    Optional,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Counted from 1.
    pub line: usize,
    /// One of these programs is enough.
    pub programs: Vec<String>,
    /// Debian's package.
    pub package: String,
    /// When it is installed.
    pub when: When,
}

/// Reads the list.
///
/// # Errors
/// The line that does not read, counted from 1, and why.
pub fn parse(text: &str) -> Result<Vec<Tool>, (usize, String)> {
    let mut tools = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [programs, package, when] = words[..] else {
            return Err((number, "three columns are wanted: program, package, when".into()));
        };
        let when = match when {
            "tests" => When::Tests,
            "root" => When::Root,
            "guest" => When::Guest,
            "optional" => When::Optional,
            other => {
                let known = "tests, root, guest or optional";
                return Err((number, format!("`{other}` is not one of {known}")));
            }
        };
        let programs = programs.split('|').map(str::to_string).collect();
        tools.push(Tool { line: number, programs, package: package.into(), when });
    }
    Ok(tools)
}

/// What the set-up would have installed and `is_there` does not find, as "program (package)".
pub fn missing(tools: &[Tool], root: bool, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let wanted = |tool: &&Tool| match tool.when {
        When::Tests => true,
        When::Root => root,
        When::Guest | When::Optional => false,
    };
    let lacks = |tool: &&Tool| !tool.programs.iter().any(|program| is_there(program));
    let name = |tool: &Tool| format!("{} ({})", tool.programs[0], tool.package);
    tools.iter().filter(wanted).filter(lacks).map(name).collect()
}

/// Whether a program is on the path, or where administrators' tools are.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(more).any(|directory| directory.join(program).is_file())
}

/// Whether this process is root's, as the owner of /proc/self says.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# a comment\n\nsh dash tests\nchromium|chrome chromium tests\n\
        mkfs.xfs xfsprogs root\nlvm lvm2 guest\nfio fio optional\n";

    #[test]
    fn what_the_set_up_would_have_installed_is_missed() {
        let tools = parse(LIST).unwrap();
        assert_eq!(tools[0].line, 3);
        let all = ["sh (dash)", "chromium (chromium)", "mkfs.xfs (xfsprogs)"];
        assert_eq!(missing(&tools, true, |_| false), all);
        assert_eq!(missing(&tools, false, |_| false), all[..2]);
        assert_eq!(missing(&tools, true, |program| program != "mkfs.xfs"), all[2..]);
        assert!(missing(&tools, false, |program| ["sh", "chrome"].contains(&program)).is_empty());
    }

    #[test]
    fn a_line_that_does_not_read_is_an_error() {
        let two = "sh dash tests\nsh dash often";
        for (bad, line) in [("sh dash", 1), (two, 2), ("a b tests c", 1)] {
            assert_eq!(parse(bad).unwrap_err().0, line, "{bad}");
        }
    }

    #[test]
    fn programs_are_looked_for_on_the_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("raidlab-no-such-program"));
    }
}
