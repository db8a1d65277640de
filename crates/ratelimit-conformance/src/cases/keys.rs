//! Keys are opaque: any bytes, any length, and no two share a meter.

use std::collections::BTreeSet;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Key, Request};

use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::{DAYS, START};
use crate::describe;
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::printed::shows;
use crate::trial::Trial;

/// Lengths near the limits of protocols, indexes and length prefixes.
const LENGTHS: [usize; 18] =
    [0, 1, 2, 63, 64, 127, 128, 186, 187, 249, 250, 251, 255, 256, 1_024, 2_705, 65_535, 65_536];

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        Case::new("keys/every-byte", "Each of the 256 bytes is a distinct key.", every_byte),
        Case::new(
            "keys/every-byte-inside",
            "Each of the 256 bytes inside a longer key makes a distinct key.",
            every_byte_inside,
        ),
        Case::new("keys/lengths", "Keys of 0 to 65,536 bytes are distinct.", lengths),
        Case::new(
            "keys/hundred-thousand-bytes",
            "A key of 100,000 bytes works like any other.",
            hundred_thousand,
        ),
        Case::new(
            "keys/long-keys-differ-at-the-end",
            "Long keys that differ in the last byte only.",
            last_byte,
        ),
        Case::new(
            "keys/white-space",
            "Spaces, tabs, newlines and NULs, at either end and inside, make distinct keys.",
            white_space,
        ),
        Case::new("keys/protocols", "Keys that look like commands, statements or patterns.", protocols),
        Case::new(
            "keys/no-text",
            "Keys that are not valid UTF-8, and that differ only in the invalid bytes.",
            no_text,
        ),
        Case::new(
            "keys/alike-as-text",
            "Case, accents, digits and trailing spaces make distinct keys.",
            alike,
        ),
        Case::new("keys/prefixes", "Keys that begin with one another.", prefixes),
        Case::new("keys/separators", "Parts with separators in them: (a/b, c) is not (a, b/c).", separators),
        Case::new(
            "keys/triples-are-injective",
            "No two triples of name space, scope and key share a meter, wherever they are cut.",
            triples,
        ),
        Case::new("keys/name-spaces", "The same key in two name spaces is counted twice.", name_spaces),
        Case::new(
            "keys/kinds-are-apart",
            "The same key under limits of other kinds is counted for each.",
            kinds,
        ),
        Case::new(
            "keys/odd-keys-in-a-batch",
            "A long and odd key causes no failure of others in its batch.",
            odd_batch,
        ),
        Case::new(
            "keys/braces-in-a-slice",
            "Keys with braces are admitted together like any others.",
            braces,
        ),
        Case::new("keys/errors-hide-keys", "The output of a handle contains no key.", hidden),
    ];
    cases.into_iter().map(Case::any_time).collect()
}

/// Checks that a limit of one admits each of these keys once.
async fn each_its_own<K: AsRef<[u8]>>(bench: &Bench, keys: &[K]) -> CaseResult {
    let trial = Trial::new(bench, limit("1/3000d burst 1")?);
    for (place, key) in keys.iter().enumerate() {
        let key = key.as_ref();
        let decision = trial.key(key).ask(1).await?;
        if !decision.allowed() {
            let twin = sharer(bench, key, &keys[..place]).await?;
            return Err(Failure::new(format!(
                "the first unit of key {} was refused: {twin}",
                describe::key(key)
            )));
        }
    }
    for key in keys {
        let decision = trial.key(key).ask(1).await?;
        let key = describe::key(key.as_ref());
        ensure!(
            !decision.allowed(),
            "the second unit of key {key} was admitted by a limit of one: {decision:?}"
        );
    }
    Ok(())
}

/// Says which of the earlier keys has the same meter: a charge to it leaves nothing to this one.
async fn sharer<K: AsRef<[u8]>>(bench: &Bench, key: &[u8], earlier: &[K]) -> CaseResult<String> {
    for (number, other) in earlier.iter().enumerate() {
        let fresh = limit(&format!("1/3000d burst 1 name pair{number}"))?;
        let trial = Trial::new(bench, fresh).key(other);
        if trial.ask(1).await?.allowed() && trial.key(key).left().await? == 0 {
            return Ok(format!("key {} shares its meter", describe::key(other.as_ref())));
        }
    }
    Ok("no other key of the case shares its meter alone".to_owned())
}

async fn every_byte(bench: Bench) -> CaseResult {
    let keys: Vec<[u8; 1]> = (0..=u8::MAX).map(|byte| [byte]).collect();
    each_its_own(&bench, &keys).await
}

async fn every_byte_inside(bench: Bench) -> CaseResult {
    let keys: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![b'a', b'b', byte, b'c', byte]).collect();
    each_its_own(&bench, &keys).await
}

