//! slice (nginx: `ngx_http_slice_filter_module`): fetches and caches a large response in equal slices. The request
//! fetches the first, subrequests the others in sequence as the client reads; `$slice_range` is the range to request.

use bytes::Bytes;
use conf_schema::value::Size;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::variable::Builtin;
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, Flow, Handler, LocalFuture, Piece, PlanOrder, Request, ResponseBody,
    subrequest,
};
use http_types::Known;
use http_upstream::slicing::Slice;
use observe::Severity;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

directives! {
    pub struct SliceConf from SliceInput {
        /// Fetches responses in slices of this size; 0: whole. `$slice_range` must be passed as `Range` and be part of
        /// the cache key.
        slice: Size = "0",
    }
}

pub struct SliceFeature;

static VARIABLES: &[Builtin] =
    &[Builtin::one("slice_range", slice_range, "Range of the requested slice: `bytes=0-1048575`.")];

impl Feature for SliceFeature {
    fn table(&self) -> FeatureTable {
        SliceConf::table("slice", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(size) = conf.downcast_ref::<SliceConf>().map(|conf| conf.slice.0).filter(|size| *size > 0) else {
            return Ok(());
        };
        if let Some(inner) = block.location.content.take() {
            block.location.extensions.push(Arc::new(SliceSize(size)));
            block.location.content = Some(Arc::new(SlicedBody { inner, size }));
        }
        Ok(())
    }
}

struct SliceSize(u64);

fn slice_range(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.ext::<Slice>().is_none() {
        let size = r.loc().ext::<SliceSize>().map_or(0, |size| size.0);
        if r.is_subrequest() || r.out.status() != 0 || size == 0 {
            return false;
        }
        let start = first_byte(r) / size * size;
        r.keep(Slice { start, size });
    }
    let Some(slice) = r.ext::<Slice>() else { return false };
    out.extend_from_slice(slice.range().as_bytes());
    true
}

/// Start of the requested range; 0 for several ranges, a suffix, or none.
fn first_byte(r: &Request) -> u64 {
    let Some(range) = r.header(Known::Range).filter(|_| r.header(Known::IfRange).is_none()) else { return 0 };
    let Some((unit, list)) = range.split_at_checked(6) else { return 0 };
    if !unit.eq_ignore_ascii_case(b"bytes=") || list.contains(&b',') {
        return 0;
    }
    let list = list.trim_ascii_start();
    let digits = list.iter().take_while(|c| c.is_ascii_digit()).count();
    let number = list.get(..digits).and_then(|n| std::str::from_utf8(n).ok()?.parse::<u64>().ok());
    number.filter(|n| *n <= i64::MAX as u64).unwrap_or(0)
}

struct SlicedBody {
    inner: Arc<dyn Handler>,
    size: u64,
}

impl Handler for SlicedBody {
    fn run(&self, r: &mut Request) -> Flow {
        if r.is_subrequest() {
            return self.inner.run(r);
        }
        let size = self.size;
        let flow = match self.inner.run(r) {
            Flow::Exchange(exchange) => Flow::Later(http_engine::exchange::later_exchange(exchange)),
            flow => flow,
        };
        match flow {
            Flow::Later(later) => Flow::Later(Box::new(move |r| {
                Box::pin(async move {
                    let (mut r, flow) = later(r).await;
                    let flow = match flow {
                        Flow::Content(body) => begin(&mut r, body, size).await,
                        flow => flow,
                    };
                    (r, flow)
                })
            })),
            Flow::Content(body) if r.ext::<Slice>().is_some() => Flow::Later(Box::new(move |mut r| {
                Box::pin(async move {
                    let flow = begin(&mut r, body, size).await;
                    (r, flow)
                })
            })),
            flow => flow,
        }
    }
}

/// Makes the first slice's head the whole response's.
async fn begin(r: &mut Request, body: ResponseBody, size: u64) -> Flow {
    let Some(slice) = r.ext::<Slice>().cloned() else { return Flow::Content(body) };
    if r.out.status() != 206 {
        r.take_ext::<Slice>();
        return Flow::Content(body);
    }
    let part = match ContentRange::of(r, slice.start, size) {
        Ok(part) => part,
        Err(words) => {
            say(r, &words);
            return Flow::Close;
        }
    };
    r.out.set_status(200);
    r.out.set_status_line(None);
    r.out.set_content_length(Some(part.complete));
    r.out.remove(b"Content-Range");
    r.out.remove(b"Accept-Ranges");
    r.out.set_accept_ranges(None);
    r.out.allow_ranges(true);
    let etag = r.out.etag().to_vec();
    let mut whole = Slices {
        size,
        etag,
        at: slice.start,
        slice_end: part.end,
        wanted: 0..part.complete,
        complete: part.complete,
        state: SliceState::First(body),
        gathered: Vec::new(),
    };
    // Like output below `postpone_output`, the head waits for the body.
    if r.header(Known::Range).is_none() && !r.is_head() {
        whole.wanted.start = slice.start;
        while (whole.gathered.len() as u64) < HELD_BYTES {
            match std::future::poll_fn(|cx| whole.poll_next(cx, r)).await {
                Some(Ok(piece)) => match piece.into_bytes() {
                    Ok(bytes) => whole.gathered.extend_from_slice(&bytes),
                    Err(_) => return Flow::Close,
                },
                None => break,
                Some(Err(BodyError)) => return Flow::Close,
            }
        }
    }
    Flow::Content(ResponseBody::Source(Box::new(whole)))
}

/// Logs the fault of a slice. nginx finds it while it handles the head.
fn say(r: &Request, words: &str) {
    match r.last_url() {
        Some(url) => {
            let words = format_args!("{words} while reading response header from upstream");
            r.log_of(Severity::Error, words, Some(&url));
        }
        None => r.log(Severity::Error, format_args!("{words}")),
    }
}

const HELD_BYTES: u64 = 1460;

/// Contents of `Content-Range`; `end` is exclusive.
#[derive(Debug, PartialEq, Eq)]
struct ContentRange {
    start: u64,
    end: u64,
    complete: u64,
}

impl ContentRange {
    /// Range of a response, if it is the requested one.
    fn of(r: &Request, start: u64, size: u64) -> Result<ContentRange, String> {
        let part = match r.out.field(b"Content-Range").map(ContentRange::read) {
            Some(Some((part, true))) => part,
            Some(Some((_, false))) => return Err("no complete length in slice response".into()),
            _ => return Err("invalid range in slice response".into()),
        };
        let end = (part.start.saturating_add(size)).min(part.complete);
        if part.start != start || part.end != end {
            return Err(format!(
                "unexpected range in slice response: {}-{}, expected: {start}-{end}",
                part.start, part.end
            ));
        }
        Ok(part)
    }
    fn read(text: &[u8]) -> Option<(ContentRange, bool)> {
        let mut rest = text.strip_prefix(b"bytes ")?;
        let number = |rest: &mut &[u8]| {
            *rest = rest.trim_ascii_start();
            let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
            let (n, after) = rest.split_at_checked(digits)?;
            let n = std::str::from_utf8(n).ok()?.parse::<u64>().ok().filter(|n| *n < i64::MAX as u64)?;
            *rest = after.trim_ascii_start();
            Some(n)
        };
        let start = number(&mut rest)?;
        rest = rest.strip_prefix(b"-")?;
        let end = number(&mut rest)? + 1;
        rest = rest.strip_prefix(b"/")?.trim_ascii_start();
        let (complete, known) = match rest.strip_prefix(b"*") {
            None => (number(&mut rest)?, true),
            Some(after) => {
                rest = after.trim_ascii_start();
                (0, false)
            }
        };
        rest.is_empty().then_some((ContentRange { start, end, complete }, known))
    }
}

struct Slices {
    size: u64,
    etag: Vec<u8>,
    /// Offset of the next byte, and the end of the current slice.
    at: u64,
    slice_end: u64,
    wanted: Range<u64>,
    complete: u64,
    state: SliceState,
    /// Body read before the head was sent.
    gathered: Vec<u8>,
}

enum SliceState {
    First(ResponseBody),
    Coming(LocalFuture<Option<(Box<Request>, ResponseBody)>>),
    Next(Box<Request>, ResponseBody),
    Between,
}

impl Slices {
    fn ask(&mut self, r: &mut Request) -> Result<(), BodyError> {
        let start = self.at.max(self.wanted.start / self.size * self.size);
        let Ok(mut copy) = r.copy() else { return Err(BodyError) };
        copy.answer_unchanged();
        copy.keep(Slice { start, size: self.size });
        self.at = start;
        self.state = SliceState::Coming(Box::pin(subrequest::run_to_head(copy)));
        Ok(())
    }
    fn come(&mut self, child: Box<Request>, body: ResponseBody) -> Result<(), BodyError> {
        let checked = if child.out.status() != 206 {
            Err(format!("unexpected status code {} in slice response", child.out.status()))
        } else if !self.etag.is_empty() && child.out.etag() != self.etag {
            Err("etag mismatch in slice response".into())
        } else {
            ContentRange::of(&child, self.at, self.size)
        };
        match checked {
            Ok(part) => {
                self.etag = child.out.etag().to_vec();
                self.slice_end = part.end;
                self.state = SliceState::Next(child, body);
                Ok(())
            }
            Err(words) => {
                say(&child, &words);
                Err(BodyError)
            }
        }
    }
    fn cut(&self, piece: Piece, start: u64) -> Option<Piece> {
        let end = start + piece.len();
        let (from, to) = (start.max(self.wanted.start), end.min(self.wanted.end));
        if from >= to {
            return None;
        }
        Some(match piece {
            Piece::Bytes(bytes) => Piece::Bytes(bytes.slice((from - start) as usize..(to - start) as usize)),
            Piece::File(mut part) => {
                part.start += from - start;
                part.length = to - from;
                Piece::File(part)
            }
            Piece::Flush => Piece::Flush,
        })
    }
    fn poll_next(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            let piece = match &mut self.state {
                SliceState::First(body) => ready!(body.poll_piece(cx, r)),
                SliceState::Next(child, body) => ready!(body.poll_piece(cx, child)),
                SliceState::Coming(coming) => {
                    let come = ready!(coming.as_mut().poll(cx));
                    self.state = SliceState::Between;
                    match come.ok_or(BodyError).and_then(|(child, body)| self.come(child, body)) {
                        Ok(()) => continue,
                        Err(e) => return Poll::Ready(Some(Err(e))),
                    }
                }
                SliceState::Between if self.at >= self.wanted.end => return Poll::Ready(None),
                SliceState::Between => match self.ask(r) {
                    Ok(()) => continue,
                    Err(e) => return Poll::Ready(Some(Err(e))),
                },
            };
            match piece {
                Some(Ok(piece)) => {
                    let start = self.at;
                    self.at += piece.len();
                    if self.at > self.slice_end {
                        return Poll::Ready(Some(Err(BodyError)));
                    }
                    if let Some(piece) = self.cut(piece, start) {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    // A short slice would shift everything after it.
                    if self.at != self.slice_end {
                        return Poll::Ready(Some(Err(BodyError)));
                    }
                    if let SliceState::Next(child, _) = std::mem::replace(&mut self.state, SliceState::Between) {
                        subrequest::log_subrequest(child);
                    }
                }
            }
        }
    }
}

impl BodySource for Slices {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if !self.gathered.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.gathered));
            return Poll::Ready(Some(Ok(Piece::Bytes(bytes))));
        }
        self.poll_next(cx, r)
    }
    fn window(&mut self, span: &Range<u64>) -> bool {
        if !self.gathered.is_empty() || span.end > self.complete {
            return false;
        }
        self.wanted = span.clone();
        true
    }
    fn needs_window(&self) -> bool {
        match &self.state {
            SliceState::First(body) | SliceState::Next(_, body) => self.gathered.is_empty() && body.needs_window(),
            SliceState::Coming(_) | SliceState::Between => false,
        }
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        match &mut self.state {
            SliceState::First(body) => body.poll_ahead(cx, r),
            SliceState::Next(child, body) => body.poll_ahead(cx, child),
            SliceState::Coming(_) | SliceState::Between => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        let part = |start, end, complete| Some((ContentRange { start, end, complete }, true));
        for (text, want) in [
            ("bytes 0-1/100", part(0, 2, 100)),
            ("bytes  0 - 1 / 100 ", part(0, 2, 100)),
            ("bytes 0-1/*", Some((ContentRange { start: 0, end: 2, complete: 0 }, false))),
            ("bytes", None),
            ("bytes 0-/1", None),
            ("bytes 0-1", None),
            ("bytes 0-1/", None),
            ("bytes 0-1/2x", None),
            ("bytes 99999999999999999999-1/2", None),
            ("items 0-1/2", None),
        ] {
            assert_eq!(ContentRange::read(text.as_bytes()), want, "{text}");
        }
    }
}
