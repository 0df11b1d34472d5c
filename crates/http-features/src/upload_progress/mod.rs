//! upload_progress, track_uploads, report_uploads (the module `uploadprogress` by others): how much of a request's body has come, told to
//! another request that names the upload. `tracker.rs` keeps the uploads of a zone.

mod tracker;

use bytes::Bytes;
use conf_schema::value::{Own, Text, parse_sec, parse_size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::core_table::Marker;
use http_engine::variable::Builtin;
use http_engine::variables::find_arg;
use http_engine::{
    BlockPlan, Body, BodyReader, Feature, Flow, Handler, HandlerOrder, Logger, Request, RequestBody, Template,
};
use http_types::{BodyLength, Method};
use session_engine::zones::{self, Declared};
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use tracker::{State, Tracker, Upload};

directives! {
    /// What the module is told in a block.
    pub struct UploadConf from UploadInput {
        /// Keeps what is known of uploads in a zone of this name and size.
        upload_progress: ZoneLine,
        /// Notes the POST requests of a location in a zone, under the identifier that they name, and for some time after their end.
        /// Differs: it may stand anywhere in its location.
        track_uploads: Track,
        /// Answers with the state of the upload that the request names.
        report_uploads: Own<Text>,
        /// The media type of the answer.
        upload_progress_content_type: Text,
        /// The name of the field, or of the argument, that identifies an upload.
        upload_progress_header: Text = "X-Progress-ID",
        /// The argument with the name of JSONP's function.
        /// Differs: a name of other characters than letters, digits, `_`, `$`, `.`, `[` and `]` is not taken over into the answer.
        upload_progress_jsonp_parameter: Text = "callback",
        /// Answers with an expression of JavaScript, as old versions of the module.
        upload_progress_java_output: Marker,
        /// Answers with JSON.
        upload_progress_json_output: Marker,
        /// Answers with JSONP, which is the default.
        upload_progress_jsonp_output: Marker,
        /// The answer in one of the states `starting`, `uploading`, `done` and `error`.
        upload_progress_template: Templates,
    }
}

const KIND: &str = "upload_progress";

/// `upload_progress name size`
#[derive(Clone)]
pub struct ZoneLine;

impl Value for ZoneLine {
    const SYNTAX: &'static str = "name size";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |index: usize| d.args.get(index).map(|w| w.text().into_owned()).unwrap_or_default();
        let (name, size) = (word(0), word(1));
        let bytes = parse_size(size.as_bytes()).filter(|bytes| *bytes >= zones::BYTES_MIN);
        let bytes = bytes.ok_or_else(|| {
            Problem::says(format!("invalid size \"{size}\" of upload_progress zone"))
                .at(1)
                .hint("it takes 32k at least")
        })?;
        let state = zones::state(KIND, &name, bytes, b"", || Tracker::new(bytes));
        let zone = Declared::<Request, Tracker> { name, key: Template::default(), key_text: Vec::new(), state };
        zones::declare(cx, d, KIND, zone).map_err(|p| p.at(0))?;
        Ok(ZoneLine)
    }
}

/// `track_uploads zone time`
#[derive(Clone, Debug)]
pub struct Track {
    zone: String,
    seconds: u64,
}

impl Value for Track {
    const SYNTAX: &'static str = "zone time";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let zone = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        match d.args.get(1).and_then(|time| parse_sec(&time.bytes)) {
            Some(seconds) => Ok(Track { zone, seconds }),
            None => Err(Problem::says(format!("track_uploads \"{zone}\" timeout value invalid")).at(1)),
        }
    }
}

/// `upload_progress_template state text`
#[derive(Clone, Default)]
pub struct Templates(Vec<(State, Template)>);

impl Value for Templates {
    const SYNTAX: &'static str = "starting | uploading | done | error text";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let Some(state) = State::named(&name) else {
            return Err(Problem::says(format!("unknown state \"{name}\""))
                .at(0)
                .hint("starting, uploading, done or error"));
        };
        let text = d.args.get(1).map(|w| w.bytes.clone()).unwrap_or_default();
        Ok(Templates(vec![(state, Template::compile(cx, d, &text).map_err(|p| p.at(1))?)]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "uploadprogress_length",
        |r, out| told(r, out, |told| told.length),
        "How long the reported upload is.",
    ),
    Builtin::one(
        "uploadprogress_received",
        |r, out| told(r, out, |told| told.received),
        "How much of the reported upload has come.",
    ),
    Builtin::one(
        "uploadprogress_status",
        |r, out| told(r, out, |told| told.status),
        "The status that the reported upload ended with.",
    ),
    Builtin::one("uploadprogress_callback", callback, "The function that a report names for JSONP."),
];

fn told(r: &mut Request, out: &mut Vec<u8>, of: impl Fn(&Told) -> u64) -> bool {
    let Some(told) = r.ext::<Told>() else { return false };
    out.extend(of(told).to_string().bytes());
    true
}

fn callback(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let plan = r.plan_rc();
    let Some(report) = plan.locations.get(r.location).and_then(|location| location.ext::<Names>()) else {
        return false;
    };
    let Some(name) = find_arg(&r.args, &report.callback) else { return false };
    // What the client says becomes part of a script: nothing but a name does.
    if !name.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'.' | b'[' | b']')) {
        return false;
    }
    out.extend_from_slice(name);
    true
}

/// How requests of a location name things; kept in `Location::extensions`.
struct Names {
    id: Vec<u8>,
    callback: Vec<u8>,
}

/// The identifier that a request names, in a field or an argument.
fn identifier<'r>(r: &'r Request, name: &[u8]) -> Option<&'r [u8]> {
    let field = r.headers().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    field.or_else(|| find_arg(&r.args, name)).filter(|id| !id.is_empty())
}

