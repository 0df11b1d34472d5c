//! A session for tests of this crate and of those above it, without variables and peer.

use crate::session::Captures;
use crate::session::VarId;
use crate::{AreaTypes, Session, SessionSlot};
use observe::{ErrorLog, Severity};
use std::net::SocketAddr;
use std::sync::Arc;

pub struct TestSession {
    captures: Captures,
    slots: Vec<SessionSlot>,
    log: Arc<ErrorLog>,
}

impl Default for TestSession {
    fn default() -> TestSession {
        TestSession { captures: Captures::default(), slots: Vec::new(), log: Arc::new(ErrorLog::new(Vec::new())) }
    }
}

/// The area of [`TestSession`].
pub struct TestArea;

impl AreaTypes for TestArea {
    type Session = TestSession;
    const LOG_FORMAT: Option<(&'static str, &'static str)> = Some(("combined", "$remote_addr"));
    const FORWARDED: bool = true;
}

impl Session for TestSession {
    fn variable(&mut self, _: VarId, _: &mut Vec<u8>) -> bool {
        false
    }
    fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Option<bool> {
        self.slots.get(slot as usize)?.read(out)
    }
    fn write_slot(&mut self, slot: u32, value: SessionSlot) {
        SessionSlot::write(&mut self.slots, slot, value);
    }
    fn set_slot(&mut self, id: VarId, value: Box<[u8]>) {
        self.write_slot(id.0, SessionSlot::Value(value));
    }
    fn captures(&mut self) -> &mut Captures {
        &mut self.captures
    }
    fn groups_used(&self) -> bool {
        true
    }
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
    fn error_log(&self) -> &Arc<ErrorLog> {
        &self.log
    }
    fn log(&self, _: Severity, _: std::fmt::Arguments<'_>) {}
}
