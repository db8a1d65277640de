//! Opens files and standard input, and decompresses what is compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use flate2::bufread::MultiGzDecoder;

/// A log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Its size on the disk in bytes; `None` if it is standard input, a pipe or missing.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File(path) => path.metadata().ok().filter(|data| data.is_file()).map(|data| data.len()),
        }
    }

    /// Opens it. The bytes that are read from it, before they are decompressed, are added to `read`.
    pub(crate) fn open(&self, read: &Arc<AtomicU64>) -> anyhow::Result<Box<dyn BufRead>> {
        let raw: Box<dyn Read> = match self {
            Self::Stdin => Box::new(io::stdin()),
            Self::File(path) => Box::new(open_file(path)?),
        };
        decompressed(Counted { input: raw, read: read.clone() })
            .with_context(|| format!("{}: cannot be read", self.name()))
    }
}

fn open_file(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?;
    if file.metadata().is_ok_and(|data| data.is_dir()) {
        anyhow::bail!("{}: it is a folder; name the files in it", path.display());
    }
    Ok(file)
}

/// The size of the buffers, in bytes.
const BUFFER: usize = 1 << 18;

/// Decompresses gzip and zstd, which are recognised by their first bytes, since rotated files can have any name.
fn decompressed(input: Counted) -> io::Result<Box<dyn BufRead>> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    Ok(match input.fill_buf()? {
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input))),
        // A frame of zstd, or a skippable frame, with which the files of pzstd begin.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(BufReader::with_capacity(BUFFER, zstd::Decoder::with_buffer(input)?))
        }
        [0xff, 0xfe, ..] => Box::new(BufReader::with_capacity(BUFFER, Utf16::new(input, u16::from_le_bytes))),
        [0xfe, 0xff, ..] => Box::new(BufReader::with_capacity(BUFFER, Utf16::new(input, u16::from_be_bytes))),
        _ => Box::new(input),
    })
}

/// Text in UTF-16, read as UTF-8: what PowerShell writes into a file.
struct Utf16 {
    input: BufReader<Counted>,
    unit: fn([u8; 2]) -> u16,
    /// The first half of a unit, and of a pair of units.
    half: Option<u8>,
    high: Option<u16>,
    text: Vec<u8>,
    /// How much of the text was read.
    read: usize,
}

impl Utf16 {
    fn new(input: BufReader<Counted>, unit: fn([u8; 2]) -> u16) -> Self {
        Self { input, unit, half: None, high: None, text: Vec::new(), read: 0 }
    }

    /// Replaces the text by more of it, or by nothing at the end.
    fn advance(&mut self) -> io::Result<()> {
        self.text.clear();
        self.read = 0;
        while self.text.is_empty() {
            let bytes = self.input.fill_buf()?;
            let count = bytes.len();
            let mut units: Vec<u16> = self.high.take().into_iter().collect();
            for byte in bytes {
                match self.half.take() {
                    Some(first) => units.push((self.unit)([first, *byte])),
                    None => self.half = Some(*byte),
                }
            }
            self.input.consume(count);
            if count > 0 {
                self.high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
            } else if self.half.take().is_some() {
                units.push(0xfffd);
            }
            let mut letter = [0; 4];
            for read in char::decode_utf16(units) {
                let read = read.unwrap_or(char::REPLACEMENT_CHARACTER);
                self.text.extend_from_slice(read.encode_utf8(&mut letter).as_bytes());
            }
            if count == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Read for Utf16 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.text.len() {
            self.advance()?;
        }
        let mut rest = self.text.get(self.read..).unwrap_or_default();
        let count = rest.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

struct Counted {
    input: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let more = self.input.read(buffer)?;
        self.read.fetch_add(more as u64, Ordering::Relaxed);
        Ok(more)
    }
}
