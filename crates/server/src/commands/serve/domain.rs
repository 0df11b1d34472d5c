//! `tidegate serve --domain`: a public site whose certificate comes from an ACME authority.

use super::authority;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// MAXNS of resolv.conf(5).
const NAME_SERVERS_MAX: usize = 3;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Domain {
    pub names: Vec<String>,
    pub email: Option<String>,
    /// URL of the authority's directory; default: Let's Encrypt.
    pub authority: Option<String>,
    pub authority_trust: Option<PathBuf>,
    /// Address for plain HTTP, which answers challenges and redirects.
    pub http: Option<SocketAddr>,
}

impl Domain {
    /// Fails with a remedy. `asked`: `--listen`.
    pub fn check(&self, asked: Option<SocketAddr>) -> Result<(), String> {
        if let (Some(http), Some(https)) = (self.http, asked)
            && http == https
        {
            return Err(format!("--listen and --http are both {http}: HTTPS and plain HTTP need an address each"));
        }
        for name in &self.names {
            let address = name.parse::<IpAddr>();
            let is_address = address.is_ok();
            if self.authority.is_none() && address.is_ok_and(is_private) {
                return Err(format!(
                    "no public authority issues a certificate for \"{name}\": use --tls, or --acme URL"
                ));
            }
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.len() <= 63
                    && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
                    && !label.starts_with('-')
                    && !label.ends_with('-')
            };
            if !is_address && (!name.contains('.') || !name.split('.').all(is_label)) {
                return Err(format!("\"{name}\" is not a domain name: write one such as www.example.com"));
            }
        }
        if let Some(email) = self.email.as_ref().filter(|email| !email.contains('@') || email.contains(['"', ' ', ';']))
        {
            return Err(format!("\"{email}\" is not an e-mail address"));
        }
        if let Some(url) =
            self.authority.as_ref().filter(|url| !url.starts_with("https://") || url.contains(['"', ' ', ';']))
        {
            return Err(format!("\"{url}\" is not an ACME directory: write its https URL"));
        }
        Ok(())
    }

    /// Returns the addresses for plain HTTP and for TLS. `asked`: `--listen`.
    pub fn addresses(&self, asked: Option<SocketAddr>) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let all = |port| {
            vec![
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port),
            ]
        };
        (self.http.map_or_else(|| all(80), |one| vec![one]), asked.map_or_else(|| all(443), |one| vec![one]))
    }

    /// Returns the directory of account key and certificates. Fails without a home directory.
    pub fn state_path() -> Result<PathBuf, String> {
        let folder =
            authority::state_folder().ok_or("neither XDG_DATA_HOME nor HOME is set: no place for certificates")?;
        let path = folder.join("acme");
        fs::create_dir_all(&path)
            .map_err(|e| format!("\"{}\" cannot be created {}", path.display(), observe::os_error(&e)))?;
        Ok(path)
    }

    /// Returns the lines of the `http` block: issuer, redirecting server, and the TLS server's differences from a local
    /// site.
    pub fn configuration(&self, asked: Option<SocketAddr>, state: &str) -> DomainLines {
        let (http, https) = self.addresses(asked);
        let names = self.names.join(" ");
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let mut issuer = format!(
            "    resolver {};
    acme_issuer default {{
        uri {};
        state_path \"{}\";
        accept_terms_of_service;
",
            name_servers().join(" "),
            self.authority.as_deref().unwrap_or(LETS_ENCRYPT),
            quoted(state)
        );
        if let Some(email) = &self.email {
            issuer.push_str(&format!("        contact {email};\n"));
        }
        if let Some(file) = &self.authority_trust {
            issuer.push_str(&format!("        ssl_trusted_certificate \"{}\";\n", quoted(&file.display().to_string())));
        }
        // Let's Encrypt has certificates of addresses with this profile alone; other authorities ignore it unless they have it.
        if self.names.iter().any(|name| name.parse::<IpAddr>().is_ok()) {
            issuer.push_str("        profile shortlived;\n");
        }
        issuer.push_str("    }\n");
        let port = https.first().map_or(443, SocketAddr::port);
        let shown = if port == 443 { String::new() } else { format!(":{port}") };
        let listens = |all: &[SocketAddr], more: &str| -> String {
            let only = |address: &SocketAddr| if address.is_ipv6() { " ipv6only=on" } else { "" };
            all.iter().map(|one| format!("        listen {one}{more}{};\n", only(one))).collect()
        };
        let redirect = format!(
            "    server {{
{}        server_name {names};
        location / {{
            return 301 https://$host{shown}$request_uri;
        }}
    }}

",
            listens(&http, "")
        );
        let server = format!(
            "        server_name {names};
        http2 on;
        add_header Alt-Svc 'h3=\":{port}\"; ma=86400';
        acme_certificate default {names};
        ssl_certificate $acme_certificate;
        ssl_certificate_key $acme_certificate_key;
"
        );
        DomainLines {
            before: issuer + "\n" + &redirect,
            listens: listens(&https, " ssl") + &listens(&https, " quic"),
            server,
            // Failed orders are warnings.
            level: " warn",
        }
    }

    pub fn tell(&self, asked: Option<SocketAddr>) {
        let (_, https) = self.addresses(asked);
        for name in &self.names {
            match https.first().map_or(443, SocketAddr::port) {
                443 => tell!("  https://{name}/"),
                port => tell!("  https://{name}:{port}/"),
            }
        }
        let authority = self.authority.as_deref().unwrap_or(LETS_ENCRYPT);
        tell!("The certificate comes from {authority}, whose terms of service you accept by continuing.");
        match self.http {
            None => tell!("It is ordered when the site is up: port 80 must be reachable from the Internet."),
            Some(address) => tell!(
                "It is ordered when the site is up: port 80 must be reachable from the Internet and forwarded to {address}."
            ),
        }
    }
}

