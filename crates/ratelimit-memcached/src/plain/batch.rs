//! Owned commands of a batch, so that a thread can hold them.

use std::collections::HashSet;

use crate::servers::{Answers, CommandIndex};
use crate::wire::Command;

/// A command. Names and meanings are those of [`Command`].
#[derive(Clone, Debug)]
pub(super) enum Order {
    Add {
        units: u64,
        lifetime: u64,
    },
    Deduction {
        units: u64,
    },
    /// `ReadCounter` and `Read`, which are the same here.
    Read,
    Write {
        value: Vec<u8>,
        unique: Option<u64>,
        lifetime: u64,
    },
    Reset {
        mark: String,
        lifetime: u64,
    },
    Delete,
}

/// The commands of a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    /// The number of replies of earlier batches before those of this one.
    before: usize,
    pub(super) list: Vec<(String, Order)>,
}

impl Orders {
    pub(crate) fn after(answers: &Answers) -> Self {
        Self { before: answers.0.first().map_or(0, Vec::len), list: Vec::new() }
    }

    pub(crate) fn push(&mut self, command: &Command<'_>) -> CommandIndex {
        let (key, order) = match *command {
            Command::Add { key, units, lifetime } => (key, Order::Add { units, lifetime }),
            Command::Deduction { key, units } => (key, Order::Deduction { units }),
            Command::ReadCounter { key } | Command::Read { key } => (key, Order::Read),
            Command::Write { key, value, unique, lifetime } => {
                (key, Order::Write { value: value.to_vec(), unique, lifetime })
            }
            Command::Reset { key, mark, lifetime } => (key, Order::Reset { mark: mark.to_owned(), lifetime }),
            Command::Delete { key } => (key, Order::Delete),
        };
        self.list.push((key.to_owned(), order));
        CommandIndex { server: 0, nth: self.before + self.list.len() - 1 }
    }

    /// The reads that come before everything else: of items that a reset is about to replace. All other reads come after
    /// everything else.
    pub(super) fn first_reads(&self) -> Vec<usize> {
        let mut replaced = HashSet::new();
        let mut reads = Vec::new();
        for (nth, (key, order)) in self.list.iter().enumerate().rev() {
            match order {
                Order::Reset { .. } => _ = replaced.insert(key),
                Order::Read if replaced.contains(key) => reads.push(nth),
                _ => {}
            }
        }
        reads
    }
}
