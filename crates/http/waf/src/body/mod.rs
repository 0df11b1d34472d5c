//! Readers of request bodies: URL-encoded forms, multipart, JSON, XML.

pub(crate) mod json;
pub(crate) mod multipart;
pub(crate) mod xml;
