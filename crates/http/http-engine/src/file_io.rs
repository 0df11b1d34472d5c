//! Reads of files that are not in memory: `aio`, `directio` and related directives (nginx: `ngx_http_core_module`).

use crate::request::Request;
pub use crate::values::{Aio, Directio, PoolsAsked};
use net::pool::{DEFAULT, Pool, find_pool};
use observe::Severity;
use std::sync::Arc;

/// Returns `None` if the current thread reads files itself.
pub fn file_pool(r: &mut Request) -> Option<Arc<Pool>> {
    let name = match &r.loc().core.conf.aio {
        Aio::Off => return None,
        Aio::Direct => return find_pool(DEFAULT),
        Aio::Threads(name) => name.clone(),
    };
    let name = name.eval(r);
    let name = String::from_utf8_lossy(&name);
    let found = find_pool(&name);
    if found.is_none() {
        r.log(Severity::Error, format_args!("thread pool \"{name}\" not found"));
    }
    found
}
