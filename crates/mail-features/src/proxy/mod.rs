//! proxy (nginx: `ngx_mail_proxy_module`): logs clients in at their mail server and relays their bytes.

use crate::build::{Feature, ServerBuild};
use crate::login::{call_failed, shown_text};
use crate::plan::{PassEnd, PassOn, PassPlan};
use crate::protocol::{LoginFacts, LoginStep, ServerLogin};
use crate::session::MailSession;
use area::first_bytes::write_out;
use area::proxy_header;
use area::relay::{Direction, HalfClose, Relay, RelayEnd, Terms};
use conf_schema::value::{Flag, Msec, Size};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use net::Address;
use observe::Severity;
use runtime::time::timeout_at;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use transport::{ConnectOptions, Stream};
use variables::Session;

conf_schema::words! {
    pub enum ProxyProtocol { Off = "off", On = "on", V2 = "v2" }
}

directives! {
    pub struct ProxyConf from ProxyInput {
        /// Enables proxying. No effect: it is always on, as in nginx.
        proxy: Flag = "off",
        /// Maximum size of a server's response during login, and of one read afterwards, in bytes.
        proxy_buffer: Size = "4k",
        /// Passes the mail server's error message to the client if the login fails there.
        proxy_pass_error_message: Flag = "off",
        /// Sends a PROXY protocol header to the mail server, in version 1 (`on`) or 2 (`v2`). Version 2 tells the
        /// facts of the client's TLS connection.
        /// Differs: without the algorithms of the server's own certificate.
        proxy_protocol: ProxyProtocol = "off",
        /// Logs SMTP clients in at the mail server with AUTH.
        proxy_smtp_auth: Flag = "off",
        /// Maximum time without data in either direction after the login.
        proxy_timeout: Msec = "24h",
        /// Sends the client's address to SMTP servers with XCLIENT.
        xclient: Flag = "on",
    }
}

pub struct MailProxyRules;

impl Feature for MailProxyRules {
    fn table(&self) -> FeatureTable {
        ProxyConf::table("proxy", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<ProxyConf>() {
            block.server.passer = Some(Arc::new(MailProxy { conf: conf.clone() }));
        }
        Ok(())
    }
}

struct MailProxy {
    conf: ProxyConf,
}

/// A failed login, already logged; the client gets this reply, or an internal error.
struct LoginFailure(Option<Vec<u8>>);

impl PassOn for MailProxy {
    fn run<'a>(
        &'a self,
        s: &'a mut MailSession,
        client: &'a Stream,
        passing: PassPlan,
    ) -> Pin<Box<dyn Future<Output = PassEnd> + 'a>> {
        Box::pin(async move {
            let PassPlan { to, mut login, pending } = passing;
            let until = runtime::time::after(s.srv().timeout);
            s.doing = "connecting to upstream";
            let log_in = async {
                let server = Stream::connect(&to, &ConnectOptions::default()).await.map_err(|e| ("connect", e));
                let server = server.map_err(|(call, e)| self.broken(s, call, &e))?;
                let answer = self.log_in(s, &server, &mut *login).await?;
                Ok((server, answer))
            };
            let done: Result<_, LoginFailure> = match timeout_at(until, log_in).await {
                Ok(done) => done,
                Err(_) => {
                    s.log(Severity::Info, format_args!("upstream timed out (110: Connection timed out)"));
                    Err(LoginFailure(None))
                }
            };
            match done {
                Ok((server, answer)) => {
                    self.pass(s, client, &server, pending, answer).await;
                    PassEnd::Done
                }
                Err(LoginFailure(answer)) => {
                    let internal_error = || s.srv().protocol.internal_error().as_bytes().to_vec();
                    PassEnd::Failed(answer.unwrap_or_else(internal_error))
                }
            }
        })
    }
}

impl MailProxy {
    fn broken(&self, s: &MailSession, call: &str, e: &std::io::Error) -> LoginFailure {
        s.log(Severity::Error, format_args!("{}", call_failed(call, e)));
        LoginFailure(None)
    }

