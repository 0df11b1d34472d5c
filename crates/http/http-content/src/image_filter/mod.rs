//! image_filter (nginx: `ngx_http_image_filter_module`): tests, measures, resizes, rotates and crops images.
//! A response is read whole, within `image_filter_buffer`, before its head is made. `head.rs` detects, `picture.rs`
//! decodes and encodes without unsafe code, `change.rs` processes pixels: on the pool, within a shared memory bound.

mod change;
pub mod fuzzing;
mod head;
mod picture;
#[cfg(test)]
mod tests;

use crate::shared::pooled;
use bytes::{Bytes, BytesMut};
use change::ResizeOptions;
use conf_schema::value::{Flag, Latest, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use head::{ImageFormat, Measure};
use http_engine::body_memory;
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, Flow, HttpTemplate, LocalFuture, Piece, Request, ResponseBody, Transform,
};
use net::pool::ResultInterest;
use observe::Severity;
use picture::{ImageOutput, PIXELS_MAX};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;

directives! {
    pub struct ImageConf from ImageInput {
        /// Tests, measures, rotates counterclockwise, resizes or crops images.
        /// Differs: images of more than 40 million pixels get 415.
        image_filter: FilterSetting,
        /// Maximum size of an image in bytes; larger images get 415.
        image_filter_buffer: Size = "1M",
        /// Writes interlaced (progressive) images.
        /// Differs: PNG is never interlaced.
        image_filter_interlace: Flag = "off",
        /// Quality of JPEG, from 1 to 100.
        image_filter_jpeg_quality: Quality = "75",
        /// Sharpening, in percent.
        image_filter_sharpen: Latest<Amount> = "0",
        /// Preserves transparency of images with a palette.
        image_filter_transparency: Flag = "on",
        /// Quality of WebP, from 1 to 100.
        /// Differs: WebP is written losslessly; the value is only checked.
        image_filter_webp_quality: Quality = "80",
    }
}

/// Constant number, or one computed per request.
#[derive(Clone, Debug)]
enum Number {
    Fixed(u64),
    Computed(HttpTemplate),
}

/// "Any": `-`.
const ANY: u64 = u64::MAX;

/// 0 is invalid.
fn number(text: &[u8]) -> u64 {
    match text {
        b"-" => ANY,
        text if text.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()).map_or(0, |n| n.unsigned_abs())
        }
        _ => 0,
    }
}

impl Number {
    fn parse(cx: &mut Cx, d: &Directive, index: usize) -> Result<Number, Problem> {
        let text = d.args.get(index).map(|w| w.bytes.clone()).unwrap_or_default();
        let template = HttpTemplate::compile(cx, d, &text).map_err(|p| p.at(index))?;
        Ok(match template.as_literal() {
            Some(text) => Number::Fixed(number(text)),
            None => Number::Computed(template),
        })
    }
    fn get(&self, r: &mut Request) -> u64 {
        match self {
            Number::Fixed(number) => *number,
            Number::Computed(template) => number(&template.eval(r)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Test,
    Size,
    Rotate,
    Resize,
    Crop,
}

#[derive(Clone, Debug)]
pub struct FilterSetting {
    mode: Mode,
    bounds: Option<(Number, Number)>,
    angle: Option<Number>,
}

impl ValueKind for FilterSetting {
    const SYNTAX: &'static str = "off | test | size | rotate 90 | 180 | 270 | resize width height | crop width height";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |index: usize| d.args.get(index).map(|w| w.text().into_owned()).unwrap_or_default();
        let invalid = |index: usize| Problem::says(format!("invalid parameter \"{}\"", word(index))).at(index);
        let mode = match (word(0).as_str(), d.args.len()) {
            ("off", 1) => Mode::Off,
            ("test", 1) => Mode::Test,
            ("size", 1) => Mode::Size,
            ("rotate", 2) => Mode::Rotate,
            ("resize", 3) => Mode::Resize,
            ("crop", 3) => Mode::Crop,
            _ => return Err(invalid(0)),
        };
        let mut asked = FilterSetting { mode, bounds: None, angle: None };
        match mode {
            Mode::Rotate => {
                let angle = Number::parse(cx, d, 1)?;
                if matches!(angle, Number::Fixed(angle) if !matches!(angle, 90 | 180 | 270)) {
                    return Err(invalid(1).hint("one of: 90, 180, 270"));
                }
                asked.angle = Some(angle);
            }
            Mode::Resize | Mode::Crop => {
                let (width, height) = (Number::parse(cx, d, 1)?, Number::parse(cx, d, 2)?);
                for (index, number) in [(1, &width), (2, &height)] {
                    if matches!(number, Number::Fixed(0)) {
                        return Err(invalid(index).hint("a number of pixels, or \"-\""));
                    }
                }
                asked.bounds = Some((width, height));
            }
            Mode::Off | Mode::Test | Mode::Size => {}
        }
        Ok(asked)
    }
    fn append(&mut self, later: Self) {
        // Rotation combines with resizing and cropping.
        if later.mode != Mode::Rotate || !matches!(self.mode, Mode::Resize | Mode::Crop) {
            self.mode = later.mode;
        }
        self.bounds = later.bounds.or(self.bounds.take());
        self.angle = later.angle.or(self.angle.take());
    }
}

#[derive(Clone, Debug)]
pub struct Quality(Number);

impl ValueKind for Quality {
    const SYNTAX: &'static str = "number";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match Number::parse(cx, d, 0)? {
            Number::Fixed(0 | ANY) => {
                let text = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
                Err(Problem::says(format!("invalid value \"{text}\"")).at(0))
            }
            number => Ok(Quality(number)),
        }
    }
    fn append(&mut self, later: Self) {
        // As in nginx, a number does not replace a line with variables.
        if matches!((&self.0, &later.0), (Number::Fixed(_), _) | (_, Number::Computed(_))) {
            *self = later;
        }
    }
}

