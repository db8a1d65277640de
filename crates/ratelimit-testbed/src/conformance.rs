//! Implements the conformance suite's control of servers, groups and clusters.

use async_trait::async_trait;
use ratelimit_conformance::BoxError;

use crate::{Cluster, Group, Sentinel, Server};

#[async_trait]
impl ratelimit_conformance::Server for Server {
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

#[async_trait]
impl ratelimit_conformance::Server for Cluster {
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

#[async_trait]
impl ratelimit_conformance::Server for Group {
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

#[async_trait]
impl ratelimit_conformance::Server for Sentinel {
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
