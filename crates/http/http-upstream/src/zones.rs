//! Zones of the http area: named state, shared by all threads of the process and kept across reloads.

use conf_schema::{Cx, Problem};
use http_engine::HttpArea;
use std::sync::Arc;

pub use session_engine::zones::{declare, name_and_size, state, taken};

/// A declared zone of the http area.
pub type Declared<T> = session_engine::zones::Declared<HttpArea, T>;

/// Declared zone, after the whole configuration. Fails if undeclared or of another kind.
pub fn find<T: Send + Sync + 'static>(cx: &mut Cx, kind: &str, name: &str) -> Result<Arc<Declared<T>>, Problem> {
    session_engine::zones::find(cx, kind, name)
}
