//! Reports readiness to a supervisor (systemd's `Type=notify`): one datagram to its socket.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells whether another process may become the main one: a service manager is told, and the end of this process is not
/// that of a container.
pub fn accepts_successor() -> bool {
    std::env::var_os(VARIABLE).is_some() && std::process::id() != 1
}

/// Returns the variable for a new binary, which the service manager supervises after this process.
pub fn for_new_binary() -> Option<(&'static str, OsString)> {
    std::env::var_os(VARIABLE).map(|path| (VARIABLE, path))
}

/// Sends a state such as `READY=1` to the service manager, if there is one.
pub fn tell_supervisor(state: &str) {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
