//! Ranges (nginx: `ngx_http_range_filter_module`; RFC 9110, 14).

use bytes::Bytes;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, FilePart, Filter, FilterOrder, Piece, Request, ResponseBody};
use http_types::{Known, Version};
use observe::clock::parse_http_time;
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range as Span;
use std::sync::Arc;

directives! {
    /// The filter has no directives of its own; `max_ranges` is the core's.
    pub struct RangeConf from RangeInput {
    }
}

pub struct Range;

impl Feature for Range {
    fn table(&self) -> FeatureTable {
        RangeConf::table("range", ContextArea::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        block.location.filters.push((FilterOrder::Range, Arc::new(Cut)));
        Ok(())
    }
}

struct Cut;

#[derive(Debug, PartialEq, Eq)]
enum WantedRanges {
    Whole,
    Parts(Vec<Span<u64>>),
    Unsatisfiable,
}

impl Filter for Cut {
    fn name(&self) -> &'static str {
        "range"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if !r.out.allows_ranges() || r.target.version() < Version::Http10 || r.out.status() != 200 {
            return Ok(body);
        }
        let Some(total) = r.out.content_length() else { return Ok(body) };
        let most = r.loc().core.conf.max_ranges.map_or(u64::MAX, |n| n.0);
        if most == 0 {
            return Ok(body);
        }
        // A streamed body supports one range; several ranges need a body in memory or in a file.
        let most = if r.out.is_single_range() || matches!(body, ResponseBody::Source(_)) { 1 } else { most };
        let Some(range) = r.header(Known::Range) else {
            r.out.offer_ranges();
            return Ok(body);
        };
        if !if_range_holds(r) {
            r.out.offer_ranges();
            return Ok(body);
        }
        match parse(range, total, most) {
            WantedRanges::Whole => {
                r.out.offer_ranges();
                Ok(body)
            }
            WantedRanges::Unsatisfiable => {
                r.out.remove(b"Content-Range");
                r.out.add("Content-Range", format!("bytes */{total}").into_bytes());
                Err(416)
            }
            // A streamed body cannot be sent in parts.
            WantedRanges::Parts(parts) if parts.len() > 1 && matches!(body, ResponseBody::Source(_)) => Ok(body),
            WantedRanges::Parts(parts) => Ok(partial(r, body, &parts, total)),
        }
    }
}

/// `If-Range`: a date equal to the file's, or its strong tag.
fn if_range_holds(r: &Request) -> bool {
    let Some(value) = r.header(Known::IfRange) else { return true };
    if value.len() >= 2 && value.ends_with(b"\"") {
        return !r.out.etag().is_empty() && r.out.etag() == value && !value.starts_with(b"W/");
    }
    r.out.last_modified().is_some() && parse_http_time(value) == r.out.last_modified()
}

fn parse(header: &[u8], total: u64, most: u64) -> WantedRanges {
    let Some((unit, list)) = header.split_at_checked(6) else { return WantedRanges::Whole };
    // As nginx: a unit without a list is no range.
    if !unit.eq_ignore_ascii_case(b"bytes=") || list.is_empty() {
        return WantedRanges::Whole;
    }
    let mut parts: Vec<Span<u64>> = Vec::new();
    let mut sum: u64 = 0;
    let mut left = most;
    for item in list.split(|c| *c == b',') {
        let item = item.trim_ascii();
        let mut ends = item.splitn(2, |c| *c == b'-').map(<[u8]>::trim_ascii);
        let (Some(first), Some(last)) = (ends.next(), ends.next()) else { return WantedRanges::Unsatisfiable };
        let number = |text: &[u8]| -> Option<u64> {
            (!text.is_empty() && text.iter().all(u8::is_ascii_digit))
                .then(|| std::str::from_utf8(text).ok()?.parse::<u64>().ok().filter(|n| *n <= i64::MAX as u64))
                .flatten()
        };
        let (start, end) = match (first.is_empty(), last.is_empty()) {
            (true, true) => return WantedRanges::Unsatisfiable,
            (true, false) => {
                let Some(n) = number(last) else { return WantedRanges::Unsatisfiable };
                (total.saturating_sub(n), total)
            }
            (false, true) => match number(first) {
                Some(start) => (start, total),
                None => return WantedRanges::Unsatisfiable,
            },
            (false, false) => match (number(first), number(last)) {
                (Some(start), Some(last)) => (start, last.saturating_add(1).min(total)),
                _ => return WantedRanges::Unsatisfiable,
            },
        };
        if start < end {
            if left == 0 {
                return WantedRanges::Whole;
            }
            left -= 1;
            sum = sum.saturating_add(end - start);
            parts.push(start..end);
        } else if start == 0 {
            // An empty body has no parts, and any suffix covers it (RFC 9110, 14.1.2).
            return WantedRanges::Whole;
        }
    }
    if parts.is_empty() {
        return WantedRanges::Unsatisfiable;
    }
    // Ranges that exceed the whole in sum are served as the whole.
    if sum > total {
        return WantedRanges::Whole;
    }
    WantedRanges::Parts(parts)
}

