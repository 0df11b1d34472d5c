//! A response on its way through the stylesheets.

use super::XsltConf;
use super::conf::Sheet;
use super::files::DocumentFiles;
use bytes::{Bytes, BytesMut};
use http_engine::body_memory;
use http_engine::{BodyError, Flow, LocalFuture, Piece, Request, ResponseBody, Transform, unless_gone};
use net::pool::ResultInterest;
use observe::Severity;
use std::future::poll_fn;
use std::sync::Arc;
use tokio::sync::Semaphore;
use xslt::xml::{Dtd, INPUT_MAX, ParseOptions};
use xslt::{Clock, DocumentSource, Limits, Param, Stylesheet};

/// Transformations in work together: each may take the memory of `xslt::Limits`.
const TRANSFORMS_MAX: usize = 8;
/// Memory of a document's tree and result for each of its bytes, and the least that is expected.
const TREE_FACTOR: u64 = 8;
const WORK_BYTES: u64 = 256 << 10;
static TRANSFORMS: Semaphore = Semaphore::const_new(TRANSFORMS_MAX);

pub(super) struct Stylesheets {
    pub conf: Arc<XsltConf>,
}

/// Marks a transformed response by its remaining redirects: an error page is not transformed again.
struct TransformMark(u8);

impl Transform for Stylesheets {
    fn wants(&self, r: &mut Request) -> bool {
        let left = r.progress.uri_changes_left();
        let wants = r.out.status() != 304
            && self.conf.xslt_types.0.has(r.out.content_type())
            && r.ext::<TransformMark>().is_none_or(|seen| seen.0 != left);
        if wants {
            r.keep(TransformMark(left));
            r.out.allow_ranges(false);
        }
        wants
    }
    fn run(self: Arc<Self>, mut r: Box<Request>, body: ResponseBody) -> LocalFuture<(Box<Request>, Flow)> {
        Box::pin(async move {
            let flow = match self.change(&mut r, body).await {
                Ok(body) => Flow::Content(body),
                Err(SheetFailure::Logged) => {
                    r.out.clear();
                    Flow::Status(500)
                }
                Err(SheetFailure::NoMemory(status)) => {
                    r.out.clear();
                    Flow::Status(status)
                }
                Err(SheetFailure::Broken) => Flow::Close,
            };
            (r, flow)
        })
    }
}

enum SheetFailure {
    Logged,
    /// Status of a response without memory.
    NoMemory(u16),
    /// The source of the body failed, and has said so.
    Broken,
}

/// Work of the pool.
struct SheetJob {
    document: Bytes,
    entities: Option<Arc<Dtd>>,
    external_entities: bool,
    sheets: Vec<(Arc<Stylesheet>, Vec<Param>)>,
    clock: Clock,
}

/// Result of a job: lines for the log, and the response.
struct JobResult {
    lines: Vec<(Severity, String)>,
    result: Option<(Vec<u8>, bool)>,
}

impl Stylesheets {
    async fn change(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, SheetFailure> {
        let expected = r.out.content_length().unwrap_or(0).saturating_mul(TREE_FACTOR).max(WORK_BYTES);
        let memory =
            body_memory::reserve_memory(r, expected).await.map_err(|none| SheetFailure::NoMemory(none.status()))?;
        let document = collect(r, body).await?;
        let sheets: &[Sheet] = self.conf.xslt_stylesheet.as_ref().map_or(&[], |sheets| &sheets.0);
        let mut all = Vec::with_capacity(sheets.len());
        for sheet in sheets {
            all.push((sheet.stylesheet.clone(), self.params(r, sheet)?));
        }
        let job = SheetJob {
            document,
            entities: self.conf.xml_entities.as_ref().map(|entities| entities.0.clone()),
            external_entities: self.conf.xml_external_entities,
            sheets: all,
            clock: clock(),
        };
        let done = work(r, job).await?;
        for (level, line) in done.lines {
            r.log(level, format_args!("{line}"));
        }
        let Some((bytes, is_html)) = done.result else { return Err(SheetFailure::Logged) };
        let last = sheets.last().map(|sheet| &sheet.stylesheet);
        if let Some(encoding) = last.and_then(|sheet| sheet.encoding()) {
            r.out.set_charset(encoding.as_bytes().to_vec());
        }
        if !r.is_subrequest() {
            match last.and_then(|sheet| sheet.media_type()) {
                Some(media_type) => r.out.set_content_type(media_type.as_bytes().to_vec()),
                None if is_html => r.out.set_content_type("text/html"),
                None => {}
            }
            if self.conf.xslt_last_modified {
                r.out.weaken_etag();
            } else {
                r.out.drop_validators();
            }
        }
        r.out.set_content_length(Some(bytes.len() as u64));
        Ok(ResponseBody::Bytes(memory.hold(bytes)))
    }

    /// Parameters of a stylesheet: those of `xslt_param` and `xslt_string_param`, then its own.
    fn params(&self, r: &mut Request, sheet: &Sheet) -> Result<Vec<Param>, SheetFailure> {
        let mut params = Vec::new();
        for (lines, is_expression) in [(&self.conf.xslt_param, true), (&self.conf.xslt_string_param, false)] {
            for (name, value) in lines.iter().flat_map(|lines| &lines.0) {
                let value = text(value.eval(r));
                params.push(Param { name: name.clone(), value, is_expression });
            }
        }
        for template in &sheet.params {
            let text = text(template.eval(r));
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let Some((name, after)) = rest.split_once('=') else {
                    r.log(Severity::Error, format_args!("invalid libxslt parameter \"{rest}\""));
                    return Err(SheetFailure::Logged);
                };
                let (value, next) = after.split_once(':').unwrap_or((after, ""));
                params.push(Param { name: name.into(), value: unescaped(value), is_expression: true });
                rest = next;
            }
        }
        Ok(params)
    }
}