#[derive(Clone, Debug)]
pub struct Amount(Number);

impl ValueKind for Amount {
    const SYNTAX: &'static str = "percent";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Number::parse(cx, d, 0).map(Amount)
    }
}

pub struct ImageFilter;

impl Feature for ImageFilter {
    fn table(&self) -> FeatureTable {
        ImageConf::table("image_filter", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ImageConf>() else { return Ok(()) };
        if let Some(asked) = conf.image_filter.clone().filter(|asked| asked.mode != Mode::Off) {
            block.location.transform = Some(Arc::new(Pictures { asked, conf: conf.clone() }));
        }
        Ok(())
    }
}

struct Pictures {
    asked: FilterSetting,
    conf: ImageConf,
}

/// Marks a filtered response by its remaining redirects: the resulting error page is not filtered.
struct FilterMark(u8);

impl Transform for Pictures {
    fn wants(&self, r: &mut Request) -> bool {
        let left = r.progress.uri_changes_left();
        if r.out.status() == 304 || r.ext::<FilterMark>().is_some_and(|seen| seen.0 == left) {
            return false;
        }
        r.keep(FilterMark(left));
        true
    }
    fn run(self: Arc<Self>, mut r: Box<Request>, body: ResponseBody) -> LocalFuture<(Box<Request>, Flow)> {
        Box::pin(async move {
            let flow = match self.change(&mut r, body).await {
                Ok(flow) => flow,
                Err(ImageFailure::NoPicture) => {
                    r.out.clear();
                    Flow::Status(415)
                }
                Err(ImageFailure::Broken) => Flow::Close,
                Err(ImageFailure::NoMemory(status)) => {
                    r.out.clear();
                    Flow::Status(status)
                }
            };
            (r, flow)
        })
    }
}

enum ImageFailure {
    NoPicture,
    Broken,
    /// Status of a response without memory.
    NoMemory(u16),
}

impl Pictures {
    async fn change(&self, r: &mut Request, body: ResponseBody) -> Result<Flow, ImageFailure> {
        let media = r.out.content_type();
        if media.get(..25).is_some_and(|media| media.eq_ignore_ascii_case(b"multipart/x-mixed-replace")) {
            r.log(Severity::Error, format_args!("image filter: multipart/x-mixed-replace response"));
            return Err(ImageFailure::Broken);
        }
        let most = self.conf.image_filter_buffer.0;
        if let Some(length) = r.out.content_length().filter(|length| *length > most) {
            r.log(Severity::Error, format_args!("image filter: too big response: {length}"));
            return Err(ImageFailure::NoPicture);
        }
        let mut taken = TakenBody { body, first: BytesMut::new(), ended: false };
        taken.read(r, head::BYTES as u64).await?;
        let Some(kind) = ImageFormat::of(&taken.first) else {
            return if self.asked.mode == Mode::Size { Ok(json(r, None)) } else { Err(ImageFailure::NoPicture) };
        };
        r.out.set_content_type(kind.media());
        r.out.allow_ranges(false);
        r.out.set_accept_ranges(None);
        r.out.remove(b"Refresh");
        if self.asked.mode == Mode::Test {
            return Ok(Flow::Content(taken.whole()));
        }
        taken.read(r, MEASURED_BYTES).await?;
        let expected = r.out.content_length().unwrap_or(most).min(most).saturating_mul(2).max(WORK_BYTES);
        // A large picture takes the connection's share, and the rest when it is there.
        let share = body_memory::memory_limits(r).connection.max(expected);
        let known = work_bytes(expected, head::measure_image(kind, &taken.first)).min(share);
        let mut memory =
            body_memory::reserve_memory(r, known).await.map_err(|none| ImageFailure::NoMemory(none.status()))?;
        taken.read(r, most + 1).await?;
        if taken.first.len() as u64 > most {
            r.log(Severity::Error, format_args!("image filter: too big response"));
            return Err(ImageFailure::NoPicture);
        }
        let bytes = taken.first.freeze();
        let measure = head::measure_image(kind, &bytes);
        if self.asked.mode == Mode::Size {
            return Ok(json(r, measure.map(|measure| (kind, measure))));
        }
        let Some(wish) = self.wish(r, measure)? else {
            r.out.set_content_length(Some(bytes.len() as u64));
            return Ok(Flow::Content(ResponseBody::Bytes(memory.hold(bytes))));
        };
        let output = ImageOutput {
            kind,
            jpeg_quality: self.conf.image_filter_jpeg_quality.0.get(r),
            webp_quality: self.conf.image_filter_webp_quality.0.get(r),
            interlace: self.conf.image_filter_interlace,
            transparency: self.conf.image_filter_transparency,
        };
        memory.resize(work_bytes(expected, measure));
        let made = match work(r, bytes.clone(), wish, output).await {
            Ok(Some(made)) => made,
            Ok(None) => {
                r.out.set_content_length(Some(bytes.len() as u64));
                return Ok(Flow::Content(ResponseBody::Bytes(memory.hold(bytes))));
            }
            Err(why) => {
                r.log(Severity::Error, format_args!("image filter: {why}"));
                return Err(ImageFailure::NoPicture);
            }
        };
        r.out.weaken_etag();
        r.out.set_content_length(Some(made.len() as u64));
        Ok(Flow::Content(ResponseBody::Bytes(memory.hold(made.into_boxed_slice()))))
    }

