//! The directives of nginx's mail core module.

use crate::values::{Listens, ProtocolOf};
use conf_schema::directives;
use conf_schema::value::{List, Msec, Number, Text};
use observe::ErrorLogLines;

directives! {
    /// What the mail core module is told in a block.
    pub struct CoreConf from CoreInput {
        /// Sets an address and port, or a path of a UNIX-domain socket, on which the server takes connections.
        listen: List<Listens>,
        /// What is spoken on the server's addresses; without it the port says: 143 and 993 are IMAP, 110 and 995 POP3, 25, 465 and
        /// 587 SMTP.
        protocol: ProtocolOf,
        /// The name that greetings have, and salts, and that an SMTP server is told; without it that of the machine.
        server_name: Text = "\"\"",
        /// How long a client has for its login, and a server for its part in it.
        timeout: Msec = "60s",
        /// Invalid commands after which a connection is closed.
        max_errors: Number = "5",
        /// Where errors are logged, and how grave they must be.
        error_log: ErrorLogLines,
    }
}
