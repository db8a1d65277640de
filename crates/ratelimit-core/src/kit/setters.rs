//! Setters of configurations.

/// Defines a setter for each field that it names, for use inside the `impl` of a configuration.
///
/// ```
/// # use std::time::Duration;
/// pub struct Config {
///     /// The prefix.
///     pub prefix: String,
///     /// The maximum duration.
///     pub timeout: Duration,
/// }
///
/// impl Config {
///     ratelimit_core::kit::setters! {
///         prefix: impl Into<String>,
///         timeout: Duration,
///     }
/// }
///
/// let config = Config { prefix: String::new(), timeout: Duration::ZERO };
/// assert_eq!(config.prefix("rl:").prefix, "rl:");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __setters {
    ($($field:ident: $type:ty,)*) => {$(
        #[doc = ::core::concat!("Sets [`", ::core::stringify!($field), "`](Self#structfield.", ::core::stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}
