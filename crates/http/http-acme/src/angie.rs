//! Angie's directives: `acme_client`, `acme`, `acme_dns_port`, `acme_http_port`. `client.rs` makes issuers and orders of them, `hook.rs`
//! has `acme_hook`.

use super::issuer::{self, KeySource, Timing};
use acme::{AccountKey, AcmeAccount, Algorithm, Binding, BindingDigest, ChallengeKind, Profile};
use conf_schema::value::{parse_sec, parse_size};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_client::Url;
use http_engine::own_socket::OwnSocket;
use http_engine::plan::NewFile;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Seconds before a certificate's end at which it is renewed, and after a failure (Angie's defaults).
const RENEW_BEFORE: i64 = 30 * 86_400;
const RETRY: i64 = 2 * 3600;

/// `acme_client` as written.
#[derive(Clone)]
pub struct ClientLine {
    pub name: String,
    pub uri: Url,
    pub key: Algorithm,
    pub account_key: KeySource,
    /// The file of a new account key.
    pub new_file: Option<NewFile>,
    pub account: AcmeAccount,
    pub challenge: ChallengeKind,
    pub profile: Option<Profile>,
    pub timing: Timing,
    pub trusted: Option<PathBuf>,
    /// `FILE:LINE` of the directive.
    pub place: String,
}

impl ValueKind for ClientLine {
    const SYNTAX: &'static str = "name uri [enabled=on|off] [key_type=type] [key_bits=number] [email=email] \
        [max_cert_size=size] [max_key_auth_size=size] [renew_before_expiry=time] [renew_on_load] \
        [retry_after_error=off|time] [challenge=http|dns|alpn] [account_key=file] [eab=id:[algorithm:]key] [profile=name] \
        [ssl_trusted_certificate=file]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<String> = d.args.iter().map(|word| word.text().into_owned()).collect();
        let [name, uri, rest @ ..] = words.as_slice() else { return Err(Problem::invalid()) };
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(Problem::says(format!("invalid ACME client name \"{name}\"")).at(0));
        }
        let uri = Url::parse(uri).map_err(|why| Problem::says(format!("{why} in \"{uri}\"")).at(1))?;
        let (mut kind, mut bits) = ("ecdsa".to_string(), None);
        let mut line = ClientLine {
            name: name.to_ascii_lowercase(),
            uri,
            key: Algorithm::default(),
            account_key: KeySource::Generated(Algorithm::default()),
            new_file: None,
            account: AcmeAccount { agreed: true, ..AcmeAccount::default() },
            challenge: ChallengeKind::Http01,
            profile: None,
            timing: Timing { renew_before: RENEW_BEFORE, on_load: false, retry: Some(RETRY), enabled: true },
            trusted: None,
            place: cx.place(),
        };
        for (index, word) in rest.iter().enumerate() {
            let at = |problem: Problem| problem.at(index + 2);
            let wrong = || at(Problem::says(format!("invalid parameter \"{word}\"")));
            let seconds = |text: &str| parse_sec(text.as_bytes()).and_then(|time| i64::try_from(time).ok());
            let (parameter, value) = word.split_once('=').unwrap_or((word, ""));
            // As in Angie, words of a list have no case.
            let listed = matches!(parameter, "enabled" | "key_type" | "challenge" | "retry_after_error");
            let lower = if listed { value.to_ascii_lowercase() } else { value.to_string() };
            match (parameter, lower.as_str()) {
                ("enabled", "on") => line.timing.enabled = true,
                ("enabled", "off") => line.timing.enabled = false,
                ("key_type", text @ ("rsa" | "ecdsa")) => kind = text.to_string(),
                ("key_bits", text) => bits = Some((index, text.to_string())),
                ("email", text) if text.contains('@') => line.account.contacts = vec![format!("mailto:{text}")],
                // Certificates and challenges have no zone whose size would have to be known.
                ("max_cert_size" | "max_key_auth_size", text)
                    if parse_size(text.as_bytes()).is_some_and(|size| size > 0) => {}
                ("renew_before_expiry", text) => line.timing.renew_before = seconds(text).ok_or_else(wrong)?,
                ("renew_on_load", "") => line.timing.on_load = true,
                ("retry_after_error", "off") => line.timing.retry = None,
                // At least a second, so that failures do not follow each other without a pause.
                ("retry_after_error", text) => line.timing.retry = Some(seconds(text).ok_or_else(wrong)?.max(1)),
                ("challenge", "http") => line.challenge = ChallengeKind::Http01,
                ("challenge", "alpn") => line.challenge = ChallengeKind::TlsAlpn01,
                ("challenge", "dns") => line.challenge = ChallengeKind::Dns01,
                ("profile", name) if !name.is_empty() => {
                    line.profile = Some(Profile { name: name.to_string(), required: true });
                }
                ("eab", text) => line.account.binding = Some(binding(text).map_err(at)?),
                ("ssl_trusted_certificate", file) if !file.is_empty() => line.trusted = Some(cx.conf_full_name(file)),
                ("account_key", file) if !file.is_empty() => {
                    let path = cx.conf_full_name(file);
                    let (key, new) = account_key(cx, &path).map_err(|why| at(Problem::says(why)))?;
                    line.account_key = KeySource::Loaded(Arc::new(key));
                    line.new_file = new;
                }
                _ => return Err(wrong()),
            }
        }
        let text = match &bits {
            Some((_, bits)) => format!("{kind}:{bits}"),
            None => kind,
        };
        let parsed = Algorithm::parse(&text).unwrap_or_else(|| Err(format!("unsupported key \"{text}\"")));
        let at = bits.map_or(0, |(index, _)| index + 2);
        line.key = parsed.map_err(|why| Problem::says(why).at(at))?;
        Ok(line)
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.name == later.name {
            let text = format!("duplicate ACME client \"{}\" defined in {} and", later.name, self.place);
            return Err(Problem::says(text).at(0));
        }
        Ok(())
    }
}

