//! Parts of the servers of this crate.

use std::path::{Component, Path};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The command line of all servers: ADDRESS ROOT CERTIFICATE KEY.
pub struct Arguments {
    pub address: String,
    pub root: String,
    pub certificate: String,
    pub key: String,
}

impl Arguments {
    /// Fails with a usage message.
    pub fn read() -> Result<Arguments, Failure> {
        let arguments: Result<[String; 4], _> = std::env::args().skip(1).collect::<Vec<_>>().try_into();
        let [address, root, certificate, key] = arguments.map_err(|_| "arguments: ADDRESS ROOT CERTIFICATE KEY")?;
        Ok(Arguments { address, root, certificate, key })
    }
}

/// Reads the file of a path below the root. Servers call this function for each request.
pub fn file(root: &Path, path: &str) -> Option<Vec<u8>> {
    let path = Path::new(path.trim_start_matches('/'));
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_inside.then(|| std::fs::read(root.join(path)).ok()).flatten()
}
