//! Implements the conformance suite's control of servers, groups and clusters.

use async_trait::async_trait;
use ratelimit_conformance::BoxError;

use crate::{Cluster, Group, Sentinel, Server};

macro_rules! controlled_by_the_suite {
    ($($server:ty),*) => {$(
        #[async_trait]
        impl ratelimit_conformance::Server for $server {
            async fn kill(&self) -> Result<(), BoxError> {
                Ok(Self::kill(self).await?)
            }

            async fn start(&self) -> Result<(), BoxError> {
                Ok(Self::start(self).await?)
            }

            async fn freeze(&self) -> Result<(), BoxError> {
                Ok(Self::freeze(self).await?)
            }

            async fn thaw(&self) -> Result<(), BoxError> {
                Ok(Self::thaw(self).await?)
            }
        }
    )*};
}

controlled_by_the_suite!(Server, Cluster, Group, Sentinel);
