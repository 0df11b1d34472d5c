//! Private keys in a separate process (`ssl_key_isolation`, decision 0099).
//!
//! The master opens key files and passes the descriptors to the key process ([`keeper`], [`process`]), which returns
//! the files without keys; the master never reads them. Each worker thread requests signatures ([`service`]) over its
//! own socket, which it sends through a socket that outlives key processes: the *door*.

pub mod keeper;
pub mod process;
pub mod service;
pub mod wire;

pub use keeper::{Keeper, KeyProcessEnd};
