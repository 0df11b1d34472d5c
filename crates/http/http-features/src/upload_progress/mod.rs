//! upload_progress, track_uploads, report_uploads (third-party module `uploadprogress`): reports the progress of a
//! request body to another request. `tracker.rs` keeps a zone's uploads.

mod tracker;

use area::zones::{self, DeclaredZone};
use bytes::Bytes;
use conf_schema::value::{Own, Text, parse_sec, parse_size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::core_table::Marker;
use http_engine::variable::Builtin;
use http_engine::variables::find_arg;
use http_engine::{
    BlockPlan, BodyReader, Feature, Flow, Handler, HandlerOrder, HttpArea, HttpTemplate, Logger, Request, ResponseBody,
};
use http_types::{BodyLength, Method};
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use tracker::{Tracker, Upload, UploadState};

directives! {
    pub struct UploadConf from UploadInput {
        /// Defines a zone for the state of uploads, with its size.
        upload_progress: ZoneLine,
        /// Tracks POST requests of a location in a zone, by their identifier, until this time after their end.
        /// Differs: its position in the location has no effect.
        track_uploads: Track,
        /// Responds with the state of the upload that the request identifies.
        report_uploads: Own<Text>,
        /// Media type of the report.
        upload_progress_content_type: Text,
        /// Name of the request field or argument that identifies an upload.
        upload_progress_header: Text = "X-Progress-ID",
        /// Argument with the name of the JSONP function.
        /// Differs: names with characters other than letters, digits, `_`, `$`, `.`, `[` and `]` are ignored.
        upload_progress_jsonp_parameter: Text = "callback",
        /// Reports in the JavaScript form of old versions of the module.
        upload_progress_java_output: Marker,
        /// Reports in JSON.
        upload_progress_json_output: Marker,
        /// Reports in JSONP, the default.
        upload_progress_jsonp_output: Marker,
        /// Text of the report in one of the states `starting`, `uploading`, `done` and `error`.
        upload_progress_template: Templates,
    }
}

const KIND: &str = "upload_progress";

#[derive(Clone)]
pub struct ZoneLine;

impl ValueKind for ZoneLine {
    const SYNTAX: &'static str = "name size";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |index: usize| d.args.get(index).map(|w| w.text().into_owned()).unwrap_or_default();
        let (name, size) = (word(0), word(1));
        let bytes = parse_size(size.as_bytes()).filter(|bytes| *bytes >= zones::BYTES_MIN);
        let bytes = bytes.ok_or_else(|| {
            Problem::says(format!("invalid size \"{size}\" of upload_progress zone")).at(1).hint("at least 32k")
        })?;
        let state = zones::zone_state(KIND, &name, bytes, b"", || Tracker::new(bytes));
        let zone =
            DeclaredZone::<HttpArea, Tracker> { name, key: HttpTemplate::default(), key_text: Vec::new(), state };
        zones::declare_zone(cx, d, KIND, zone).map_err(|p| p.at(0))?;
        Ok(ZoneLine)
    }
}

#[derive(Clone, Debug)]
pub struct Track {
    zone: String,
    seconds: u64,
}

impl ValueKind for Track {
    const SYNTAX: &'static str = "zone time";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let zone = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        match d.args.get(1).and_then(|time| parse_sec(&time.bytes)) {
            Some(seconds) => Ok(Track { zone, seconds }),
            None => Err(Problem::says(format!("track_uploads \"{zone}\" timeout value invalid")).at(1)),
        }
    }
}

#[derive(Clone, Default)]
pub struct Templates(Vec<(UploadState, HttpTemplate)>);

impl ValueKind for Templates {
    const SYNTAX: &'static str = "starting | uploading | done | error text";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(state) = UploadState::named(&name) else {
            return Err(Problem::says(format!("unknown state \"{name}\""))
                .at(0)
                .hint("starting, uploading, done or error"));
        };
        let text = d.args.get(1).map(|w| w.bytes.clone()).unwrap_or_default();
        Ok(Templates(vec![(state, HttpTemplate::compile(cx, d, &text).map_err(|p| p.at(1))?)]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "uploadprogress_length",
        |r, out| told(r, out, |told| told.length),
        "The length of the reported upload, in bytes.",
    ),
    Builtin::one(
        "uploadprogress_received",
        |r, out| told(r, out, |told| told.received),
        "The bytes received of the reported upload.",
    ),
    Builtin::one(
        "uploadprogress_status",
        |r, out| told(r, out, |told| told.status),
        "The status that the reported upload ended with.",
    ),
    Builtin::one("uploadprogress_callback", callback, "The JSONP function of a report."),
];

