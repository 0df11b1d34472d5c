//! Compression of responses: eligibility, and the encoders behind one interface.

pub use super::encoder::Coding;
use super::encoder::{EncoderSettings, StepEnd, StreamEncoder, encode_whole};
use bytes::Bytes;
use http_engine::body_memory::{self, NoMemory, Reservation};
use http_engine::{BodyError, BodySource, FilePart, LocalFuture, Piece, Request, ResponseBody, Str};
use net::budget;
use net::pool::{Overflow, Pool, ResultInterest};
use observe::Severity;
use std::cell::RefCell;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Client's quality of a coding in thousandths; 0: refused (RFC 9110, 12.5.3). As in nginx
/// (`ngx_http_gzip_accept_encoding`), `*` names no coding and malformed weights refuse.
pub fn coding_quality(accept: &[u8], coding: &str) -> u16 {
    let name = coding.as_bytes();
    let begins =
        |at: usize| at.checked_sub(1).and_then(|before| accept.get(before)).is_none_or(|c| matches!(c, b',' | b' '));
    let is_name = |at: &usize| accept.get(*at..*at + name.len()).is_some_and(|text| text.eq_ignore_ascii_case(name));
    let Some(at) = (0..accept.len()).find(|at| is_name(at) && begins(*at)) else { return 0 };
    let item = accept.get(at + name.len()..).unwrap_or_default();
    let after = item.trim_ascii_start();
    match after.split_first() {
        None | Some((b',', _)) => 1000,
        Some((b';', weight)) => match weight.trim_ascii_start() {
            [] => 1000,
            [b'q' | b'Q', b'=', number @ ..] => thousandths(number),
            _ => 0,
        },
        _ => 0,
    }
}

/// A weight in thousandths; 0 if malformed.
fn thousandths(text: &[u8]) -> u16 {
    let end = text.iter().position(|c| matches!(c, b',' | b' ')).unwrap_or(text.len());
    let number = text.get(..end).unwrap_or_default();
    let (whole, rest) = match number {
        [b'0', rest @ ..] => (0, rest),
        [b'1', rest @ ..] => (1000, rest),
        _ => return 0,
    };
    let digits = match rest {
        [] => return whole,
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return 0,
    };
    let places = [100, 10, 1];
    let part: u16 = digits.iter().zip(places).map(|(digit, place)| u16::from(digit - b'0') * place).sum();
    if whole + part > 1000 { 0 } else { whole + part }
}

/// Conditions of every coding on a response.
pub fn may_compress(r: &Request, min_length: u64, types: &http_engine::media_types::MediaTypes) -> bool {
    matches!(r.out.status(), 200 | 403 | 404)
        && r.out.content_encoding().is_empty()
        && r.out.content_length().is_none_or(|n| n >= min_length)
        && types.has(r.out.content_type())
}

struct Ratio {
    before: u64,
    after: u64,
}

pub fn write_ratio(r: &Request, out: &mut Vec<u8>) -> bool {
    let Some(Ratio { before, after }) = r.ext::<Ratio>() else { return false };
    let Some(hundredths) = (u128::from(*before) * 1000).checked_div(u128::from(*after)) else { return false };
    let hundredths = (hundredths + 5) / 10;
    write!(out, "{}.{:02}", hundredths / 100, hundredths % 100).is_ok()
}

/// Compressed forms kept per thread, so that hot files are compressed once.
const KEPT_FORMS: usize = 64;
const KEPT_BYTES: usize = 8 * 1024 * 1024;

struct Form {
    original: Bytes,
    coding: Coding,
    level: u32,
    coded: Bytes,
}

thread_local! {
    static FORMS: RefCell<Vec<Form>> = const { RefCell::new(Vec::new()) };
}

/// Compresses a body: in memory at once, keeping a file's form; otherwise, or with a slow encoder, piece by piece. Fails
/// with 500 if the encoder cannot be created.
pub fn compress_body(
    r: &mut Request,
    body: ResponseBody,
    coding: Coding,
    level: u32,
    window: u32,
) -> Result<ResponseBody, u16> {
    // Bytes that are no file's, such as a transformation's, never come again: a kept form would hold them.
    let of_file = matches!(body, ResponseBody::File(_));
    compress(r, body, EncoderSettings { coding, level, window }, of_file)
}

