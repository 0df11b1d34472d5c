//! Implements sessions for requests: variables, rules and logs, shared with other areas.

use crate::area::HttpArea;
use crate::family::Common;
use crate::path::bytes_path;
use crate::request::Request;
use observe::{ErrorLog, Severity, os_error};
use std::net::SocketAddr;
use std::sync::Arc;
use variables::forwarded::{self, TrustedNetwork};
use variables::regex::Captures;
use variables::variable::VarId;
use variables::{AreaTypes, Session, SessionSlot};

/// Extension of a location with `uninitialized_variable_warn off`.
pub struct QuietlyUninitialized;

const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
    \"$http_referer\" \"$http_user_agent\"";

impl AreaTypes for HttpArea {
    type Session = Request;
    const LOG_FORMAT: Option<(&'static str, &'static str)> = Some(("combined", COMBINED));
    const FORWARDED: bool = true;
}

impl Session for Request {
    #[inline]
    fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        Request::variable(self, id, out)
    }
    #[inline]
    fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Option<bool> {
        let slot = slot as usize;
        match &self.family.tree {
            None => self.family.common.slots.get(slot)?.read(out),
            Some(tree) => tree.common.borrow().slots.get(slot)?.read(out),
        }
    }
    fn write_slot(&mut self, slot: u32, value: SessionSlot) {
        self.with_common(|Common { slots, .. }| SessionSlot::write(slots, slot, value));
    }
    #[cold]
    fn uninitialized(&self, name: &str) {
        let is_quiet = self.scope.plan.is_some() && self.loc().ext::<QuietlyUninitialized>().is_some();
        if !is_quiet {
            Request::log(self, Severity::Warn, format_args!("using uninitialized \"{name}\" variable"));
        }
    }
    fn set_slot(&mut self, id: VarId, value: Box<[u8]>) {
        Request::set_slot(self, id, value);
    }
    #[inline]
    fn captures(&mut self) -> &mut Captures {
        &mut self.target.captures
    }
    #[inline]
    fn groups_used(&self) -> bool {
        self.plan().groups_used
    }
    #[inline]
    fn peer(&self) -> Option<SocketAddr> {
        self.connection().peer
    }
    fn forwarded_for(
        &self,
        peer: Option<SocketAddr>,
        proxies: &[TrustedNetwork],
        recursive: bool,
    ) -> Option<SocketAddr> {
        let lines: Vec<&[u8]> =
            self.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"x-forwarded-for")).map(|(_, v)| v).collect();
        forwarded::forwarded_client(peer, lines.into_iter(), proxies, recursive)
    }
    /// Requires an existing root: clients could otherwise create log files for invented hosts (`$host`).
    fn may_open_log(&mut self) -> bool {
        let core = self.loc().core.clone();
        let mut root = Vec::new();
        core.root.write(self, &mut root);
        let e = match std::fs::metadata(bytes_path(&root)) {
            Ok(meta) if meta.is_dir() => return true,
            Ok(_) => std::io::Error::from_raw_os_error(libc::ENOTDIR),
            Err(e) => e,
        };
        let shown = String::from_utf8_lossy(&root);
        self.log(Severity::Error, format_args!("testing \"{shown}\" existence failed {}", os_error(&e)));
        false
    }
    fn tls(&self) -> Option<&tls::Facts> {
        self.connection().tls.as_deref()
    }
    #[inline]
    fn error_log(&self) -> &Arc<ErrorLog> {
        &self.loc().core.error_log
    }
    fn log(&self, level: Severity, words: std::fmt::Arguments<'_>) {
        Request::log(self, level, words);
    }
}

impl Request {
    /// Tells whether a slot has a value, or is known to have none.
    #[inline]
    pub(crate) fn has_slot(&self, slot: u32) -> bool {
        let is_set = |common: &Common| !matches!(common.slots.get(slot as usize), None | Some(SessionSlot::Unset));
        match &self.family.tree {
            None => is_set(&self.family.common),
            Some(tree) => is_set(&tree.common.borrow()),
        }
    }

    /// Lower-case name; `false` if not found.
    pub fn variable_named(&mut self, name: &str, out: &mut Vec<u8>) -> bool {
        let plan = self.plan_rc();
        plan.names.value(self, name, out)
    }
}
