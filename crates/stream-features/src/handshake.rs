//! TLS with clients: selects the server and verifies the client (nginx: `ngx_stream_ssl_handler`,
//! `ngx_stream_ssl_servername`).

use crate::plan::StreamPlan;
use crate::session::StreamSession;
use metrics::{TlsFailure, VerifyFailure};
use observe::Severity;
use std::sync::Arc;
use tls::{Choice, ClientHello, Facts, VerifyClient};
use tls_directives as shared;
use tls_directives::acme_clients::HandshakeHook;
use tls_directives::verify_failure;
use transport::Stream;
use variables::Session;
use variables::names::valid_host;

/// Performs the handshake and verifies the client's certificate. Fails with the session's status: that of a validation by an
/// authority (RFC 8737) is 200, as it has no further data.
pub async fn make_handshake(s: &mut StreamSession, stream: &mut Stream) -> Result<(), u16> {
    s.doing = "SSL handshaking";
    let plan = s.plan.clone();
    let server = plan.srv(s.server);
    if server.tcp_nodelay {
        stream.hurry();
    }
    let idle_timer = server.tls.as_ref().map_or(DEFAULT_TIMEOUT, |tls| tls.handshake_timeout);
    let mut validates = false;
    let choose = |hello: &ClientHello| match validation(&plan, hello) {
        Some(choice) => {
            validates = true;
            choice
        }
        None => choose(s, hello),
    };
    let done = runtime::time::with_timeout(idle_timer, stream.accept(choose)).await;
    let (words, failure) = match done {
        Ok(Ok(())) => {
            s.tls = stream.facts();
            let resumed = s.tls.as_ref().is_some_and(|facts| facts.resumed);
            count(s, Ok(resumed));
            return if validates { Err(200) } else { judge(s).await };
        }
        Ok(Err(why)) => (shared::handshake_words(&why), failure(&why)),
        Err(_) => ("client timed out (110: Connection timed out)".into(), TlsFailure::Timeout),
    };
    s.tls = None;
    count(s, Err(failure));
    s.log(Severity::Info, format_args!("{words}"));
    Err(500)
}

/// Counts the handshake for the process and for its server's zone.
fn count(s: &StreamSession, done: Result<bool, TlsFailure>) {
    metrics::count_handshake(metrics::Area::Stream, done);
    if let Some(facts) = s.tls.as_ref().filter(|_| done.is_ok()) {
        metrics::count_tls_version(facts.protocol);
    }
    if let Some(zone) = &s.srv().zone {
        metrics::count_stream_handshake_of(zone, done);
    }
}

fn refused(s: &StreamSession, why: VerifyFailure) -> Result<(), u16> {
    metrics::process::TLS_VERIFY_FAILURES.up_at(why as usize);
    if let Some(zone) = &s.srv().zone {
        zone.up_at(metrics::stream_zone::TLS_VERIFY_FAILURES, why as usize);
    }
    Err(500)
}

fn failure(why: &transport::HandshakeError) -> TlsFailure {
    let transport::HandshakeError::Tls(why) = why else { return TlsFailure::Other };
    match why {
        tls::TlsError::UnsupportedProtocol => TlsFailure::NoCommonProtocol,
        tls::TlsError::NoSharedCipher => TlsFailure::NoCommonCipher,
        why if why.is_rejected_certificate() => TlsFailure::PeerRejectedCert,
        _ => TlsFailure::Other,
    }
}

const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Returns the rules of a validation by an authority, which offers a single protocol.
fn validation(plan: &StreamPlan, hello: &ClientHello) -> Option<Choice> {
    if hello.alpn.len() != 1 {
        return None;
    }
    let HandshakeHook(hook) = plan.ext()?;
    hook(hello)
}

/// Selects the rules for a ClientHello: those of the named server, or of the default one.
fn choose(s: &mut StreamSession, hello: &ClientHello) -> Choice {
    let plan = s.plan.clone();
    let Some(listener) = plan.listeners.get(s.listener) else { return Choice::Fail };
    // Expressions and variables may use the name.
    let facts = Facts { server_name: hello.server_name.as_deref().map(Box::from), ..Facts::default() };
    s.tls = Some(Arc::new(facts));
    if let Some(name) = hello.server_name.as_deref().and_then(|name| valid_host(name.as_bytes()))
        && let Ok(Some(server)) = listener.names.find(&name, s)
    {
        s.server = server;
    }
    // A server without certificates uses the default server's.
    let own = plan.srv(s.server).tls.as_ref().filter(|tls| tls.rules.rules.is_some());
    let tls = own.or(plan.srv(listener.default_server).tls.as_ref());
    let Some((tls, rules)) = tls.and_then(|tls| Some((tls, tls.rules.rules.as_ref()?))) else { return Choice::Fail };
    if rules.reject {
        return Choice::Reject;
    }
    let Some(loaders) = &tls.rules.certificates else { return Choice::Rules(Arc::clone(rules)) };
    match loaders.load(s) {
        Ok(set) => Choice::WithCertificates(Arc::clone(rules), tls.rules.stapled(set)),
        Err(why) => {
            s.log(Severity::Error, format_args!("{why}"));
            Choice::Fail
        }
    }
}

async fn judge(s: &mut StreamSession) -> Result<(), u16> {
    let plan = s.plan.clone();
    let Some(tls) = plan.srv(s.server).tls.clone() else { return Ok(()) };
    let verify = tls.rules.verify;
    let Some(facts) = s.tls.clone().filter(|_| verify != VerifyClient::Off) else { return Ok(()) };
    let Some(peer) = facts.peer.as_deref() else {
        if verify == VerifyClient::On {
            s.log(Severity::Info, format_args!("client sent no required SSL certificate"));
            return refused(s, VerifyFailure::NoCert);
        }
        return Ok(());
    };
    let excused = verify == VerifyClient::OptionalNoCa && peer.verdict.is_missing_authority();
    if !peer.verdict.is_ok() && !excused {
        let (number, reason) = (peer.verdict.0, peer.verdict.reason());
        s.log(Severity::Info, format_args!("client SSL certificate verify error: ({number}:{reason})"));
        return refused(s, verify_failure(peer.verdict));
    }
    if let Some(ask) = tls.ask.as_ref().filter(|_| peer.verdict.is_ok()) {
        let resolving = plan.srv(s.server).resolving.clone();
        let fault = ask.fault(&*s, peer, resolving).await;
        if let Some(reason) = *peer.asked.get_or_init(|| fault) {
            s.log(Severity::Info, format_args!("client SSL certificate verify error: {reason}"));
            return refused(s, VerifyFailure::RevokedCert);
        }
    }
    Ok(())
}
