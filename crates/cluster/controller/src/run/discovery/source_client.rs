//! Client of an engine or of Consul, from arguments and, where those say nothing, from the variables that the programs
//! `docker`, `podman` and `consul` read.

use std::path::{Path, PathBuf};

use cluster_discovery::Provider;

use super::client_tls::TlsFiles;
use super::json_client::{Address, JsonClient};
use crate::discovery_arguments::SourceArguments;

/// Makes the client of a provider. `variable` returns a variable of the environment.
///
/// # Errors
/// If an address is none, a file cannot be read, or a variable asks for a connection whose other side is not verified.
pub fn source_client(
    source: &SourceArguments,
    provider: Provider,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<JsonClient, String> {
    let (address, files) = connection(source, provider, &|name| variable(name).filter(|value| !value.is_empty()))?;
    let client = JsonClient::new(address, &files)?;
    match provider {
        Provider::Docker | Provider::Podman => Ok(client),
        Provider::Consul => {
            let file = source.consul_token_file.as_deref().map(Path::to_owned);
            Ok(client.with_token(file, variable("CONSUL_HTTP_TOKEN").filter(|token| !token.is_empty())))
        }
    }
}

/// Returns address and files of a provider.
fn connection(
    source: &SourceArguments,
    provider: Provider,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Address, TlsFiles), String> {
    let (argument, name, default) = match provider {
        Provider::Docker => (&source.engine, "DOCKER_HOST", "unix:/var/run/docker.sock"),
        Provider::Podman => (&source.engine, "CONTAINER_HOST", "unix:/run/podman/podman.sock"),
        Provider::Consul => (&source.consul, "CONSUL_HTTP_ADDR", "http://127.0.0.1:8500"),
    };
    let text = argument.clone().or_else(|| variable(name)).unwrap_or_else(|| default.to_owned());
    let given = TlsFiles {
        authority: source.ca_file.clone(),
        certificate: source.client_certificate.clone(),
        key: source.client_key.clone(),
        server_name: source.tls_server_name.clone(),
    };
    let address = Address::parse(&text, given.authority.is_some()).map_err(|reason| format!("{text}: {reason}"))?;
    let Address::Tcp { host, port, is_tls } = address else { return Ok((address, given)) };
    let asked = match provider {
        Provider::Docker => docker_tls(variable),
        Provider::Podman => AskedTls::default(),
        Provider::Consul => consul_tls(argument.is_none(), variable),
    };
    let is_tls = is_tls || asked.is_forced;
    if let Some(refusal) = asked.refusal.filter(|_| is_tls) {
        return Err(refusal);
    }
    let files = TlsFiles {
        authority: given.authority.or(asked.files.authority),
        // A pair: not a certificate from here and a key from there.
        certificate: given.certificate.clone().or_else(|| asked.files.certificate.filter(|_| given.key.is_none())),
        key: given.key.or_else(|| asked.files.key.filter(|_| given.certificate.is_none())),
        server_name: given.server_name.or(asked.files.server_name),
    };
    Ok((Address::Tcp { host, port, is_tls }, files))
}

/// Variables about TLS. They say nothing about sockets.
#[derive(Default)]
struct AskedTls {
    /// TCP is used with TLS, whatever the address says.
    is_forced: bool,
    files: TlsFiles,
    /// A variable that has no meaning here, if TLS is used.
    refusal: Option<String>,
}

/// Reads `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH`, whose folder has `ca.pem`, `cert.pem` and `key.pem`.
fn docker_tls(variable: &dyn Fn(&str) -> Option<String>) -> AskedTls {
    if variable("DOCKER_TLS_VERIFY").is_none() {
        let is_forced = variable("DOCKER_TLS").is_some();
        let words = "DOCKER_TLS: the engine's certificate is always checked: set DOCKER_TLS_VERIFY";
        return AskedTls { is_forced, refusal: is_forced.then(|| words.into()), files: TlsFiles::default() };
    }
    let given = variable("DOCKER_CERT_PATH").map(PathBuf::from);
    let is_given = given.is_some();
    let home = || variable("HOME").map(|home| Path::new(&home).join(".docker"));
    let folder = given.or_else(|| variable("DOCKER_CONFIG").map(PathBuf::from)).or_else(home);
    // Files of the usual folder are optional.
    let file = |name: &str| folder.as_ref().map(|folder| folder.join(name)).filter(|file| is_given || file.exists());
    let files =
        TlsFiles { authority: file("ca.pem"), certificate: file("cert.pem"), key: file("key.pem"), server_name: None };
    AskedTls { is_forced: true, files, refusal: None }
}

/// Reads `CONSUL_HTTP_SSL` (for an address that is no argument), `CONSUL_CACERT`, `CONSUL_CLIENT_CERT`, `CONSUL_CLIENT_KEY` and
/// `CONSUL_TLS_SERVER_NAME`.
fn consul_tls(is_variable: bool, variable: &dyn Fn(&str) -> Option<String>) -> AskedTls {
    let is_true = |text: &str| matches!(text.to_ascii_lowercase().as_str(), "1" | "t" | "true");
    let files = TlsFiles {
        authority: variable("CONSUL_CACERT").map(PathBuf::from),
        certificate: variable("CONSUL_CLIENT_CERT").map(PathBuf::from),
        key: variable("CONSUL_CLIENT_KEY").map(PathBuf::from),
        server_name: variable("CONSUL_TLS_SERVER_NAME"),
    };
    let refusal = if variable("CONSUL_HTTP_SSL_VERIFY").is_some_and(|text| !is_true(&text)) {
        Some("CONSUL_HTTP_SSL_VERIFY: the certificate of Consul is always checked: set CONSUL_CACERT".into())
    } else if files.authority.is_none() && variable("CONSUL_CAPATH").is_some() {
        Some("CONSUL_CAPATH: folders of authorities are not supported: set CONSUL_CACERT to a file".into())
    } else {
        None
    };
    let is_forced = is_variable && variable("CONSUL_HTTP_SSL").is_some_and(|text| is_true(&text));
    AskedTls { is_forced, files, refusal }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn read(source: &SourceArguments, provider: Provider, pairs: Pairs) -> Result<(bool, TlsFiles), String> {
        let variable = |name: &str| {
            pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()).filter(|v| !v.is_empty())
        };
        connection(source, provider, &variable)
            .map(|(address, files)| (matches!(address, Address::Tcp { is_tls: true, .. }), files))
    }

    fn file(name: &str) -> Option<PathBuf> {
        Some(name.into())
    }

    #[test]
    fn docker_reads_the_files_of_its_folder_if_tls_is_verified() {
        let none = SourceArguments::default();
        let host = ("DOCKER_HOST", "tcp://10.0.0.1:2376");
        let files = |tls: Pairs| read(&none, Provider::Docker, &[&[host][..], tls].concat());
        assert_eq!(files(&[]), Ok((false, TlsFiles::default())));
        assert_eq!(files(&[("DOCKER_CERT_PATH", "/certs")]), Ok((false, TlsFiles::default())));
        let certificates = TlsFiles {
            authority: file("/certs/ca.pem"),
            certificate: file("/certs/cert.pem"),
            key: file("/certs/key.pem"),
            server_name: None,
        };
        let verified = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/certs")];
        assert_eq!(files(&verified), Ok((true, certificates.clone())));
        // The usual folder, whose files are not there.
        assert_eq!(files(&[("DOCKER_TLS_VERIFY", "1"), ("HOME", "/none")]), Ok((true, TlsFiles::default())));
        assert!(files(&[("DOCKER_TLS", "1")]).is_err_and(|words| words.contains("DOCKER_TLS_VERIFY")));
        // Arguments go first, pair by pair, and sockets have no TLS.
        let own = SourceArguments {
            client_certificate: file("/own.crt"),
            client_key: file("/own.key"),
            ..SourceArguments::default()
        };
        let mixed = read(&own, Provider::Docker, &[&[host][..], &verified].concat());
        let own_files = TlsFiles { certificate: file("/own.crt"), key: file("/own.key"), ..certificates };
        assert_eq!(mixed, Ok((true, own_files)));
        assert_eq!(read(&none, Provider::Docker, &verified), Ok((false, TlsFiles::default())));
        assert_eq!(read(&none, Provider::Docker, &[("DOCKER_TLS", "1")]), Ok((false, TlsFiles::default())));
    }

    #[test]
    fn consul_reads_its_variables() {
        let none = SourceArguments::default();
        let tls = [
            ("CONSUL_CACERT", "/ca.pem"),
            ("CONSUL_CLIENT_CERT", "/c.pem"),
            ("CONSUL_CLIENT_KEY", "/k.pem"),
            ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul"),
        ];
        let files = TlsFiles {
            authority: file("/ca.pem"),
            certificate: file("/c.pem"),
            key: file("/k.pem"),
            server_name: Some("server.dc1.consul".into()),
        };
        for (address, ssl, is_tls) in [
            ("https://127.0.0.1:8501", "", true),
            ("127.0.0.1:8501", "true", true),
            ("http://127.0.0.1:8500", "", false),
            ("127.0.0.1:8500", "false", false),
        ] {
            let pairs = [&[("CONSUL_HTTP_ADDR", address), ("CONSUL_HTTP_SSL", ssl)][..], &tls].concat();
            assert_eq!(read(&none, Provider::Consul, &pairs), Ok((is_tls, files.clone())), "{address} {ssl}");
        }
        let plain = SourceArguments { consul: Some("http://127.0.0.1:8500".into()), ..SourceArguments::default() };
        let variables = [("CONSUL_HTTP_SSL", "1")];
        assert_eq!(read(&plain, Provider::Consul, &variables), Ok((false, TlsFiles::default())));
        for (name, value) in [("CONSUL_HTTP_SSL_VERIFY", "false"), ("CONSUL_CAPATH", "/cas")] {
            assert!(read(&none, Provider::Consul, &[(name, value)]).is_ok_and(|(is_tls, _)| !is_tls), "{name}");
            let answer = read(&none, Provider::Consul, &[(name, value), ("CONSUL_HTTP_SSL", "true")]);
            assert!(answer.is_err_and(|words| words.starts_with(name) && words.contains("CONSUL_CACERT")), "{name}");
        }
    }
}
