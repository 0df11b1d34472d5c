//! Arguments of discovery outside of Kubernetes: containers of Docker and Podman, services of Consul.

use std::path::PathBuf;
use std::sync::Arc;

use cluster_discovery::{AcmeSettings, HttpsMode, Provider, Settings};

use crate::arguments::IngressArguments;

/// Directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Source of routes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProviderName {
    /// Gateways, routes and Ingresses of a cluster.
    #[default]
    Kubernetes,
    /// Containers of Docker, by their labels and variables.
    Docker,
    /// Containers of Podman, by their labels and variables.
    Podman,
    /// Services of Consul, by their tags.
    Consul,
}

/// Settings of the translation of containers and services.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Containers and Consul")]
pub struct DiscoveryArguments {
    /// Source of routes.
    #[arg(long, value_enum, value_name = "NAME", default_value = "kubernetes")]
    pub provider: ProviderName,

    /// Host whose routes also take the requests of unknown hosts. Without it, they get 404.
    #[arg(long, value_name = "HOST")]
    pub default_host: Option<String>,

    /// Folder with NAME.crt and NAME.key of hosts, of their parents, or "default".
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,

    /// Use of HTTP and HTTPS by hosts with a certificate, if their labels say nothing (default: redirect).
    #[arg(long, value_name = "redirect|both|only|off", value_parser = parse_https)]
    pub https: Option<HttpsMode>,

    /// Strict-Transport-Security of hosts whose labels have none; "off" for none.
    #[arg(long, value_name = "VALUE")]
    pub hsts: Option<String>,

    /// Folder on the server's machine for accounts and certificates of ACME. Without it, no certificates are ordered. The
    /// server finds the authority by --resolver.
    #[arg(long, value_name = "DIR", requires = "acme_accept_terms", requires = "resolver", value_parser = parse_folder)]
    pub acme_state: Option<String>,

    /// Accepts the terms of service of the certificate authority.
    #[arg(long, requires = "acme_state")]
    pub acme_accept_terms: bool,

    /// Directory of the certificate authority (default: Let's Encrypt).
    #[arg(long, value_name = "URL", requires = "acme_state")]
    pub acme_directory: Option<String>,

    /// Address for mails of the certificate authority, if labels and variables have none.
    #[arg(long, value_name = "MAIL", requires = "acme_state")]
    pub acme_contact: Option<String>,

    /// File on the server's machine with the authorities that the directory's own certificate is checked with (default: the system's).
    #[arg(long, value_name = "FILE", requires = "acme_state", value_parser = parse_folder)]
    pub acme_trusted_certificate: Option<String>,

    /// Container that the server is in: its networks decide which addresses of others are used. Without it: the container
    /// with this host's name, otherwise the server is on the host, and reaches all networks.
    #[arg(long, value_name = "NAME")]
    pub server_container: Option<String>,

    /// Network whose addresses are preferred.
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,

    /// Uses ports that containers publish on the host, not their own addresses: for engines whose networks the host does not
    /// reach (rootless Podman, Docker Desktop).
    #[arg(long)]
    pub published_ports: bool,

    /// Prefers IPv6 addresses of containers.
    #[arg(long)]
    pub prefer_ipv6: bool,
}

/// Connection to an engine or to Consul.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Connection to the engine or Consul")]
pub struct SourceArguments {
    /// Address of the engine. Without it: DOCKER_HOST (CONTAINER_HOST for Podman), otherwise unix:/var/run/docker.sock
    /// (unix:/run/podman/podman.sock).
    #[arg(long, value_name = "unix:PATH|tcp://HOST:PORT")]
    pub engine: Option<String>,

    /// Address of Consul. Without it: CONSUL_HTTP_ADDR, otherwise http://127.0.0.1:8500.
    #[arg(long, value_name = "URL")]
    pub consul: Option<String>,

    /// File with the token of Consul, read again for each request. Without it: CONSUL_HTTP_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub consul_token_file: Option<PathBuf>,

    /// Datacenter of Consul. Without it: that of the agent.
    #[arg(long, value_name = "NAME")]
    pub consul_datacenter: Option<String>,

    /// Certificates of authorities for TLS (PEM). The address tcp:// then has TLS.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Certificate chain of this client (PEM).
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,