fn told(r: &mut Request, out: &mut Vec<u8>, of: impl Fn(&UploadVariables) -> u64) -> bool {
    let Some(told) = r.ext::<UploadVariables>() else { return false };
    out.extend(of(told).to_string().bytes());
    true
}

fn callback(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let plan = r.plan_rc();
    let Some(report) = plan.locations.get(r.location_index()).and_then(|location| location.ext::<UploadNames>()) else {
        return false;
    };
    let Some(name) = find_arg(r.target.args(), &report.callback) else { return false };
    // The client's text becomes part of a script: allows only names.
    if !name.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'.' | b'[' | b']')) {
        return false;
    }
    out.extend_from_slice(name);
    true
}

struct UploadNames {
    id: Vec<u8>,
    callback: Vec<u8>,
}

/// Read from a field or an argument.
fn identifier<'r>(r: &'r Request, name: &[u8]) -> Option<&'r [u8]> {
    let field = r.headers().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    field.or_else(|| find_arg(r.target.args(), name)).filter(|id| !id.is_empty())
}

pub struct UploadProgress;

impl Feature for UploadProgress {
    fn table(&self) -> FeatureTable {
        UploadConf::table("upload_progress", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<UploadConf>() else { return Ok(()) };
        let id = conf.upload_progress_header.0.clone();
        if let Some(Track { zone, seconds }) = &conf.track_uploads {
            let zone: Arc<DeclaredZone<HttpArea, Tracker>> =
                zones::find_zone(block.cx, KIND, zone).map_err(|p| p.of("track_uploads"))?;
            let tracking = Arc::new(UploadTracker { id: id.clone(), zone: zone.state.clone(), seconds: *seconds });
            block.handle(HandlerOrder::TrackUploads, Arc::new(Begin(tracking.clone())));
            block.location.loggers.push(Arc::new(UploadEnd(tracking)));
        }
        let Some(Own(zone)) = &conf.report_uploads else { return Ok(()) };
        let zone: Arc<DeclaredZone<HttpArea, Tracker>> =
            zones::find_zone(block.cx, KIND, &zone.str()).map_err(|p| p.of("report_uploads"))?;
        let form = match (&conf.upload_progress_java_output, &conf.upload_progress_json_output) {
            (Some(_), _) => Form::Java,
            (None, Some(_)) => Form::Json,
            (None, None) => Form::Jsonp,
        };
        let jsonp = conf.upload_progress_jsonp_output.is_some();
        let content_type = match (&conf.upload_progress_content_type, form) {
            (Some(text), _) => text.str().into_owned(),
            (None, Form::Json) => "application/json".into(),
            (None, Form::Jsonp) if jsonp => "application/javascript".into(),
            (None, _) => "text/javascript".into(),
        };
        block
            .location
            .extensions
            .push(Arc::new(UploadNames { id: id.clone(), callback: conf.upload_progress_jsonp_parameter.0.clone() }));
        let templates = conf.upload_progress_template.clone().unwrap_or_default().0;
        block.location.content = Some(Arc::new(Report { zone: zone.state.clone(), form, content_type, templates }));
        Ok(())
    }
}

struct UploadTracker {
    id: Vec<u8>,
    zone: Arc<Tracker>,
    seconds: u64,
}

/// A request's upload; its end is recorded however the request ends.
struct TrackedUpload {
    upload: Arc<Upload>,
    seconds: u64,
}

impl Drop for TrackedUpload {
    fn drop(&mut self) {
        self.upload.end(base::clock::unix_seconds() + i64::try_from(self.seconds).unwrap_or(i64::MAX / 2));
    }
}

/// Records an upload before its body is read.
struct Begin(Arc<UploadTracker>);

impl Handler for Begin {
    fn run(&self, r: &mut Request) -> Flow {
        if r.target.method() != Method::Post
            || r.is_subrequest()
            || r.is_rehearsal()
            || r.ext::<TrackedUpload>().is_some()
        {
            return Flow::Declined;
        }
        let Some(id) = identifier(r, &self.0.id) else { return Flow::Declined };
        let length = match r.incoming.body_length() {
            Some(BodyLength::Exact(length)) => length,
            _ => 0,
        };
        let Some(upload) = self.0.zone.begin(id, length, base::clock::unix_seconds()) else { return Flow::Declined };
        match r.incoming.take_body() {
            Some(inner) => {
                let upload = upload.clone();
                r.incoming.set_body(Box::new(CountedBody { inner, upload }));
            }
            // Already read, or absent.
            None => upload.add(length),
        }
        r.keep(TrackedUpload { upload, seconds: self.0.seconds });
        Flow::Declined
    }
}

struct CountedBody {
    inner: Box<dyn BodyReader>,
    upload: Arc<Upload>,
}

impl BodyReader for CountedBody {
    fn set_timeout(&mut self, timeout: std::time::Duration) {
        self.inner.set_timeout(timeout);
    }
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>> {
        let read = self.inner.poll_read(cx);
        if let Poll::Ready(Some(Ok(bytes))) = &read {
            self.upload.add(bytes.len() as u64);
        }
        read
    }
}

/// Records the status of an upload's end.
struct UploadEnd(Arc<UploadTracker>);

impl Logger for UploadEnd {
    fn log(&self, r: &mut Request) {
        let status = r.out.status();
        if let Some(tracked) = r.ext::<TrackedUpload>() {
            tracked.upload.set_status(status);
        } else if r.target.method() == Method::Post
            && status >= 400
            && let Some(id) = identifier(r, &self.0.id)
        {
            // Refused before it was recorded (413, for example).
            let now = base::clock::unix_seconds();
            if let Some(upload) = self.0.zone.begin(id, 0, now) {
                upload.set_status(status);
                upload.end(now + i64::try_from(self.0.seconds).unwrap_or(i64::MAX / 2));
            }
        }
    }
}

struct UploadVariables {
    length: u64,
    received: u64,
    status: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Java,
    Json,
    Jsonp,
}

struct Report {
    zone: Arc<Tracker>,
    form: Form,
    content_type: String,
    templates: Vec<(UploadState, HttpTemplate)>,
}

impl Handler for Report {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let plan = r.plan_rc();
        let names = plan.locations.get(r.location_index()).and_then(|location| location.ext::<UploadNames>());
        let Some(id) = names.and_then(|names| identifier(r, &names.id)) else { return Flow::Status(404) };
        let upload = self.zone.find(id, base::clock::unix_seconds());
        let state = upload.as_ref().map_or(UploadState::Starting, |upload| upload.state());
        let (length, received, status) = upload.map_or((0, 0, 0), |upload| upload.numbers());
        r.keep(UploadVariables { length, received, status: u64::from(status) });
        let own = self.templates.iter().rev().find(|(of, _)| *of == state);
        let text = match own {
            Some((_, template)) => template.eval(r),
            None => self.text(r, state, (length, received, status)),
        };
        r.out.set_status(200);
        r.out.set_content_type(self.content_type.as_bytes().to_vec());
        r.out.add("Expires", b"Thu, 01 Jan 1970 00:00:01 GMT".to_vec());
        r.out.add("Cache-Control", b"no-cache".to_vec());
        r.out.set_content_length(Some(text.len() as u64));
        Flow::Content(ResponseBody::Bytes(Bytes::from(text)))
    }
}

impl Report {
    fn text(&self, r: &mut Request, state: UploadState, (length, received, status): (u64, u64, u16)) -> Vec<u8> {
        let quote = if self.form == Form::Java { '\'' } else { '"' };
        let name = |name: &str| format!("{quote}{name}{quote} : ");
        let mut object = format!("{{ {}{quote}{}{quote}", name("state"), state.name());
        match state {
            UploadState::Error => object += &format!(", {}{status}", name("status")),
            UploadState::Uploading => object += &format!(", {}{received}, {}{length}", name("received"), name("size")),
            UploadState::Starting | UploadState::Done => {}
        }
        object += " }";
        match self.form {
            Form::Java => format!("new Object({object})\r\n").into_bytes(),
            Form::Json => format!("{object}\r\n").into_bytes(),
            Form::Jsonp => {
                let mut text = Vec::new();
                callback(r, &mut text);
                text.extend(format!("({object});\r\n").bytes());
                text
            }
        }
    }
}