/// [`compress_body`]; `of_file`: keeps the form of bytes in memory, which the cache of files has as well.
fn compress(
    r: &mut Request,
    body: ResponseBody,
    settings: EncoderSettings,
    of_file: bool,
) -> Result<ResponseBody, u16> {
    let EncoderSettings { coding, level, .. } = settings;
    r.out.body_changes();
    r.out.set_content_encoding(Str::from(coding.name()));
    if r.is_head() {
        return Ok(body);
    }
    let body = body.into_cached();
    let ResponseBody::Bytes(original) = &body else {
        return Ok(ResponseBody::Source(Box::new(CodedBody::new(body, settings, None))));
    };
    let coded = if of_file { kept(original, coding, level) } else { None };
    let coded = match coded {
        Some(coded) => coded,
        None if settings.is_slow() => {
            let form = of_file.then(|| Form { original: original.clone(), coding, level, coded: Bytes::new() });
            return Ok(ResponseBody::Source(Box::new(CodedBody::new(body, settings, form))));
        }
        None => {
            let coded = encode_whole(&settings, original, &ResultInterest::ALWAYS).map_err(|e| {
                r.log(Severity::Alert, format_args!("{} encoder failed ({e})", coding.name()));
                500u16
            })?;
            if of_file {
                let coded = Bytes::from(coded);
                keep(Form { original: original.clone(), coding, level, coded: coded.clone() });
                coded
            } else {
                Bytes::from_owner(CodedCopy { coded, _original: original.clone() })
            }
        }
    };
    if coding == Coding::Gzip {
        r.keep(Ratio { before: original.len() as u64, after: coded.len() as u64 });
    }
    r.out.set_content_length((!r.out.is_length_undeclared()).then_some(coded.len() as u64));
    Ok(ResponseBody::Bytes(coded))
}

/// A compressed body with its original, whose memory is reserved (`http_engine::body_memory`) until the client has read.
struct CodedCopy {
    coded: Vec<u8>,
    _original: Bytes,
}

impl AsRef<[u8]> for CodedCopy {
    fn as_ref(&self) -> &[u8] {
        &self.coded
    }
}

fn kept(original: &Bytes, coding: Coding, level: u32) -> Option<Bytes> {
    FORMS.with_borrow_mut(|forms| {
        let at = forms.iter().position(|f| {
            // The form holds the original: an equal address means equal bytes.
            f.original.as_ptr() == original.as_ptr()
                && f.original.len() == original.len()
                && f.coding == coding
                && f.level == level
        })?;
        let form = forms.remove(at);
        let coded = form.coded.clone();
        forms.push(form);
        Some(coded)
    })
}

fn keep(form: Form) {
    FORMS.with_borrow_mut(|forms| {
        forms.push(form);
        while forms.len() > KEPT_FORMS
            || forms.iter().map(|f| f.original.len() + f.coded.len()).sum::<usize>() > KEPT_BYTES
        {
            forms.remove(0);
        }
    });
}

/// Work for the encoder: input, and how to go on after it.
struct EncoderStep {
    input: Bytes,
    then: StepEnd,
}

/// A step on a thread of the pool, which returns the encoder with its output, and the step's memory. `None`: it panicked.
type PooledEncoder = LocalFuture<Option<(StreamEncoder, EncoderStep, std::io::Result<Vec<u8>>, Option<Reservation>)>>;

struct CodedBody {
    body: ResponseBody,
    /// `None` while the pool has it.
    encoder: Option<StreamEncoder>,
    /// Memory of a state that is kept between steps.
    reservation: Option<Reservation>,
    is_gzip: bool,
    /// Steps take longer than other connections should wait: the pool performs them, if there is one.
    pool: Option<Arc<Pool>>,
    /// Step that waits for its memory.
    step: Option<EncoderStep>,
    /// Memory of the next step, if it is one of the pool or a segment, and the wait for it.
    step_memory: Option<Reservation>,
    waiting: Option<LocalFuture<Result<Reservation, NoMemory>>>,
    pooled: Option<PooledEncoder>,
    /// A piece that is longer than a step.
    long: Bytes,
    /// Input for the next step.
    collected: Vec<u8>,
    /// Output too small for a piece.
    held: Vec<u8>,
    file: Option<FilePart>,
    before: u64,
    after: u64,
    /// Form of a file to keep, and its output so far.
    form: Option<(Form, Vec<u8>)>,
}

