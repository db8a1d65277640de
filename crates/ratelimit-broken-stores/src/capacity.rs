//! Stores that silently drop data.

use ratelimit_core::meter::State;

/// A log with its newest entries only.
fn newest(state: State, most: usize) -> State {
    match state {
        State::Log(mut log) => {
            let surplus = log.units.len().saturating_sub(most);
            log.units.drain(..surplus);
            State::Log(log)
        }
        other => other,
    }
}

flaws! {
    ThousandMeters "a-thousand-meters": "the oldest meter goes when there are a thousand",
        "names/tens-of-thousands" {
        const MOST_METERS: usize = 1_000;
    }
    ManyMeters "ten-thousand-meters": "the oldest meter goes when there are ten thousand",
        "names/tens-of-thousands" {
        const MOST_METERS: usize = 10_000;
    }
    ThousandUnits "a-thousand-units": "a log keeps its newest thousand units", "logs/thousands-of-instants" {
        fn kept(&self, state: State) -> State {
            newest(state, 1_000)
        }
    }
    TwoThousand "two-thousand-units": "a log keeps its newest 2,048 units", "logs/thousands-of-instants" {
        fn kept(&self, state: State) -> State {
            newest(state, 2_048)
        }
    }
}