    /// Returns the requested changes; `None` if the image is small enough.
    fn wish(&self, r: &mut Request, measure: Option<Measure>) -> Result<Option<ResizeOptions>, ImageFailure> {
        let angle = self.asked.angle.as_ref().map_or(0, |angle| angle.get(r));
        let sharpen = self.conf.image_filter_sharpen.0.0.get(r);
        if self.asked.mode == Mode::Rotate {
            if !matches!(angle, 90 | 180 | 270) {
                return Err(ImageFailure::NoPicture);
            }
            return Ok(Some(ResizeOptions { bounds: None, crop: false, angle, sharpen, force: true }));
        }
        let (width, height) = match &self.asked.bounds {
            Some((width, height)) => (width.get(r), height.get(r)),
            None => (0, 0),
        };
        if width == 0 || height == 0 {
            return Err(ImageFailure::NoPicture);
        }
        if let Some(measure) = measure
            && u64::from(measure.width) <= width
            && u64::from(measure.height) <= height
            && angle == 0
            && !measure.heavy
        {
            return Ok(None);
        }
        let (crop, force) = (self.asked.mode == Mode::Crop, measure.is_some_and(|measure| measure.heavy));
        Ok(Some(ResizeOptions { bounds: Some((width, height)), crop, angle, sharpen, force }))
    }
}

/// The read part of a body, and the rest.
struct TakenBody {
    body: ResponseBody,
    first: BytesMut,
    ended: bool,
}

impl TakenBody {
    async fn read(&mut self, r: &mut Request, least: u64) -> Result<(), ImageFailure> {
        while !self.ended && (self.first.len() as u64) < least {
            match std::future::poll_fn(|cx| self.body.poll_piece(cx, r)).await {
                None => self.ended = true,
                Some(Err(BodyError)) => return Err(ImageFailure::Broken),
                Some(Ok(Piece::Flush)) => {}
                Some(Ok(Piece::Bytes(bytes))) => self.first.extend_from_slice(&bytes),
                Some(Ok(Piece::File(mut part))) => {
                    while part.length > 0 && (self.first.len() as u64) < least {
                        let missing = least - self.first.len() as u64;
                        let bytes = part.read_most(missing.min(READ_BYTES)).map_err(|_| ImageFailure::Broken)?;
                        self.first.extend_from_slice(&bytes);
                    }
                    if part.length > 0 {
                        let rest = std::mem::take(&mut self.body);
                        self.body = ResponseBody::Source(Box::new(RejoinedBody {
                            first: VecDeque::from([Piece::File(part)]),
                            rest,
                        }));
                    }
                }
            }
        }
        Ok(())
    }
    fn whole(self) -> ResponseBody {
        if self.ended {
            return ResponseBody::Bytes(self.first.freeze());
        }
        let first = VecDeque::from([Piece::Bytes(self.first.freeze())]);
        ResponseBody::Source(Box::new(RejoinedBody { first, rest: self.body }))
    }
}

struct RejoinedBody {
    first: VecDeque<Piece>,
    rest: ResponseBody,
}

impl BodySource for RejoinedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        match self.first.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => self.rest.poll_piece(cx, r),
        }
    }
    fn needs_window(&self) -> bool {
        self.first.is_empty() && self.rest.needs_window()
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.rest.poll_ahead(cx, r);
    }
}

