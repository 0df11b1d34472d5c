//! `ssl_ocsp`: checks a client's certificate before the first request of its connection; see `tls_directives`.

use http_engine::{Flow, Handler, Request, unless_gone};
use http_upstream::resolving::ResolveRules;
use observe::Severity;
use std::sync::Arc;
use tls_directives::AskAuthorities;

pub struct OcspCheck(pub Arc<AskAuthorities>);

impl Handler for OcspCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let facts = r.connection().tls.clone();
        let peer = facts.as_ref().and_then(|f| f.peer.as_deref());
        if !peer.is_some_and(|p| p.verdict.is_ok() && p.asked.get().is_none()) {
            return Flow::Declined;
        }
        let ask = Arc::clone(&self.0);
        Flow::Later(Box::new(move |r| {
            Box::pin(async move {
                let Some(peer) = facts.as_ref().and_then(|f| f.peer.as_deref()) else { return (r, Flow::Declined) };
                let resolving = r.loc().ext::<ResolveRules>().cloned();
                let asked = unless_gone(r.incoming.watch().cloned(), ask.fault(&*r, peer, resolving)).await;
                let Some(fault) = asked else {
                    let words = "client prematurely closed connection while requesting certificate status";
                    r.log(Severity::Info, format_args!("{words}"));
                    return (r, Flow::Status(499));
                };
                // A concurrent request may have stored an equal result.
                let fault = *peer.asked.get_or_init(|| fault);
                let flow = match fault {
                    None => Flow::Declined,
                    Some(reason) => {
                        let words = "while reading client request headers";
                        r.log(Severity::Info, format_args!("client SSL certificate verify error: {reason} {words}"));
                        Flow::Status(495)
                    }
                };
                (r, flow)
            })
        }))
    }
}