/// The feature.
pub struct UploadProgress;

impl Feature for UploadProgress {
    fn table(&self) -> Table {
        UploadConf::table("upload_progress", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<UploadConf>() else { return Ok(()) };
        let id = conf.upload_progress_header.0.clone();
        if let Some(Track { zone, seconds }) = &conf.track_uploads {
            let zone: Arc<Declared<Request, Tracker>> =
                zones::find(block.cx, KIND, zone).map_err(|p| p.of("track_uploads"))?;
            let tracking = Arc::new(Tracking { id: id.clone(), zone: zone.state.clone(), seconds: *seconds });
            block.handle(HandlerOrder::TrackUploads, Arc::new(Begin(tracking.clone())));
            block.location.loggers.push(Arc::new(End(tracking)));
        }
        let Some(Own(zone)) = &conf.report_uploads else { return Ok(()) };
        let zone: Arc<Declared<Request, Tracker>> =
            zones::find(block.cx, KIND, &zone.str()).map_err(|p| p.of("report_uploads"))?;
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
            .push(Arc::new(Names { id: id.clone(), callback: conf.upload_progress_jsonp_parameter.0.clone() }));
        let templates = conf.upload_progress_template.clone().unwrap_or_default().0;
        block.location.content = Some(Arc::new(Report { zone: zone.state.clone(), form, content_type, templates }));
        Ok(())
    }
}

struct Tracking {
    id: Vec<u8>,
    zone: Arc<Tracker>,
    seconds: u64,
}

/// The upload of a request, kept with it: its end is noted however the request ends.
struct Tracked {
    upload: Arc<Upload>,
    seconds: u64,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.upload.end(base::clock::unix_seconds() + i64::try_from(self.seconds).unwrap_or(i64::MAX / 2));
    }
}

/// Notes an upload before its body is read.
struct Begin(Arc<Tracking>);

impl Handler for Begin {
    fn run(&self, r: &mut Request) -> Flow {
        if r.method != Method::Post || r.is_subrequest() || r.is_rehearsal() || r.ext::<Tracked>().is_some() {
            return Flow::Declined;
        }
        let Some(id) = identifier(r, &self.0.id) else { return Flow::Declined };
        let length = match r.body_length {
            Some(BodyLength::Exact(length)) => length,
            _ => 0,
        };
        let Some(upload) = self.0.zone.begin(id, length, base::clock::unix_seconds()) else { return Flow::Declined };
        match std::mem::take(&mut r.body) {
            RequestBody::Unread(inner) => {
                let upload = upload.clone();
                r.body = RequestBody::Unread(Box::new(Counted { inner, upload }));
            }
            // It has been read before, or there is none.
            other => {
                r.body = other;
                upload.add(length);
            }
        }
        r.keep(Tracked { upload, seconds: self.0.seconds });
        Flow::Declined
    }
}

/// A body whose octets are counted.
struct Counted {
    inner: Box<dyn BodyReader>,
    upload: Arc<Upload>,
}

impl BodyReader for Counted {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, u16>>> {
        let read = self.inner.poll_read(cx);
        if let Poll::Ready(Some(Ok(bytes))) = &read {
            self.upload.add(bytes.len() as u64);
        }
        read
    }
}

/// Notes the status that an upload ended with.
struct End(Arc<Tracking>);

impl Logger for End {
    fn log(&self, r: &mut Request) {
        let status = r.out.status;
        if let Some(tracked) = r.ext::<Tracked>() {
            tracked.upload.set_status(status);
        } else if r.method == Method::Post
            && status >= 400
            && let Some(id) = identifier(r, &self.0.id)
        {
            // It was refused before it could be noted (413, say).
            let now = base::clock::unix_seconds();
            if let Some(upload) = self.0.zone.begin(id, 0, now) {
                upload.set_status(status);
                upload.end(now + i64::try_from(self.0.seconds).unwrap_or(i64::MAX / 2));
            }
        }
    }
}

/// Numbers of a report, read by the variables of its template.
struct Told {
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
    templates: Vec<(State, Template)>,
}

impl Handler for Report {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.method, Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let plan = r.plan_rc();
        let names = plan.locations.get(r.location).and_then(|location| location.ext::<Names>());
        let Some(id) = names.and_then(|names| identifier(r, &names.id)) else { return Flow::Status(404) };
        let upload = self.zone.find(id, base::clock::unix_seconds());
        let state = upload.as_ref().map_or(State::Starting, |upload| upload.state());
        let (length, received, status) = upload.map_or((0, 0, 0), |upload| upload.numbers());
        r.keep(Told { length, received, status: u64::from(status) });
        let own = self.templates.iter().rev().find(|(of, _)| *of == state);
        let text = match own {
            Some((_, template)) => template.eval(r),
            None => self.text(r, state, (length, received, status)),
        };
        r.out.status = 200;
        r.out.content_type = self.content_type.as_bytes().to_vec().into();
        r.out.add("Expires", b"Thu, 01 Jan 1970 00:00:01 GMT".to_vec());
        r.out.add("Cache-Control", b"no-cache".to_vec());
        r.out.content_length = Some(text.len() as u64);
        Flow::Content(Body::Bytes(Bytes::from(text)))
    }
}

impl Report {
    fn text(&self, r: &mut Request, state: State, (length, received, status): (u64, u64, u16)) -> Vec<u8> {
        let quote = if self.form == Form::Java { '\'' } else { '"' };
        let name = |name: &str| format!("{quote}{name}{quote} : ");
        let mut object = format!("{{ {}{quote}{}{quote}", name("state"), state.name());
        match state {
            State::Error => object += &format!(", {}{status}", name("status")),
            State::Uploading => object += &format!(", {}{received}, {}{length}", name("received"), name("size")),
            State::Starting | State::Done => {}
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
