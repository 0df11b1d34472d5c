//! An ACME client (RFC 8555): accounts with external bindings, orders with profiles, http-01, dns-01 and
//! tls-alpn-01 challenges (RFC 8737), IP identifiers (RFC 8738), renewal information (RFC 9773).
//!
//! [`AcmeSession`] speaks to one server; a [`Solver`] makes challenges answerable. Listeners, configuration and storage belong to
//! the caller. Futures run on the control thread: nothing here blocks it.

#![forbid(unsafe_code)]

mod agenda;
mod certificate;
mod error;
mod identifier;
mod jws;
mod key;
mod local;
mod messages;
mod renewal;
mod session;
pub mod update;

pub use agenda::{Agenda, DueOrder, FailureCause, IssuerLimits, Now, TaskId};
pub use certificate::{IssuedChain, challenge_certificate, is_for, placeholder_certificate};
pub use error::Error;
pub use identifier::Identifier;
pub use key::{AccountKey, Algorithm};
pub use local::LocalAuthority;
pub use renewal::{RenewalWindow, Schedule, certificate_id};
pub use session::{
    AcmeAccount, AcmeOrder, AcmeSession, Binding, BindingDigest, ChallengeKind, Profile, SessionWork, Solver,
};
