//! Secrets of connections for programs that decrypt recorded traffic (`ssl_key_log`; draft-ietf-tls-keylogfile).

use std::fmt;
use std::sync::Arc;

/// Receives a line for each secret of a connection.
#[derive(Clone)]
pub struct KeyLog(Arc<dyn Fn(&[u8]) + Send + Sync>);

impl KeyLog {
    /// `write` takes complete lines, from any thread.
    pub fn new(write: impl Fn(&[u8]) + Send + Sync + 'static) -> KeyLog {
        KeyLog(Arc::new(write))
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLog")
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let [random, secret] = [client_random, secret].map(|bytes| crate::hex(bytes, b"0123456789abcdef"));
        (self.0)(format!("{label} {random} {secret}\n").as_bytes());
    }
}
