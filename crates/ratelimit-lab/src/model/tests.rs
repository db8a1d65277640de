//! Tests of the models.

use std::io::Read as _;

use super::*;

fn samples(spec: &Spec) -> Vec<Sample> {
    Traffic::new(spec).unwrap().collect()
}

fn all_models() -> impl Iterator<Item = Spec> {
    Model::value_variants().iter().map(|model| Spec { model: *model, ..Spec::default() })
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    for spec in all_models() {
        for written in [Written::Combined, Written::Json] {
            let text = |seed| {
                let spec = Spec { seed, requests: 2_000, ..spec.clone() };
                let mut text = Vec::new();
                LogText::new(Traffic::new(&spec).unwrap(), spec.keys, written)
                    .read_to_end(&mut text)
                    .unwrap();
                assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 2_000, "{spec}");
                text
            };
            assert!(text(7) == text(7) && text(7) != text(8), "{spec}");
        }
    }
}

#[test]
fn requests_are_in_order_and_at_the_stated_rate() {
    for spec in all_models() {
        // Whole days, since the rate of one model changes over the day.
        let spec = Spec { rate: 2.0, duration: Some(2.0 * 86_400.0), requests: u64::MAX, ..spec };
        let samples = samples(&spec);
        assert!(samples.is_sorted_by_key(|sample| sample.time), "{spec}");
        // Retries are not part of the rate. The bound is five standard deviations, which are greater with bursts.
        let first =
            samples.iter().filter(|one| spec.model != Model::Retrying || one.attempt == 0).count() as f64;
        let expected = 2.0 * 2.0 * 86_400.0_f64;
        let factor = if spec.model == Model::Bursts { 40.0_f64 } else { 1.0 };
        assert!((first - expected).abs() < 5.0 * (expected * factor).sqrt(), "{spec}: {first} of {expected}");
    }
}

#[test]
fn each_model_is_what_it_says() {
    let of = |model| samples(&Spec { model, ..Spec::default() });
    let share = |samples: &[Sample], is: &dyn Fn(&Sample) -> bool| {
        samples.iter().filter(|sample| is(sample)).count() as f64 / samples.len() as f64
    };
    let second = |sample: &Sample| sample.time.as_nanos() / 1_000_000_000 % 60;
    assert_eq!(share(&of(Model::Boundary), &|one| matches!(second(one), 59 | 0)), 1.0);
    assert_eq!(share(&of(Model::StartOfMinute), &|one| second(one) < 5), 1.0);
    assert!((share(&of(Model::Poisson), &|one| one.key < 500) - 0.5).abs() < 0.01);
    // The weight of the first key is 1 / H, with H the sum of n^-1.1 up to 1,000: 5.572.
    assert!((share(&of(Model::Zipf), &|one| one.key == 0) - 1.0 / 5.572).abs() < 0.01);
    assert!((share(&of(Model::Attackers), &|one| one.key >= 1_000) - 0.3).abs() < 0.01);
    let retrying = of(Model::Retrying);
    assert!((share(&retrying, &|one| one.fails) - 0.3).abs() < 0.01);
    let again = retrying.iter().filter(|one| one.attempt == 1).count() as f64;
    let first = retrying.iter().filter(|one| one.attempt == 0).count() as f64;
    assert!((again / first - 0.3).abs() < 0.02, "{again} of {first}");
    let bursts = of(Model::Bursts);
    let lengths = bursts.len() as f64 / bursts.iter().filter(|one| one.attempt == 0).count() as f64;
    assert!((lengths - 20.0).abs() < 2.0, "{lengths}");
    let day = Spec { model: Model::Diurnal, duration: Some(86_400.0), requests: u64::MAX, ..Spec::default() };
    let hour = |sample: &Sample| sample.time.as_nanos() / 3_600_000_000_000 % 24;
    let day = samples(&day);
    let (noon, midnight) = (share(&day, &|one| hour(one) == 12), share(&day, &|one| hour(one) == 0));
    assert!((noon / midnight - 1.8 / 0.2).abs() < 0.8, "{noon} {midnight}");
}

#[test]
fn numbers_out_of_range_are_errors() {
    let usual = Spec::default();
    for wrong in [
        Spec { keys: 0, ..usual.clone() },
        Spec { keys: MOST_KEYS + 1, ..usual.clone() },
        Spec { rate: 0.0, ..usual.clone() },
        Spec { rate: f64::NAN, ..usual.clone() },
        Spec { duration: Some(-1.0), ..usual.clone() },
        Spec { duration: Some(f64::INFINITY), ..usual },
    ] {
        assert!(Traffic::new(&wrong).is_err(), "{wrong}");
    }
}
