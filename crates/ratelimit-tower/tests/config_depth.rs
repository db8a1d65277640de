//! Nesting that no configuration needs is an error, whatever the stack: an overflow would abort the process.

use std::thread;

use ratelimit_tower::config::{Config, ConfigError};

type Form = (&'static str, fn(usize) -> String);

const YAML: &[Form] = &[
    ("open lists", |depth| "[".repeat(depth)),
    ("lists", |depth| "[".repeat(depth) + &"]".repeat(depth)),
    ("open tables", |depth| "{a: ".repeat(depth)),
    ("tables", |depth| format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth))),
    ("tables with quoted keys", |depth| format!("{}1{}", "{\"a\": ".repeat(depth), "}".repeat(depth))),
    ("tables that are merged", |depth| format!("{}1{}", "{<<: ".repeat(depth), "}".repeat(depth))),
    ("pairs in lists", |depth| format!("{}1{}", "[a: ".repeat(depth), "]".repeat(depth))),
    ("lists with a name for each", |depth| (0..depth).map(|index| format!("&a{index} [")).collect()),
    ("a list on a line", |depth| "[\n".repeat(depth)),
    ("dashes", |depth| "- ".repeat(depth)),
    ("keys of keys", |depth| "? ".repeat(depth)),
    ("lists as keys", |depth| "? - ".repeat(depth)),
    // Its size is the square of the depth.
    ("indentation", |depth| (0..depth.min(3_000)).map(|level| format!("{:level$}a:\n", "")).collect()),
    ("aliases", |depth| {
        let level = |level: usize| format!("a{level}: &a{level} [*a{}]\n", level - 1);
        (1..depth).fold("a0: &a0 []\n".to_owned(), |text, next| text + &level(next))
    }),
];

const TOML: &[Form] = &[
    ("open lists", |depth| format!("a = {}", "[".repeat(depth))),
    ("lists", |depth| format!("a = {}{}", "[".repeat(depth), "]".repeat(depth))),
    ("open tables", |depth| format!("a = {}", "{a = ".repeat(depth))),
    ("tables", |depth| format!("a = {}1{}", "{a = ".repeat(depth), "}".repeat(depth))),
    ("a list on a line", |depth| format!("a = {}", "[\n".repeat(depth))),
    ("a key with dots", |depth| format!("a{} = 1", ".a".repeat(depth))),
    ("a header with dots", |depth| format!("[a{}]", ".a".repeat(depth))),
    ("a list's header with dots", |depth| format!("[[a{}]]", ".a".repeat(depth))),
    // The library admits 79 dots in each of 80 tables: 6,400 levels.
    ("keys with dots in tables", |depth| {
        let tables = (depth / 79).min(79);
        format!("a = {}1{}", format!("{{a{} = ", ".a".repeat(78)).repeat(tables), "}".repeat(tables))
    }),
];

/// The error for a form at some depth, on a thread with this many bytes of stack.
fn error(
    stack: usize,
    (_, text): Form,
    depth: usize,
    read: fn(&str) -> Result<Config, ConfigError>,
) -> ConfigError {
    let read = move || read(&text(depth)).map(drop).unwrap_err();
    thread::Builder::new().stack_size(stack).spawn(read).unwrap().join().unwrap()
}

fn yaml(text: &str) -> Result<Config, ConfigError> {
    Config::from_yaml(text, "f")
}

fn toml(text: &str) -> Result<Config, ConfigError> {
    Config::from_toml(text, "f")
}

/// A small stack, and the usual size of the main thread's.
const STACKS: [usize; 2] = [512 << 10, 8 << 20];

#[test]
fn deep_nesting_is_an_error_with_a_line() {
    for stack in STACKS {
        for depth in [9, 20, 60, 1_000, 100_000, 1_000_000] {
            for (forms, read) in [(YAML, yaml as fn(&str) -> _), (TOML, toml)] {
                for form in forms {
                    let error = error(stack, *form, depth, read);
                    assert!(error.line().is_some(), "{} {depth}: {error}", form.0);
                }
            }
        }
    }
}

#[test]
fn the_error_says_what_is_wrong() {
    let too_deep = |line| format!("f:{line}: the values are nested deeper than 8 levels");
    for (name, line) in [("lists", 1), ("tables", 1), ("dashes", 1), ("indentation", 9), ("aliases", 8)] {
        let form = YAML.iter().find(|form| form.0 == name).unwrap();
        assert_eq!(error(STACKS[0], *form, 20, yaml).to_string(), too_deep(line), "{name}");
    }
    for (name, line) in [("lists", 1), ("tables", 1), ("a list on a line", 9), ("a key with dots", 1)] {
        let form = TOML.iter().find(|form| form.0 == name).unwrap();
        assert_eq!(error(STACKS[0], *form, 20, toml).to_string(), too_deep(line), "{name}");
    }
}

/// Brackets and dots in strings and comments nest nothing, nor do those of one line in the next.
#[test]
fn what_only_looks_deep_is_valid() {
    let deep = "[{a.a.a.".repeat(4);
    let policy = |number| {
        format!(
            "[[policies]] # {deep}\nname = \"p{number}\"\nkey = \"everybody\"\nlimit = [\"8/s\",\n\"50/min\"]\n\
             routes = ['/[.[.[.[.[.[.[.[.[']\ncost = {{ per_bytes = 1024, if_unknown = 8 }}\n"
        )
    };
    let plans: Vec<String> = (0..20).map(|number| format!("gold.p{number} = '9/s'")).collect();
    let lines: String = (0..20).map(|number| format!("plans.plan{number}.p0 = '9/s'\n")).collect();
    let policies: String = (0..20).map(policy).collect();
    for plans in [format!("plans = {{ {} }}\n", plans.join(", ")), lines] {
        assert_eq!(toml(&(plans + &policies)).unwrap().policies().each().len(), 20);
    }
}

/// Reading a file of the largest size takes seconds if the lines before each value are counted, and no time otherwise.
#[test]
fn lines_of_a_large_file_are_known() {
    let clients = "\"192.0.2.1\",\n".repeat(70_000);
    let text = format!("deny = [{{ key = \"address\", clients = [\n{clients}\"none\"] }}]\npolicies = []\n");
    let error = toml(&text.replace("\npolicies = []", "\npolicies = 1")).unwrap_err();
    assert_eq!((error.line(), error.field()), (Some(70_003), Some("policies")), "{error}");
}
