//! Runs a program while its output is pulled, so that a slow client slows it.

use super::program::{DUPLICATE_BYTES_MAX, Op, parse_seconds};
use super::variables::{LoopItem, Timer};
use bytes::Bytes;
use http_engine::path::CanonicalPath;
use http_engine::subrequest::{self, BodyStream};
use http_engine::{BodyError, BodySource, Filter, Flow, Handler, HttpTemplate, Piece, Request, ResponseBody};
use http_upstream::body_store::{self, BodyStore};
use observe::Severity;
use runtime::time::Sleep;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

const ITEMS_MAX: usize = 10_000;

pub struct EchoAnswer {
    pub program: Arc<[Op]>,
    pub status: u16,
}

impl Handler for EchoAnswer {
    fn run(&self, r: &mut Request) -> Flow {
        let reads = self.program.iter().any(|op| matches!(op, Op::ReadBody));
        let (program, status) = (self.program.clone(), self.status);
        if !reads {
            return begin(r, program, status);
        }
        // Reads the body first, so that exceeding its limit can still be answered with an error.
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match body_store::read_body(&mut r).await {
                    Ok(_) => begin(&mut r, program, status),
                    Err(status) => Flow::Status(status),
                };
                (r, flow)
            })
        }))
    }
}

/// Sends the head, or runs `echo_exec` when nothing was sent, after pauses before it.
fn begin(r: &mut Request, program: Arc<[Op]>, status: u16) -> Flow {
    let is_silent = |op: &&Op| matches!(op, Op::ReadBody | Op::ResetTimer | Op::Flush | Op::Sleep(_));
    if let Some(at) = program.iter().position(|op| !is_silent(&op))
        && let Some(Op::Exec { path, args }) = program.get(at)
    {
        let times: Vec<_> =
            program.iter().take(at).filter_map(|op| if let Op::Sleep(time) = op { Some(time) } else { None }).collect();
        if times.is_empty() {
            return exec(r, path, args.as_ref());
        }
        let mut pause = std::time::Duration::ZERO;
        for time in times {
            let Some(time) = parse_seconds(&time.eval(r)) else {
                r.log(Severity::Error, format_args!("echo_sleep: invalid time"));
                return Flow::Status(500);
            };
            pause += time;
        }
        return Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let watch = r.incoming.watch().cloned();
                let gone = std::future::poll_fn(|cx| match &watch {
                    Some(watch) => watch.poll_gone(cx),
                    None => Poll::Pending,
                });
                if runtime::time::with_timeout(pause, gone).await.is_ok() {
                    return (r, Flow::Status(499));
                }
                let flow = match program.get(at) {
                    Some(Op::Exec { path, args }) => exec(&mut r, path, args.as_ref()),
                    _ => Flow::Status(500),
                };
                (r, flow)
            })
        }));
    }
    r.out.set_status(status);
    r.set_content_type();
    if r.is_head() {
        return Flow::Content(ResponseBody::Empty);
    }
    let run = EchoRun { program, at: 0, queue: VecDeque::new(), waits: Waits::No, items: None, sent: 0 };
    Flow::Content(ResponseBody::Source(Box::new(run)))
}

/// Continues in another location.
fn exec(r: &mut Request, path: &HttpTemplate, args: Option<&HttpTemplate>) -> Flow {
    let (path, args) = target(r, path, args);
    if path.starts_with(b"@") {
        if !args.is_empty() {
            let (args, name) = (String::from_utf8_lossy(&args), String::from_utf8_lossy(&path));
            r.log(Severity::Error, format_args!("query strings {args} ignored when exec'ing named location {name}"));
        }
        return Flow::Named(path);
    }
    if !local(r, &path) {
        return Flow::Status(500);
    }
    match CanonicalPath::made(path) {
        Ok(path) => Flow::Redirect { path, args, internal: true },
        Err(_) => Flow::Status(400),
    }
}

/// Returns path and arguments of a URI; arguments in the URI apply if there are no others.
fn target(r: &mut Request, path: &HttpTemplate, args: Option<&HttpTemplate>) -> (Vec<u8>, Vec<u8>) {
    let mut path = path.eval(r);
    let own = path.iter().position(|c| *c == b'?').map(|at| path.split_off(at));
    let args = match (args, own) {
        (Some(args), _) => args.eval(r),
        (None, Some(own)) => own.get(1..).unwrap_or_default().to_vec(),
        (None, None) => Vec::new(),
    };
    (path, args)
}

