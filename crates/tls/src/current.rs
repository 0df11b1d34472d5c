//! Facts that rustls tells only to the objects it calls: kept for the connection that the thread is working for.
//!
//! A connection calls [`begin`] before it gives rustls bytes and [`end`] after; between them rustls calls the session store on
//! this very thread.

use std::cell::{Cell, RefCell};

thread_local! {
    static SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static PEER_SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static SESSION: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Octets of a session's id, at most.
const ID_MAX: usize = 32;

pub(crate) fn begin() {
    SIGNATURE.set(None);
    PEER_SIGNATURE.set(None);
    SESSION.with_borrow_mut(|s| *s = None);
}

/// The id of a session in the cache that was stored or found.
pub(crate) fn session_id(id: &[u8]) {
    SESSION.with_borrow_mut(|s| *s = Some(id.get(..ID_MAX).unwrap_or(id).to_vec()));
}

/// A ticket that was made or accepted: what names its session is its digest.
pub(crate) fn ticket(ticket: &[u8]) {
    session_id(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ticket).as_ref());
}

/// The scheme with which the server signs.
pub(crate) fn signature(scheme: rustls::SignatureScheme) {
    SIGNATURE.set(Some(u16::from(scheme)));
}

/// The scheme with which the client has signed.
pub(crate) fn peer_signature(scheme: rustls::SignatureScheme) {
    PEER_SIGNATURE.set(Some(u16::from(scheme)));
}

/// What was told since [`begin`].
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub session_id: Option<Vec<u8>>,
    pub signature: Option<u16>,
    pub peer_signature: Option<u16>,
}

pub(crate) fn end() -> Told {
    Told {
        session_id: SESSION.with_borrow_mut(Option::take),
        signature: SIGNATURE.take(),
        peer_signature: PEER_SIGNATURE.take(),
    }
}
