//! Tries the ways to a server in their order.

use std::sync::Arc;

use crate::server::Server;
use crate::service::{Recipe, Service};
use crate::{Settings, Unavailable, Way, environment, package, process, program};

/// Obtains servers.
#[derive(Clone, Debug, Default)]
pub struct Testbed {
    settings: Settings,
}

/// What was tried.
type Tried = Vec<(&'static str, String)>;

impl Testbed {
    /// As the environment says.
    pub fn from_env() -> Self {
        Self::new(Settings::from_env())
    }

    /// As `settings` say.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Whether Debian packages may be installed.
    pub(crate) fn may_install(&self) -> bool {
        self.settings.install
    }

    /// One server.
    pub(crate) async fn obtain_one(
        &self,
        recipe: &'static Recipe,
        service: Arc<dyn Service>,
    ) -> Result<Server, Unavailable> {
        let none = || Unavailable {
            name: recipe.name,
            tried: Tried::new(),
            advice: "No server was obtained.".to_owned(),
        };
        self.obtain(recipe, &[service]).await?.into_iter().next().ok_or_else(none)
    }

    /// One server that is started in any case: an address in the environment is not used for it.
    pub(crate) async fn start_one(
        &self,
        recipe: &'static Recipe,
        service: Arc<dyn Service>,
    ) -> Result<Server, Unavailable> {
        self.starting(recipe).obtain_one(recipe, service).await
    }

    /// The same, but blind to an address in the environment.
    pub(crate) fn starting(&self, recipe: &'static Recipe) -> Self {
        let mut settings = self.settings.clone();
        settings.addresses.remove(recipe.variable);
        Self::new(settings)
    }

    /// As many servers as there are `services`, all by the same way; those that the environment names may be fewer or
    /// more.
    pub(crate) async fn obtain(
        &self,
        recipe: &'static Recipe,
        services: &[Arc<dyn Service>],
    ) -> Result<Vec<Server>, Unavailable> {
        let mut tried = Tried::new();
        let Some(first) = services.first() else { return Ok(Vec::new()) };
        match environment::take(&self.settings, recipe, first).await {
            Some(Ok(servers)) if !servers.is_empty() => return Ok(servers),
            Some(Ok(_)) => tried.push((recipe.variable, "names no address".to_owned())),
            Some(Err(reason)) => {
                tried.push((recipe.variable, reason));
                let advice = format!("Start the server there, correct {0}, or unset it.", recipe.variable);
                return Err(Unavailable { name: recipe.name, tried, advice });
            }
            None => tried.push((recipe.variable, "not set".to_owned())),
        }
        if self.settings.only != Some(Way::Process) {
            match self.container(recipe, services).await {
                Ok(servers) => return Ok(servers),
                Err(reason) => tried.push(("docker", reason)),
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
        let outcome = crate::docker::start(recipe, self.settings.images.get(recipe.name), services).await;
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
        if let Some(image) = self.settings.images.get(recipe.name) {
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
        let mut found = program::find_server(recipe, services[0].as_ref());
        if found.is_none() {
            tried.push(("installed", format!("there is no {} on the PATH", recipe.program)));
            if !self.settings.install {
                tried.push(("package", "installing it is not allowed".to_owned()));
                return None;
            }
            if let Err(reason) = package::install(recipe.name, recipe.package).await {
                tried.push(("package", reason));
                return None;
            }
            found = program::find_server(recipe, services[0].as_ref());
        }
        let Some(program) = found else {
            tried.push((
                "package",
                format!("{} is installed but brought no {}", recipe.package, recipe.program),
            ));
            return None;
        };
        match process::start(recipe, &program, services).await {
            Ok(servers) => Some(servers),
            Err(reason) => {
                tried.push(("process", reason));
                None
            }
        }
    }

    fn unavailable(&self, recipe: &'static Recipe, tried: Tried) -> Unavailable {
        let install = if self.settings.install { "" } else { ", or allow its package (RATELIMIT_INSTALL=1)" };
        let advice = format!(
            "Name an address in {}, start a Docker daemon that has {}, install {}{install}.",
            recipe.variable, recipe.image, recipe.package,
        );
        Unavailable { name: recipe.name, tried, advice }
    }
}
