//! Facts that rustls reports only to its callbacks, kept for the thread's current connection between [`begin`] and
//! [`end`].

use std::cell::{Cell, RefCell};

thread_local! {
    static GROUP: Cell<Option<u16>> = const { Cell::new(None) };
    static RESUMED_GROUP: Cell<Option<u16>> = const { Cell::new(None) };
    static STORED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static PEER_SIGNATURE: Cell<Option<u16>> = const { Cell::new(None) };
    static SESSION: RefCell<Option<SessionId>> = const { RefCell::new(None) };
}

/// In octets.
const ID_MAX: usize = 32;

/// Id of the connection's session.
#[derive(Clone, Debug)]
pub(crate) struct SessionId {
    pub bytes: Vec<u8>,
    /// The digest of a ticket.
    pub is_ticket: bool,
}

/// `group`: the key exchange that the handshake has started.
pub(crate) fn begin(group: Option<u16>) {
    GROUP.set(group);
    RESUMED_GROUP.set(None);
    STORED.with_borrow_mut(Vec::clear);
    SIGNATURE.set(None);
    PEER_SIGNATURE.set(None);
    SESSION.with_borrow_mut(|s| *s = None);
}

fn session(id: &[u8], is_ticket: bool) {
    let bytes = id.get(..ID_MAX).unwrap_or(id).to_vec();
    SESSION.with_borrow_mut(|s| *s = Some(SessionId { bytes, is_ticket }));
}

pub(crate) fn session_id(id: &[u8]) {
    session(id, false);
}

/// Records the id of a session that entered the cache.
pub(crate) fn stored(id: &[u8]) {
    session_id(id);
    STORED.with_borrow_mut(|stored| stored.push(id.to_vec()));
}

/// Records a ticket; its digest identifies the session.
pub(crate) fn ticket(ticket: &[u8]) {
    session(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ticket).as_ref(), true);
}

/// Records the key exchange that starts.
pub(crate) fn exchange(group: u16) {
    GROUP.set(Some(group));
}

pub(crate) fn group() -> Option<u16> {
    GROUP.get()
}

/// Records the key exchange of the session that is resumed.
pub(crate) fn resumed_group(group: u16) {
    RESUMED_GROUP.set(Some(group).filter(|group| *group != 0));
}

pub(crate) fn group_resumed() -> Option<u16> {
    RESUMED_GROUP.get()
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
    pub session: Option<SessionId>,
    /// Ids of sessions in the cache.
    pub stored: Vec<Vec<u8>>,
    /// Key exchange of the handshake, if it has started.
    pub group: Option<u16>,
    /// Key exchange of the session that is resumed.
    pub resumed_group: Option<u16>,
    pub signature: Option<u16>,
    pub peer_signature: Option<u16>,
}

impl HandshakeRecord {
    /// Adds a later record of the same connection.
    pub fn add(&mut self, later: HandshakeRecord) {
        self.session = later.session.or(self.session.take());
        self.stored.extend(later.stored);
        self.group = later.group.or(self.group);
        self.resumed_group = later.resumed_group.or(self.resumed_group);
        self.signature = later.signature.or(self.signature);
        self.peer_signature = later.peer_signature.or(self.peer_signature);
    }
}

pub(crate) fn end() -> HandshakeRecord {
    HandshakeRecord {
        session: SESSION.with_borrow_mut(Option::take),
        stored: STORED.with_borrow_mut(std::mem::take),
        group: GROUP.take(),
        resumed_group: RESUMED_GROUP.take(),
        signature: SIGNATURE.take(),
        peer_signature: PEER_SIGNATURE.take(),
    }
}