    async fn log_in(
        &self,
        s: &mut MailSession,
        server: &Stream,
        login: &mut dyn ServerLogin,
    ) -> Result<Vec<u8>, LoginFailure> {
        if self.conf.proxy_protocol != ProxyProtocol::Off {
            s.doing = "sending PROXY protocol header to upstream";
            let header = self.header(s).ok_or(LoginFailure(None))?;
            write_out(server, &header).await.map_err(|e| self.broken(s, "send", &e))?;
        }
        loop {
            s.doing = "reading response from upstream";
            let mut answer = self.answer(s, server, login).await?;
            let said = {
                let server_name = &s.srv().name;
                let client = s.peer.map(|peer| peer.ip());
                let (xclient, smtp_auth) = (self.conf.xclient, self.conf.proxy_smtp_auth);
                let facts = LoginFacts { login: &s.login, server_name, client, host: &s.host, xclient, smtp_auth };
                login.answer(&answer, &facts)
            };
            match said {
                LoginStep::Line(line, doing) => {
                    s.doing = doing;
                    write_out(server, &line).await.map_err(|e| self.broken(s, "send", &e))?;
                }
                LoginStep::LoggedIn(instead) => {
                    return Ok(instead.map_or(answer, |text| text.as_bytes().to_vec()));
                }
                LoginStep::Refused(at) => {
                    let words = shown_text(answer.get(at..).unwrap_or_default().trim_ascii_end());
                    let pass = self.conf.proxy_pass_error_message;
                    let level = if pass { Severity::Info } else { Severity::Error };
                    s.log(level, format_args!("upstream sent invalid response: \"{words}\""));
                    return Err(LoginFailure(pass.then(|| std::mem::take(&mut answer))));
                }
                LoginStep::NoPassword => {
                    s.log(Severity::Error, format_args!("no password available"));
                    return Err(LoginFailure(None));
                }
            }
        }
    }

    /// Reads a complete answer: lines, the last of which is terminated.
    async fn answer(&self, s: &MailSession, server: &Stream, login: &dyn ServerLogin) -> Result<Vec<u8>, LoginFailure> {
        let most = usize::try_from(self.conf.proxy_buffer.0).unwrap_or(usize::MAX);
        let mut answer: Vec<u8> = Vec::new();
        loop {
            if answer.len() >= most {
                s.log(
                    Severity::Error,
                    format_args!("upstream sent too long response line: \"{}\"", shown_text(&answer)),
                );
                return Err(LoginFailure(None));
            }
            answer.reserve_exact((most - answer.len()).min(1024));
            match server.read_buf(&mut answer).await {
                Ok(0) => {
                    s.log(Severity::Error, format_args!("upstream prematurely closed connection"));
                    return Err(LoginFailure(None));
                }
                Ok(_) if answer.len() >= 4 && answer.ends_with(b"\r\n") && login.is_whole(&answer) => {
                    return Ok(answer);
                }
                Ok(_) => {}
                Err(e) => return Err(self.broken(s, "recv", &e)),
            }
        }
    }

    /// Returns the PROXY protocol header; `None` if it cannot be written.
    fn header(&self, s: &MailSession) -> Option<Vec<u8>> {
        let addresses = match (s.peer, &*s.local) {
            (Some(peer), Address::Ip(local)) => Some((peer, *local)),
            _ => None,
        };
        if self.conf.proxy_protocol == ProxyProtocol::V2 {
            return proxy_header::version_2(addresses, s.tls.as_deref(), false);
        }
        let mut out = Vec::new();
        wire_proxy::write_v1(addresses, &mut out);
        Some(out)
    }

    async fn pass(&self, s: &mut MailSession, client: &Stream, server: &Stream, pending: Vec<u8>, answer: Vec<u8>) {
        s.doing = "";
        s.log(Severity::Info, format_args!("client logged in"));
        client.hurry();
        server.hurry();
        let terms = Terms {
            buffer_bytes: usize::try_from(self.conf.proxy_buffer.0).unwrap_or(usize::MAX).max(1),
            half_close: HalfClose::Neither,
            timeout_ms: self.conf.proxy_timeout.0,
            stalled_ms: self.conf.proxy_timeout.0,
        };
        let mut relay = Relay::new(client, server, Direction::new(pending, 0, 0), Direction::new(answer, 0, 0), terms);
        let over = poll_fn(|cx| {
            let over = relay.poll(cx);
            if let Some((e, of_server)) = relay.take_broken() {
                let (level, doing) = match of_server {
                    true => (Severity::Error, "proxying and reading from upstream"),
                    false => (Severity::Info, "proxying and reading from client"),
                };
                s.doing = doing;
                let call = if !of_server && client.is_secure() { "SSL_read" } else { "recv" };
                s.log(level, format_args!("{}", call_failed(call, &e)));
                s.doing = "";
            }
            over
        })
        .await;
        match over {
            RelayEnd::Closed(_) => s.log(Severity::Info, format_args!("proxied session done")),
            RelayEnd::Silence => {
                s.doing = "proxying";
                s.log(Severity::Info, format_args!("client timed out (110: Connection timed out)"));
            }
            RelayEnd::Broken(e, to_client) => {
                let (level, doing) = match to_client {
                    true => (Severity::Info, "proxying and sending to client"),
                    false => (Severity::Error, "proxying and sending to upstream"),
                };
                s.doing = doing;
                let call = if to_client && client.is_secure() { "SSL_write" } else { "send" };
                s.log(level, format_args!("{}", call_failed(call, &e)));
            }
        }
    }
}
