//! `generate`: writes generated traffic as a log.

use std::io::{self, Write as _};

use anyhow::Context as _;

use super::output::say;
use crate::args::GenerateArgs;
use crate::model::{LogText, Traffic};

pub(crate) fn run(args: &GenerateArgs) -> anyhow::Result<()> {
    let spec = args.model.spec();
    let mut text = LogText::new(Traffic::new(&spec)?, spec.keys, args.format);
    // The options are not a comment in the log, since other programs that read it do not know comments.
    say(&format!("generate {spec}"));
    let mut out = io::stdout().lock();
    io::copy(&mut text, &mut out).and_then(|_| out.flush()).context("standard output: cannot be written")
}
