//! The directives of nginx's stream core module.

use crate::values::{Listens, ServerNames};
use conf_schema::directives;
use conf_schema::value::{Flag, List, Msec, Number, Size};
use observe::ErrorLogLines;

directives! {
    /// What the stream core module is told in a block.
    pub struct CoreConf from CoreInput {
        /// Sets an address and port, or a path of a UNIX-domain socket, on which the server takes connections or datagrams.
        listen: List<Listens>,
        /// Names of a server, for clients that name one in the handshake of TLS: exact, with a wildcard, or a regular expression.
        server_name: ServerNames,
        /// Where errors are logged, and how grave they must be.
        error_log: ErrorLogLines,
        /// Octets of the first bytes of a client that are looked at, at most.
        preread_buffer_size: Size = "16k",
        /// How long the first bytes of a client are waited for.
        preread_timeout: Msec = "30s",
        /// How long a PROXY protocol header is waited for.
        proxy_protocol_timeout: Msec = "30s",
        /// Turns Nagle's algorithm off, on both sides.
        tcp_nodelay: Flag = "on",
        /// Bounds the table of names; ours needs no tuning, the value is checked and has no effect.
        server_names_hash_max_size: Number = "512",
        /// As `server_names_hash_max_size`.
        server_names_hash_bucket_size: Number = "64",
        /// Bounds the table of variables; ours needs no tuning, the value is checked and has no effect.
        variables_hash_max_size: Number = "1024",
        /// As `variables_hash_max_size`.
        variables_hash_bucket_size: Number = "64",
    }
}