fn partial(r: &mut Request, body: ResponseBody, parts: &[Span<u64>], total: u64) -> ResponseBody {
    r.out.set_status(206);
    r.out.set_status_line(None);
    r.out.remove(b"Content-Range");
    if let [one] = parts {
        r.out.set_content_length(Some(one.end - one.start));
        r.out.add("Content-Range", format!("bytes {}-{}/{total}", one.start, one.end - 1).into_bytes());
        return cut(body, one);
    }
    let boundary = format!("{:020}", u64::from_le_bytes(first_eight(net::random::bytes16())));
    let mut media = r.out.content_type().to_vec();
    if !r.out.charset().is_empty() {
        media.extend_from_slice(b"; charset=");
        media.extend_from_slice(r.out.charset());
    }
    let type_line =
        if media.is_empty() { String::new() } else { format!("Content-Type: {}\r\n", String::from_utf8_lossy(&media)) };
    let mut pieces = VecDeque::new();
    let mut length = 0;
    let mut source = RangeSource::new(body);
    for part in parts {
        let head = format!(
            "\r\n--{boundary}\r\n{type_line}Content-Range: bytes {}-{}/{total}\r\n\r\n",
            part.start,
            part.end - 1
        );
        length += head.len() as u64 + (part.end - part.start);
        pieces.push_back(Piece::Bytes(Bytes::from(head)));
        pieces.extend(source.part(part));
    }
    let tail = format!("\r\n--{boundary}--\r\n");
    length += tail.len() as u64;
    pieces.push_back(Piece::Bytes(Bytes::from(tail)));
    r.out.set_content_type(format!("multipart/byteranges; boundary={boundary}").into_bytes());
    r.out.set_charset(http_engine::Str::default());
    r.out.set_content_length(Some(length));
    ResponseBody::Pieces(pieces)
}

fn first_eight(bytes: [u8; 16]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[..8]);
    out
}

struct RangeSource(ResponseBody);

impl RangeSource {
    fn new(body: ResponseBody) -> RangeSource {
        RangeSource(body)
    }
    fn part(&mut self, span: &Span<u64>) -> Vec<Piece> {
        match &self.0 {
            ResponseBody::Bytes(b) => {
                vec![Piece::Bytes(b.slice(span.start as usize..(span.end as usize).min(b.len())))]
            }
            ResponseBody::File(f) => vec![Piece::File(FilePart {
                file: f.file.clone(),
                start: f.start + span.start,
                length: span.end - span.start,
            })],
            ResponseBody::Pieces(all) => {
                let mut at = 0;
                let mut out = Vec::new();
                for piece in all {
                    let (start, end) = (at.max(span.start), (at + piece.len()).min(span.end));
                    if start < end {
                        out.push(match piece {
                            Piece::Bytes(b) => Piece::Bytes(b.slice((start - at) as usize..(end - at) as usize)),
                            Piece::File(f) => Piece::File(FilePart {
                                file: f.file.clone(),
                                start: f.start + (start - at),
                                length: end - start,
                            }),
                            Piece::Flush => Piece::Flush,
                        });
                    }
                    at += piece.len();
                }
                out
            }
            // Bodies of unknown length have no ranges.
            ResponseBody::Empty | ResponseBody::Source(_) => Vec::new(),
        }
    }
}

