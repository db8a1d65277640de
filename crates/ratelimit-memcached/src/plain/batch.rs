//! The commands of a batch for the plain protocol, owned, so that a thread can hold them.

use std::collections::HashSet;

use crate::servers::{Answers, CommandIndex};
use crate::wire::Command;

/// Commands that are performed together, each with the key of its item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// The number of replies of earlier batches before those of this one.
    before: usize,
    pub(super) commands: Vec<(String, Command)>,
}

/// Whether it reads. Both reads are the same in the plain protocol.
pub(super) fn is_read(command: &Command) -> bool {
    matches!(command, Command::ReadCounter | Command::Read)
}

impl Batch {
    pub(crate) fn after(answers: &Answers) -> Self {
        Self { before: answers.0.first().map_or(0, Vec::len), commands: Vec::new() }
    }

    pub(crate) fn push(&mut self, key: &str, command: Command) -> CommandIndex {
        self.commands.push((key.to_owned(), command));
        CommandIndex { server: 0, nth: self.before + self.commands.len() - 1 }
    }

    /// The reads that come before everything else: of items that a reset is about to replace. All other reads come after
    /// everything else.
    pub(super) fn first_reads(&self) -> Vec<usize> {
        let mut replaced = HashSet::new();
        let mut reads = Vec::new();
        for (nth, (key, command)) in self.commands.iter().enumerate().rev() {
            match command {
                Command::Reset { .. } => _ = replaced.insert(key),
                command if is_read(command) && replaced.contains(key) => reads.push(nth),
                _ => {}
            }
        }
        reads
    }
}
