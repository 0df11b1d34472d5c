//! Files that stylesheets and documents refer to. Nothing is fetched over the network, as in nginx (`XML_PARSE_NONET`).

use conf_schema::store::TextStore;
use http_engine::path::unescape_path;
use net::pool::ResultInterest;
use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use xslt::xml::{INPUT_MAX, Loader};

/// The path of a reference; an error for other schemes than `file`.
pub(super) fn path_of(uri: &str) -> Result<PathBuf, String> {
    let path = match uri.strip_prefix("file://") {
        Some(rest) => {
            let mut path = Vec::new();
            unescape_path(rest.strip_prefix("localhost").unwrap_or(rest).as_bytes(), &mut path);
            Cow::Owned(String::from_utf8_lossy(&path).into_owned())
        }
        None if uri.contains("://") => return Err("network access is not supported".into()),
        None => Cow::Borrowed(uri),
    };
    Ok(PathBuf::from(path.as_ref()))
}

/// Files of a configuration, which a test on another machine replays.
pub(super) struct ConfigFiles<'s>(pub &'s mut TextStore);

impl Loader for ConfigFiles<'_> {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        let path = path_of(uri)?;
        self.0.read(&path).map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())
    }
}

/// Files that a transformation reads (`document()`, external entities), as long as its client waits.
pub(super) struct DocumentFiles<'w>(pub &'w ResultInterest<'w>);

impl Loader for DocumentFiles<'_> {
    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        read(&path_of(uri)?).map_err(|error| error.to_string())
    }
}

/// Regular files alone: a pipe would hold the thread.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    conf_syntax::open_regular(path)?.take(INPUT_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
