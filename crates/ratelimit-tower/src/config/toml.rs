//! Parses TOML into a document.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

use super::document::{Lined, MOST_LEVELS, Node, Problem, Value};

/// Parses TOML. Checks TOML's own rules (duplicate keys, unterminated strings).
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    let lines = Lines { ends: text.match_indices('\n').map(|(end, _)| end).collect() };
    if let Some(span) = too_deep(text) {
        return Err(Problem::too_deep(lines.of(&span)));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.of(&span));
        Problem::in_line(line, format!("invalid TOML: {}", error.message()))
    })?;
    Ok(Node { line: 1, value: lines.table(table.into_inner()) })
}

/// Where the values of one header or of one field are nested too deep. The library bounds the depth of brackets and the
/// number of dots in a key, but not their combination: keys with dots in nested tables.
fn too_deep(text: &str) -> Option<Range<usize>> {
    let mut dots = 0;
    // The dots around each open bracket.
    let mut open = Vec::new();
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => dots += 1,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => open.push(dots),
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => dots = open.pop().unwrap_or(0),
            TokenKind::Comma | TokenKind::Newline => dots = open.last().copied().unwrap_or(0),
            _ => {}
        }
        if dots + open.len() > MOST_LEVELS {
            return Some(token.span().start()..token.span().end());
        }
    }
    None
}

struct Lines {
    /// Where the lines end, in ascending order.
    ends: Vec<usize>,
}

impl Lines {
    /// The line on which a span begins.
    fn of(&self, span: &Range<usize>) -> usize {
        self.ends.partition_point(|end| *end < span.start) + 1
    }

    fn table(&self, table: DeTable<'_>) -> Value {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (Spanned<Cow<'_, str>>, _)| {
            let line = self.of(&key.span());
            (Lined { line, value: key.into_inner().into_owned() }, self.node(value))
        };
        Value::Table(entries.into_iter().map(entry).collect())
    }

    fn node(&self, value: Spanned<DeValue<'_>>) -> Node {
        let line = self.of(&value.span());
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => {
                i128::from_str_radix(number.as_str(), number.radix()).map_or(Value::TooLarge, Value::Integer)
            }
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(truth) => Value::Bool(truth),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Array(elements) => {
                Value::List(elements.into_iter().map(|element| self.node(element)).collect())
            }
            DeValue::Table(table) => self.table(table),
        };
        Node { line, value }
    }
}
