//! Messages about names, for the error log.

use crate::failure::ResolveFailure;

/// A message of name resolution, for the error log.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// A name has no addresses; its servers are unavailable.
    Down {
        /// The name.
        host: &'a str,
        /// Name of the group.
        group: &'a str,
        /// The system's reason.
        why: &'a str,
    },
    /// A name that was down has addresses.
    Found {
        /// The name.
        host: &'a str,
        /// Name of the group.
        group: &'a str,
    },
    /// The `resolver` failed.
    Failed {
        /// The name, or the domain of the service.
        host: &'a str,
        /// The service, if SRV records were asked for.
        service: Option<&'a str>,
        /// The reason.
        why: ResolveFailure,
    },
    /// A target of an SRV record has no addresses.
    Target {
        /// The target.
        host: &'a str,
        /// The service.
        service: &'a str,
        /// The domain of the service.
        of: &'a str,
        /// The reason.
        why: ResolveFailure,
    },
}

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Down { host, group, why } => {
                write!(f, "{why} in upstream \"{group}\": \"{host}\" is down until it resolves")
            }
            Word::Found { host, group } => write!(f, "\"{host}\" in upstream \"{group}\" is resolved now"),
            Word::Failed { host, service: None, why } => {
                write!(f, "{host} could not be resolved ({}: {why})", why.code())
            }
            Word::Failed { host, service: Some(service), why } => {
                write!(f, "service {service} of {host} could not be resolved ({}: {why})", why.code())
            }
            Word::Target { host, service, of, why } => write!(
                f,
                "{host} could not be resolved ({}: {why}) while resolving service {service} of {of}",
                why.code()
            ),
        }
    }
}