pub struct DomainLines {
    /// Before the site's server.
    pub before: String,
    /// `listen` lines of the site's server.
    pub listens: String,
    pub server: String,
    /// Level of the error log, behind its name.
    pub level: &'static str,
}

/// Tells whether an address belongs to this machine or to a private network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// As addresses for `resolver`.
fn name_servers() -> Vec<String> {
    parse_name_servers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

fn parse_name_servers(text: &str) -> Vec<String> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    };
    let all: Vec<String> = text
        .lines()
        .filter_map(address)
        .take(NAME_SERVERS_MAX)
        .map(|ip| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() })
        .collect();
    // The default of resolv.conf(5): a name server on this machine.
    if all.is_empty() { vec!["127.0.0.1".into()] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_of_the_machine() {
        let text =
            "# x\nsearch a.test\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver ::1 # own\noptions x\n";
        assert_eq!(parse_name_servers(text), ["10.0.0.2", "[::1]"]);
        assert_eq!(parse_name_servers(""), ["127.0.0.1"]);
    }

    #[test]
    fn options_that_cannot_be() {
        let domain = |name: &str| Domain { names: vec![name.into()], ..Domain::default() };
        for name in ["localhost", "a b.test", "-a.test", "a..test", "*.a.test", "a.test;", "", "10.0.0.1", "::1"] {
            assert!(domain(name).check(None).is_err(), "{name}");
        }
        assert!(domain("www.example.com").check(None).is_ok() && domain("192.0.2.1").check(None).is_ok());
        let own = Domain { authority: Some("https://a".into()), ..domain("127.0.0.1") };
        assert!(own.check(None).is_ok() && own.configuration(None, "s").before.contains("profile shortlived;"));
        let address: SocketAddr = "127.0.0.1:8080".parse().expect("an address");
        let twice = Domain { http: Some(address), ..domain("a.test") };
        assert!(twice.check(Some(address)).is_err() && twice.check(None).is_ok());
        let email = Domain { email: Some("me".into()), ..domain("a.test") };
        let url = Domain { authority: Some("http://a".into()), ..domain("a.test") };
        assert!(email.check(None).is_err() && url.check(None).is_err());
    }
}
