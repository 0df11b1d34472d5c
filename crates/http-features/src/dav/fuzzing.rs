//! The bodies of the fuzz targets of WebDAV: any bytes in, a panic when a belief does not hold.

use super::condition::{self, State, token_text};
use super::xml;

/// An `If` field, and the bodies of PROPFIND and LOCK.
pub fn dav(data: &[u8]) {
    for list in condition::parse(data).unwrap_or_default() {
        assert!(!list.conditions.is_empty());
        for condition in list.conditions {
            if let State::Token(token) = condition.state {
                assert_eq!(condition::token(token_text(&token).as_bytes()), Some(token));
            }
        }
    }
    let _ = (xml::propfind(data), xml::proppatch(data));
    if let Some(info) = xml::lock_info(data) {
        // What a client said of itself must not be able to end the element that it is sent in.
        let wrapped = [b"<o xmlns:D=\"DAV:\">".as_slice(), &info.owner, b"</o>"].concat();
        let text = String::from_utf8(wrapped).unwrap_or_default();
        assert!(roxmltree::Document::parse(&text).is_ok(), "{text}");
    }
}
