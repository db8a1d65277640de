//! The families of measurements, and the names of their figures.

use crate::contestants::{self, Allow, FLOOR, GOVERNOR, MEMORY_ALONE, OURS, OURS_FIXED, OURS_GCRA};
use crate::job::{Job, Keys};
use crate::remote;
use crate::scale::{Scale, short};

/// A family: the same job for several contestants.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) contestants: Vec<&'static str>,
    pub(crate) job: Job,
    /// The arguments of the steps, in order.
    pub(crate) arguments: Vec<u64>,
    pub(crate) repeats: usize,
    /// The repeats of arguments that only make a curve smoother.
    pub(crate) fewer: (usize, &'static [u64]),
    /// Whether each measurement gets a new process.
    pub(crate) fresh: bool,
    /// The name of the required server in the testbed.
    pub(crate) server: Option<&'static str>,
    pub(crate) plots: Vec<Plot>,
}

impl Family {
    /// The number of repeats of this step.
    pub(crate) fn repeats_of(&self, argument: u64) -> usize {
        let (repeats, arguments) = self.fewer;
        if arguments.contains(&argument) { repeats.min(self.repeats) } else { self.repeats }
    }
}

/// One table and one picture of a family's figures.
pub(crate) struct Plot {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) columns: Columns,
    /// The contestant that ratios refer to.
    pub(crate) baseline: Option<&'static str>,
}

/// The source of the columns of a table.
pub(crate) enum Columns {
    /// One column for each argument, with the figure of this index. The arguments count something.
    Arguments(usize, &'static str),
    /// One argument. The columns are its figures with these indices and names.
    Figures(Vec<(usize, String)>),
}

/// The names of all families.
pub(crate) fn names() -> Vec<&'static str> {
    all(&crate::scale::TINY).iter().map(|family| family.name).collect()
}

/// All families.
pub(crate) fn all(scale: &Scale) -> Vec<Family> {
    let mut families = speeds(scale);
    families.push(new_keys(scale));
    families.push(instructions(scale));
    families.push(allocations());
    families.push(mass(scale));
    families.push(growth(scale));
    families.push(log(scale));
    families.push(log_memory(scale));
    for store in remote::STORES {
        families.push(on_server(store, scale));
        families.extend(store.log.map(|log| log_on_server(store, log.name, scale)));
    }
    families
}

fn in_process(name: &'static str, job: Job, scale: &Scale, plots: Vec<Plot>) -> Family {
    let contestants = contestants::ALL.to_vec();
    let repeats = scale.repeats;
    Family {
        name,
        contestants,
        job,
        arguments: vec![0],
        repeats,
        fewer: (0, &[]),
        fresh: false,
        server: None,
        plots,
    }
}

const NANOS: &str = "ns per decision";

fn one_column(name: &str, title: String) -> Vec<Plot> {
    let columns = Columns::Figures(vec![(0, "ns".to_owned())]);
    vec![Plot { name: name.to_owned(), title, unit: NANOS, columns, baseline: Some(GOVERNOR) }]
}

