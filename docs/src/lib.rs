//! The pages, so that the compiler reads their examples. Pages that belong to one crate are read there.
#![forbid(unsafe_code)]

/// A page, by its path in this folder.
#[cfg(doctest)]
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {$(
        #[doc = include_str!(concat!("../", $path))]
        struct $name;
    )*};
}

#[cfg(doctest)]
pages! {
    BehindProxies: "behind-proxies.md",
    Choose: "choose.md",
    Comparison: "comparison.md",
    CostConcurrencyCalendar: "cost-concurrency-calendar.md",
    CountingTogether: "counting-together.md",
    FromBucket4j: "migrating/bucket4j.md",
    FromGovernor: "migrating/governor.md",
    FromLimits: "migrating/limits.md",
    FromRedisRate: "migrating/redis-rate.md",
    FromTowerGovernor: "migrating/tower-governor.md",
    Glossary: "glossary.md",
    InternalsBehindProxies: "internals/behind-proxies.md",
    InternalsLimitsInText: "internals/limits-in-text.md",
    Introduction: "introduction.md",
    Kubernetes: "kubernetes.md",
    LimitsInText: "limits-in-text.md",
    RecipeBrowsers: "recipes/browsers.md",
    RecipeLimitsFromADatabase: "recipes/limits-from-a-database.md",
    RecipeLogIns: "recipes/log-ins.md",
    RecipeUploads: "recipes/uploads.md",
    RecipeWebSockets: "recipes/websockets.md",
    RecipeWorkers: "recipes/workers.md",
    Start: "start.md",
    Testing: "testing.md",
    Troubleshooting: "troubleshooting.md",
    WhenTheStoreIsAway: "when-the-store-is-away.md",
}
