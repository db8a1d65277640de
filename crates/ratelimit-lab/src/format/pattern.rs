//! Lines of any other format: a regular expression finds their fields.

use std::str::FromStr;

use regex::bytes::{CaptureLocations, Regex};

use super::target::{set_column, set_request};
use super::time::Times;
use crate::record::{Record, Wanted};

/// A regular expression whose named groups are the fields of a line, parsed from text such as
/// `^(?<ip>\S+) (?<time>\S+) "(?<request>[^"]*)"`.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let regex = Regex::new(text).map_err(|error| error.to_string())?;
        match regex.capture_names().flatten().next() {
            Some(_) => Ok(Self(regex)),
            None => Err("name the groups that are fields, such as (?<time>\\S+) and (?<ip>\\S+)".to_owned()),
        }
    }
}

/// The group with all of the first line of a request.
const REQUEST: &str = "request";

impl Pattern {
    /// Whether it finds a line that it describes.
    pub(super) fn finds(&self, line: &[u8]) -> bool {
        self.0.is_match(line)
    }

    /// The groups with the wanted fields.
    ///
    /// # Errors
    /// If none has the time, or a field that has only one name: with that name.
    pub(super) fn groups(&self, wanted: &Wanted) -> Result<Groups, &'static str> {
        let place = |name: &str| self.0.capture_names().position(|group| group == Some(name));
        let mut fields = Vec::new();
        for (index, field) in wanted.fields().iter().enumerate() {
            let groups: Vec<usize> = wanted.names(field).into_iter().filter_map(place).collect();
            if groups.is_empty() && index == Wanted::TIME {
                return Err(
                    "no group of --pattern has the time: name one (?<time>...), or name it with --time-field",
                );
            }
            if groups.is_empty() && wanted.only_name(field).is_some() {
                return Err("no group of --pattern has the name of a field that is to be read");
            }
            fields.extend(groups.into_iter().map(|group| (index, group)));
        }
        let locations = self.0.capture_locations();
        Ok(Groups { regex: self.0.clone(), locations, fields, request: place(REQUEST) })
    }
}

/// The groups of a pattern that have the wanted fields.
#[derive(Debug)]
pub(super) struct Groups {
    regex: Regex,
    locations: CaptureLocations,
    /// The index of each wanted field that has a group, with that group; if there are several, in the order of their names.
    fields: Vec<(usize, usize)>,
    request: Option<usize>,
}

impl Groups {
    /// Reads a line into the record.
    pub(super) fn parse(
        &mut self,
        line: &[u8],
        wanted: &Wanted,
        times: &mut Times,
        record: &mut Record,
    ) -> Result<(), &'static str> {
        self.regex.captures_read(&mut self.locations, line).ok_or("it does not match --pattern")?;
        let value = |group: usize| self.locations.get(group).and_then(|(begin, end)| line.get(begin..end));
        for (index, group) in &self.fields {
            if let Some(value) = value(*group).filter(|value| !value.is_empty()) {
                set_column(record, wanted, *index, value);
            }
        }
        if let Some(request) = self.request.and_then(value) {
            set_request(record, wanted, request);
        }
        let time = record.get(Wanted::TIME).ok_or("there is no time")?;
        record.time = times.any(time).ok_or_else(|| times.reason(time))?;
        Ok(())
    }
}
