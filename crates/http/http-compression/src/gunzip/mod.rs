//! gunzip (nginx: `ngx_http_gunzip_filter_module`): decompresses responses for clients without gzip.

use crate::shared::gzip_ok::GzipOk;
use bytes::{Buf, Bytes};
use conf_schema::value::{Buffers, Flag};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, FilePart, Filter, FilterOrder, Piece, Request, ResponseBody, Str,
};
use net::budget;
use std::any::Any;
use std::io::{BufRead, ErrorKind, Read};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

directives! {
    pub struct GunzipConf from GunzipInput {
        /// Decompresses gzip responses for clients that do not accept gzip.
        gunzip: Flag = "off",
        /// Number and size of buffers. The value is checked and has no effect: buffers grow with the output.
        gunzip_buffers: Buffers = "32 4k",
    }
}

pub struct Gunzip;

impl Feature for Gunzip {
    fn table(&self) -> FeatureTable {
        GunzipConf::table("gunzip", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<GunzipConf>().is_some_and(|c| c.gunzip) {
            block.location.filters.push((FilterOrder::Gunzip, Arc::new(Inflate)));
        }
        Ok(())
    }
}

struct Inflate;

impl Filter for Inflate {
    fn name(&self) -> &'static str {
        "gunzip"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if !r.out.content_encoding().eq_ignore_ascii_case(b"gzip") {
            return Ok(body);
        }
        let ok = GzipOk::of(r);
        let (vary, takes_it) = (ok.vary, ok.allows(r));
        if vary {
            r.out.vary_by_encoding(true);
        }
        if takes_it {
            return Ok(body);
        }
        r.out.body_changes();
        r.out.set_content_encoding(Str::default());
        if matches!(body, ResponseBody::Empty) || r.is_head() {
            return Ok(body);
        }
        Ok(ResponseBody::Source(Box::new(InflatedBody::new(body))))
    }
}

type GzDecoder = flate2::bufread::MultiGzDecoder<GzInput>;

/// Compressed bytes for the decoder, which stops without any until the body has ended.
#[derive(Default)]
struct GzInput {
    bytes: Bytes,
    is_ended: bool,
}

impl BufRead for GzInput {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        match self.bytes.is_empty() && !self.is_ended {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(&self.bytes),
        }
    }
    fn consume(&mut self, length: usize) {
        self.bytes.advance(length.min(self.bytes.len()));
    }
}