    /// Key of this client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,

    /// Name in the certificate of the engine or Consul. Without it: the host of the address.
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

impl DiscoveryArguments {
    /// Returns the settings of the translation; certificates are not read yet.
    pub fn settings(&self, provider: Provider, ingress: &IngressArguments, has_resolver: bool) -> Settings {
        let defaults = Settings::default();
        let acme = self.acme_state.as_ref().map(|folder| AcmeSettings {
            directory: self.acme_directory.clone().unwrap_or_else(|| LETS_ENCRYPT.into()),
            contact: self.acme_contact.clone(),
            state_folder: folder.clone(),
            trusted_certificate: self.acme_trusted_certificate.clone(),
        });
        Settings {
            provider,
            address: ingress.ingress_address,
            http_port: ingress.http_port.unwrap_or(defaults.http_port),
            https_port: ingress.https_port.unwrap_or(defaults.https_port),
            default_host: self.default_host.clone(),
            https: self.https,
            hsts: self.hsts.clone(),
            certificates: Arc::default(),
            acme,
            allows_snippets: ingress.allow_snippets,
            has_resolver,
            server_container: self.server_container.clone(),
            server_hostname: None,
            network: self.network.clone(),
            uses_published_ports: self.published_ports,
            prefers_ipv6: self.prefer_ipv6,
        }
    }

    /// Returns an argument that has no meaning for the provider.
    pub fn misplaced(&self) -> Option<&'static str> {
        let has = |arguments: &[(bool, &'static str)]| arguments.iter().find(|one| one.0).map(|one| one.1);
        let of_all = [
            (self.default_host.is_some(), "--default-host"),
            (self.certificates.is_some(), "--certificates"),
            (self.https.is_some(), "--https"),
            (self.hsts.is_some(), "--hsts"),
            (self.acme_state.is_some(), "--acme-state"),
        ];
        let of_engines = [
            (self.server_container.is_some(), "--server-container"),
            (self.network.is_some(), "--network"),
            (self.published_ports, "--published-ports"),
            (self.prefer_ipv6, "--prefer-ipv6"),
        ];
        match self.provider {
            ProviderName::Kubernetes => has(&of_all).or_else(|| has(&of_engines)),
            ProviderName::Consul => has(&of_engines),
            ProviderName::Docker | ProviderName::Podman => None,
        }
    }
}

impl SourceArguments {
    /// Returns an argument that has no meaning for the provider.
    pub fn misplaced(&self, provider: ProviderName) -> Option<&'static str> {
        let is_consul = provider == ProviderName::Consul;
        let is_engine = matches!(provider, ProviderName::Docker | ProviderName::Podman);
        let arguments = [
            (self.engine.is_some() && !is_engine, "--engine"),
            (self.consul.is_some() && !is_consul, "--consul"),
            (self.consul_token_file.is_some() && !is_consul, "--consul-token-file"),
            (self.consul_datacenter.is_some() && !is_consul, "--consul-datacenter"),
            (self.ca_file.is_some() && !is_consul && !is_engine, "--ca-file"),
            (self.client_certificate.is_some() && !is_consul && !is_engine, "--client-certificate"),
            (self.tls_server_name.is_some() && !is_consul && !is_engine, "--tls-server-name"),
        ];
        arguments.iter().find(|one| one.0).map(|one| one.1)
    }
}

impl IngressArguments {
    /// Returns an argument that has no meaning without a cluster.
    pub fn misplaced(&self) -> Option<&'static str> {
        let arguments = [
            (self.ingress_class.is_some(), "--ingress-class"),
            (self.ingress_without_class, "--ingress-without-class"),
            (self.default_certificate.is_some(), "--default-certificate"),
            (self.default_backend.is_some(), "--default-backend"),
            (self.config_map.is_some(), "--config-map"),
            (self.firewall_folder.is_some(), "--firewall-folder"),
        ];
        arguments.iter().find(|one| one.0).map(|one| one.1)
    }
}

fn parse_https(text: &str) -> Result<HttpsMode, String> {
    let found = HttpsMode::WORDS.iter().find(|(word, _)| *word == text).map(|(_, mode)| *mode);
    found.ok_or_else(|| "expected redirect, both, only or off".into())
}

fn parse_folder(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("expected an absolute path".into()) }
}
