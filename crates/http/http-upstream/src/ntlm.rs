//! `ntlm` (documented with nginx's commercial edition): binds a server's connection to the client's, once the client logs in
//! with NTLM or Negotiate, which authenticate connections instead of requests.

use http_engine::Request;
use http_types::{Known, Version};
use net::poller::Key;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;
use upstream::{Binding, Group, Peer, Scope};

/// Interval at which a thread closes servers' connections whose client has gone.
const SWEEP: Duration = Duration::from_secs(1);

/// Number that no [`Binding`] has.
const NO_BINDING: usize = usize::MAX;

/// Of a client's connection.
struct BoundConnection {
    binding: Binding,
    /// Numbers of groups, and ids of the servers that the client uses.
    servers: Vec<(u64, String)>,
}

thread_local! {
    static SWEEPING: Cell<bool> = const { Cell::new(false) };
    /// By the client's socket, whose key no later socket has.
    static CLIENTS: RefCell<HashMap<Key, BoundConnection>> = RefCell::default();
}

/// Returns the key of a client of HTTP/1 over TCP. Concurrent requests of a connection cannot share an authenticated one.
fn client(group: &Group, r: &Request) -> Option<Key> {
    let is_serial = !matches!(r.target.version(), Version::Http20 | Version::Http30);
    if group.keepalive.ntlm && is_serial && !r.is_subrequest() { r.connection().socket } else { None }
}

/// Tells whether the request logs in.
fn logs_in(r: &Request) -> bool {
    let schemes: [&[u8]; 2] = [b"Negotiate", b"NTLM"];
    r.header(Known::Authorization).is_some_and(|value| {
        schemes.iter().any(|scheme| value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
    })
}

/// Narrows the scope of the request's server connection to a client that has logged in. A login of a client that cannot be
/// bound gets a connection of its own, which is not kept: other clients would inherit it.
pub fn narrow_scope(scope: Scope, group: &Group, r: &Request, peer: &Peer) -> Scope {
    if !group.keepalive.ntlm {
        return scope;
    }
    let Some(key) = client(group, r) else {
        return if logs_in(r) { scope.bound_to(NO_BINDING) } else { scope };
    };
    CLIENTS.with_borrow_mut(|clients| {
        let bound = match clients.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !logs_in(r) => return scope,
            Entry::Vacant(_) if net::outbound::tcp_info(key).is_none() => return scope.bound_to(NO_BINDING),
            Entry::Vacant(place) => {
                if !SWEEPING.replace(true) {
                    runtime::task::spawn_local(sweep());
                }
                place.insert(BoundConnection { binding: Binding::new(), servers: Vec::new() })
            }
        };
        let id = peer.id();
        match bound.servers.iter_mut().find(|(number, _)| *number == group.number()) {
            Some((_, server)) if server == id => {}
            Some((_, server)) => *server = id.into(),
            None => bound.servers.push((group.number(), id.into())),
        }
        scope.bound_to(bound.binding.number())
    })
}

/// Returns the id of the server that the client's connection is bound to.
pub fn bound_server(group: &Group, r: &Request) -> Option<Vec<u8>> {
    let key = client(group, r)?;
    CLIENTS.with_borrow(|clients| {
        let servers = &clients.get(&key)?.servers;
        servers.iter().find(|(number, _)| *number == group.number()).map(|(_, id)| id.clone().into_bytes())
    })
}

/// Forgets clients that have gone, while any are bound.
async fn sweep() {
    loop {
        runtime::time::sleep_for(SWEEP).await;
        let left = CLIENTS.with_borrow_mut(|clients| {
            clients.retain(|key, _| net::outbound::tcp_info(*key).is_some());
            clients.len()
        });
        if left == 0 {
            SWEEPING.set(false);
            return;
        }
    }
}
