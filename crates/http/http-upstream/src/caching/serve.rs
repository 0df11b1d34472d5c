//! Responds with stored entries.

use super::{CachePlan, Respond};
use cache::{Content, StoredEntry};
use http_engine::response::OpenFile;
use http_engine::{FilePart, Flow, Piece, Request, ResponseBody};
use http_types::{Known, ResponseHead};
use std::rc::Rc;
use std::sync::Arc;
use wire_h1::{HeadLimits, ParseProgress, ResponseParser};

/// Returns the parsed head of an entry, which is parsed once; `None`: it is malformed.
pub fn parsed_head(stored: &StoredEntry) -> Option<&ResponseHead> {
    let digest = stored.digest.get_or_init(|| {
        let limits = HeadLimits {
            line_max: stored.head.len() + 1,
            field_max: stored.head.len() + 1,
            total_max: stored.head.len() + 1,
            fields_max: usize::MAX,
            underscores: true,
            ignore_invalid: true,
        };
        let mut head = ResponseHead::default();
        let whole = ResponseParser::default().parse(&stored.head, &limits, &mut head);
        Box::new(matches!(whole, Ok(ParseProgress::Done { .. })).then_some(head))
    });
    digest.downcast_ref::<Option<ResponseHead>>()?.as_ref()
}

/// Fills the response from an entry. `None`: unusable, without changes. `at_once`: requires a body that leaves with the
/// head.
pub fn answer_stored(
    caching: &CachePlan,
    r: &mut Request,
    stored: &Arc<StoredEntry>,
    give: Respond<'_>,
    at_once: bool,
) -> Option<Flow> {
    let head = parsed_head(stored)?;
    let body = match &stored.content {
        Content::Memory(bytes) if bytes.is_empty() => ResponseBody::Empty,
        Content::Memory(bytes) if at_once => ResponseBody::Bytes(bytes.clone()),
        Content::Memory(bytes) => ResponseBody::Pieces([Piece::Bytes(bytes.clone())].into()),
        Content::File(_) if stored.body_len == 0 => ResponseBody::Empty,
        Content::File(file) => {
            let size = stored.body_start + stored.body_len;
            let file =
                OpenFile { file: file.clone(), size, modified: 0, inode: stored.inode, device: 0, content: None };
            ResponseBody::File(FilePart { file: Rc::new(file), start: stored.body_start, length: stored.body_len })
        }
    };
    if let Some(flow) = give(r, head, &stored.head) {
        return Some(flow);
    }
    // A stored response to HEAD announces a body that it does not have.
    let announced = head.fields.first(Known::ContentLength).map(|v| v.of(&stored.head));
    let announced = announced.and_then(|v| std::str::from_utf8(v).ok()?.trim().parse().ok());
    r.out.set_content_length(Some(announced.filter(|_| stored.body_len == 0).unwrap_or(stored.body_len)));
    allow_ranges(caching, r, head);
    r.reply.ignore_conditions(false);
    r.reply.set_etag_alone(caching.rfc9111);
    if caching.rfc9111 {
        super::rfc::drop_connection_fields(r, head, &stored.head);
        let age = (base::clock::unix_seconds() - stored.meta.date).max(0) + stored.meta.age;
        r.out.remove(b"Age");
        r.out.add("Age", age.to_string().into_bytes());
        if let Some(date) = head.fields.first(Known::Date) {
            r.out.set_date(date.of(&stored.head).to_vec());
        }
    }
    Some(Flow::Content(body))
}

/// Serves ranges of a stored response, if the upstream supports ranges; by RFC 9111 regardless of the upstream.
pub fn allow_ranges(caching: &CachePlan, r: &mut Request, head: &ResponseHead) {
    if head.fields.first(Known::AcceptRanges).is_some() || (caching.rfc9111 && head.status == 200) {
        r.out.remove(b"Accept-Ranges");
        r.out.set_accept_ranges(None);
        r.out.allow_ranges(true);
    }
}
