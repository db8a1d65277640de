//! Meters with names that stores have confused, in every operation.

use ratelimit_core::Limit;
use ratelimit_core::store::Mode;

use super::mirrored::{Mirrored, Part, Slice, after};
use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::DAYS;
use crate::failure::CaseResult;
use crate::kind::Kind;

/// Keys that collide under a 32-bit hash: CRC-32, DJB2, Java's, Adler-32, FNV-1a and FNV-1, Murmur 3, prefixes of MD5, SHA-1
/// and SHA-256, halves of SipHash.
const SAME_HASH: [(&str, &str); 16] = [
    ("plumless", "buckeroo"),
    ("codding", "gnu"),
    ("Az", "BY"),
    ("Aa", "BB"),
    ("user:6869523", "user:6798324"),
    ("user:591135", "user:4353328"),
    ("user:717576", "user:8156692"),
    ("user:2372947", "user:5377568"),
    ("user:2079306", "user:8164968"),
    ("user:5373098", "user:3025329"),
    ("user:7406202", "user:2943113"),
    ("user:4643539", "user:8611539"),
    ("user:4432418", "user:3748813"),
    ("user:1584144", "user:2964917"),
    ("user:6592328", "user:165976"),
    ("AaAaAa", "BBBBBB"),
];

/// Variants of each other by encoding or convention.
const ALIKE: [(&str, &str); 34] = [
    ("a%41", "aA"),
    ("a%2Fb", "a/b"),
    ("a%2fb", "a%2Fb"),
    ("a+b", "a b"),
    ("a%20b", "a b"),
    ("100%", "100%25"),
    ("6162", "ab"),
    ("YWI=", "ab"),
    ("YWI", "YWI="),
    ("a\\u0041", "aA"),
    ("a\\tb", "a\tb"),
    ("a&amp;b", "a&b"),
    ("User:A", "user:a"),
    ("user:A", "user:a"),
    ("é", "e\u{301}"),
    ("É", "é"),
    ("ß", "SS"),
    ("user/", "user"),
    ("user//1", "user/1"),
    ("::1", "0:0:0:0:0:0:0:1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("7", "07"),
    ("7", "7.0"),
    ("a@example.org", "a+tag@example.org"),
    ("a.b@example.org", "ab@example.org"),
    ("/a/./b", "/a/b"),
    ("o''neil", "o'neil"),
    // One is not a number of 64-bit floating point.
    ("9007199254740993", "9007199254740992"),
    ("user:\u{663}", "user:3"),
    ("ひかり", "ヒカリ"),
    ("admin", "adm\u{200b}in"),
    // Beyond the first plane of Unicode.
    ("🍣", "🍺"),
    ("vip🍣1", "vip🍺2"),
    ("vip🍣1", "vip"),
];

/// Common placeholders for the empty key.
const PLACEHOLDERS: [&str; 34] = [
    "default",
    "DEFAULT",
    "null",
    "NULL",
    "nil",
    "Nil",
    "none",
    "None",
    "undefined",
    "unknown",
    "anonymous",
    "anon",
    "empty",
    "(empty)",
    "<empty>",
    "global",
    "all",
    "any",
    "*",
    "-",
    "--",
    "_",
    "0",
    "00",
    ".",
    "..",
    "/",
    "~",
    "\0",
    " ",
    "''",
    "\"\"",
    "{}",
    "()",
];

/// Lengths at which stores have truncated names.
const LENGTHS: [usize; 12] = [16, 32, 40, 64, 100, 128, 200, 250, 256, 512, 1_024, 8_192];

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        Case::new(
            "names/encodings-in-every-operation",
            "Variants of a key by encoding, case or convention are distinct keys, in every operation.",
            encodings,
        ),
        Case::new(
            "names/placeholders-in-every-operation",
            "The empty key differs from the usual placeholders, in every operation.",
            placeholders,
        ),
        Case::new(
            "names/long-in-every-operation",
            "Long keys and namespaces with equal beginnings and ends are distinct, in every operation.",
            long,
        ),
        Case::new(
            "names/name-spaces-in-every-operation",
            "The same key in similar namespaces is distinct, in every operation.",
            name_spaces,
        ),
        Case::new(
            "names/limits-in-every-operation",
            "The same key under limits with similar names is distinct, in every operation.",
            limit_names,
        ),
        Case::new(
            "names/hashes-that-collide",
            "Keys that collide under common 32-bit hashes are distinct, in every operation.",
            same_hash,
        ),
    ];
    cases.into_iter().map(Case::any_time).collect()
}

