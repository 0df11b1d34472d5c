//! The engine: one world per core, driven by a schedule, over interfaces of protocols and transports.
//! [`world`] knows neither sockets nor clocks and runs over [`epoll`] or the tests' virtual network. [`job`] describes
//! a run, [`run`] starts worlds and merges their reports.

pub mod chooser;
pub mod cookies;
pub mod epoll;
pub mod failure;
pub mod feed;
pub mod grpc;
pub mod job;
pub mod latency;
pub mod ports;
pub mod profile;
pub mod record;
pub mod redirect;
pub mod request;
pub mod run;
pub mod servers;
pub mod session;
pub mod template;
pub mod timeline;
pub mod tls;
pub mod transport;
pub mod world;

#[cfg(test)]
mod browsers;
#[cfg(test)]
mod conservation;
#[cfg(test)]
pub mod sim;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod truth;
