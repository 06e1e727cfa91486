//! Owns a channel: drives on one cable, of which one at a time has a command.
//!
//! ```text
//!   drive 0 (master) --\
//!                       | one command from its issue to its end, then the next drive's turn
//!   drive 1 (slave)  --/
//! ```
//!
//! As on parallel ATA, a seeking drive holds the channel, and the command of the other waits in the
//! host. Internal work of a drive (read-ahead, destaging its write cache) continues concurrently.
//! Drives take turns, as hosts of that time scheduled them; the order is that of `add_drive`.
//!
//! Invariant: between `take` and `give_back` no other drive takes it. Called by `rig` only.

/// One channel.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    drives: Vec<usize>,
    taken: bool,
}

impl Channel {
    /// Puts a drive on it.
    pub fn add(&mut self, drive: usize) {
        self.drives.push(drive);
    }

    pub fn is_free(&self) -> bool {
        !self.taken
    }

    /// A command begins.
    pub fn take(&mut self) {
        assert!(!self.taken, "one command at a time");
        self.taken = true;
    }

    /// The command has ended.
    pub fn give_back(&mut self) {
        assert!(self.taken, "a command ends that has begun");
        self.taken = false;
    }

    /// The drive whose turn is `turn` places after that of `drive`: `drive` itself comes last.
    pub fn turn(&self, drive: usize, turn: usize) -> Option<usize> {
        let at = self.drives.iter().position(|one| *one == drive)?;
        (turn < self.drives.len()).then(|| self.drives[(at + 1 + turn) % self.drives.len()])
    }
}
