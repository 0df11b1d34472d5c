//! The directives of nginx's mail core module.

use crate::values::{Listens, ProtocolOf};
use conf_schema::directives;
use conf_schema::value::{Msec, Number, Text, ValueList};
use observe::ErrorLogLines;

directives! {
    pub struct CoreConf from CoreInput {
        /// Address and port, or path of a UNIX-domain socket, on which the server accepts connections.
        listen: ValueList<Listens>,
        /// Protocol of the server. By default, it is derived from the port: 143 and 993 IMAP, 110 and 995 POP3, 25, 465
        /// and 587 SMTP.
        protocol: ProtocolOf,
        /// Name in greetings, in the salt of digests, and in commands to SMTP servers; by default the machine's name.
        server_name: Text = "\"\"",
        /// Maximum time for the client's login, and for each step of the login at the mail server.
        timeout: Msec = "60s",
        /// Number of invalid commands after which the connection is closed.
        max_errors: Number = "5",
        /// Destination and minimum level of error messages.
        error_log: ErrorLogLines,
    }
}
