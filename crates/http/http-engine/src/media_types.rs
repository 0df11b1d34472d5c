//! Lists of media types (`charset_types`, `gzip_types`, ...).

use conf_schema::{Cx, Directive, Problem};
use std::collections::HashSet;
use std::sync::Arc;

/// Always includes `text/html`, or the default of `parse_beside`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    any: bool,
    types: Arc<HashSet<Vec<u8>>>,
    always: &'static str,
}

impl MediaTypes {
    /// Never fails; the signature is every parser's.
    pub fn parse(cx: &mut Cx, d: &Directive) -> Result<MediaTypes, Problem> {
        MediaTypes::parse_beside("text/html", cx, d)
    }
    /// Parses a list that always includes `always`. Never fails.
    pub fn parse_beside(always: &'static str, cx: &mut Cx, d: &Directive) -> Result<MediaTypes, Problem> {
        let mut types = HashSet::from([always.as_bytes().to_vec()]);
        let mut any = false;
        let default = d.args.first().is_some_and(|w| w.span.file.0 == u32::MAX);
        for word in &d.args {
            let lower = word.bytes.to_ascii_lowercase();
            if lower == b"*" {
                any = true;
            } else if !types.insert(lower) && !default {
                cx.warn(d, format!("duplicate MIME type \"{}\"", word.text()));
            }
        }
        Ok(MediaTypes { any, types: Arc::new(types), always })
    }
    /// Adds the types of a later line of the block.
    pub fn join(&mut self, later: &MediaTypes) {
        self.any |= later.any;
        let mut types = (*self.types).clone();
        types.extend(later.types.iter().cloned());
        self.types = Arc::new(types);
    }
    /// Warns of types that an earlier line of the block has. `always` is in every list.
    pub fn warn_of_duplicates(&self, later: &MediaTypes, cx: &mut Cx, d: &Directive) {
        for word in &d.args {
            let lower = word.bytes.to_ascii_lowercase();
            if lower != self.always.as_bytes() && self.types.contains(&lower) && later.types.contains(&lower) {
                cx.warn(d, format!("duplicate MIME type \"{}\"", word.text()));
            }
        }
    }
    /// Ignores parameters of the `Content-Type`.
    pub fn has(&self, content_type: &[u8]) -> bool {
        if self.any {
            return true;
        }
        let media = content_type.split(|c| *c == b';').next().unwrap_or_default().trim_ascii_end();
        self.types.contains(media) || self.types.contains(&media.to_ascii_lowercase())
    }
}
