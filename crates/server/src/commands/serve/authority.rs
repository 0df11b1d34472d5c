//! Local authority of `tidegate serve --tls`: its directory, and the configuration that issues certificates with it.

use super::domain::DomainLines;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// XDG base directory specification.
pub fn state_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("tidegate"))
}

/// Returns the file of the authority's certificate; creates the authority on first use. `Ok(Err)`: it cannot be stored.
///
/// # Errors
/// The reason why the stored authority is unusable, with a remedy.
pub fn authority_certificate() -> Result<Result<PathBuf, String>, String> {
    let Some(folder) = state_folder() else { return Ok(Err("neither XDG_DATA_HOME nor HOME is set".into())) };
    if let Err(e) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
        return Ok(Err(format!("{}: {e}", folder.display())));
    }
    http_acme::local_root(&folder)
}

/// Returns the configuration of a site. `state`: directory of the authority; `None` keeps it in memory.
pub fn site_configuration(address: SocketAddr, state: Option<&str>) -> DomainLines {
    let state = match state {
        Some(path) => format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")),
        None => "off".into(),
    };
    let mut names = String::from("localhost *.localhost 127.0.0.1 [::1]");
    let own = ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().ok());
    if !own.contains(&Some(address.ip())) && is_private(address.ip()) {
        names.push_str(&match address.ip() {
            IpAddr::V4(v4) => format!(" {v4}"),
            IpAddr::V6(v6) => format!(" [{v6}]"),
        });
    }
    DomainLines {
        before: format!(
            "    # Certificates of this machine, renewed by themselves. \"tidegate certificates --local-root\" exports the authority.
    acme_issuer local {{
        local_authority;
        state_path {state};
    }}

"
        ),
        listens: format!("        listen {address} ssl;\n"),
        server: format!(
            "        http2 on;
        acme_certificate local {names};
        ssl_certificate $acme_certificate;
        ssl_certificate_key $acme_certificate_key;
        ssl_certificate_cache max=2;
"
        ),
        level: "",
    }
}

/// Tells whether the authority's constraints permit an address.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}