fn json(r: &mut Request, found: Option<(ImageFormat, Measure)>) -> Flow {
    let text = match found {
        None => "{}\r\n".into(),
        Some((kind, Measure { width, height, .. })) => {
            format!("{{ \"img\" : {{ \"width\": {width}, \"height\": {height}, \"type\": \"{}\" }} }}\r\n", kind.name())
        }
    };
    r.out.clear();
    r.progress.forget_error_status();
    r.respond(200, "application/json", text)
}

/// Memory that a picture needs at least while it is changed.
const WORK_BYTES: u64 = 1 << 20;
/// Bytes of a file read before there is memory for the rest: they tell the size of all pictures but JPEG's.
const MEASURED_BYTES: u64 = 64;
/// Bytes read at a time.
const READ_BYTES: u64 = 256 * 1024;
/// A pixel, decoded, current and new.
const PIXEL_BYTES: u64 = 12;
/// Memory of a picture while it is changed, of whose bytes `expected` tells. Heads may name any size: one of more than [`PIXELS_MAX`] is
/// refused later.
fn work_bytes(expected: u64, measure: Option<Measure>) -> u64 {
    let pixels = measure.map_or(0, |measure| measure.pixels().min(PIXELS_MAX));
    expected.saturating_add(pixels * PIXEL_BYTES)
}

/// Megabytes of all images in work together; each takes three times its pixels (decoded, current, new).
const MEGABYTES_MAX: usize = 512;
static MEMORY: Semaphore = Semaphore::const_new(MEGABYTES_MAX);

/// Processes an image on the pool. `None`: unchanged.
async fn work(r: &Request, bytes: Bytes, wish: ResizeOptions, output: ImageOutput) -> Result<Option<Vec<u8>>, String> {
    let pixels = picture::count_pixels(output.kind, &bytes)?;
    let megabytes = ((pixels * PIXEL_BYTES) >> 20).clamp(1, MEGABYTES_MAX as u64) as u32;
    let permit = MEMORY.acquire_many(megabytes).await.map_err(|_| "no memory".to_string())?;
    let job = move |wanted: &ResultInterest<'_>| {
        let made = picture::change_image(&bytes, &wish, &output, wanted);
        drop(permit);
        made
    };
    pooled::run_long(r, job).await.unwrap_or_else(|| Err("the picture was not made".into()))
}
