//! `ssl_conf_command`: the supported commands of OpenSSL's `SSL_CONF_cmd`.

use super::values::Pem;
use conf_schema::value::word_at;
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use variables::Template;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfCommand {
    pub name: String,
    pub value: String,
}

impl ValueKind for ConfCommand {
    const SYNTAX: &'static str = "name value";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(ConfCommand { name: word_at(d, 0)?.text().into_owned(), value: word_at(d, 1)?.text().into_owned() })
    }
}

/// Merged commands of a block; they precede the equivalent directives.
pub struct CommandRules<A> {
    pub ciphers: Option<String>,
    pub ciphersuites: Option<String>,
    pub groups: Option<String>,
    pub tls12: Option<bool>,
    pub tls13: Option<bool>,
    pub tickets: Option<bool>,
    pub server_preference: Option<bool>,
    pub certificate: Option<Pem<A>>,
    pub key: Option<Pem<A>>,
}

impl<A> Default for CommandRules<A> {
    fn default() -> Self {
        CommandRules {
            ciphers: None,
            ciphersuites: None,
            groups: None,
            tls12: None,
            tls13: None,
            tickets: None,
            server_preference: None,
            certificate: None,
            key: None,
        }
    }
}

const BAD_VALUE: &str = "error:0A000180:SSL routines::bad value";

/// Options internal to OpenSSL, without visible effect.
const WITHOUT_EFFECT: &[&str] = &[
    "EmptyFragments",
    "Bugs",
    "Compression",
    "DHSingle",
    "ECDHSingle",
    "NoResumptionOnRenegotiation",
    "NoRenegotiation",
    "AllowNoDHEKEX",
    "MiddleboxCompat",
    "EncryptThenMac",
    "ExtendedMasterSecret",
    "CANames",
    "AntiReplay",
    "StrictCertCheck",
];

/// Known but unavailable options.
const UNAVAILABLE: &[&str] =
    &["KTLS", "PrioritizeChaCha", "UnsafeLegacyRenegotiation", "UnsafeLegacyServerConnect", "ClientRenegotiation"];

impl<A> CommandRules<A> {
    /// Reads a block's lines; warns about those without effect. Fails with nginx's message.
    pub fn read(cx: &mut Cx, lines: &[ConfCommand]) -> Result<Self, Problem> {
        let mut all = CommandRules::default();
        for line in lines {
            all.one(cx, line).map_err(|why| {
                let place =
                    if why == BAD_VALUE { format!(":cmd={}, value={}", line.name, line.value) } else { String::new() };
                let why = format!("{why}{place}");
                Problem::says(format!("SSL_CONF_cmd(\"{}\", \"{}\") failed (SSL: {why})", line.name, line.value))
            })?;
        }
        Ok(all)
    }

    fn one(&mut self, cx: &mut Cx, line: &ConfCommand) -> Result<(), String> {
        let value = line.value.as_str();
        let template = || Template::literal(value.as_bytes());
        let pem = || Pem { text: value.to_string(), template: template(), at: At::default() };
        match line.name.to_ascii_lowercase().as_str() {
            "ciphersuites" => self.ciphersuites = Some(value.into()),
            "cipherstring" => {
                tls::ciphers::evaluate_ciphers(value)?;
                self.ciphers = Some(value.into());
            }
            "curves" | "groups" => self.groups = Some(value.into()),
            "certificate" => self.certificate = Some(pem()),
            "privatekey" => self.key = Some(pem()),
            "minprotocol" => match version(value)? {
                0..=2 => {}
                3 => self.tls12 = Some(false),
                _ => (self.tls12, self.tls13) = (Some(false), Some(false)),
            },
            "maxprotocol" => match version(value)? {
                0 | 3 => {}
                2 => self.tls13 = Some(false),
                _ => (self.tls12, self.tls13) = (Some(false), Some(false)),
            },
            "protocol" => {
                for word in value.split(',').map(str::trim) {
                    let (on, name) = word.strip_prefix('-').map_or((true, word), |rest| (false, rest));
                    let name = name.trim_start_matches('+');
                    if name == "ALL" {
                        (self.tls12, self.tls13) = (Some(on), Some(on));
                        continue;
                    }
                    match version(name)? {
                        2 => self.tls12 = Some(on),
                        3 => self.tls13 = Some(on),
                        _ => {}
                    }
                }
            }
            "options" => {
                for word in value.split(',').map(str::trim) {
                    let (on, name) = word.strip_prefix('-').map_or((true, word), |rest| (false, rest));
                    self.option(cx, name.trim_start_matches('+'), on)?;
                }
            }
            _ => return Err(format!("error:0A000182:SSL routines::unknown cmd name:cmd={}", line.name)),
        }
        Ok(())
    }

    fn option(&mut self, cx: &mut Cx, name: &str, on: bool) -> Result<(), String> {
        let is = |known: &&&str| known.eq_ignore_ascii_case(name);
        match name.to_ascii_lowercase().as_str() {
            "sessionticket" => self.tickets = Some(on),
            "serverpreference" => self.server_preference = Some(on),
            _ if WITHOUT_EFFECT.iter().any(|k| is(&k)) => {}
            _ if UNAVAILABLE.iter().any(|k| is(&k)) => {
                if on {
                    let text =
                        format!("\"ssl_conf_command\": the option \"{name}\" is not available and has no effect");
                    let mut complaint = conf_schema::Complaint::emerg(text);
                    complaint.level = conf_schema::ComplaintLevel::Warn;
                    cx.warnings.push(complaint);
                }
            }
            _ => return Err(BAD_VALUE.into()),
        }
        Ok(())
    }
}

/// 0: unbounded, 1: older than TLS 1.2, 2: TLS 1.2, 3: TLS 1.3.
fn version(text: &str) -> Result<u8, String> {
    match text {
        "None" => Ok(0),
        "SSLv3" | "TLSv1" | "TLSv1.0" | "TLSv1.1" => Ok(1),
        "TLSv1.2" => Ok(2),
        "TLSv1.3" => Ok(3),
        _ => Err(BAD_VALUE.into()),
    }
}