/// Checks that each operation on one of two meters leaves the other unchanged.
async fn are_apart(bench: &Bench, [first, second]: [&Part; 2]) -> CaseResult {
    for [one, other] in [[first, second], [second, first]] {
        let mut mirrored = Mirrored::new(bench);
        let both = [one.clone(), other.clone()];
        let shown = format!("{:?} and {:?}", shown(one), shown(other));
        let done = async {
            mirrored.reset(&both).await?;
            let charged = mirrored.claim(Mode::Charge, &[one.of(5)]).await?;
            mirrored.stands(&both, "a claim").await?;
            mirrored.claim(Mode::Charge, &[other.of(2)]).await?;
            let slice = |mode, part: Part| Slice { now: mirrored.now(), mode, parts: vec![part] };
            mirrored.many(&[slice(Mode::Charge, one.of(1)), slice(Mode::Charge, other.of(1))]).await?;
            mirrored.stands(&both, "a batch").await?;
            mirrored.claim(Mode::Force, &[one.of(7)]).await?;
            mirrored.stands(&both, "a forced charge").await?;
            mirrored.refund(&[(one.of(3), charged.verdicts[0].receipt)]).await?;
            mirrored.stands(&both, "a refund").await?;
            mirrored.reset(std::slice::from_ref(one)).await?;
            mirrored.stands(&both, "a reset").await?;
            mirrored.claim(Mode::Charge, &[one.of(6)]).await?;
            mirrored.reset(std::slice::from_ref(other)).await?;
            mirrored.stands(&both, "a reset of the other").await?;
            // One operation on both, in which a store may confuse the names.
            let two = mirrored.claim(Mode::Charge, &[one.of(1), other.of(2)]).await?;
            mirrored.stands(&both, "a slice").await?;
            let [of_one, of_other] = [0, 1].map(|place: usize| two.verdicts[place].receipt);
            mirrored.refund(&[(one.of(1), of_one), (other.of(1), of_other)]).await?;
            mirrored.stands(&both, "a refund of both").await?;
            mirrored.reset(&both).await?;
            mirrored.stands(&both, "a reset of both").await
        };
        done.await.map_err(|failure| after(&format!("the names {shown}"), failure))?;
    }
    Ok(())
}

fn shown(part: &Part) -> String {
    let key = part.key[..part.key.len().min(24)].escape_ascii().to_string();
    let space = &part.namespace[..part.namespace.len().min(24)];
    format!("{space}|{}|{key} ({} bytes)", part.limit.scope(), part.key.len())
}

fn ten() -> CaseResult<Limit> {
    Ok(Kind::Sliding.limit(10, DAYS)?)
}

async fn pairs(bench: &Bench, keys: &[(&str, &str)]) -> CaseResult {
    let ten = ten()?;
    for (first, second) in keys {
        are_apart(bench, [&Part::new(&ten, first, 0), &Part::new(&ten, second, 0)]).await?;
    }
    Ok(())
}

async fn encodings(bench: Bench) -> CaseResult {
    pairs(&bench, &ALIKE).await?;
    // Some stores encode only keys that are not text, or replace what is not.
    let ten = ten()?;
    let bytes: [(&[u8], &[u8]); 7] = [
        (b"\xff", b"ff"),
        (b"\xff", b"%FF"),
        (b"\xff", b"/w=="),
        (b"\xff", b"\\xff"),
        (b"\xff", b"\xc3\xbf"),
        (b"\xff", b"\xfe"),
        (b"a\x80", b"a\x81"),
    ];
    for (first, second) in bytes {
        are_apart(&bench, [&Part::new(&ten, first, 0), &Part::new(&ten, second, 0)]).await?;
    }
    Ok(())
}

async fn same_hash(bench: Bench) -> CaseResult {
    pairs(&bench, &SAME_HASH).await
}

