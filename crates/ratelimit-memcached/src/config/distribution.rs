//! Chooses the server that stores a meter.

use md5::{Digest, Md5};
use ratelimit_core::store::MeterId;

use crate::config::address::{Address, PORT};
use crate::wire::keys::{OFFSET, mix, stable_hash};

/// How keys are distributed over several servers.
///
/// With both methods all limits of one key are on one server, so that they share a round trip, and adding or removing a
/// server moves only its own share of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Distribution {
    /// Rendezvous hashing: the server with the highest score for the key. All servers get equal shares of the keys.
    #[default]
    Rendezvous,
    /// The ketama ring of other clients: the same as libmemcached with `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED` and equal
    /// weights, and as twemproxy with `distribution: ketama` and `hash: md5`. The key on the ring is `<namespace>!<key>`.
    /// Shares differ: the largest of three servers is typically 6 % above average, of ten 12 %; at worst 23 % and 31 %.
    ///
    /// Use this if another program has to find the server of a key.
    Ketama,
}

/// Chooses servers.
pub(crate) enum ServerSelector {
    /// A seed for each server.
    Rendezvous(Vec<u64>),
    /// Points in ascending order, with their servers.
    Ketama(Vec<(u32, usize)>),
}

impl ServerSelector {
    pub(crate) fn new(distribution: Distribution, servers: &[Address]) -> Self {
        match distribution {
            Distribution::Rendezvous => {
                let seed = |server: &Address| stable_hash(server.text().as_bytes(), OFFSET);
                Self::Rendezvous(servers.iter().map(seed).collect())
            }
            Distribution::Ketama => Self::Ketama(ring(servers)),
        }
    }

    /// The server that stores a meter.
    pub(crate) fn choose(&self, id: &MeterId<'_>) -> usize {
        match self {
            Self::Rendezvous(seeds) => {
                let place = stable_hash(id.key, stable_hash(id.namespace.as_bytes(), OFFSET));
                let highest = seeds.iter().enumerate().max_by_key(|(_, seed)| mix(*seed ^ place));
                highest.map_or(0, |(server, _)| server)
            }
            Self::Ketama(points) => {
                let [place, ..] = numbers(&[id.namespace.as_bytes(), b"!", id.key]);
                let next = points.partition_point(|(point, _)| *point < place);
                points.get(next).or(points.first()).map_or(0, |(_, server)| *server)
            }
        }
    }
}

/// Forty texts for each server; the hash of each text gives four points.
fn ring(servers: &[Address]) -> Vec<(u32, usize)> {
    let mut points = Vec::with_capacity(servers.len() * 160);
    for (nth, server) in servers.iter().enumerate() {
        let name = match server {
            // The other clients omit the default port.
            Address::Tcp { port: PORT, .. } | Address::Unix(_) => server.host(),
            Address::Tcp { .. } => server.text(),
        };
        for hash in 0..hashes(servers.len()) {
            let points_of_hash = numbers(&[name.as_bytes(), b"-", hash.to_string().as_bytes()]);
            points.extend(points_of_hash.map(|point| (point, nth)));
        }
    }
    points.sort_unstable();
    points
}

/// The number of texts for each of this many servers: forty, except that the other clients round some to 39.
fn hashes(servers: usize) -> u8 {
    #[expect(clippy::cast_precision_loss, reason = "there are fewer servers than a float has whole numbers")]
    let servers = servers as f32;
    let share = 1.0 / servers;
    if share * 160.0 / 4.0 * servers < 40.0 { 39 } else { 40 }
}

/// The four numbers in an MD5 hash.
fn numbers(parts: &[&[u8]]) -> [u32; 4] {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    let bytes: [u8; 16] = hash.finalize().into();
    std::array::from_fn(|nth| {
        let at = 4 * nth;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(names: &[&str]) -> Vec<Address> {
        names.iter().map(|name| Address::parse(name).expect("an address")).collect()
    }

    fn id(key: &[u8]) -> MeterId<'_> {
        MeterId { namespace: "", scope: "", key }
    }

    fn choices(distribution: Distribution, names: &[&str]) -> Vec<String> {
        let addresses = addresses(names);
        let selector = ServerSelector::new(distribution, &addresses);
        let choice = |nth: u64| addresses[selector.choose(&id(&nth.to_be_bytes()))].text();
        (0..10_000).map(choice).collect()
    }

    #[test]
    fn keys_move_only_to_a_new_server() {
        for distribution in [Distribution::Rendezvous, Distribution::Ketama] {
            let three = choices(distribution, &["a", "b", "c"]);
            let four = choices(distribution, &["d", "c", "b", "a"]);
            let moved = three.iter().zip(&four).filter(|(before, after)| before != after);
            let moved: Vec<_> = moved.map(|(_, after)| after).collect();
            assert!(moved.iter().all(|server| **server == "d:11211"));
            assert!((1_800..3_200).contains(&moved.len()), "{}", moved.len());
        }
    }

    /// The smallest and the largest share of 10,000 keys.
    fn shares(distribution: Distribution, names: &[&str]) -> (usize, usize) {
        let choices = choices(distribution, names);
        let share = |name: &&str| choices.iter().filter(|server| server.starts_with(*name)).count();
        let shares: Vec<_> = names.iter().map(share).collect();
        (shares.iter().min().copied().unwrap_or(0), shares.iter().max().copied().unwrap_or(0))
    }

    #[test]
    fn shares_are_as_even_as_documented() {
        let ten: Vec<String> = (0..10).map(|nth| format!("10.0.0.{nth}:7000")).collect();
        let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
        for (distribution, percent) in [(Distribution::Rendezvous, 8), (Distribution::Ketama, 32)] {
            for names in [&ten[..3], &ten] {
                let even = 10_000 / names.len();
                let (smallest, largest) = shares(distribution, names);
                let reported = format!("{distribution:?}, {}: {smallest} to {largest}", names.len());
                assert!(even - smallest <= even * percent / 100, "{reported}");
                assert!(largest - even <= even * percent / 100, "{reported}");
            }
        }
    }

    #[test]
    fn server_choices_do_not_change() {
        // Other choices would reset the meters of a running fleet.
        let three = addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let chosen = |distribution| -> Vec<usize> {
            let selector = ServerSelector::new(distribution, &three);
            (0..12_u8).map(|nth| selector.choose(&id(&[nth]))).collect()
        };
        assert_eq!(chosen(Distribution::Rendezvous), [1, 0, 0, 0, 0, 2, 2, 0, 1, 1, 1, 0]);
        assert_eq!(chosen(Distribution::Ketama), [1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 1, 0]);
    }

    #[test]
    fn ketama_has_fewer_points_for_some_numbers_of_servers() {
        let fewer: Vec<usize> = (1..=61).filter(|servers| hashes(*servers) == 39).collect();
        assert_eq!(fewer, [25, 47, 50, 55, 61]);
    }
}
