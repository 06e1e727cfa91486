//! The verbs by what people come for: the list of `raidlab --help`.
//!
//! Invariant: each verb has one purpose. clap, which has no groups of subcommands, makes the list
//! of each. Called by the crate's root.

use clap::Command;

/// Purposes, and the verbs of each.
const PURPOSES: [(&str, &[&str]); 5] = [
    (
        "Measure",
        &["bench", "sweep", "programs", "report", "compare", "calibrate", "diagnose", "watch"],
    ),
    ("Know before buying", &["predict", "advise"]),
    (
        "Run",
        &[
            "create",
            "serve",
            "fail",
            "remove",
            "add",
            "replace",
            "set",
            "stop",
            "rebuild",
            "scrub",
            "update",
            "zero-superblock",
        ],
    ),
    (
        "Rescue (also serve --read-only)",
        &["status", "examine", "detail", "volumes", "guess", "dump", "reshape"],
    ),
    ("The program itself", &["generate", "help"]),
];

/// The program with a help that lists verbs by purpose.
pub fn with_lists(program: Command) -> Command {
    let mut built = program.clone();
    built.build();
    let header = program.get_styles().get_header();
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_string();
    for (purpose, names) in PURPOSES {
        let verbs = names.iter().enumerate().filter_map(|(order, name)| {
            Some(built.find_subcommand(name)?.clone().display_order(order))
        });
        let list = Command::default().max_term_width(crate::HELP_WIDTH);
        let list = list.help_template("{subcommands}").disable_help_subcommand(true);
        let list = list.subcommands(verbs).render_help().ansi().to_string();
        // A build with a part of the features may have none of them.
        if !list.trim().is_empty() {
            help += &format!("\n{header}{purpose}:{header:#}\n{}\n", list.trim_end());
        }
    }
    help += &format!("\n{header}Options:{header:#}\n{{options}}");
    program.help_template(help)
}

/// The program with a line for each purpose below its help: its man page has one list of all verbs.
pub fn with_lines(program: Command) -> Command {
    let is_here = |name: &&str| *name == "help" || program.find_subcommand(name).is_some();
    let lines = PURPOSES.iter().filter_map(|(purpose, names)| {
        let names: Vec<&str> = names.iter().copied().filter(is_here).collect();
        (!names.is_empty()).then(|| format!("{purpose}: {}", names.join(", ")))
    });
    let lines: Vec<String> = lines.collect();
    program.after_help(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_has_one_purpose() {
        let mut program = <crate::Arguments as clap::CommandFactory>::command();
        program.build();
        let named = |verb: &str| {
            PURPOSES.iter().flat_map(|(_, names)| *names).filter(|name| **name == verb).count()
        };
        for verb in program.get_subcommands().map(Command::get_name) {
            assert_eq!(named(verb), 1, "{verb}");
        }
    }
}