fn cut(body: ResponseBody, span: &Span<u64>) -> ResponseBody {
    match body {
        ResponseBody::Source(mut source) => match source.window(span) {
            true => ResponseBody::Source(source),
            false => ResponseBody::Source(Box::new(Window { source, at: 0, span: span.clone() })),
        },
        body => {
            let mut parts = RangeSource::new(body).part(span);
            match (parts.len(), parts.pop()) {
                (1, Some(Piece::Bytes(b))) => ResponseBody::Bytes(b),
                (1, Some(Piece::File(f))) => ResponseBody::File(f),
                (_, Some(last)) => ResponseBody::Pieces(parts.into_iter().chain([last]).collect()),
                (_, None) => ResponseBody::Empty,
            }
        }
    }
}

struct Window {
    source: Box<dyn http_engine::BodySource>,
    at: u64,
    span: Span<u64>,
}

impl http_engine::BodySource for Window {
    fn poll_piece(
        &mut self,
        cx: &mut std::task::Context<'_>,
        r: &mut Request,
    ) -> std::task::Poll<Option<Result<Piece, http_engine::BodyError>>> {
        loop {
            if self.at >= self.span.end {
                return std::task::Poll::Ready(None);
            }
            let piece = match std::task::ready!(self.source.poll_piece(cx, r)) {
                Some(Ok(piece)) => piece,
                other => return std::task::Poll::Ready(other),
            };
            let length = piece.len();
            let whole = self.at..self.at + length;
            self.at += length;
            let (start, end) = (whole.start.max(self.span.start), whole.end.min(self.span.end));
            if start < end || matches!(piece, Piece::Flush) {
                let body = ResponseBody::Pieces(VecDeque::from([piece]));
                let inner = start.saturating_sub(whole.start)..end.saturating_sub(whole.start);
                if let Some(piece) = RangeSource::new(body).part(&inner).pop() {
                    return std::task::Poll::Ready(Some(Ok(piece)));
                }
            }
        }
    }
    fn needs_window(&self) -> bool {
        self.at < self.span.end && self.source.needs_window()
    }
    fn poll_ahead(&mut self, cx: &mut std::task::Context<'_>, r: &mut Request) {
        self.source.poll_ahead(cx, r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_nginx_reads_them() {
        let one = |start, end| WantedRanges::Parts(std::iter::once(start..end).collect());
        for (header, want) in [
            ("bytes=0-8", one(0, 9)),
            ("bytes=-10", one(90, 100)),
            ("bytes=10-", one(10, 100)),
            ("bytes=0-8,10-", WantedRanges::Parts(vec![0..9, 10..100])),
            ("bytes=99-1000", one(99, 100)),
            ("bytes=100-", WantedRanges::Unsatisfiable),
            ("bytes=8-2", WantedRanges::Unsatisfiable),
            ("bytes=", WantedRanges::Whole),
            ("bytes=x-", WantedRanges::Unsatisfiable),
            ("bytes=-", WantedRanges::Unsatisfiable),
            ("items=0-1", WantedRanges::Whole),
            ("bytes=0-,0-", WantedRanges::Whole),
            ("bytes=-1000", one(0, 100)),
            ("Bytes = 0-1", WantedRanges::Whole),
            ("bytes= 1 - 2 ", one(1, 3)),
        ] {
            assert_eq!(parse(header.as_bytes(), 100, u64::MAX), want, "{header}");
        }
        assert_eq!(parse(b"bytes=0-0,2-2", 100, 1), WantedRanges::Whole);
        for header in ["bytes=0-", "bytes=0-5", "bytes=-5", "bytes=-0", "bytes=0-0,-1"] {
            assert_eq!(parse(header.as_bytes(), 0, u64::MAX), WantedRanges::Whole, "{header} of an empty file");
        }
        assert_eq!(parse(b"bytes=1-", 0, u64::MAX), WantedRanges::Unsatisfiable);
    }
}
