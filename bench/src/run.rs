//! Runs families: measures the contestants in child processes, in turn.

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use ratelimit_testbed::{Server, Testbed};

use crate::child::Child;
use crate::contestants;
use crate::family::{Columns, Family, Plot};
use crate::job::Job;
use crate::scale::short;
use crate::table::{Column, Row, Sample, Table};

/// The figures of one contestant: for each argument, those of each repeat.
type Figures = Vec<Vec<Vec<f64>>>;

/// Runs a family, and returns its tables: none without its server. A contestant that fails loses its figures. The errors are
/// added to `failures`.
pub(crate) fn run(family: &Family, testbed: &Testbed, failures: &mut Vec<String>) -> Vec<Table> {
    let mut job = family.job.clone();
    // Lives until the end of the family.
    let Some(_server) = kept(serve(family, &mut job, testbed), family, failures) else { return Vec::new() };
    let names: Vec<&str> =
        family.contestants.iter().copied().filter(|name| takes_part(family, name)).collect();
    let bar = bar(family, names.len());
    let figures = match family.fresh {
        true => one_by_one(family, &job, &names, &bar, failures),
        false => side_by_side(family, &job, &names, &bar, failures),
    };
    bar.finish_and_clear();
    family.plots.iter().map(|plot| table(family, plot, &names, &figures)).collect()
}

fn takes_part(family: &Family, name: &str) -> bool {
    family
        .server
        .map_or_else(|| contestants::is_built(name), |_| cfg!(feature = "peers") || name != "limitador")
}

fn serve(family: &Family, job: &mut Job, testbed: &Testbed) -> Result<Option<Vec<Server>>> {
    let (Some(name), Job::Remote { url, .. } | Job::RemoteLog { url, .. }) = (family.server, job) else {
        return Ok(None);
    };
    let row = ratelimit_testbed::table().into_iter().find(|row| row.name == name);
    let row = row.with_context(|| format!("the testbed has no server {name}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let servers = runtime.block_on(row.obtain(testbed))?;
    url.push_str(servers.first().context("no server")?.url());
    Ok(Some(servers))
}

/// Runs all contestants at the same time, each in its own process, and measures them in turn: other load on the machine
/// affects all of them alike.
fn side_by_side(
    family: &Family,
    job: &Job,
    names: &[&str],
    bar: &ProgressBar,
    failures: &mut Vec<String>,
) -> Vec<Figures> {
    let mut children = Vec::new();
    for name in names {
        bar.set_message(format!("{}: {name} gets ready", family.name));
        children.push(kept(Child::start(name, job), family, failures));
    }
    let mut figures = vec![vec![Vec::new(); family.arguments.len()]; names.len()];
    for (column, argument) in family.arguments.iter().enumerate() {
        for _ in 0..family.repeats_of(*argument) {
            for ((name, child), figures) in names.iter().zip(&mut children).zip(&mut figures) {
                bar.set_message(format!("{}: {name}", family.name));
                if let Some(running) = child {
                    match kept(running.step(*argument), family, failures) {
                        Some(step) => figures[column].push(step),
                        None => *child = None,
                    }
                }
                bar.inc(1);
            }
        }
    }
    figures
}

/// A new process for each measurement.
fn one_by_one(
    family: &Family,
    job: &Job,
    names: &[&str],
    bar: &ProgressBar,
    failures: &mut Vec<String>,
) -> Vec<Figures> {
    let mut figures = vec![vec![Vec::new(); family.arguments.len()]; names.len()];
    for _ in 0..family.repeats {
        for (name, figures) in names.iter().zip(&mut figures) {
            bar.set_message(format!("{}: {name}", family.name));
            for (column, argument) in family.arguments.iter().enumerate() {
                let step = Child::start(name, job).and_then(|mut child| child.step(*argument));
                figures[column].extend(kept(step, family, failures));
                bar.inc(1);
            }
        }
    }
    figures
}

/// What succeeded. Failures are reported at the end.
fn kept<T>(outcome: Result<T>, family: &Family, failures: &mut Vec<String>) -> Option<T> {
    outcome.map_err(|error| failures.push(format!("{}: {error:#}", family.name))).ok()
}

fn bar(family: &Family, contestants: usize) -> ProgressBar {
    let steps = contestants * family.arguments.iter().map(|at| family.repeats_of(*at)).sum::<usize>();
    let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

impl Plot {
    /// The columns, with the index of the argument and of the figure.
    pub(crate) fn columns(&self, arguments: &[u64]) -> Vec<(Column, usize, usize)> {
        match &self.columns {
            Columns::Arguments(figure, _) => {
                let column =
                    |(place, at): (usize, &u64)| (Column { name: short(*at), at: Some(*at) }, place, *figure);
                arguments.iter().enumerate().map(column).collect()
            }
            Columns::Figures(figures) => {
                let column =
                    |(figure, name): &(usize, String)| (Column { name: name.clone(), at: None }, 0, *figure);
                figures.iter().map(column).collect()
            }
        }
    }
}

fn table(family: &Family, plot: &Plot, names: &[&str], figures: &[Figures]) -> Table {
    let columns = plot.columns(&family.arguments);
    let sample = |figures: &Figures, place: usize, index: usize| {
        Sample::of(figures[place].iter().filter_map(|step| step.get(index).copied()).collect())
    };
    let row = |(name, figures): (&&str, &Figures)| Row {
        contestant: (*name).to_owned(),
        samples: columns.iter().map(|(_, place, index)| sample(figures, *place, *index)).collect(),
    };
    let axis = match plot.columns {
        Columns::Arguments(_, axis) => Some(axis.to_owned()),
        Columns::Figures(_) => None,
    };
    Table {
        name: plot.name.clone(),
        title: plot.title.clone(),
        unit: plot.unit.to_owned(),
        axis,
        baseline: plot.baseline.filter(|name| names.contains(name)).map(str::to_owned),
        repeats: family.repeats,
        fewest: family.arguments.iter().map(|at| family.repeats_of(*at)).min().unwrap_or(0),
        rows: names.iter().zip(figures).map(row).collect(),
        columns: columns.into_iter().map(|(column, ..)| column).collect(),
    }
}
