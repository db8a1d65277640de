//! Fuzz targets: limits and options as text, names and states as bytes, and decisions on any state.

use std::time::Duration;

use ratelimit_core::meter::{MAX_UNITS, Meter, State, decide, refund};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Refund, StoreUrl};
use ratelimit_core::{Key, Limit, Limits, Timestamp};
use ratelimit_fuzz::{Input, any_meter, check_verdict, fuzz};

#[test]
fn limits() {
    fuzz!("tests", "limits", |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        match text.parse::<Limit>() {
            Ok(limit) => {
                let printed = limit.to_string();
                assert_eq!(printed.parse().as_ref(), Ok(&limit), "{text:?} as {printed:?}");
                // What is printed is the shortest form: it prints as itself.
                assert_eq!(printed.parse::<Limit>().unwrap().to_string(), printed);
                let meter = limit.meter_for(b"key");
                assert!(meter.limit() <= MAX_UNITS && !limit.scope().is_empty() && limit.scope().is_ascii());
                assert!(meter.fits(&meter.fresh(), meter.limit(), Timestamp::from_secs(1)));
                assert!(!meter.fits(&meter.fresh(), meter.limit() + 1, Timestamp::from_secs(1)));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        match text.parse::<Limits>() {
            Ok(limits) => assert_eq!(limits.to_string().parse(), Ok(limits)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn names() {
    fuzz!("tests", "names", |bytes| {
        if let Some(id) = MeterId::from_bytes(bytes) {
            assert_eq!(id.to_bytes(), bytes);
        }
        let mut input = Input::new(bytes);
        let (one, other) = ([input.some(), input.some()], [input.some(), input.some(), input.rest()]);
        assert_eq!(one[..] == other[..], Key::of(one) == Key::of(other));
        assert_eq!(one == other[..2], Key::of(one) == Key::of(&other[..2]));
        let texts = one.map(|part| String::from_utf8_lossy(part));
        let id = |key| MeterId { namespace: &texts[0], scope: &texts[1], key };
        let written = id(other[2]).to_bytes();
        // Without a scope it is not the name of a meter.
        assert_eq!(MeterId::from_bytes(&written), Some(id(other[2])).filter(|id| !id.scope.is_empty()));
        assert_eq!(other[1] == other[2], id(other[1]).to_bytes() == written);
        let is_shown = |text: &str| text.contains("secret");
        assert!(!is_shown(&format!("{:?}", Key::of(["a secret"]))));
        assert_eq!(is_shown(&format!("{:?}", id(b"a secret"))), texts.iter().any(|text| is_shown(text)));
    });
}

#[test]
fn options() {
    fuzz!("tests", "options", |bytes| {
        const SECRET: &str = "s3cr3t";
        // Without this digit, also encoded, no name contains the secret. Names are quoted, values are not.
        let Some(text) = str::from_utf8(bytes).ok().filter(|text| !text.contains('3')) else { return };
        let hidden = |error: &dyn std::fmt::Display| assert!(!error.to_string().contains(SECRET), "{error}");
        let url = format!("store://user:{SECRET}@host/?password={SECRET}&{text}");
        match StoreUrl::parse("store", &url) {
            Ok(url) => {
                assert_eq!(url.options()[0].text(), SECRET);
                assert_eq!(
                    StoreUrl::parse("store", &url.base_with(&["password"])).unwrap().options().len(),
                    1
                );
                let names: Vec<&str> = url.options().iter().map(|option| option.name()).collect();
                assert_eq!(
                    StoreUrl::parse("store", &url.base_with(&names)).unwrap().options().len(),
                    names.len()
                );
                let _ = url.options()[0].duration().map_err(|error| hidden(&error));
                hidden(&url.options()[0].unknown(&["timeout"]));
                hidden(&format!("{url:?}"));
                for option in url.options() {
                    let _ = option.duration();
                }
            }
            Err(error) => hidden(&error),
        }
        // In a password, a character that ends the part of the URL with the password.
        for end in ['/', '?', '#'] {
            let url = format!("store://user:{text}{end}{SECRET}@host/");
            hidden(&StoreUrl::parse("store", &url).map(|_| ()).unwrap_err());
        }
    });
}

/// Whatever a server hands back is refused, or a state that every meter can decide on.
#[test]
fn states() {
    fuzz!("tests", "states", |bytes| {
        let mut input = Input::new(bytes);
        let (meter, cost, now) =
            (any_meter(&mut input), input.number(), Timestamp::from_nanos(input.number()));
        let Ok(state) = State::from_bytes(input.rest()) else { return };
        assert_eq!(State::from_bytes(&state.to_bytes()).as_ref(), Ok(&state));
        if !meter.owns(&state) {
            // As a fresh one: as documented.
            assert_eq!(meter.fits(&state, cost, now), meter.fits(&meter.fresh(), cost, now));
        }
        for mode in [Mode::Peek, Mode::Charge, Mode::Force] {
            let mut after = state.clone();
            let (admitted, verdict) = meter.claim(&mut after, cost, now, mode);
            check_verdict(&verdict, &meter, now);
            assert_eq!(admitted, mode == Mode::Force || meter.fits(&state, cost, now));
            if !admitted || mode == Mode::Peek || cost == 0 {
                assert_eq!(after, state, "nothing was charged");
            } else {
                assert_eq!(State::from_bytes(&after.to_bytes()), Ok(after.clone()), "it can be stored");
                meter.refund(&mut after, cost, verdict.receipt, now);
            }
            check_verdict(&meter.claim(&mut after, 1, Timestamp::MAX, Mode::Force).1, &meter, Timestamp::MAX);
            let _ = meter.forget_at(&after).since(now);
        }
    });
}

/// Claims and refunds on several meters, all or nothing, from any instant to any other.
#[test]
fn decisions() {
    fuzz!("tests", "decisions", |bytes| {
        let mut input = Input::new(bytes);
        let meters: Vec<Meter> = (0..1 + input.byte() % 3).map(|_| any_meter(&mut input)).collect();
        let mut states: Vec<Option<State>> = vec![None; meters.len()];
        let mut now = Timestamp::from_nanos(input.number());
        let ids: Vec<[u8; 1]> = (0..meters.len()).map(|nth| [u8::try_from(nth).unwrap()]).collect();
        for _ in 0..20 {
            if input.is_empty() {
                break;
            }
            let mode = *input.one_of(&[Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force]);
            now = if input.byte().is_multiple_of(5) {
                Timestamp::from_nanos(input.number())
            } else {
                now + Duration::from_nanos(input.number())
            };
            let claims: Vec<Claim<'_>> = meters
                .iter()
                .zip(&ids)
                .map(|(meter, key)| Claim {
                    id: MeterId { namespace: "", scope: "s", key },
                    cost: input.within(0, meter.limit() + 1),
                    meter: *meter,
                })
                .collect();
            let claims = Claims::new(now, mode, &claims).expect("distinct meters");
            let before = states.clone();
            let answer = decide(&claims, &mut states);
            let fit = claims.iter().zip(&before).all(|(claim, state)| {
                claim.meter.fits(state.as_ref().unwrap_or(&claim.meter.fresh()), claim.cost, now)
            });
            assert_eq!(answer.admitted, fit || mode == Mode::Force);
            assert_eq!(answer.charged, answer.admitted && mode != Mode::Peek);
            if !answer.charged {
                assert_eq!(states, before, "a refusal or a peek changes nothing");
            }
            for ((claim, verdict), state) in claims.iter().zip(&answer.verdicts).zip(&states) {
                check_verdict(verdict, &claim.meter, now);
                // If nobody else comes, waiting as told suffices, and a nanosecond less does not.
                let fits =
                    |at| claim.meter.fits(state.as_ref().unwrap_or(&claim.meter.fresh()), claim.cost, at);
                if let Some(at) =
                    verdict.fits_at.filter(|at| !answer.charged && now < *at && *at <= Timestamp::MAX)
                {
                    assert!(fits(at) && !fits(Timestamp::from_nanos(at.as_nanos() - 1)), "{verdict:?}");
                }
            }
            if answer.charged && input.byte().is_multiple_of(2) {
                for ((claim, verdict), state) in claims.iter().zip(&answer.verdicts).zip(&mut states) {
                    let to_refund = Refund {
                        id: claim.id,
                        cost: claim.cost,
                        meter: claim.meter,
                        receipt: verdict.receipt,
                    };
                    refund(&to_refund.meter, state, to_refund.cost, to_refund.receipt, now);
                }
            }
        }
    });
}