/// Input compressed at a time. Other responses evict an encoder's state of 330 KB from the processor's cache between two steps;
/// a response of this length needs one step. Encoders hold about as much before their first block (zlib: 16 K symbols).
pub const STEP_BYTES: usize = 32 * 1024;
/// Bytes of a file read at a time.
const READ_BYTES: usize = 32 * 1024;
/// Smaller output waits for more.
const HELD_BYTES: usize = 1024;

impl CodedBody {
    fn new(body: ResponseBody, settings: EncoderSettings, form: Option<Form>) -> CodedBody {
        CodedBody {
            body,
            is_gzip: settings.coding == Coding::Gzip,
            pool: if settings.is_slow() { net::pool::find_pool(net::pool::DEFAULT) } else { None },
            step: None,
            step_memory: None,
            waiting: None,
            encoder: Some(StreamEncoder::new(settings)),
            reservation: None,
            pooled: None,
            long: Bytes::new(),
            collected: Vec::new(),
            held: Vec::new(),
            file: None,
            before: 0,
            after: 0,
            form: form.map(|form| (form, Vec::new())),
        }
    }
    /// Decides how a stream goes on that does not end with its first step: with a state that is kept, if there is memory
    /// for it, or in segments. Returns the input of a step.
    fn step_bytes(&mut self, r: &Request) -> Result<usize, BodyError> {
        let Some(encoder) = &mut self.encoder else { return Ok(STEP_BYTES) };
        let of_file = self.file.as_ref().map_or(0, |part| part.length as usize);
        if encoder.is_new() && self.collected.len() + self.long.len() + of_file >= STEP_BYTES {
            let limits = body_memory::memory_limits(r);
            let kept = encoder.settings().kept_within(limits.connection);
            match kept.and_then(|(window, bytes)| Some((window, body_memory::try_reserve(r, bytes)?))) {
                Some((window, reservation)) => {
                    encoder.keep(window).map_err(|_| BodyError)?;
                    self.reservation = Some(reservation);
                }
                None => encoder.divide(),
            }
        }
        Ok(if encoder.is_segmented() { encoder.settings().segment_bytes() } else { STEP_BYTES })
    }
    fn read(&mut self) -> Result<Option<Vec<u8>>, BodyError> {
        let Some(part) = &mut self.file else { return Ok(None) };
        if part.length == 0 {
            self.file = None;
            return Ok(None);
        }
        let mut buf = vec![0; READ_BYTES.min(part.length as usize)];
        let n = part.file.file.read_at(&mut buf, part.start).map_err(|_| BodyError)?;
        if n == 0 {
            return Err(BodyError);
        }
        buf.truncate(n);
        part.start += n as u64;
        part.length -= n as u64;
        Ok(Some(buf))
    }
    /// Collects input for the next step, `None` after the last one.
    fn poll_step(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<EncoderStep, BodyError>>> {
        if self.encoder.as_ref().is_none_or(StreamEncoder::is_ended) {
            return Poll::Ready(None);
        }
        let then = loop {
            let Ok(step_bytes) = self.step_bytes(r) else { return Poll::Ready(Some(Err(BodyError))) };
            // Waits before it collects more than others may hold.
            let is_known = self.file.is_some() || !matches!(self.body, ResponseBody::Source(_));
            if (is_known || self.collected.len() + self.long.len() >= STEP_BYTES)
                && let Err(e) = ready!(self.poll_memory(cx, r))
            {
                return Poll::Ready(Some(Err(e)));
            }
            if self.long.is_empty() {
                self.long = match self.read() {
                    Err(e) => return Poll::Ready(Some(Err(e))),
                    Ok(Some(buf)) => Bytes::from(buf),
                    Ok(None) => match self.body.poll_piece(cx, r) {
                        // Others wait for the memory of this step.
                        Poll::Pending if self.step_memory.is_some() && !self.collected.is_empty() => {
                            break StepEnd::Continue;
                        }
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Some(Ok(Piece::Bytes(bytes)))) => bytes,
                        Poll::Ready(Some(Ok(Piece::File(part)))) => {
                            self.file = Some(part);
                            continue;
                        }
                        Poll::Ready(Some(Ok(Piece::Flush))) => break StepEnd::Flush,
                        Poll::Ready(Some(Err(e))) => return Poll::Ready(Some(Err(e))),
                        Poll::Ready(None) => break StepEnd::Finish,
                    },
                };
                // The piece may decide the steps, and need memory.
                continue;
            }
            if self.collected.is_empty() && self.long.len() >= step_bytes {
                let input = self.long.split_to(step_bytes);
                return Poll::Ready(Some(Ok(EncoderStep { input, then: StepEnd::Continue })));
            }
            // Short pieces are not divided: a step may have almost twice its bytes.
            let taken = match self.long.len() {
                length if length < step_bytes => length,
                _ => step_bytes.saturating_sub(self.collected.len()),
            };
            self.collected.extend_from_slice(&self.long.split_to(taken));
            if self.collected.len() >= step_bytes {
                break StepEnd::Continue;
            }
            budget::charge_time();
            ready!(budget::poll_proceed(cx));
        };
        let input = Bytes::from(std::mem::take(&mut self.collected));
        Poll::Ready(Some(Ok(EncoderStep { input, then })))
    }
    /// Waits for the memory of the next step.
    fn poll_memory(&mut self, cx: &mut Context<'_>, r: &Request) -> Poll<Result<(), BodyError>> {
        let Some(encoder) = &self.encoder else { return Poll::Ready(Ok(())) };
        let is_covered = self.reservation.is_some() || self.step_memory.is_some();
        if is_covered || (self.pool.is_none() && !encoder.is_segmented()) {
            return Poll::Ready(Ok(()));
        }
        let bytes = encoder.settings().step_memory();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(body_memory::await_reservation(r, bytes)));
        let reserved = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(match reserved {
            Ok(reservation) => {
                self.step_memory = Some(reservation);
                Ok(())
            }
            Err(NoMemory::TimedOut) => {
                body_memory::log_timeout(r, bytes);
                Err(BodyError)
            }
            Err(NoMemory::ClientLeft) => Err(BodyError),
        })
    }
    /// Gives a step to the pool, which ends it with this body. Fails when the pool's queue is full, which is logged.
    fn start(&mut self, step: EncoderStep, pool: &Arc<Pool>, r: &Request) -> Result<(), BodyError> {
        let Some(mut encoder) = self.encoder.take() else { return Err(BodyError) };
        let memory = self.step_memory.take();
        let job = move |wanted: &ResultInterest<'_>| {
            let out = encoder.step(&step.input, step.then, wanted);
            // Each thread of the pool would keep the tables of its last step, beside those that its successor reserves.
            match encoder.settings().coding {
                Coding::Zstd => net::allocator::release_of_libraries(),
                Coding::Brotli => net::allocator::release(),
                Coding::Gzip => {}
            }
            (encoder, step, out, memory)
        };
        let waiting = pool.run_long(job).map_err(|Overflow { waiting }| {
            let name = net::pool::DEFAULT;
            r.log(Severity::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            BodyError
        })?;
        self.pooled = Some(Box::pin(async move { waiting.await.ok() }));
        Ok(())
    }
    /// Returns the piece that is ready after a step.
    fn done(&mut self, r: &mut Request, step: &EncoderStep, mut coded: Vec<u8>) -> Option<Piece> {
        self.after += coded.len() as u64;
        if let Some((_, output)) = &mut self.form {
            output.extend_from_slice(&coded);
        }
        self.before += step.input.len() as u64;
        if self.held.is_empty() {
            self.held = coded;
        } else {
            self.held.append(&mut coded);
        }
        match step.then {
            StepEnd::Continue if self.held.len() < HELD_BYTES => return None,
            StepEnd::Continue => {}
            StepEnd::Flush if self.held.is_empty() => return Some(Piece::Flush),
            StepEnd::Flush => {}
            StepEnd::Finish => {
                if self.is_gzip {
                    r.keep(Ratio { before: self.before, after: self.after });
                }
                if let Some((form, output)) = self.form.take() {
                    keep(Form { coded: Bytes::from(output), ..form });
                }
            }
        }
        let ready = std::mem::take(&mut self.held);
        let memory = self.step_memory.take();
        if ready.is_empty() {
            return None;
        }
        Some(Piece::Bytes(match memory {
            Some(memory) => memory.hold(ready),
            None => Bytes::from(ready),
        }))
    }
}

