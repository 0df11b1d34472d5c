//! Facts that rustls reports only to its callbacks, kept for the thread's current connection between [`begin`] and
//! [`end`].

use std::cell::{Cell, RefCell};

thread_local! {
    static SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static PEER_SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static SESSION: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// In octets.
const ID_MAX: usize = 32;

pub(crate) fn begin() {
    SIGNATURE.set(None);
    PEER_SIGNATURE.set(None);
    SESSION.with_borrow_mut(|s| *s = None);
}

pub(crate) fn session_id(id: &[u8]) {
    SESSION.with_borrow_mut(|s| *s = Some(id.get(..ID_MAX).unwrap_or(id).to_vec()));
}

/// Records a ticket; its digest identifies the session.
pub(crate) fn ticket(ticket: &[u8]) {
    session_id(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ticket).as_ref());
}

pub(crate) fn signature(scheme: rustls::SignatureScheme) {
    SIGNATURE.set(Some(u16::from(scheme)));
}

pub(crate) fn peer_signature(scheme: rustls::SignatureScheme) {
    PEER_SIGNATURE.set(Some(u16::from(scheme)));
}

/// Since [`begin`].
#[derive(Debug, Default)]
pub(crate) struct HandshakeRecord {
    pub session_id: Option<Vec<u8>>,
    pub signature: Option<u16>,
    pub peer_signature: Option<u16>,
}

pub(crate) fn end() -> HandshakeRecord {
    HandshakeRecord {
        session_id: SESSION.with_borrow_mut(Option::take),
        signature: SIGNATURE.take(),
        peer_signature: PEER_SIGNATURE.take(),
    }
}
