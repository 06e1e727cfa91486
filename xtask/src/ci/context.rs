//! What the steps share: the workspace, the counts of tests, how a command is run.

use std::process::Command;

use super::Outcome;
use super::totals::Totals;
use crate::workspace::{Workspace, cargo};

/// What steps share.
pub struct Context {
    /// The workspace all commands run in.
    pub workspace: Workspace,
    /// Of the steps that run tests.
    pub totals: Option<Totals>,
}

impl Context {
    /// Nothing has run yet.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace, totals: None }
    }

    /// Counts more tests.
    pub fn add(&mut self, totals: Totals) {
        *self.totals.get_or_insert_default() += totals;
    }

    /// cargo, with these words, at the root.
    pub fn cargo(&self, args: &str) -> Command {
        let mut command = cargo();
        command.current_dir(&self.workspace.root).args(args.split_whitespace());
        command
    }
}

/// Runs a command, whose output is shown.
pub fn finish(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("could not be started: {error}")),
    }
}