async fn placeholders(bench: Bench) -> CaseResult {
    let ten = ten()?;
    let empty = Part::new(&ten, "", 0);
    for key in PLACEHOLDERS {
        are_apart(&bench, [&empty, &Part::new(&ten, key, 0)]).await?;
    }
    // And the empty namespace.
    for space in ["default", "-", "_", "0", "null"] {
        are_apart(&bench, [&Part::new(&ten, "k", 0), &Part::new(&ten, "k", 0).within(space)]).await?;
    }
    Ok(())
}

/// Pairs of texts of this length that differ in one byte: at the end, in the middle, at the start.
fn nearly_equal(length: usize) -> Vec<[String; 2]> {
    let with = |place: usize, sign| {
        let mut text = vec![b'x'; length];
        text[place] = sign;
        String::from_utf8_lossy(&text).into_owned()
    };
    [length - 1, length / 2, 0].map(|place| [with(place, b'a'), with(place, b'b')]).into()
}

async fn long(bench: Bench) -> CaseResult {
    let ten = ten()?;
    for length in LENGTHS {
        for [first, second] in nearly_equal(length + 1) {
            are_apart(&bench, [&Part::new(&ten, first, 0), &Part::new(&ten, second, 0)]).await?;
        }
        // Truncated to this length, they would be equal.
        let begin = "y".repeat(length);
        let [short, longer] = [begin.clone(), begin + "z"].map(|key| Part::new(&ten, key, 0));
        are_apart(&bench, [&short, &longer]).await?;
    }
    for length in [200, 300, 1_024] {
        for [first, second] in nearly_equal(length) {
            let [first, second] = [first, second].map(|space| Part::new(&ten, "k", 0).within(&space));
            are_apart(&bench, [&first, &second]).await?;
        }
    }
    Ok(())
}

async fn name_spaces(bench: Bench) -> CaseResult {
    let ten = ten()?;
    let names = [
        ("a", "b"),
        ("", "a"),
        ("a", "A"),
        ("a", "a "),
        ("a", "a:"),
        ("api:v1", "api:v10"),
        ("api", "api:user"),
        ("a%62", "ab"),
        ("日本", "中国"),
        ("é", "e\u{301}"),
        ("É", "é"),
        ("🍣", "🍺"),
        ("vip🍣1", "vip🍺2"),
    ];
    for (first, second) in names {
        for key in ["user:7", ""] {
            let [first, second] = [first, second].map(|space| Part::new(&ten, key, 0).within(space));
            are_apart(&bench, [&first, &second]).await?;
        }
    }
    // Joined without escaping, these are the same text.
    let [first, second] =
        [("api", "user:7"), ("api:user", "7")].map(|(space, key)| Part::new(&ten, key, 0).within(space));
    are_apart(&bench, [&first, &second]).await
}

async fn limit_names(bench: Bench) -> CaseResult {
    // The longest name has 64 bytes.
    let [long, longest] = [40, 63].map(|length| "n".repeat(length));
    let texts = [
        ("10/3000d name a".to_owned(), "10/3000d name b".to_owned()),
        ("10/3000d name a".to_owned(), "10/3000d".to_owned()),
        ("10/3000d name a".to_owned(), "10/3000d name A".to_owned()),
        ("10/3000d name a".to_owned(), "10/3000d name a.".to_owned()),
        ("10/3000d name a.b".to_owned(), "10/3000d name a_b".to_owned()),
        (format!("10/3000d name {long}1"), format!("10/3000d name {long}2")),
        (format!("10/3000d name {longest}1"), format!("10/3000d name {longest}2")),
        (format!("10/3000d name {longest}1"), format!("10/2999d name {longest}1")),
        (format!("10/3000d name {longest}1"), format!("10/3000d fixed name {longest}1")),
        ("10/3000d".to_owned(), "10/2999d".to_owned()),
        ("10/3000d".to_owned(), "10/3000d fixed".to_owned()),
        ("10/3000d log".to_owned(), "10/3000d burst 10".to_owned()),
        ("10/3000d burst 10".to_owned(), "10/3000d leaky burst 10".to_owned()),
    ];
    for (first, second) in texts {
        let [first, second] = [limit(&first)?, limit(&second)?].map(|limit| Part::new(&limit, "k", 0));
        are_apart(&bench, [&first, &second]).await?;
    }
    Ok(())
}