async fn lengths(bench: Bench) -> CaseResult {
    let keys: Vec<Vec<u8>> = LENGTHS.iter().map(|length| vec![b'x'; *length]).collect();
    each_its_own(&bench, &keys).await
}

async fn hundred_thousand(bench: Bench) -> CaseResult {
    let key: Vec<u8> = (0_u8..=250).cycle().take(100_000).collect();
    let all = Trial::new(&bench, limit("2/3000d")?);
    for kind in bench.kinds() {
        let trial = all.under(kind.limit(2, DAYS)?).key(&key);
        trial.admit(2).await?;
        trial.refuse(1).await?;
        trial.limiter.reset(&key).await?;
        let decision = trial.admit(2).await?;
        trial.limiter.refund(&decision).await?;
        trial.expect_left(2).await?;
    }
    Ok(())
}

async fn last_byte(bench: Bench) -> CaseResult {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for length in LENGTHS.into_iter().filter(|length| *length > 1).chain([100_000]) {
        for last in [b'a', b'b'] {
            keys.push([vec![b'x'; length - 1], vec![last]].concat());
        }
    }
    each_its_own(&bench, &keys).await
}

async fn white_space(bench: Bench) -> CaseResult {
    let mut keys = vec![b"ab".to_vec()];
    for space in [" ", "  ", "\t", "\n", "\r", "\r\n", "\0", "\0\0", "\u{b}", "\u{c}", "\u{a0}", "\u{2028}"] {
        for key in [format!("{space}ab"), format!("a{space}b"), format!("ab{space}"), space.to_owned()] {
            keys.push(key.into_bytes());
        }
    }
    each_its_own(&bench, &keys).await
}

async fn protocols(bench: Bench) -> CaseResult {
    let keys = [
        "x\r\nflush_all\r\n",
        "x 0 0 1\r\n1\r\nflush_all",
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "$-1\r\n",
        "'; DROP TABLE meters; --",
        "' OR '1'='1",
        "\\'",
        "\\",
        "\\\\",
        "\\x00",
        "%s%n%00",
        "$1",
        "?",
        ":key",
        "*",
        "**",
        "[a-z]",
        "{}",
        "{a}",
        "{a}b",
        "{a",
        "}a{",
        "a}b{c}",
        "../../etc/passwd",
        "NULL",
        "null",
        "nil",
        "true",
        "0",
        "-1",
        "\"quoted\"",
        "<key/>",
        "a,b",
        "(a,b)",
        "\u{1b}[0m",
    ];
    each_its_own(&bench, &keys).await
}

async fn no_text(bench: Bench) -> CaseResult {
    let keys: [&[u8]; 9] = [
        b"\xff",
        b"\xfe",
        b"\xc3\x28",
        b"\xc3\x29",
        b"a\x80",
        b"a\x81",
        b"a\xef\xbf\xbd", // what invalid text is often replaced by
        b"\xed\xa0\x80",
        b"\xf0\x28\x8c\x28",
    ];
    each_its_own(&bench, &keys).await
}

async fn alike(bench: Bench) -> CaseResult {
    let keys = [
        "user",
        "User",
        "USER",
        "user ",
        " user",
        "üser",
        "u\u{308}ser",
        "ü",
        "u",
        "ß",
        "ss",
        "1",
        "01",
        "1.0",
        "1e0",
        "+1",
        "0x1",
        "é",
        "e\u{301}",
        "ｕser",
        "İ",
        "i",
        "I",
        "ı",
        "",
    ];
    each_its_own(&bench, &keys).await
}

async fn prefixes(bench: Bench) -> CaseResult {
    let keys: Vec<Vec<u8>> = (0..80).map(|length| b"abcdefghij".repeat(8)[..length].to_vec()).collect();
    each_its_own(&bench, &keys).await
}

async fn separators(bench: Bench) -> CaseResult {
    let mut keys = Vec::new();
    for separator in ["/", ":", "|", ",", "\0", " ", "-", "_", "\u{1f}"] {
        let (ab, bc) = (format!("a{separator}b"), format!("b{separator}c"));
        keys.extend([
            Key::of([ab.as_str(), "c"]),
            Key::of(["a", bc.as_str()]),
            Key::of([format!("{ab}{separator}c")]),
        ]);
    }
    each_its_own(&bench, &keys).await
}

/// All triples that result in the same text when joined with a separator, or without one.
fn cuts() -> BTreeSet<(String, String, String)> {
    let mut cuts = BTreeSet::new();
    let texts = [
        "a:b:c", "a/b/c", "a.b.c", "a b c", "a|b|c", "a{b}c", "1:a1:b", "3:api", "a\0b\0c", "a%3Ab", "a\\:b",
    ];
    for text in texts {
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let (namespace, scope, key) = (&text[..first], &text[first..second], &text[second..]);
                let bare =
                    |part: &str| part.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()).to_owned();
                cuts.insert((namespace.to_owned(), scope.to_owned(), key.to_owned()));
                cuts.insert((bare(namespace), bare(scope), bare(key)));
            }
        }
    }
    cuts.retain(|(_, scope, _)| !scope.is_empty());
    cuts
}

