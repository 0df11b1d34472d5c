//! Zones of the http area: named state that all threads of the process share and that outlives a reload.

use conf_schema::{Cx, Problem};
use http_engine::Request;
use std::sync::Arc;

pub use session_engine::zones::{declare, name_and_size, state};

/// A zone as a directive declares it.
pub type Declared<T> = session_engine::zones::Declared<Request, T>;

/// A declared zone, once the whole configuration was read.
///
/// # Errors
/// nginx's words for a zone that nobody declared, or that is of another kind.
pub fn find<T: Send + Sync + 'static>(cx: &mut Cx, kind: &str, name: &str) -> Result<Arc<Declared<T>>, Problem> {
    session_engine::zones::find(cx, kind, name)
}
