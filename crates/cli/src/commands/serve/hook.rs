//! Runs a program for each event, as `mdadm --monitor --program` does.
//!
//! Invariant: one program at a time, in the order of the events; one that does not end delays only
//! those behind it, and is not waited for at the stop.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use admin::serving::{Event, Serving};
use anyhow::Result;

use crate::console::say;
use crate::error::Context;

const STEP: Duration = Duration::from_millis(200);

/// The thread that runs the program. Dropping it ends it.
pub struct Hook {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hook {
    pub fn start(program: &Path, array: &str, serving: Arc<Serving>) -> Result<Hook> {
        let ending = Arc::new(AtomicBool::new(false));
        let runner =
            Runner { program: program.into(), array: array.into(), ending: ending.clone() };
        let thread = std::thread::Builder::new()
            .name("raidlab-hook".into())
            .spawn(move || runner.run(&serving))
            .context("cannot start a thread")?;
        Ok(Hook { ending, thread: Some(thread) })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}

struct Runner {
    program: PathBuf,
    array: String,
    ending: Arc<AtomicBool>,
}

impl Runner {
    fn run(&self, serving: &Serving) {
        let mut seen = 0;
        while !self.ending.load(Ordering::Relaxed) {
            let watched = serving.watch(seen, STEP);
            for event in watched.events {
                seen = event.number;
                if self.ending.load(Ordering::Relaxed) {
                    return;
                }
                self.call(&event);
            }
        }
    }

    fn call(&self, event: &Event) {
        // runs: sh
        let mut command = Command::new(&self.program);
        command.arg(event.kind.name()).arg(&self.array).args(&event.device);
        command.stdin(Stdio::null());
        match command.spawn() {
            Ok(child) => self.wait(child),
            Err(error) => {
                let program = self.program.display();
                say(format_args!("raidlab: --program {program}: {error}"));
            }
        }
    }

    fn wait(&self, mut child: Child) {
        loop {
            match child.try_wait() {
                Ok(None) if !self.ending.load(Ordering::Relaxed) => std::thread::sleep(STEP / 10),
                _ => return,
            }
        }
    }
}
