//! Dead properties (RFC 4918, 4.1), stored in an extended attribute of the file or directory: NUL-terminated names and
//! values.

use super::xml::PropertyName;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use std::io;
use std::path::Path;

const ATTRIBUTE: &str = "user.tidegate.dav";
/// The kernel's limit of an attribute's bytes; most file systems have a lower one.
const BYTES_MAX: usize = 65_536;

pub type Property = (PropertyName, Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyChange {
    Set(PropertyName, Vec<u8>),
    Remove(PropertyName),
}

impl PropertyChange {
    pub fn name(&self) -> &PropertyName {
        match self {
            PropertyChange::Set(name, _) | PropertyChange::Remove(name) => name,
        }
    }
}

fn attribute(path: &Path) -> Vec<u8> {
    // Most fit into the smaller buffer.
    for most in [4096, BYTES_MAX] {
        let mut bytes = vec![0; most];
        match getxattr(path, ATTRIBUTE, &mut bytes[..]) {
            Ok(length) => {
                bytes.truncate(length);
                return bytes;
            }
            Err(rustix::io::Errno::RANGE) => {}
            Err(_) => break,
        }
    }
    Vec::new()
}

pub fn read_properties(path: &Path) -> Vec<Property> {
    let bytes = attribute(path);
    let mut parts = bytes.split(|c| *c == 0);
    let mut out = Vec::new();
    while let (Some(namespace), Some(local), Some(value)) = (parts.next(), parts.next(), parts.next()) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        out.push((PropertyName { namespace: text(namespace), local: text(local) }, value.to_vec()));
    }
    out
}

/// Changes all properties or none. Fails with ENOSPC when there are too many.
pub fn change_properties(path: &Path, changes: Vec<PropertyChange>) -> io::Result<()> {
    let mut all = read_properties(path);
    for change in changes {
        all.retain(|(name, _)| name != change.name());
        if let PropertyChange::Set(name, value) = change {
            all.push((name, value));
        }
    }
    let mut bytes = Vec::new();
    for (name, value) in &all {
        for part in [name.namespace.as_bytes(), name.local.as_bytes(), value] {
            bytes.extend_from_slice(part);
            bytes.push(0);
        }
    }
    store(path, &bytes)
}

fn store(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    if bytes.is_empty() {
        return match removexattr(path, ATTRIBUTE) {
            Err(rustix::io::Errno::NODATA) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        };
    }
    Ok(setxattr(path, ATTRIBUTE, bytes, XattrFlags::empty())?)
}

pub fn copy_properties(from: &Path, to: &Path) -> io::Result<()> {
    let bytes = attribute(from);
    if bytes.is_empty() { Ok(()) } else { store(to, &bytes) }
}
