//! gunzip (nginx: `ngx_http_gunzip_filter_module`): decompresses responses for clients without gzip.

use crate::shared::gzip_ok::GzipOk;
use bytes::Bytes;
use conf_schema::value::{Buffers, Flag};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, FilePart, Filter, FilterOrder, Piece, Request, ResponseBody, Str,
};
use net::budget;
use std::any::Any;
use std::io::Write;
use std::os::unix::fs::FileExt;
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
        let decoder = flate2::write::MultiGzDecoder::new(Vec::new());
        Ok(ResponseBody::Source(Box::new(InflatedBody { body, decoder, file: None, waiting: None, done: false })))
    }
}

struct InflatedBody {
    body: ResponseBody,
    decoder: flate2::write::MultiGzDecoder<Vec<u8>>,
    file: Option<FilePart>,
    /// Compressed bytes that wait: they may expand greatly, so they are fed in small steps.
    waiting: Option<Bytes>,
    done: bool,
}

/// Compressed bytes per step; they expand at most about 1000-fold.
const STEP_BYTES: usize = 512;
const READ_BYTES: usize = 32 * 1024;

impl BodySource for InflatedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        let failed = |r: &mut Request| {
            r.log(observe::Severity::Error, format_args!("inflate() failed"));
            Poll::Ready(Some(Err(BodyError)))
        };
        loop {
            if let Some(mut bytes) = self.waiting.take() {
                let step = bytes.split_to(bytes.len().min(STEP_BYTES));
                self.waiting = (!bytes.is_empty()).then_some(bytes);
                // At the end of the input, flushes: more may arrive late or never.
                let fed = self.decoder.write_all(&step);
                let flushed = if self.waiting.is_none() { self.decoder.flush() } else { Ok(()) };
                if fed.is_err() || flushed.is_err() {
                    return failed(r);
                }
                // Input may have no output: empty blocks and members.
                budget::charge_time();
                let out = std::mem::take(self.decoder.get_mut());
                if !out.is_empty() {
                    return Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from(out)))));
                }
                ready!(budget::poll_proceed(cx));
                continue;
            }
            if self.done {
                return Poll::Ready(None);
            }
            if let Some(part) = &mut self.file {
                if part.length == 0 {
                    self.file = None;
                    continue;
                }
                let mut buf = vec![0; READ_BYTES.min(part.length as usize)];
                match part.file.file.read_at(&mut buf, part.start) {
                    Ok(n) if n > 0 => {
                        buf.truncate(n);
                        part.start += n as u64;
                        part.length -= n as u64;
                        self.waiting = Some(Bytes::from(buf));
                    }
                    _ => return failed(r),
                }
                continue;
            }
            match ready!(self.body.poll_piece(cx, r)) {
                Some(Ok(Piece::Bytes(bytes))) => self.waiting = Some(bytes),
                Some(Ok(Piece::File(part))) => self.file = Some(part),
                Some(other) => return Poll::Ready(Some(other)),
                None => {
                    self.done = true;
                    if self.decoder.try_finish().is_err() {
                        // zlib's code for a truncated stream.
                        r.log(observe::Severity::Error, format_args!("inflate() returned -5 on response end"));
                        return Poll::Ready(Some(Err(BodyError)));
                    }
                    let out = std::mem::take(self.decoder.get_mut());
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from(out)))));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }

    #[test]
    fn input_without_output_ends_the_turn() {
        base::clock::freeze();
        base::clock::set_frozen(base::clock::Instant(1_000_000));
        let mut decoder = flate2::write::MultiGzDecoder::new(Vec::new());
        decoder.write_all(b"\x1f\x8b\x08\0\0\0\0\0\0\x03").expect("a head");
        let body = ResponseBody::Source(Box::new(EmptyBlocks(30)));
        let mut inflated = InflatedBody { body, decoder, file: None, waiting: None, done: false };
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
        // A millisecond: four pieces.
        assert_eq!(turns, 30 / 4);
    }

    #[test]
    fn the_start_of_a_truncated_body_is_inflated() {
        let text: Vec<u8> = (0..5000u32).map(|n| b'a' + (n * n % 23) as u8).collect();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&text).expect("memory");
        let coded = encoder.finish().expect("memory");
        let body = ResponseBody::Bytes(Bytes::copy_from_slice(&coded[..coded.len() / 2]));
        let decoder = flate2::write::MultiGzDecoder::new(Vec::new());
        let mut inflated = InflatedBody { body, decoder, file: None, waiting: None, done: false };
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(Piece::Bytes(first)))) = inflated.poll_piece(&mut cx, &mut Request::default()) else {
            panic!("a piece")
        };
        assert!(!first.is_empty() && text.starts_with(&first));
    }
}
