//! Private keys in a process of their own (`ssl_key_isolation`, decision 0099).
//!
//! The master opens files with keys and hands the open files to the key process ([`keeper`], [`process`]); it never reads them. What comes
//! back is the file without keys. Worker threads ask the key process for signatures ([`service`]), each over a socket of its own, which it
//! sends through a socket that outlives key processes: the *door*.

pub mod keeper;
pub mod process;
pub mod service;
pub mod wire;

pub use keeper::{Keeper, KeyProcessEnd};