fn speeds(scale: &Scale) -> Vec<Family> {
    let many = scale.many_keys;
    let few = many / 10;
    let rows: [(&'static str, String, Keys, usize, Allow); 6] = [
        ("hot", "One hot key, one thread".to_owned(), Keys::One, 1, Allow::Everything),
        ("hot-2", "One hot key, two threads".to_owned(), Keys::One, 2, Allow::Everything),
        ("uniform", format!("{} keys, uniform", short(few)), Keys::Uniform(few), 1, Allow::Everything),
        ("zipf", format!("{} keys, Zipf", short(many)), Keys::Zipf(many), 1, Allow::Everything),
        ("refused", "One hot key refused, one thread".to_owned(), Keys::One, 1, Allow::Nothing),
        ("refused-2", "One hot key refused, two threads".to_owned(), Keys::One, 2, Allow::Nothing),
    ];
    rows.into_iter()
        .map(|(name, title, keys, threads, allow)| {
            let job = Job::Speed { keys, threads, allow, millis: scale.millis };
            in_process(name, job, scale, one_column(name, title))
        })
        .collect()
}

fn new_keys(scale: &Scale) -> Family {
    let title = format!("{} keys that were never seen", short(scale.new_keys));
    in_process("new", Job::New { keys: scale.new_keys }, scale, one_column("new", title))
}

fn instructions(scale: &Scale) -> Family {
    let columns = ["admitted", "refused"];
    let columns = columns.iter().enumerate().map(|(index, name)| (index, (*name).to_owned())).collect();
    Family {
        name: "instructions",
        contestants: vec![OURS, OURS_FIXED, OURS_GCRA, GOVERNOR],
        job: Job::Instructions,
        arguments: vec![0],
        // The seeds of hash functions differ from run to run.
        repeats: scale.repeats,
        fewer: (0, &[]),
        fresh: false,
        server: None,
        plots: vec![Plot {
            name: "instructions".to_owned(),
            title: "Instructions per decision on one busy key".to_owned(),
            unit: "instructions",
            columns: Columns::Figures(columns),
            baseline: Some(GOVERNOR),
        }],
    }
}

fn allocations() -> Family {
    let columns = ["known key", "refused", "new key"];
    let columns = columns.iter().enumerate().map(|(index, name)| (index, (*name).to_owned())).collect();
    let others = contestants::ALL.iter().copied().filter(|name| !name.starts_with(OURS));
    Family {
        name: "allocations",
        contestants: contestants::ours::forms().chain(others).collect(),
        job: Job::Allocations,
        arguments: vec![0],
        repeats: 1,
        fewer: (0, &[]),
        fresh: true,
        server: None,
        plots: vec![Plot {
            name: "allocations".to_owned(),
            title: "Allocations per decision".to_owned(),
            unit: "allocations",
            columns: Columns::Figures(columns),
            baseline: None,
        }],
    }
}

fn mass(scale: &Scale) -> Family {
    let (fewer, more) = scale.weighed;
    let sizes = vec![(0, format!("{} keys", short(fewer))), (1, format!("{} keys", short(more)))];
    let moments = vec![(2, "while they come".to_owned()), (3, "while they expire".to_owned())];
    let weight = Plot {
        name: "memory".to_owned(),
        title: "Resident memory per key".to_owned(),
        unit: "bytes",
        columns: Columns::Figures(sizes),
        baseline: Some(GOVERNOR),
    };
    let pauses = Plot {
        name: "pauses".to_owned(),
        title: format!("Longest single call, {} keys", short(more)),
        unit: "ms",
        columns: Columns::Figures(moments),
        baseline: Some(GOVERNOR),
    };
    let job = Job::Mass { fewer, more };
    let repeats = scale.few_repeats;
    let contestants = contestants::ALL.iter().copied().chain([MEMORY_ALONE]).collect();
    Family { contestants, repeats, fresh: true, ..in_process("mass", job, scale, vec![weight, pauses]) }
}

fn growth(scale: &Scale) -> Family {
    let plot = Plot {
        name: "growth".to_owned(),
        title: "Decisions while the number of keys grows, uniform".to_owned(),
        unit: NANOS,
        columns: Columns::Arguments(0, "keys"),
        baseline: Some(GOVERNOR),
    };
    Family {
        contestants: vec![OURS, OURS_GCRA, GOVERNOR, FLOOR],
        arguments: scale.grown.to_vec(),
        ..in_process("growth", Job::Growth { millis: scale.millis }, scale, vec![plot])
    }
}

fn log(scale: &Scale) -> Family {
    let plot = |name: &str, title: &str, index| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: NANOS,
        columns: Columns::Arguments(index, "units in the limit"),
        baseline: None,
    };
    Family {
        contestants: vec!["ours, log"],
        arguments: scale.log_limits.to_vec(),
        ..in_process(
            "log",
            Job::Log { millis: (scale.millis / 2).max(1) },
            scale,
            vec![
                plot("log", "Sliding log that is full, admitted", 0),
                plot("log-refused", "Sliding log that is full, refused", 1),
            ],
        )
    }
}

fn log_memory(scale: &Scale) -> Family {
    let plot = Plot {
        name: "log-memory".to_owned(),
        title: "Sliding log, resident memory per logged unit".to_owned(),
        unit: "bytes",
        columns: Columns::Arguments(0, "units in the limit"),
        baseline: None,
    };
    Family {
        contestants: vec!["ours, log"],
        arguments: scale.log_limits.to_vec(),
        repeats: scale.few_repeats,
        fresh: true,
        ..in_process("log-memory", Job::LogMemory { units: scale.logged }, scale, vec![plot])
    }
}

fn on_server(store: &'static remote::Store, scale: &Scale) -> Family {
    let plot = |suffix: &str, what: &str, unit, index| Plot {
        name: format!("{}{suffix}", store.name),
        title: format!("{}: {what}", store.title),
        unit,
        columns: Columns::Arguments(index, "calls at once"),
        baseline: Some(store.baseline),
    };
    Family {
        name: store.name,
        contestants: store.contestants.to_vec(),
        job: Job::Remote { store: store.name.to_owned(), url: String::new(), millis: scale.remote_millis },
        arguments: scale.concurrency.to_vec(),
        repeats: scale.repeats,
        fewer: (scale.few_repeats, &[2, 4, 8, 32, 64, 256, 512]),
        fresh: false,
        server: Some(store.name),
        plots: vec![
            plot("", "decisions per second", "decisions/s", 0),
            plot("-p50", "median time of a call", "us", 1),
            plot("-p99", "99th percentile of a call's time", "us", 2),
        ],
    }
}

fn log_on_server(store: &'static remote::Store, name: &'static str, scale: &Scale) -> Family {
    let plot = Plot {
        name: name.to_owned(),
        title: format!("{}: sliding log, the server's memory per logged unit", store.title),
        unit: "bytes",
        columns: Columns::Arguments(0, "units in the limit"),
        baseline: None,
    };
    let units = scale.logged / 200;
    let job = Job::RemoteLog { store: store.name.to_owned(), url: String::new(), units };
    Family {
        contestants: vec!["ours, log"],
        arguments: scale.log_limits.to_vec(),
        repeats: 1,
        server: Some(store.name),
        ..in_process(name, job, scale, vec![plot])
    }
}
