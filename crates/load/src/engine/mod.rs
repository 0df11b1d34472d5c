//! The engine: one world per core, driven by a schedule, over an interface of protocols and transports.
//!
//! [`world`] is the heart and knows neither sockets nor clocks: it runs the same over [`epoll`] and over the virtual
//! network of the tests. [`job`] describes a run, [`run`] starts the worlds and merges what they report.

pub mod epoll;
pub mod failure;
pub mod job;
pub mod latency;
pub mod ports;
pub mod profile;
pub mod record;
pub mod request;
pub mod run;
pub mod session;
pub mod template;
pub mod timeline;
pub mod tls;
pub mod transport;
pub mod world;

#[cfg(test)]
mod conservation;
#[cfg(test)]
pub mod sim;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod truth;
