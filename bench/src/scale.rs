//! The scale of a run.

/// The scale of a full run, of a quick one, or of one that only shows that everything works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    pub(crate) repeats: usize,
    /// The repeats of long measurements.
    pub(crate) few_repeats: usize,
    /// The duration of a measurement in process.
    pub(crate) millis: u64,
    /// The duration of a measurement on a server.
    pub(crate) remote_millis: u64,
    pub(crate) many_keys: u64,
    pub(crate) new_keys: u64,
    /// The numbers of keys in memory measurements.
    pub(crate) weighed: (u64, u64),
    pub(crate) grown: &'static [u64],
    pub(crate) concurrency: &'static [u64],
    pub(crate) log_limits: &'static [u64],
    pub(crate) logged: u64,
}

pub(crate) const FULL: Scale = Scale {
    name: "full",
    repeats: 7,
    few_repeats: 3,
    millis: 100,
    remote_millis: 500,
    many_keys: 1_000_000,
    new_keys: 500_000,
    weighed: (1_000_000, 5_000_000),
    grown: &[1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000],
    concurrency: &[1, 4, 16, 64, 128, 512],
    log_limits: &[10, 1_000, 100_000],
    logged: 4_000_000,
};

pub(crate) const QUICK: Scale = Scale {
    name: "quick",
    repeats: 7,
    few_repeats: 1,
    millis: 30,
    remote_millis: 300,
    many_keys: 1_000_000,
    new_keys: 200_000,
    weighed: (500_000, 1_000_000),
    grown: &[1_000, 10_000, 100_000, 1_000_000],
    concurrency: &[1, 16, 128],
    log_limits: &[10, 1_000, 100_000],
    logged: 1_000_000,
};

/// For the tests of this crate.
pub(crate) const TINY: Scale = Scale {
    name: "tiny",
    repeats: 2,
    few_repeats: 1,
    millis: 1,
    remote_millis: 20,
    many_keys: 2_000,
    new_keys: 2_000,
    weighed: (5_000, 10_000),
    grown: &[100, 1_000],
    concurrency: &[1, 4],
    log_limits: &[10, 100],
    logged: 10_000,
};

/// `1,000,000` is `1M`.
pub(crate) fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 if number.is_multiple_of(1_000) => format!("{}k", number / 1_000),
        1_000_000.. if number.is_multiple_of(1_000_000) => format!("{}M", number / 1_000_000),
        _ => number.to_string(),
    }
}
