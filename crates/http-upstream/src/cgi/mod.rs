//! What FastCGI, uwsgi and SCGI have in common (RFC 3875): a request is a list of parameters, a response begins with fields.

pub mod codec;
pub mod head;
pub mod params;
