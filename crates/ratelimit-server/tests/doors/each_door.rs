//! The three doors, each of a server of its own, asked in the same way.

use serde_json::json;

use crate::support::*;

/// A server for each door.
pub(crate) struct Doors {
    pub(crate) each: [Door; 3],
    _servers: Vec<Started>,
}

/// One of the doors.
pub(crate) enum Door {
    Http(Http),
    Redis(Redis),
    Grpc(tonic::client::Grpc<tonic::transport::Channel>),
}

/// An answer, as far as all doors give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    /// The seconds, rounded up: after a refusal, until the same request fits; otherwise until the limit is as good as new.
    pub(crate) wait: Option<u64>,
}

/// A file with a policy `p0`, `p1`, … for each of these, whose limits are separated by semicolons.
pub(crate) fn policies(limits: &[&str]) -> String {
    let policy = |(place, limits): (usize, &&str)| {
        let limits: Vec<String> = limits.split("; ").map(|limit| format!("{limit:?}")).collect();
        let limits = limits.join(", ");
        format!("[[policies]]\nname = \"p{place}\"\nkey = [\"p{place}\", \"user\"]\nlimit = [{limits}]\n")
    };
    limits.iter().enumerate().map(policy).collect()
}

impl Doors {
    pub(crate) async fn open(file: &str) -> Self {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Started::with(file, &[]).await);
        }
        let each = [
            Door::Http(servers[0].http()),
            Door::Redis(servers[1].redis().await),
            Door::Grpc(servers[2].grpc().await),
        ];
        Self { each, _servers: servers }
    }
}

impl Door {
    pub(crate) async fn ask(&mut self, policy: &str, key: &str, cost: u64) -> Answer {
        match self {
            Self::Http(http) => {
                let body = json!({ "policy": policy, "key": ["1", key], "cost": cost });
                let answer = http.post("/v1/check", &body).await.json();
                let allowed = answer["allowed"] == true;
                let wait = &answer[if allowed { "reset_after_ms" } else { "retry_after_ms" }];
                Answer {
                    allowed,
                    remaining: answer["remaining"].as_u64().unwrap(),
                    wait: wait.as_u64().map(|millis| millis.div_ceil(1_000)),
                }
            }
            Self::Redis(redis) => {
                let key = format!("1 + {key}");
                let numbers = redis.numbers(&["RL.CHECK", policy, &key, &cost.to_string()]).await;
                let allowed = numbers[0] == 0;
                let wait = numbers[if allowed { 4 } else { 3 }];
                Answer {
                    allowed,
                    remaining: u64::try_from(numbers[2]).unwrap(),
                    // -1 if there is none.
                    wait: u64::try_from(wait).ok(),
                }
            }
            Self::Grpc(grpc) => {
                let mut request = request("d", vec![descriptor(&[(policy, "1"), ("user", key)])]);
                request.descriptors[0].hits_addend = Some(cost);
                let response = should(grpc, request).await.unwrap();
                let status = &response.statuses[0];
                let rounded = |wait: &prost_types::Duration| {
                    u64::try_from(wait.seconds + i64::from(wait.nanos > 0)).unwrap()
                };
                Answer {
                    allowed: response.overall_code == 1,
                    remaining: status.limit_remaining.into(),
                    wait: status.duration_until_reset.as_ref().map(rounded),
                }
            }
        }
    }

    /// How many of this many requests are admitted.
    pub(crate) async fn drain(&mut self, policy: &str, key: &str, requests: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u64::from(self.ask(policy, key, 1).await.allowed);
        }
        admitted
    }
}
