//! TLS with clients (nginx: `ngx_mail_ssl_init_connection`, `ngx_mail_verify_cert`).

use crate::engine::{SessionClosed, send_bytes, timed_out};
use crate::session::MailSession;
use observe::Severity;
use std::sync::Arc;
use tls::{Choice, VerifyClient};
use tls_directives as shared;
use transport::Stream;
use variables::Session;

/// Verifies the client's certificate, too. A failure ends the session.
pub async fn make_handshake(s: &mut MailSession, stream: &mut Stream) -> Result<(), SessionClosed> {
    s.doing = if s.starttls { "in starttls state" } else { "SSL handshaking" };
    let plan = s.plan.clone();
    let server = plan.srv(s.server);
    let tls = server.tls.as_ref().ok_or(SessionClosed)?;
    // The server's handshake takes several writes.
    stream.hurry();
    // Ignores SNI: an address has one server.
    let choose = |_: &tls::ClientHello| match &tls.rules {
        None => Choice::Fail,
        Some(rules) => match &tls.certificates {
            None => Choice::Rules(Arc::clone(rules)),
            Some(loaders) => match loaders.load(s) {
                Ok(set) => Choice::WithCertificates(Arc::clone(rules), set),
                Err(why) => {
                    s.log(Severity::Error, format_args!("{why}"));
                    Choice::Fail
                }
            },
        },
    };
    match runtime::time::with_timeout(server.timeout, stream.accept(choose)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            metrics::count_handshake(metrics::Area::Mail, Err(metrics::TlsFailure::Other));
            s.log(Severity::Info, format_args!("{}", shared::handshake_words(&why)));
            return Err(SessionClosed);
        }
        Err(_) => {
            metrics::count_handshake(metrics::Area::Mail, Err(metrics::TlsFailure::Other));
            return Err(timed_out(s));
        }
    }
    s.tls = stream.facts();
    if let Some(facts) = &s.tls {
        metrics::count_tls_version(facts.protocol);
    }
    metrics::count_handshake(metrics::Area::Mail, Ok(s.tls.as_ref().is_some_and(|facts| facts.resumed)));
    let Some(facts) = s.tls.clone().filter(|_| tls.verify != VerifyClient::Off) else { return Ok(()) };
    let Some(peer) = facts.peer.as_deref() else {
        if tls.verify == VerifyClient::On {
            s.log(Severity::Info, format_args!("client sent no required SSL certificate"));
            send_bytes(s, stream, server.protocol.no_certificate().as_bytes()).await?;
            return Err(SessionClosed);
        }
        return Ok(());
    };
    let excused = tls.verify == VerifyClient::OptionalNoCa && peer.verdict.is_missing_authority();
    if !peer.verdict.is_ok() && !excused {
        let (number, reason) = (peer.verdict.0, peer.verdict.reason());
        s.log(Severity::Info, format_args!("client SSL certificate verify error: ({number}:{reason})"));
        send_bytes(s, stream, server.protocol.certificate_error().as_bytes()).await?;
        return Err(SessionClosed);
    }
    Ok(())
}
