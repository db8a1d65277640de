//! Servers whose addresses are in the environment.

use std::sync::Arc;
use std::time::Duration;

use crate::Settings;
use crate::server::Server;
use crate::service::{Recipe, Service};

/// The servers at the addresses in the recipe's variable; `None` if it is not set.
pub(crate) async fn take(
    settings: &Settings,
    recipe: &Recipe,
    service: &Arc<dyn Service>,
) -> Option<Result<Vec<Server>, String>> {
    let value = settings.addresses.get(recipe.variable)?;
    let mut servers = Vec::new();
    for url in value.split(',').map(str::trim).filter(|url| !url.is_empty()) {
        match at(recipe, service.as_ref(), url).await {
            Ok(server) => {
                eprintln!("{}: {} from {}", recipe.name, server.address(), recipe.variable);
                servers.push(server);
            }
            Err(reason) => return Some(Err(reason)),
        }
    }
    Some(Ok(servers))
}

async fn at(recipe: &Recipe, service: &dyn Service, url: &str) -> Result<Server, String> {
    let server = service.at_address(url)?;
    let look_up = tokio::net::lookup_host(&server.authority);
    let address = tokio::time::timeout(Duration::from_secs(5), look_up)
        .await
        .map_err(|_| format!("{} was not resolved within 5 s", server.authority))?
        .map_err(|error| format!("{}: {error}", server.authority))?
        // A name such as `localhost` has addresses of both families, and servers usually listen on the IPv4 one.
        .min_by_key(|address| address.is_ipv6())
        .ok_or_else(|| format!("{} has no address", server.authority))?;
    server.service.ready(address).await.map_err(|reason| format!("{address}: {reason}"))?;
    Ok(Server::at_address(recipe.name, url.to_owned(), address, server.service))
}
