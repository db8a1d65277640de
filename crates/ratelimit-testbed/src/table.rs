//! The servers that can be obtained by name.

use std::pin::Pin;

use crate::{OtherVersion, POSTGRES_VERSIONS, REDIS_VERSIONS, Server, Testbed, Unavailable};

type Obtained<'a> = Pin<Box<dyn Future<Output = Result<Vec<Server>, Unavailable>> + Send + 'a>>;

/// A server, or a group of servers, with a name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name: `redis`, `redis-cluster`, …
    pub name: &'static str,
    /// The variable with its address: `RATELIMIT_REDIS_URL`, …
    pub variable: &'static str,
    obtain: for<'a> fn(&'a Testbed) -> Obtained<'a>,
}

impl Row {
    /// Finds or starts it.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn obtain(&self, testbed: &Testbed) -> Result<Vec<Server>, Unavailable> {
        (self.obtain)(testbed).await
    }
}

/// The servers that can run in a container, by the names that [`Settings::images`](crate::Settings::images) uses.
pub fn images() -> Vec<&'static str> {
    let usual = [
        crate::redis::RECIPE.name,
        crate::cluster::RECIPE.name,
        crate::postgres::RECIPE.name,
        crate::memcached::RECIPE.name,
        crate::memcached::PAIR.name,
    ];
    let versions = REDIS_VERSIONS.iter().chain(&POSTGRES_VERSIONS).map(OtherVersion::name);
    usual.into_iter().chain(versions).collect()
}

/// The official images of the usual servers.
pub fn official_images() -> [&'static str; 3] {
    [crate::redis::RECIPE.image, crate::postgres::RECIPE.image, crate::memcached::RECIPE.image]
}

/// All servers that can be obtained by name.
pub fn table() -> Vec<Row> {
    vec![
        Row {
            name: crate::redis::RECIPE.name,
            variable: crate::redis::RECIPE.variable,
            obtain: |testbed| Box::pin(async { Ok(vec![testbed.redis().await?]) }),
        },
        Row {
            name: crate::cluster::RECIPE.name,
            variable: crate::cluster::RECIPE.variable,
            obtain: |testbed| Box::pin(async { Ok(testbed.redis_cluster().await?.nodes().to_vec()) }),
        },
        Row {
            name: crate::postgres::RECIPE.name,
            variable: crate::postgres::RECIPE.variable,
            obtain: |testbed| Box::pin(async { Ok(vec![testbed.postgres().await?]) }),
        },
        Row {
            name: crate::memcached::RECIPE.name,
            variable: crate::memcached::RECIPE.variable,
            obtain: |testbed| Box::pin(async { Ok(vec![testbed.memcached().await?]) }),
        },
        Row {
            name: crate::memcached::PAIR.name,
            variable: crate::memcached::PAIR.variable,
            obtain: |testbed| Box::pin(async { Ok(testbed.memcached_pair().await?.servers().to_vec()) }),
        },
        Row {
            name: crate::twemproxy::RECIPE.name,
            variable: crate::twemproxy::RECIPE.variable,
            obtain: |testbed| Box::pin(async { Ok(testbed.twemproxy().await?.servers().to_vec()) }),
        },
    ]
}
