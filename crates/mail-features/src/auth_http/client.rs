//! One request to the authentication server, on its own connection.

use super::request::auth_request;
use super::{AuthHttp, AuthResponse, MalformedHead, read_response};
use crate::login::call_failed;
use crate::plan::{AuthFault, AuthResult, Authenticate};
use crate::protocol::{MailProtocol, MailRefusal};
use crate::session::MailSession;
use net::Address;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;
use transport::{ConnectOptions, Stream};

/// In bytes (nginx: 1,024).
const RESPONSE_MAX: usize = 16 * 1024;

impl Authenticate for AuthHttp {
    fn ask<'a>(&'a self, s: &'a MailSession) -> Pin<Box<dyn Future<Output = Result<AuthResult, AuthFault>> + 'a>> {
        Box::pin(async move {
            let asked = runtime::time::with_timeout(self.timeout, self.exchange(&auth_request(self, s))).await;
            let response = asked.map_err(|_| {
                AuthFault(Some(format!("auth http server {} timed out (110: Connection timed out)", self.name)))
            })??;
            self.judge(response, s)
        })
    }
}

fn fault(words: impl Into<String>) -> AuthFault {
    AuthFault(Some(words.into()))
}

impl AuthHttp {
    async fn exchange(&self, request: &[u8]) -> Result<AuthResponse, AuthFault> {
        let connected = Stream::connect(&self.address, &ConnectOptions::default()).await;
        let name = &self.name;
        let stream =
            connected.map_err(|e| fault(format!("{}, auth http server: {name}", call_failed("connect", &e))))?;
        stream
            .write_all(request)
            .await
            .map_err(|e| fault(format!("{}, auth http server: {name}", call_failed("send", &e))))?;
        let mut buf = Vec::with_capacity(1024);
        loop {
            let got = stream.read_buf(&mut buf).await;
            let got = got.map_err(|e| fault(format!("{}, auth http server: {name}", call_failed("recv", &e))))?;
            match read_response(&buf) {
                Ok(Some(response)) => return Ok(response),
                Err(MalformedHead::StatusLine) => {
                    return Err(fault(format!("auth http server {name} sent invalid response")));
                }
                Err(MalformedHead::Field) => {
                    return Err(fault(format!("auth http server {name} sent invalid header in response")));
                }
                Ok(None) if got == 0 => {
                    return Err(fault(format!("auth http server {name} prematurely closed connection")));
                }
                Ok(None) if buf.len() >= RESPONSE_MAX => {
                    return Err(fault(format!("auth http server {name} sent too large response")));
                }
                Ok(None) => buf.reserve(1024),
            }
        }
    }

    fn judge(&self, response: AuthResponse, s: &MailSession) -> Result<AuthResult, AuthFault> {
        let wait = Duration::from_secs(response.wait_seconds);
        if let Some(message) = response.refused {
            let refusal = MailRefusal { message, code: response.error_code };
            return Ok(AuthResult::Refused { refusal, wait, user: response.user });
        }
        if response.wait {
            return Ok(AuthResult::AskAgain { wait, user: response.user, password: response.password });
        }
        let name = &self.name;
        if response.server.is_empty() || response.port.is_empty() {
            return Err(fault(format!("auth http server {name} did not send server or port")));
        }
        // A digest cannot be used as a password.
        let own = s.login.password.is_some() && !s.login.method.is_digest();
        if response.password.is_none() && !own && s.srv().protocol.kind() != MailProtocol::Smtp {
            return Err(fault(format!("auth http server {name} did not send password")));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (server, port) = (text(&response.server), text(&response.port));
        let Some(address) = address(&server) else {
            return Err(fault(format!("auth http server {name} sent invalid server address:\"{server}\"")));
        };
        let number = port.parse::<u16>().ok().filter(|n| *n > 0 && port.bytes().all(|c| c.is_ascii_digit()));
        let Some(number) = number else {
            return Err(fault(format!("auth http server {name} sent invalid server port:\"{port}\"")));
        };
        let to = Address::Ip(SocketAddr::new(address, number));
        let said = format!("{server}:{port}");
        Ok(AuthResult::Pass { to, name: said, user: response.user, password: response.password })
    }
}

/// Parses a server address; names are invalid.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        assert_eq!(address("127.0.0.1"), Some([127, 0, 0, 1].into()));
        assert_eq!(address("[::1]"), address("::1"));
        for text in ["localhost", "127.0.0.1:25", "", "unix:/s"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
