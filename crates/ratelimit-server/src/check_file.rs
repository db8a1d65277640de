//! `--check FILE`: the policies as this server understands them.

use std::fmt::Write as _;
use std::path::Path;

use ratelimit_tower::config::ConfigError;

use crate::entries;
use crate::rules::{Rules, RulesFile};

/// What the file says, one policy after another.
///
/// # Errors
/// If the file cannot be used: with its line and field.
pub(crate) fn describe(path: &Path) -> Result<String, ConfigError> {
    let rules = RulesFile::open(path)?.current();
    let mut text = String::new();
    for policy in rules.policies.each() {
        let shadow = if rules.is_shadow(policy) { ", in shadow" } else { "" };
        let _ = writeln!(text, "policy {}{shadow}", policy.name());
        let _ = writeln!(text, "  counts by {}", policy.source());
        limits(&mut text, &rules, policy.name());
        match entries::of_policy(policy) {
            Some(_) => {
                let names = policy.source().names();
                let _ = writeln!(text, "  descriptors with exactly: {}", names.join(", "));
            }
            None => text.push_str("  no descriptor is for it: its key has alternatives\n"),
        }
        if entries::names_entries(policy) {
            text.push_str("  not checked by /v1/auth: its key names entries of descriptors\n");
        }
        let as_written = rules.config.policies().get(policy.name());
        if as_written.is_some_and(ratelimit_tower::Policy::needs_response) {
            text.push_str(
                "  charged at once, since this server sees no response: refund or settle by receipt\n",
            );
        }
    }
    Ok(text)
}

fn limits(text: &mut String, rules: &Rules, policy: &str) {
    let config = &rules.config;
    let default_limits = config.limits(policy, None);
    let of_plans =
        config.plans().map(|plan| (format!("  with plan {plan}: "), config.limits(policy, Some(plan))));
    let of_plans = of_plans.filter(|(_, limits)| *limits != default_limits);
    for (what, limits) in std::iter::once(("  limits: ".to_owned(), default_limits)).chain(of_plans) {
        let none = || "none, so it does not apply".to_owned();
        let limits = limits.map_or_else(none, |limits| {
            limits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        });
        let _ = writeln!(text, "{what}{limits}");
    }
}
