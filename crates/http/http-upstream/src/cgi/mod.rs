//! Common parts of FastCGI, uwsgi and SCGI (RFC 3875): parameters, and responses that start with fields.

pub mod codec;
pub mod head;
pub mod params;
