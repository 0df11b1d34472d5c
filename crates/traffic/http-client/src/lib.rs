//! The HTTP client for requests that the server makes for itself: health checks, OCSP, certificates, keys, traces.
//!
//! [`Client`] sends a request to a URL over HTTP/1, [`H2Client`] over HTTP/2; [`send_request`] and [`Reader`] (HTTP/2: [`H2Connection`]) make an exchange over a connection of the caller. Responses are
//! bounded in size and time. Proxied requests do not come through here.

#![forbid(unsafe_code)]

mod client;
mod failure;
mod h2;
mod reader;
mod request;
mod url;

pub use client::{Client, Settings};
pub use failure::{ClientFailure, ClientStep};
pub use h2::{H2Answer, H2Client, H2Connection};
pub use reader::{Limits, Reader, Response, send_request};
pub use request::{BadField, Request};
pub use url::Url;
