//! ACME: orders, challenges, renewal, certbot. These tests mostly wait for certificate authorities.

#[path = "../support/mod.rs"]
mod support;

mod angie;
mod certbot;
mod faults;
mod issuers;
mod orders;
mod quic;
mod shared_issuers;
mod stapling;
mod time;
