//! Body of WebDAV's fuzz target: panics when an invariant fails.

use super::condition::{self, StateToken, token_text};
use super::xml;

pub fn dav(data: &[u8]) {
    for list in condition::parse_if(data).unwrap_or_default() {
        assert!(!list.conditions.is_empty());
        for condition in list.conditions {
            if let StateToken::Token(token) = condition.state {
                assert_eq!(condition::parse_token(token_text(&token).as_bytes()), Some(token));
            }
        }
    }
    let _ = (xml::parse_propfind(data), xml::parse_proppatch(data));
    if let Some(info) = xml::lock_info(data) {
        // The client's owner text must not close the element around it.
        let wrapped = [b"<o xmlns:D=\"DAV:\">".as_slice(), &info.owner, b"</o>"].concat();
        let text = String::from_utf8(wrapped).unwrap_or_default();
        assert!(roxmltree::Document::parse(&text).is_ok(), "{text}");
    }
}
