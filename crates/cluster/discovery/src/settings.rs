//! Settings of the translation, which no container has.

use std::net::IpAddr;
use std::sync::Arc;

use crate::certificates::CertificateFolder;
use crate::routes::HttpsMode;

/// Source of routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    #[default]
    Docker,
    Podman,
    Consul,
}

impl Provider {
    /// Returns the name in arguments, comments and the access log.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Docker => "docker",
            Provider::Podman => "podman",
            Provider::Consul => "consul",
        }
    }
}

/// Authority of certificates that the server orders itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// Directory of the authority.
    pub directory: String,
    /// Address of mails of the authority, if a container has none.
    pub contact: Option<String>,
    /// Folder of accounts and certificates, on the machine of the server.
    pub state_folder: String,
    /// File with the authorities that the directory's own certificate is checked with.
    pub trusted_certificate: Option<String>,
}

/// Settings of [`crate::translate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub provider: Provider,
    /// `None` for all addresses.
    pub address: Option<IpAddr>,
    pub http_port: u16,
    pub https_port: u16,
    /// Host whose routes also take the requests of unknown hosts.
    pub default_host: Option<String>,
    /// Mode of hosts that have none; without it, `redirect`.
    pub https: Option<HttpsMode>,
    /// `Strict-Transport-Security` of hosts that have none.
    pub hsts: Option<String>,
    pub certificates: Arc<CertificateFolder>,
    pub acme: Option<AcmeSettings>,
    /// Takes the directives of `tidegate.snippet`.
    pub allows_snippets: bool,
    /// The server resolves names while it runs: endpoints may have names.
    pub has_resolver: bool,
    /// Identifier, its begin, or name of the container that the server is in. `None` for a server on the host.
    pub server_container: Option<String>,
    /// Name of the server's host. A running container with this name, or whose identifier begins with it, is the one that
    /// the server is in, unless `server_container` names one.
    pub server_hostname: Option<String>,
    /// Network whose addresses are preferred.
    pub network: Option<String>,
    /// Uses ports that are published on the host, not the addresses of containers: for engines whose networks the host does
    /// not reach (rootless Podman, Docker Desktop).
    pub uses_published_ports: bool,
    /// Prefers IPv6 addresses.
    pub prefers_ipv6: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            provider: Provider::default(),
            address: None,
            http_port: 80,
            https_port: 443,
            default_host: None,
            https: None,
            hsts: None,
            certificates: Arc::default(),
            acme: None,
            allows_snippets: false,
            has_resolver: false,
            server_container: None,
            server_hostname: None,
            network: None,
            uses_published_ports: false,
            prefers_ipv6: false,
        }
    }
}