/// Tells whether a path is local: absolute and without escapes upwards.
fn local(r: &Request, path: &[u8]) -> bool {
    let safe = path.first() == Some(&b'/')
        && !path.contains(&0)
        && !path.split(|c| *c == b'/').any(|part| part == b".." || part == b".");
    if !safe {
        r.log(Severity::Error, format_args!("echo: unsafe uri \"{}\"", String::from_utf8_lossy(path)));
    }
    safe
}

enum Waits {
    No,
    Time(Sleep),
    Location(BodyStream),
}

struct Items {
    all: Vec<Vec<u8>>,
    next: usize,
}

struct EchoRun {
    program: Arc<[Op]>,
    at: usize,
    queue: VecDeque<Piece>,
    waits: Waits,
    items: Option<Items>,
    /// Octets of the request body sent by `SendBody`.
    sent: u64,
}

fn say(r: &mut Request, words: &[HttpTemplate], line_end: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        word.write(r, &mut out);
    }
    if line_end {
        out.push(b'\n');
    }
    out
}

impl EchoRun {
    /// `Ok(false)` at the end.
    fn step(&mut self, r: &mut Request) -> Result<bool, BodyError> {
        let program = self.program.clone();
        let Some(op) = program.get(self.at) else { return Ok(false) };
        self.at += 1;
        let mut text = Vec::new();
        match op {
            Op::Say(words, line_end) => text = say(r, words, *line_end),
            Op::Duplicate(count, one) => {
                let one = one.eval(r);
                if count.saturating_mul(one.len() as u64) > DUPLICATE_BYTES_MAX {
                    r.log(Severity::Error, format_args!("echo_duplicate: more than {DUPLICATE_BYTES_MAX} bytes"));
                    return Err(BodyError);
                }
                text = one.repeat(usize::try_from(*count).unwrap_or(0));
            }
            Op::Flush => self.queue.push_back(Piece::Flush),
            Op::Sleep(time) => match parse_seconds(&time.eval(r)) {
                Some(time) => {
                    self.queue.push_back(Piece::Flush);
                    self.waits = Waits::Time(runtime::time::sleep_for(time));
                }
                None => {
                    r.log(Severity::Error, format_args!("echo_sleep: invalid time"));
                    return Err(BodyError);
                }
            },
            Op::ResetTimer => r.keep(Timer(base::clock::now())),
            // Done before the head was sent.
            Op::ReadBody => {}
            Op::SendBody => {
                if let Some(store) = r.shared::<BodyStore>()
                    && self.sent < store.len()
                {
                    let bytes = store.read_at(self.sent).map_err(|_| BodyError)?;
                    if bytes.is_empty() {
                        return Err(BodyError);
                    }
                    self.sent += bytes.len() as u64;
                    self.queue.push_back(Piece::Bytes(bytes.into()));
                    // Continues once this part is taken.
                    self.at -= 1;
                } else {
                    self.sent = 0;
                }
            }
            Op::Location { path, args } => {
                let (path, args) = target(r, path, args.as_ref());
                if !local(r, &path) {
                    return Err(BodyError);
                }
                let path = CanonicalPath::made(path).map_err(|_| BodyError)?;
                let child = r.subrequest(path, args).map_err(|_| BodyError)?;
                self.waits = Waits::Location(subrequest::start_stream(child));
            }
            Op::Each { delimiter, list, end } => {
                let (delimiter, list) = (delimiter.eval(r), list.eval(r));
                let all = split(&list, &delimiter);
                if all.len() > ITEMS_MAX {
                    r.log(Severity::Error, format_args!("echo_foreach_split: more than {ITEMS_MAX} items"));
                    return Err(BodyError);
                }
                self.items = Some(Items { all, next: 0 });
                self.next_item(r, *end);
            }
            Op::End { start } => {
                let end = self.at - 1;
                self.at = start + 1;
                self.next_item(r, end);
            }
            Op::Exec { .. } => {
                r.log(Severity::Error, format_args!("echo_exec: something was sent before"));
                return Err(BodyError);
            }
        }
        if !text.is_empty() {
            self.queue.push_back(Piece::Bytes(Bytes::from(text)));
        }
        Ok(true)
    }

