//! The customers and their plans.

/// A key on the free plan.
pub(crate) const FREE_KEY: &str = "free-demo";

const STARTER_KEY: &str = "starter-demo";

/// The plan of `api_key`. A real service would ask its database.
pub(crate) fn plan_of(api_key: &[u8]) -> Option<&'static str> {
    let known = [(FREE_KEY, "free"), (STARTER_KEY, "starter")];
    known.into_iter().find(|(key, _)| key.as_bytes() == api_key).map(|(_, plan)| plan)
}