async fn triples(bench: Bench) -> CaseResult {
    let cuts: Vec<_> = cuts().into_iter().collect();
    for (place, triple) in cuts.iter().enumerate() {
        if !takes(&bench, triple).await? {
            let twin = twin_of(&bench, triple, &cuts[..place]).await?;
            return Err(Failure::new(format!("the first unit of the meter {triple:?} was refused: {twin}")));
        }
    }
    for triple in &cuts {
        ensure!(
            !takes(&bench, triple).await?,
            "the second unit of the meter {triple:?} was admitted by a limit of one"
        );
    }
    Ok(())
}

type Triple = (String, String, String);

/// A claim on the meter with this namespace, scope and key.
fn claim_on((namespace, scope, key): &Triple, meter: Meter) -> Claim<'_> {
    Claim { id: MeterId { namespace, scope, key: key.as_bytes() }, cost: 1, meter }
}

/// Takes the only unit of the meter. Returns whether it was admitted.
async fn takes(bench: &Bench, triple: &Triple) -> CaseResult<bool> {
    let claims = [claim_on(triple, limit("1/3000d burst 1")?.meter_for(b""))];
    Ok(bench.store.claim(Claims::new(START, Mode::Charge, &claims)?).await?.admitted)
}

/// Says which of the earlier triples has the same meter.
async fn twin_of(bench: &Bench, triple: &Triple, earlier: &[Triple]) -> CaseResult<String> {
    let meter = limit("1/3000d burst 1")?.meter_for(b"");
    for other in earlier {
        let both = [claim_on(triple, meter), claim_on(other, meter)];
        for one in &both {
            bench.store.reset(Claims::new(START, Mode::Charge, std::slice::from_ref(one))?).await?;
        }
        if takes(bench, other).await? && !takes(bench, triple).await? {
            return Ok(format!("{other:?} shares it"));
        }
    }
    Ok("no other triple shares it alone".to_owned())
}

async fn name_spaces(bench: Bench) -> CaseResult {
    for namespace in ["", "a", "b", "a:b", "a b", "A"] {
        let limiter = bench.limiter(limit("1/3000d")?).with_namespace(namespace);
        let (first, second) = (limiter.check("k").await?, limiter.check("k").await?);
        ensure_eq!(
            (first.allowed(), second.allowed()),
            (true, false),
            "admitted in the name space {namespace:?}"
        );
    }
    Ok(())
}

async fn kinds(bench: Bench) -> CaseResult {
    for texts in [
        ["1/3000d", "1/3000d name a"],
        ["1/2000d", "1/3000d fixed"],
        ["1/3000d log", "1/3000d queue"],
        ["1/3000d bucket", "1/3000d leaky"],
    ] {
        for text in texts {
            let trial = Trial::new(&bench, limit(text)?);
            trial.admit(1).await?;
            trial.refuse(1).await?;
        }
    }
    Ok(())
}

async fn odd_batch(bench: Bench) -> CaseResult {
    let limiter = bench.limiter(limit("1/3000d")?);
    let long = vec![b'x'; 251];
    let huge = vec![b'y'; 70_000];
    let keys: [&[u8]; 7] = [b"a", &long, b"b c", b"d\r\n", &huge, b"", b"e\xff"];
    for expected in [true, false] {
        for (place, answer) in limiter.check_many(keys).await.into_iter().enumerate() {
            ensure_eq!(answer?.allowed(), expected, "key {place} of the batch admitted");
        }
    }
    Ok(())
}

async fn braces(bench: Bench) -> CaseResult {
    let limiter = bench.limiter(limit("1/3000d")?);
    for (first, second) in [("{a}1", "{a}2"), ("{b}", "c{"), ("}{", "{}"), ("{}", "x{y}z")] {
        let keys = Request::new(first).and(second);
        limiter.reset(keys.clone()).await?;
        let answers = (limiter.check(keys.clone()).await?.allowed(), limiter.check(keys).await?.allowed());
        ensure_eq!(answers, (true, false), "{first:?} and {second:?} admitted together");
    }
    Ok(())
}

async fn hidden(bench: Bench) -> CaseResult {
    let trial = Trial::new(&bench, limit("1/3000d")?).key("very-secret-person");
    trial.admit(1).await?;
    trial.refuse(1).await?;
    let printed = format!("{:?}", bench.store);
    ensure!(!shows(&printed, b"very-secret"), "the store prints a key: {printed}");
    Ok(())
}
