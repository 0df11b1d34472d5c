//! The mail area (nginx: `ngx_mail_*`): IMAP, POP3 and SMTP sessions up to their login; features in directories, listed
//! in `registry.rs`.
//! A session is a task (`engine.rs`): PROXY protocol, TLS, greeting, commands (`talk.rs`). Then `auth_http` asks the
//! authentication server, and `proxy` logs in at the mail server and relays. `protocol.rs` covers the protocols'
//! differences, without I/O.

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
pub use registry::{build_mail, mail_tables, offer_variables};
pub use session::{MailArea, MailSession};
pub use sessions::Mails;

pub type Variables = variables::variable::VariableTable<MailArea>;