    fn next_item(&mut self, r: &mut Request, end: usize) {
        let item = self.items.as_mut().and_then(|items| {
            items.next += 1;
            items.all.get(items.next - 1).cloned()
        });
        match item {
            Some(item) => r.share(Rc::new(LoopItem(item))),
            None => {
                self.items = None;
                self.at = end + 1;
                r.share(Rc::new(LoopItem(Vec::new())));
            }
        }
    }
}

/// An empty string has none.
fn split(list: &[u8], delimiter: &[u8]) -> Vec<Vec<u8>> {
    if list.is_empty() {
        return Vec::new();
    }
    if delimiter.is_empty() {
        return vec![list.to_vec()];
    }
    let mut all = Vec::new();
    let mut rest = list;
    while let Some(at) = rest.windows(delimiter.len()).position(|window| window == delimiter) {
        let (item, after) = rest.split_at(at);
        all.push(item.to_vec());
        rest = after.get(delimiter.len()..).unwrap_or_default();
    }
    all.push(rest.to_vec());
    all
}

impl BodySource for EchoRun {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            if let Some(piece) = crate::shared::joining::pop_joined(&mut self.queue) {
                return Poll::Ready(Some(Ok(piece)));
            }
            match &mut self.waits {
                Waits::No => match self.step(r) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(None),
                    Err(e) => return Poll::Ready(Some(Err(e))),
                },
                Waits::Time(sleep) => {
                    if Pin::new(sleep).poll(cx).is_pending() {
                        let gone = r.incoming.watch().is_some_and(|watch| watch.poll_gone(cx).is_ready());
                        return if gone { Poll::Ready(Some(Err(BodyError))) } else { Poll::Pending };
                    }
                    self.waits = Waits::No;
                }
                Waits::Location(stream) => match ready!(stream.poll_piece(cx)) {
                    Some(piece) => return Poll::Ready(Some(piece)),
                    None => self.waits = Waits::No,
                },
            }
        }
    }
    fn needs_window(&self) -> bool {
        self.queue.is_empty() && matches!(&self.waits, Waits::Location(stream) if stream.needs_window())
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, _: &mut Request) {
        if let Waits::Location(stream) = &mut self.waits {
            stream.poll_ahead(cx);
        }
    }
}

pub struct EchoFilter {
    pub before: Arc<[(Vec<HttpTemplate>, bool)]>,
    pub after: Arc<[(Vec<HttpTemplate>, bool)]>,
}

impl Filter for EchoFilter {
    fn name(&self) -> &'static str {
        "echo"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if !matches!(r.out.status(), 200..=299) || r.out.status() == 204 {
            return Ok(body);
        }
        r.out.body_changes();
        if r.is_head() {
            return Ok(body);
        }
        let before: Vec<u8> = self.before.iter().flat_map(|(words, line_end)| say(r, words, *line_end)).collect();
        Ok(ResponseBody::Source(Box::new(FramedBody { before: Some(before), body, after: Some(self.after.clone()) })))
    }
}

struct FramedBody {
    before: Option<Vec<u8>>,
    body: ResponseBody,
    after: Option<Arc<[(Vec<HttpTemplate>, bool)]>>,
}

impl BodySource for FramedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(before) = self.before.take().filter(|before| !before.is_empty()) {
            return Poll::Ready(Some(Ok(Piece::Bytes(before.into()))));
        }
        if let Some(piece) = ready!(self.body.poll_piece(cx, r)) {
            return Poll::Ready(Some(piece));
        }
        let after = self.after.take();
        let text: Vec<u8> = after
            .iter()
            .flat_map(|after| after.iter())
            .flat_map(|(words, line_end)| say(r, words, *line_end))
            .collect();
        Poll::Ready((!text.is_empty()).then(|| Ok(Piece::Bytes(text.into()))))
    }
    fn needs_window(&self) -> bool {
        self.before.is_none() && self.body.needs_window()
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn strings_fall_apart_at_delimiters() {
        let parts = |list: &str, delimiter: &str| -> Vec<String> {
            let parts = split(list.as_bytes(), delimiter.as_bytes()).into_iter();
            parts.map(|part| String::from_utf8_lossy(&part).into_owned()).collect()
        };
        assert_eq!(parts("a,b,,c", ","), ["a", "b", "", "c"]);
        assert_eq!(parts("cat-a-dog", "-a-"), ["cat", "dog"]);
        assert_eq!(parts("", ","), Vec::<String>::new());
        assert_eq!(parts("ab", ""), ["ab"]);
    }
}
