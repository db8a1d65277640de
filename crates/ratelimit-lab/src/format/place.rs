//! Fields of a combined line that have no name of their own, named by their place.

use crate::record::Wanted;

/// The place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `before-1` is the first word of the line, before the time.
    Before(usize),
    /// `between-1` is the first field after the time, if others come before the request.
    Between(usize),
    /// `after-1` is the first field after the agent: a word, or text in quotes.
    After(usize),
}

impl Place {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (place, number) = name.split_once('-')?;
        let number: usize = number.parse().ok().filter(|number| (1..=99).contains(number))?;
        match place {
            "before" => Some(Self::Before(number - 1)),
            "between" => Some(Self::Between(number - 1)),
            "after" => Some(Self::After(number - 1)),
            _ => None,
        }
    }
}

/// The places of the wanted fields that are named by them, with the indices of these fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) before: Vec<(usize, usize)>,
    pub(super) between: Vec<(usize, usize)>,
    pub(super) after: Vec<(usize, usize)>,
}

impl Places {
    /// # Errors
    /// If a field has a name that is not of a place.
    pub(super) fn of(wanted: &Wanted) -> Result<Self, &str> {
        let mut places = Self::default();
        for (index, field) in wanted.fields().iter().enumerate() {
            let Some(name) = wanted.only_name(field) else { continue };
            match Place::of_name(name).filter(|_| index != Wanted::TIME) {
                Some(Place::Before(number)) => places.before.push((number, index)),
                Some(Place::Between(number)) => places.between.push((number, index)),
                Some(Place::After(number)) => places.after.push((number, index)),
                None => return Err(name),
            }
        }
        Ok(places)
    }
}
