//! Zones of the http area: named state, shared by all threads of the process and kept across reloads.

use conf_schema::{Cx, Problem};
use http_engine::HttpArea;
use std::sync::Arc;

pub use area::zones::{declare_zone, name_and_size, name_taken, zone_state};

/// A declared zone of the http area.
pub type HttpZone<T> = area::zones::DeclaredZone<HttpArea, T>;

/// Declared zone, after the whole configuration. Fails if undeclared or of another kind.
pub fn find_zone<T: Send + Sync + 'static>(cx: &mut Cx, kind: &str, name: &str) -> Result<Arc<HttpZone<T>>, Problem> {
    area::zones::find_zone(cx, kind, name)
}
