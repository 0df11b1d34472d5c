//! The request to the authentication server (nginx: `ngx_mail_auth_http_create_request`).

use super::AuthHttp;
use crate::login::{LoginMethod, fits_command};
use crate::session::MailSession;
use std::fmt::Write as _;
use tls::VerifyClient;

/// Values contain no line breaks.
struct AuthFields(Vec<u8>);

impl AuthFields {
    fn add(&mut self, name: &str, value: &[u8]) {
        // Only certificates can contain line breaks; other values are escaped or checked.
        let value: Vec<u8> = match fits_command(value) {
            true => value.to_vec(),
            false => value.iter().copied().filter(|c| fits_command(&[*c])).collect(),
        };
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(&value);
        self.0.extend_from_slice(b"\r\n");
    }
    fn some(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.add(name, value.as_bytes());
        }
    }
}

/// Percent-encodes controls, spaces and `%` (nginx: `NGX_ESCAPE_MAIL_AUTH`).
pub fn escape_value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &c in text {
        if c <= b' ' || c == b'%' {
            let mut code = String::new();
            let _ = write!(code, "%{c:02X}");
            out.extend_from_slice(code.as_bytes());
        } else {
            out.push(c);
        }
    }
    out
}

pub fn auth_request(conf: &AuthHttp, s: &MailSession) -> Vec<u8> {
    let login = &s.login;
    let mut fields = AuthFields(format!("GET {} HTTP/1.0\r\n", conf.uri).into_bytes());
    fields.add("Host", conf.host.as_bytes());
    fields.add("Auth-Method", login.method.name().as_bytes());
    fields.add("Auth-User", &escape_value(&login.user));
    fields.add("Auth-Pass", &escape_value(login.password.as_deref().unwrap_or_default()));
    if login.method.is_digest() && !login.salt.is_empty() {
        fields.add("Auth-Salt", &login.salt);
    }
    fields.add("Auth-Protocol", s.srv().protocol.kind().name().as_bytes());
    fields.add("Auth-Login-Attempt", login.attempts.to_string().as_bytes());
    fields.add("Client-IP", s.peer_text().as_bytes());
    fields.some("Client-Host", &s.host);
    if let Some(addresses) = s.proxy.as_ref().and_then(|proxy| proxy.0.addresses.as_ref()) {
        let (source, destination) = (addresses.source, addresses.destination);
        fields.add("Proxy-Protocol-Addr", source.ip().to_string().as_bytes());
        fields.add("Proxy-Protocol-Port", source.port().to_string().as_bytes());
        fields.add("Proxy-Protocol-Server-Addr", destination.ip().to_string().as_bytes());
        fields.add("Proxy-Protocol-Server-Port", destination.port().to_string().as_bytes());
    }
    if login.method == LoginMethod::None {
        fields.add("Auth-SMTP-Helo", &login.envelope.helo);
        fields.add("Auth-SMTP-From", &login.envelope.from);
        fields.add("Auth-SMTP-To", &login.envelope.to);
    }
    if let Some(facts) = &s.tls {
        fields.add("Auth-SSL", b"on");
        fields.some("Auth-SSL-Protocol", facts.protocol);
        fields.some("Auth-SSL-Cipher", facts.cipher);
        if s.srv().tls.as_ref().is_some_and(|tls| tls.verify != VerifyClient::Off) {
            fields.some("Auth-SSL-Verify", &facts.client_verify());
            if let Some(peer) = &facts.peer {
                fields.some("Auth-SSL-Subject", &peer.subject());
                fields.some("Auth-SSL-Issuer", &peer.issuer());
                fields.some("Auth-SSL-Serial", &peer.certificate.serial_hex());
                fields.some("Auth-SSL-Fingerprint", &peer.certificate.fingerprint());
                if conf.pass_client_cert {
                    fields.add("Auth-SSL-Cert", &escape_value(peer.raw().as_bytes()));
                }
            }
        }
    }
    fields.0.extend_from_slice(&conf.fields);
    fields.0.extend_from_slice(b"\r\n");
    fields.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_clients_stay_one_value() {
        assert_eq!(escape_value(b"a b%c\r\nX: y\0\x7f\xff"), b"a%20b%25c%0D%0AX:%20y%00\x7f\xff");
        let mut fields = AuthFields(Vec::new());
        fields.add("A", b"b\r\nC: d\0");
        fields.some("B", "");
        assert_eq!(fields.0, b"A: bC: d\r\n");
    }
}