impl BodySource for CodedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            let (step, out) = match &mut self.pooled {
                Some(pooled) => {
                    let done = ready!(pooled.as_mut().poll(cx));
                    self.pooled = None;
                    let Some((encoder, step, out, memory)) = done else { return Poll::Ready(Some(Err(BodyError))) };
                    (self.encoder, self.step_memory) = (Some(encoder), memory);
                    (step, out)
                }
                None => {
                    if self.step.is_none() {
                        match ready!(self.poll_step(cx, r)) {
                            None => return Poll::Ready(None),
                            Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                            Some(Ok(step)) => self.step = Some(step),
                        }
                    }
                    if let Err(e) = ready!(self.poll_memory(cx, r)) {
                        return Poll::Ready(Some(Err(e)));
                    }
                    let Some(step) = self.step.take() else { return Poll::Ready(None) };
                    if let Some(pool) = self.pool.clone() {
                        match self.start(step, &pool, r) {
                            Ok(()) => continue,
                            Err(e) => return Poll::Ready(Some(Err(e))),
                        }
                    }
                    let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
                    let out = encoder.step(&step.input, step.then, &ResultInterest::ALWAYS);
                    // Compression takes longer than its output tells: equal octets have next to none.
                    budget::charge_time();
                    (step, out)
                }
            };
            if self.encoder.as_ref().is_none_or(StreamEncoder::is_ended) {
                self.reservation = None;
            }
            let Ok(out) = out else { return Poll::Ready(Some(Err(BodyError))) };
            match self.done(r, &step, out) {
                Some(piece) => return Poll::Ready(Some(Ok(piece))),
                None if step.then == StepEnd::Finish => return Poll::Ready(None),
                None => ready!(budget::poll_proceed(cx)),
            }
        }
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
    fn needs_window(&self) -> bool {
        self.encoder.as_ref().is_some_and(|encoder| !encoder.is_ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualities_are_parsed_as_by_nginx() {
        for (accept, coding, want) in [
            ("gzip", "gzip", 1000),
            ("gzip, br;q=0.5", "br", 500),
            ("br;q=0, gzip", "br", 0),
            ("GZIP;Q=0.8", "gzip", 800),
            ("x-gzip", "gzip", 0),
            ("*", "gzip", 0),
            ("gzip;q=2", "gzip", 0),
            ("br, gzip ; q=0.125, x", "gzip", 125),
            ("gzip;q=1.000", "gzip", 1000),
            ("gzip;q=1.", "gzip", 1000),
            ("gzip;", "gzip", 1000),
            ("gzip;q=0.000", "gzip", 0),
            ("gzip;q =0", "gzip", 0),
            ("gzip;q =1", "gzip", 0),
            ("gzip;q=1.0000", "gzip", 0),
            ("gzip;q=.5", "gzip", 0),
            ("gzip;q", "gzip", 0),
            ("gzip;q=", "gzip", 0),
            ("gzip;q=1.001", "gzip", 0),
            ("gzip;level=1", "gzip", 0),
            ("gzipped", "gzip", 0),
            ("", "gzip", 0),
        ] {
            assert_eq!(coding_quality(accept.as_bytes(), coding), want, "{accept}");
        }
    }

    /// Gives pieces of equal octets, and lets time pass for each.
    struct Zeros(u32);

    impl BodySource for Zeros {
        fn poll_piece(&mut self, _: &mut Context<'_>, _: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = left;
            base::clock::set_frozen(base::clock::read().plus(std::time::Duration::from_micros(400)));
            Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from_static(&[0; 4096])))))
        }
        fn needs_window(&self) -> bool {
            false
        }
    }

    #[test]
    fn input_without_output_ends_the_turn() {
        base::clock::freeze();
        base::clock::set_frozen(base::clock::Instant(1_000_000));
        let mut r = Request::default();
        let mut body =
            compress_body(&mut r, ResponseBody::Source(Box::new(Zeros(30))), Coding::Gzip, 6, 15).expect("an encoder");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let (mut turns, mut length) = (0, 0);
        loop {
            budget::renew();
            let begun = base::clock::read();
            match body.poll_piece(&mut cx, &mut r) {
                Poll::Pending if base::clock::read() > begun => turns += 1,
                // Other tests have the encoders.
                Poll::Pending => std::thread::yield_now(),
                Poll::Ready(Some(Ok(piece))) => length += piece.len(),
                Poll::Ready(None) => break,
                Poll::Ready(Some(Err(_))) => panic!("an error"),
            }
        }
        base::clock::thaw();
        // A millisecond: four pieces.
        assert_eq!(turns, 30 / 4);
        assert!((20..1000).contains(&length), "{length}");
    }

    /// Gives pieces of a page whose octets do not repeat, each later than the reader asks for it.
    struct Late {
        page: Bytes,
        is_there: bool,
    }

    impl BodySource for Late {
        fn poll_piece(&mut self, _: &mut Context<'_>, _: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
            self.is_there = !self.is_there;
            match self.is_there {
                true => Poll::Pending,
                false if self.page.is_empty() => Poll::Ready(None),
                false => Poll::Ready(Some(Ok(Piece::Bytes(self.page.split_to(self.page.len().min(4000)))))),
            }
        }
        fn needs_window(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_page_is_compressed_in_one_step_and_a_long_one_in_several() {
        let octet = |n: u64| {
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        for (length, steps) in [(30_000, 1), (100_000, 3)] {
            let page: Bytes = (0..length).map(octet).collect();
            let mut r = Request::default();
            let late = ResponseBody::Source(Box::new(Late { page: page.clone(), is_there: false }));
            let mut body = compress_body(&mut r, late, Coding::Gzip, 1, 15).expect("an encoder");
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut pieces = Vec::new();
            loop {
                budget::renew();
                match body.poll_piece(&mut cx, &mut r) {
                    Poll::Pending => {}
                    Poll::Ready(Some(Ok(Piece::Bytes(bytes)))) => pieces.push(bytes),
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(_)) => panic!("another piece"),
                }
            }
            assert_eq!(pieces.len(), steps);
            let mut plain = Vec::new();
            let coded = pieces.concat();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&coded[..]), &mut plain).expect("a stream");
            assert_eq!(plain, page);
        }
    }

    #[test]
    fn a_slow_encoder_works_on_the_pool() {
        let text: Vec<u8> = (0..60_000u32).map(|n| b'a' + (n * n % 23) as u8).collect();
        let original = Bytes::from(text.clone());
        let mut r = Request::default();
        r.out.set_last_modified(Some(1));
        let mut coded = Vec::new();
        let settings = EncoderSettings { coding: Coding::Zstd, level: 19, window: 0 };
        let mut body = compress(&mut r, ResponseBody::Bytes(original.clone()), settings, true).expect("an encoder");
        assert!(matches!(body, ResponseBody::Source(_)));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        loop {
            budget::renew();
            match body.poll_piece(&mut cx, &mut r) {
                Poll::Pending => std::thread::yield_now(),
                Poll::Ready(Some(Ok(Piece::Bytes(bytes)))) => coded.extend_from_slice(&bytes),
                Poll::Ready(None) => break,
                Poll::Ready(Some(_)) => panic!("another piece"),
            }
        }
        assert_eq!(zstd::decode_all(&*coded).expect("a stream"), text);
        let again = compress(&mut r, ResponseBody::Bytes(original), settings, true).expect("an encoder");
        assert!(matches!(again, ResponseBody::Bytes(kept) if kept == coded), "the form is kept");
    }

    #[test]
    fn bytes_that_nothing_else_has_are_not_kept() {
        let mut r = Request::default();
        r.out.set_last_modified(Some(1));
        let held = std::sync::Arc::new(b"a transformation's result".to_vec());
        struct Result(std::sync::Arc<Vec<u8>>);
        impl AsRef<[u8]> for Result {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let coded =
            compress_body(&mut r, ResponseBody::Bytes(Bytes::from_owner(Result(held.clone()))), Coding::Gzip, 1, 0);
        drop(coded.expect("an encoder"));
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "its memory is free once the client has read");
    }

    #[test]
    fn ratios_have_two_decimals() {
        let mut r = Request::default();
        assert!(!write_ratio(&r, &mut Vec::new()), "nothing was compressed");
        for (before, after, want) in [(1000, 21, "47.62"), (100, 100, "1.00"), (1, 8, "0.13"), (1, 0, "")] {
            r.keep(Ratio { before, after });
            let mut out = Vec::new();
            write_ratio(&r, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }
}