/// Texts of libxml2 end with a zero byte.
fn text(bytes: Vec<u8>) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// nginx: `ngx_unescape_uri`, which keeps escapes that are none without their percent sign.
fn unescaped(value: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), value.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|digit| (*digit as char).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = after.get(2..).unwrap_or_default();
            }
            (None, _) => {
                out.extend(after.first());
                rest = after.get(1..).unwrap_or_default();
            }
            (Some(_), None) => rest = after.get(2..).unwrap_or_default(),
        }
    }
    text(out)
}

fn clock() -> Clock {
    let now = base::clock::unix_seconds();
    let zone = i64::from(observe::clock::local_offset(now));
    let seed = u64::from_le_bytes(net::random::bytes16().first_chunk::<8>().copied().unwrap_or_default());
    Clock { now, zone, seed }
}

/// Reads the whole body.
async fn collect(r: &mut Request, mut body: ResponseBody) -> Result<Bytes, SheetFailure> {
    let mut all = BytesMut::new();
    loop {
        match poll_fn(|cx| body.poll_piece(cx, r)).await {
            None => return Ok(all.freeze()),
            Some(Err(BodyError)) => return Err(SheetFailure::Broken),
            Some(Ok(Piece::Flush)) => {}
            Some(Ok(Piece::Bytes(bytes))) => all.extend_from_slice(&bytes),
            Some(Ok(Piece::File(mut part))) => {
                while part.length > 0 && all.len() <= INPUT_MAX {
                    let bytes = part.read().map_err(|_| SheetFailure::Broken)?;
                    all.extend_from_slice(&bytes);
                }
            }
        }
        if all.len() > INPUT_MAX {
            r.log(Severity::Error, format_args!("xslt filter: too big response"));
            return Err(SheetFailure::Logged);
        }
    }
}

async fn work(r: &mut Request, job: SheetJob) -> Result<JobResult, SheetFailure> {
    let Ok(permit) = TRANSFORMS.acquire().await else { return Err(SheetFailure::Logged) };
    let run = move |wanted: &ResultInterest<'_>| {
        let done = transform(job, wanted);
        drop(permit);
        done
    };
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else { return Ok(run(&ResultInterest::ALWAYS)) };
    match pool.run_long(run) {
        Ok(waiting) => match unless_gone(r.incoming.watch().cloned(), waiting).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) => {
                r.log(Severity::Error, format_args!("xslt filter: the transformation failed"));
                Err(SheetFailure::Logged)
            }
            None => Err(SheetFailure::NoMemory(499)),
        },
        Err(full) => {
            let waiting = full.waiting;
            r.log(Severity::Error, format_args!("thread pool \"default\" queue overflow: {waiting} tasks waiting"));
            Err(SheetFailure::Logged)
        }
    }
}

fn transform(job: SheetJob, wanted: &ResultInterest<'_>) -> JobResult {
    let mut lines = Vec::new();
    let options = ParseOptions {
        uri: "",
        external_entities: job.external_entities,
        external_subset: false,
        entities: job.entities.as_deref(),
        keep_cdata: true,
    };
    let source = match DocumentSource::parse(&job.document, &options, &mut DocumentFiles(wanted)) {
        Ok(source) => source,
        Err(mut error) => {
            if job.document.is_empty() {
                // The words of libxml2's parser of chunks.
                (error.code, error.message) = (5, "Extra content at the end of the document".into());
            }
            lines.push((Severity::Error, format!("libxml2 error: \"{}\"", error.message)));
            lines.push((Severity::Error, format!("xmlParseChunk() failed, error:{}", error.code)));
            return JobResult { lines, result: None };
        }
    };
    for (name, public, system) in &source.ignored {
        let line = format!("xslt filter external entity ignored: \"{name}\" \"{public}\" \"{system}\"");
        lines.push((Severity::Warn, line));
    }
    for error in &source.errors {
        lines.push((Severity::Error, format!("libxml2 error: \"{}\"", error.message)));
    }
    let message = |text: String| (Severity::Warn, format!("xslt filter message: {}", text.trim_end()));
    match xslt::transform_document(source, &job.sheets, &mut DocumentFiles(wanted), Limits::default(), job.clock) {
        Ok(outcome) => {
            lines.extend(outcome.messages.into_iter().map(message));
            if outcome.bytes.is_empty() {
                lines.push((Severity::Error, "xsltSaveResultToString() returned zero-length result".into()));
                return JobResult { lines, result: None };
            }
            JobResult { lines, result: Some((outcome.bytes, outcome.is_html)) }
        }
        Err(error) => {
            lines.extend(error.messages.into_iter().map(message));
            if !error.message.is_empty() {
                lines.push((Severity::Error, format!("libxslt error: \"{}\"", error.message)));
            }
            let call = if error.serializing { "xsltSaveResultToString" } else { "xsltApplyStylesheet" };
            lines.push((Severity::Error, format!("{call}() failed")));
            JobResult { lines, result: None }
        }
    }
}