impl Read for GzInput {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

struct InflatedBody {
    body: ResponseBody,
    /// Some 50 KB, made with the first bytes. Its input is a part of them, so that input without output ends a turn.
    decoder: Option<Box<GzDecoder>>,
    file: Option<FilePart>,
    /// Compressed bytes behind those of the decoder.
    waiting: Bytes,
    is_ended: bool,
    /// The last piece was full: the decoder may have more without input.
    was_full: bool,
}

/// Compressed bytes that the decoder gets at a time.
const STEP_BYTES: usize = 4 * 1024;
/// Bytes of a piece at most.
const PIECE_BYTES: usize = 16 * 1024;
const READ_BYTES: u64 = 32 * 1024;

impl InflatedBody {
    fn new(body: ResponseBody) -> InflatedBody {
        InflatedBody { body, decoder: None, file: None, waiting: Bytes::new(), is_ended: false, was_full: false }
    }
    /// Decodes a piece, empty at the end. Fails with `WouldBlock` without input.
    fn inflate(&mut self) -> std::io::Result<Bytes> {
        if self.decoder.is_none() && self.waiting.is_empty() {
            return if self.is_ended { Ok(Bytes::new()) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let decoder = self.decoder.get_or_insert_with(|| Box::new(GzDecoder::new(GzInput::default())));
        let input = decoder.get_mut();
        if input.bytes.is_empty() {
            input.bytes = self.waiting.split_to(self.waiting.len().min(STEP_BYTES));
        }
        // An end makes the decoder return output that it holds. The end of a member is behind eight more octets, so that it goes on.
        let is_drained = input.bytes.is_empty() && !self.is_ended;
        if is_drained && !self.was_full {
            return Err(ErrorKind::WouldBlock.into());
        }
        input.is_ended = self.is_ended || is_drained;
        let mut out = vec![0; PIECE_BYTES];
        let read = decoder.read(&mut out);
        self.was_full = matches!(read, Ok(length) if length == PIECE_BYTES);
        let length = match read {
            Err(e) if is_drained && e.kind() == ErrorKind::UnexpectedEof => return Err(ErrorKind::WouldBlock.into()),
            read => read?,
        };
        if length < PIECE_BYTES / 2 {
            return Ok(Bytes::copy_from_slice(out.get(..length).unwrap_or_default()));
        }
        out.truncate(length);
        Ok(out.into())
    }
}

impl BodySource for InflatedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            let failed = match self.inflate() {
                Ok(piece) if piece.is_empty() => return Poll::Ready(None),
                Ok(piece) => {
                    budget::charge_time();
                    return Poll::Ready(Some(Ok(Piece::Bytes(piece))));
                }
                Err(e) => e.kind(),
            };
            if failed != ErrorKind::WouldBlock {
                match failed {
                    // zlib's code for a truncated stream.
                    ErrorKind::UnexpectedEof => {
                        r.log(observe::Severity::Error, format_args!("inflate() returned -5 on response end"));
                    }
                    _ => r.log(observe::Severity::Error, format_args!("inflate() failed")),
                }
                return Poll::Ready(Some(Err(BodyError)));
            }
            // Input may have no output: empty blocks and members.
            budget::charge_time();
            ready!(budget::poll_proceed(cx));
            if !self.waiting.is_empty() {
                continue;
            }
            match self.file.take().filter(|part| part.length > 0) {
                Some(mut part) => {
                    match part.read_most(READ_BYTES) {
                        Ok(bytes) => self.waiting = bytes,
                        Err(e) => {
                            r.log(observe::Severity::Crit, format_args!("read() failed {}", observe::os_error(&e)));
                            return Poll::Ready(Some(Err(BodyError)));
                        }
                    }
                    self.file = Some(part);
                }
                None => match ready!(self.body.poll_piece(cx, r)) {
                    Some(Ok(Piece::Bytes(bytes))) => self.waiting = bytes,
                    Some(Ok(Piece::File(part))) => self.file = Some(part),
                    Some(other) => return Poll::Ready(Some(other)),
                    None => self.is_ended = true,
                },
            }
        }
    }
    /// Input may have no output.
    fn needs_window(&self) -> bool {
        false
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::task::Waker;

    /// Gives a gzip stream of empty blocks behind its head, and lets time pass for each piece.
    struct EmptyBlocks(u32);

    impl BodySource for EmptyBlocks {
        fn poll_piece(&mut self, _: &mut Context<'_>, _: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
            let Some(left) = self.0.checked_sub(1) else { return Poll::Ready(None) };
            self.0 = left;
            base::clock::set_frozen(base::clock::read().plus(std::time::Duration::from_micros(400)));
            let end: &[u8] = if left == 0 { &[1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0] } else { b"" };
            let bytes = [&[0, 0, 0, 0xff, 0xff].repeat(90), end].concat();
            Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from(bytes)))))
        }
        fn needs_window(&self) -> bool {
            false
        }
    }

    #[test]
    fn input_without_output_ends_the_turn() {
        base::clock::freeze();
        base::clock::set_frozen(base::clock::Instant(1_000_000));
        let head = Bytes::from_static(b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
        let body = ResponseBody::Source(Box::new(EmptyBlocks(30)));
        let mut inflated = InflatedBody { waiting: head, ..InflatedBody::new(body) };
        let (mut cx, mut r) = (Context::from_waker(Waker::noop()), Request::default());
        let mut turns = 0;
        loop {
            budget::renew();
            match inflated.poll_piece(&mut cx, &mut r) {
                Poll::Pending => turns += 1,
                Poll::Ready(None) => break,
                Poll::Ready(Some(_)) => panic!("output"),
            }
        }
        base::clock::thaw();
        // A millisecond: three pieces.
        assert_eq!(turns, 30 / 3);
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Lengths of the pieces, their bytes, and whether the body ended without an error. `parts`: compressed bytes as they come.
    fn inflated(parts: &[&[u8]]) -> (Vec<usize>, Vec<u8>, bool) {
        let mut parts = parts.iter();
        let mut body = InflatedBody::new(ResponseBody::Empty);
        let (mut lengths, mut all) = (Vec::new(), Vec::new());
        loop {
            match body.inflate() {
                Ok(piece) if piece.is_empty() => return (lengths, all, true),
                Ok(piece) => {
                    lengths.push(piece.len());
                    all.extend_from_slice(&piece);
                }
                Err(e) if e.kind() != ErrorKind::WouldBlock => return (lengths, all, false),
                Err(_) if !body.waiting.is_empty() => {}
                Err(_) => match parts.next() {
                    Some(part) => body.waiting = Bytes::copy_from_slice(part),
                    None => body.is_ended = true,
                },
            }
        }
    }

    fn varied(length: u32) -> Vec<u8> {
        (0..length).map(|n| b'a' + (n * n % 23) as u8).collect()
    }

    #[test]
    fn the_start_of_a_truncated_body_is_inflated() {
        let (text, coded) = (varied(5000), packed(&varied(5000)));
        for length in [coded.len() / 2, coded.len() - 1] {
            let (_, first, is_whole) = inflated(&[&coded[..length]]);
            assert!(!is_whole && !first.is_empty() && text.starts_with(&first), "{length} of {}", coded.len());
        }
        assert_eq!(inflated(&[]), (Vec::new(), Vec::new(), true), "no bytes at all");
    }

    #[test]
    fn bytes_may_come_one_by_one_and_in_several_members() {
        let coded = [packed(&varied(3000)), packed(b""), packed(b"end")].concat();
        let text = [&varied(3000)[..], b"end"].concat();
        let octets: Vec<&[u8]> = coded.chunks(1).collect();
        for parts in [octets, vec![&coded[..]]] {
            let (_, all, is_whole) = inflated(&parts);
            assert!(is_whole && all == text, "{} parts", parts.len());
        }
        let (_, all, is_whole) = inflated(&[&[&packed(b"text")[..], b"no member"].concat()]);
        assert!(!is_whole && all == b"text");
    }

    /// Of 133 octets without marks of a flush, each of which becomes many.
    #[test]
    fn a_pause_of_the_server_holds_no_output_back() {
        let coded = packed(&vec![b'a'; 100_000]);
        for cut in 1..coded.len() {
            let mut whole = flate2::Decompress::new(false);
            let mut out = vec![0; 200_000];
            let deflated = coded.get(10..cut).unwrap_or_default();
            whole.decompress(deflated, &mut out, flate2::FlushDecompress::None).expect("deflate");
            let mut body = InflatedBody::new(ResponseBody::Empty);
            body.waiting = Bytes::copy_from_slice(&coded[..cut]);
            let mut came = 0;
            loop {
                match body.inflate() {
                    Ok(piece) => came += piece.len() as u64,
                    Err(_) if !body.waiting.is_empty() => {}
                    Err(e) => break assert_eq!(e.kind(), ErrorKind::WouldBlock),
                }
            }
            assert_eq!(came, whole.total_out(), "{cut} octets");
            body.waiting = Bytes::copy_from_slice(&coded[cut..]);
            while came < 100_000 {
                came += body.inflate().map_or(0, |piece| piece.len() as u64);
            }
            body.is_ended = true;
            assert_eq!((came, body.inflate().expect("the end").len()), (100_000, 0));
        }
    }

    #[test]
    fn pieces_are_short_however_much_a_byte_becomes() {
        let (lengths, all, is_whole) = inflated(&[&packed(&vec![b'a'; 1 << 20])]);
        assert!(is_whole && all.len() == 1 << 20);
        assert!(lengths.iter().all(|length| *length <= PIECE_BYTES), "{lengths:?}");
        assert!(lengths.len() <= 2 * (1 << 20) / PIECE_BYTES, "{} pieces", lengths.len());
    }
}
