//! The mail area (nginx: `ngx_mail_*`): IMAP, POP3 and SMTP sessions up to their login, and its features, one folder each and
//! one line each in `registry.rs`.
//!
//! A session is a task of its thread (`engine.rs`): it reads a PROXY protocol header, makes the handshake of TLS, greets its
//! client, and answers commands (`talk.rs`) until the client has said who it is. Then the authentication server is asked
//! (`auth_http`), and the client is logged in at the server that it names and passed through (`proxy`). What differs between
//! the protocols is behind the traits of `protocol.rs`, which do no I/O. A feature knows the engine and no other feature.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod build;
mod core_table;
mod engine;
pub mod fuzzing;
mod handshake;
mod line;
mod login;
pub mod plan;
mod protocol;
pub mod registry;
mod sasl;
pub mod session;
pub mod sessions;
mod talk;
#[cfg(test)]
mod testing;
mod values;

mod auth_http;
mod imap;
mod pop3;
mod proxy;
mod realip;
mod resolver;
mod smtp;
mod ssl;

pub use plan::MailPlan;
pub use registry::{build, offer_variables, tables};
pub use session::MailSession;
pub use sessions::Mails;

/// Variables while the configuration is read: the area has none of its own.
pub type Variables = session_engine::variable::Variables<MailSession>;