/// Loads the key of an account. One that does not exist, or whose file is empty, is made as in Angie; its file is to be created.
fn account_key(cx: &mut Cx, path: &Path) -> Result<(AccountKey, Option<NewFile>), String> {
    let failed = |what: &str, why: String| format!("cannot {what} account key \"{}\": {why}", path.display());
    match cx.store.read(path) {
        Ok(pem) if !pem.is_empty() => AccountKey::load(&pem).map(|key| (key, None)).map_err(|why| failed("load", why)),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("load", observe::os_error(&e).to_string())),
        _ => {
            let key = AccountKey::generate(Algorithm::default()).map_err(|why| failed("create", why))?;
            let content = key.pem().into_bytes();
            // Other clients with this file, and processes that build the configuration again, have one key.
            cx.store.files.insert(path.to_path_buf(), Ok(Arc::from(content.as_slice())));
            Ok((key, Some(NewFile { path: path.to_path_buf(), content })))
        }
    }
}

/// Reads `eab=ID:[ALGORITHM:]KEY`.
fn binding(text: &str) -> Result<Binding, Problem> {
    let (id, rest) = text
        .split_once(':')
        .filter(|(id, _)| !id.is_empty())
        .ok_or_else(|| Problem::directive("has an invalid \"eab\" value"))?;
    let (digest, key) = match rest.split_once(':') {
        None => (BindingDigest::Sha256, rest),
        Some((name, key)) => match name.to_ascii_uppercase().as_str() {
            "HS256" => (BindingDigest::Sha256, key),
            "HS384" => (BindingDigest::Sha384, key),
            "HS512" => (BindingDigest::Sha512, key),
            _ => return Err(Problem::directive("has an invalid algorithm value in the \"eab\" parameter")),
        },
    };
    let secret = issuer::decode_secret(key.as_bytes());
    let secret = secret.ok_or_else(|| Problem::directive("has an invalid key value in the \"eab\" parameter"))?;
    Ok(Binding { id: id.to_string(), secret, digest })
}

/// `acme_dns_port` and `acme_http_port` as written.
#[derive(Clone)]
pub struct SocketLine<const PORT: u16>(OwnSocket);

impl<const PORT: u16> ValueKind for SocketLine<PORT> {
    const SYNTAX: &'static str = "port | ip[:port]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
        let socket = match (text.parse::<u16>(), text.parse::<SocketAddr>(), bare.parse::<IpAddr>()) {
            (Ok(port), ..) => Some(OwnSocket { address: SocketAddr::new(any, port), any_address: true }),
            (_, Ok(address), _) => Some(OwnSocket { address, any_address: false }),
            (.., Ok(ip)) => Some(OwnSocket { address: SocketAddr::new(ip, PORT), any_address: false }),
            _ => None,
        };
        let mut socket = socket.ok_or_else(|| {
            Problem::says(format!("invalid port value \"{text}\""))
                .at(0)
                .hint("a port, or an IP address with a port or without")
        })?;
        if socket.address.port() == 0 {
            socket.address.set_port(PORT);
        }
        Ok(SocketLine(socket))
    }
}

impl<const PORT: u16> SocketLine<PORT> {
    /// Returns the configured socket, or all IPv4 addresses of the port, as in Angie.
    pub fn socket(line: Option<&Self>) -> OwnSocket {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
        line.map_or(OwnSocket { address, any_address: true }, |line| line.0)
    }
}

/// `acme_dns_ttl`: seconds.
#[derive(Clone)]
pub struct Ttl(pub u32);

impl ValueKind for Ttl {
    const SYNTAX: &'static str = "seconds";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let number = text.parse::<u64>().map_err(|_| Problem::directive("invalid number").at(0))?;
        // RFC 2181, section 8.
        let ttl = u32::try_from(number).ok().filter(|ttl| *ttl <= i32::MAX as u32);
        ttl.map(Ttl).ok_or_else(|| Problem::directive("value is out of range").at(0))
    }
}
