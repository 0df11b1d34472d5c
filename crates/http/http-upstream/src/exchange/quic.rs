//! Connects to a server over QUIC, for HTTP/3.

use super::PassPlan;
use super::failure::{self, Failure, note};
use super::run::{not_connected, options};
use super::target::UpstreamTarget;
use crate::tls::Wanted;
use http_engine::Request;
use upstream::{ConnectError, Connection, H3Lease, Peer, Scope};

/// Connects, with the handshake, within `proxy_connect_timeout`.
pub async fn connect(
    plan: &PassPlan,
    r: &mut Request,
    target: &UpstreamTarget<'_>,
    peer: &Peer,
    scope: Scope,
    wanted: Option<&Wanted>,
) -> Result<Connection, Failure> {
    const DOING: &str = "connecting to";
    let Some(wanted) = wanted else {
        note(r, peer, target, "HTTP/3 needs an https URL", DOING);
        return Err(Failure::Final(502));
    };
    let crypto = match wanted.quic() {
        Ok(crypto) => crypto,
        Err(why) => return Err(note(r, peer, target, &format!("QUIC cannot be used ({why})"), DOING)),
    };
    let options = options(plan, r);
    let (group, address) = (&target.named.group, &peer.spec.address);
    let connecting = H3Lease::connect(crypto, &options, group, address, scope);
    match runtime::time::timeout(plan.conf.connect_timeout, connecting).await {
        Ok(Ok(lease)) => Ok(Connection::Mux(Box::new(lease))),
        Ok(Err(ConnectError::Io(e))) => Err(not_connected(r, peer, target, &options, &e)),
        Ok(Err(ConnectError::Handshake(why))) => {
            Err(note(r, peer, target, &format!("QUIC handshake failed ({why})"), "SSL handshaking to"))
        }
        Err(_) => Err(failure::timed_out(r, target, DOING)),
    }
}
