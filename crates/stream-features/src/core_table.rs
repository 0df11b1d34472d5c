//! The directives of nginx's stream core module.

use crate::values::{Listens, ServerNames};
use conf_schema::directives;
use conf_schema::value::{Flag, HashSize, Msec, Number, Size, ValueList};
use observe::ErrorLogLines;

directives! {
    pub struct CoreConf from CoreInput {
        /// Address and port, or path of a UNIX-domain socket, on which the server accepts connections or datagrams.
        listen: ValueList<Listens>,
        /// Names of the server, compared with the name in the TLS handshake (SNI): exact, with a wildcard, or a regular
        /// expression.
        server_name: ServerNames,
        /// Destination and minimum level of error messages.
        error_log: ErrorLogLines,
        /// Maximum number of bytes read in the preread phase.
        preread_buffer_size: Size = "16k",
        /// Maximum duration of the preread phase.
        preread_timeout: Msec = "30s",
        /// Maximum time to read a PROXY protocol header.
        proxy_protocol_timeout: Msec = "30s",
        /// Sets TCP_NODELAY on connections to clients and servers.
        tcp_nodelay: Flag = "on",
        /// Size of nginx's table of names. The value is checked and has no effect.
        server_names_hash_max_size: Number = "512",
        /// As `server_names_hash_max_size`.
        server_names_hash_bucket_size: Number = "64",
        /// Size of nginx's table of variables. The value is checked and has no effect.
        variables_hash_max_size: HashSize = "1024",
        /// As `variables_hash_max_size`.
        variables_hash_bucket_size: HashSize = "64",
    }
}
