//! What operators write about passing requests on: kinds of values, and one table that is mounted for each protocol.

use crate::binding::BindTo;
use conf_schema::value::{Buffers, List, Words};
use conf_schema::{Cx, Directive, Problem, Value};
use http_engine::Template;
use http_engine::core_table::TempPath;
use http_engine::values::SizeTemplate;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

conf_schema::word_set! {
    /// `proxy_next_upstream`
    pub struct NextUpstream {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_502 = 32 "http_502", HTTP_503 = 64 "http_503", HTTP_504 = 128 "http_504",
        HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404", HTTP_429 = 1024 "http_429", OFF = 2048 "off",
    }
}
conf_schema::word_set! {
    /// `fastcgi_next_upstream` and kin: gateways have no 502 and 504 of their own.
    pub struct NextProgram {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_503 = 64 "http_503", HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404",
        HTTP_429 = 1024 "http_429", OFF = 2048 "off",
    }
}
conf_schema::word_set! {
    /// `proxy_ignore_headers`
    pub struct IgnoreHeaders {
        REDIRECT = 1 "X-Accel-Redirect", EXPIRES_IN = 2 "X-Accel-Expires", LIMIT_RATE = 4 "X-Accel-Limit-Rate",
        BUFFERING = 8 "X-Accel-Buffering", CHARSET = 16 "X-Accel-Charset", EXPIRES = 32 "Expires",
        CACHE_CONTROL = 64 "Cache-Control", SET_COOKIE = 128 "Set-Cookie", VARY = 256 "Vary",
    }
}

/// A field's name.
#[derive(Clone)]
pub struct Name(pub Vec<u8>);

impl Value for Name {
    const SYNTAX: &'static str = "field";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Words::parse(cx, d).map(|w| Name(w.0.into_iter().next().unwrap_or_default()))
    }
}

/// The names of such lines.
pub fn names(list: &Option<List<Name>>) -> impl Iterator<Item = &[u8]> {
    list.iter().flat_map(|list| list.0.iter().map(|name| name.0.as_slice()))
}

/// What one location says of passing requests on, whatever the prefix of its directives.
#[derive(Clone)]
pub struct PassConf {
    /// `proxy`, `fastcgi`, ...
    pub prefix: &'static str,
    /// Another body than the client's.
    pub set_body: Option<Template>,
    pub buffering: bool,
    /// The most that the head of a response may take, in bytes.
    pub buffer_size: u64,
    pub buffers: Buffers,
    /// `None`: twice the larger of the two before.
    pub busy_buffers_size: Option<u64>,
    pub request_buffering: bool,
    pub next_upstream: NextUpstream,
    /// 0: all.
    pub next_upstream_tries: u64,
    /// Milliseconds; 0: no limit.
    pub next_upstream_timeout: u64,
    pub intercept_errors: bool,
    pub limit_rate: Option<SizeTemplate>,
    pub pass_trailers: bool,
    pub connect_timeout: Duration,
    pub send_timeout: Duration,
    pub read_timeout: Duration,
    pub socket_keepalive: bool,
    /// SO_RCVBUF and SO_SNDBUF; 0: as the system has it.
    pub receive_buffer: usize,
    pub send_buffer: usize,
    pub force_ranges: bool,
    pub ignore_headers: IgnoreHeaders,
    pub pass_request_headers: bool,
    pub pass_request_body: bool,
    /// `None`: nothing is put into files.
    pub temp_path: Option<TempPath>,
    pub max_temp_file_size: u64,
    pub temp_file_write_size: u64,
    pub ignore_client_abort: bool,
    pub bind: Option<BindTo>,
}

/// What `proxy_temp_file_write_size` is where nobody says it; it then goes with the buffers, however large.
const WRITE_SIZE: u64 = 8 * 1024;

/// Settings whose buffers were looked at; kept in `Cx`.
#[derive(Default)]
struct Fitting(Vec<Arc<dyn Any + Send + Sync>>);

impl PassConf {
    /// What most protocols begin with; each says what is different.
    pub fn new(prefix: &'static str) -> PassConf {
        let minute = Duration::from_secs(60);
        PassConf {
            prefix,
            set_body: None,
            buffering: true,
            buffer_size: 4096,
            buffers: Buffers { count: 8, size: 4096 },
            busy_buffers_size: None,
            request_buffering: true,
            next_upstream: NextUpstream(NextUpstream::ERROR.0 | NextUpstream::TIMEOUT.0),
            next_upstream_tries: 0,
            next_upstream_timeout: 0,
            intercept_errors: false,
            limit_rate: None,
            pass_trailers: false,
            connect_timeout: minute,
            send_timeout: minute,
            read_timeout: minute,
            socket_keepalive: false,
            receive_buffer: 0,
            send_buffer: 0,
            force_ranges: false,
            ignore_headers: IgnoreHeaders::default(),
            pass_request_headers: true,
            pass_request_body: true,
            temp_path: None,
            max_temp_file_size: 0,
            temp_file_write_size: WRITE_SIZE,
            ignore_client_abort: false,
            bind: None,
        }
    }
    /// Looks at the sizes of buffers, once for each settings: those that a block takes over as a whole (`whose`) were looked at.
    ///
    /// # Errors
    /// nginx's words for what does not go together.
    pub fn check(&self, cx: &mut Cx, whose: &Arc<dyn Any + Send + Sync>) -> Result<(), Problem> {
        let seen = cx.get::<Fitting>();
        if seen.0.iter().any(|known| Arc::ptr_eq(known, whose)) {
            return Ok(());
        }
        seen.0.push(whose.clone());
        self.buffers_fit()
    }
    fn buffers_fit(&self) -> Result<(), Problem> {
        let prefix = self.prefix;
        let at_least =
            format!("the maximum of the value of \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\"");
        let buffers = &self.buffers;
        if buffers.count < 2 {
            return Err(Problem::says(format!("there must be at least 2 \"{prefix}_buffers\"")));
        }
        let size = self.buffer_size.max(buffers.size);
        let busy = self.busy_buffers_size.unwrap_or(2 * size);
        if busy < size {
            return Err(Problem::says(format!(
                "\"{prefix}_busy_buffers_size\" must be equal to or greater than {at_least}"
            )));
        }
        if busy > (buffers.count - 1).saturating_mul(buffers.size) {
            return Err(Problem::says(format!(
                "\"{prefix}_busy_buffers_size\" must be less than the size of all \"{prefix}_buffers\" minus one buffer"
            )));
        }
        let write = self.temp_file_write_size;
        if write < size && write != WRITE_SIZE {
            return Err(Problem::says(format!(
                "\"{prefix}_temp_file_write_size\" must be equal to or greater than {at_least}"
            )));
        }
        let file = self.max_temp_file_size;
        if file != 0 && file < size {
            return Err(Problem::says(format!(
                "\"{prefix}_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be equal to or \
                 greater than {at_least}"
            )));
        }
        Ok(())
    }
}

/// Mounts the table under a protocol's prefix, beside the protocol's own rows, and its TLS part where there is one. The names stand in
/// the order of the rows below.
#[macro_export]
macro_rules! pass_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $prefix:literal;
     $bind:ident $buffer_size:ident $buffering:ident $buffers:ident $busy:ident $connect_timeout:ident $force_ranges:ident
     $hide:ident $ignore_abort:ident $ignore_headers:ident $intercept:ident $limit_rate:ident $max_temp:ident $next:ident = $Next:ident
     $next_timeout:ident $next_tries:ident $show:ident $pass_body:ident $pass_headers:ident $read_timeout:ident
     $request_buffering:ident $send_timeout:ident $keepalive:ident $rcvbuf:ident $sndbuf:ident
     $write_size:ident $temp_path:ident = $temp:literal
     $(ssl { $($tls:tt)* })?
     own { $($own:tt)* }
    ) => {
        $crate::pass_table! {
            [$($($tls)*)?]
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                $($own)*
                /// The address that connections to servers are made from.
                $bind: $crate::binding::BindTo,
                /// The most that the head of a response may take.
                $buffer_size: conf_schema::value::Size = "4k",
                /// Whether the response is read ahead of the client.
                $buffering: conf_schema::value::Flag = "on",
                /// Number and size of buffers for reading a response.
                $buffers: conf_schema::value::Buffers = "8 4k",
                /// nginx: how much of the buffers may be on its way to the client while the response is still read, so that the
                /// rest can be read into. Ours hands on what it has read at once and reads ahead up to the size of all buffers:
                /// the value is checked as nginx checks it, and bounds nothing more.
                $busy: conf_schema::value::Size,
                /// How long a connection may take to be established.
                $connect_timeout: conf_schema::value::Msec = "60s",
                /// Ranges are answered even when the server does not say that it does.
                $force_ranges: conf_schema::value::Flag = "off",
                /// Fields of the response that are not passed on.
                $hide: conf_schema::value::List<$crate::exchange::conf::Name>,
                /// Whether a request is carried on when its client has gone.
                $ignore_abort: conf_schema::value::Flag = "off",
                /// Fields of the response that are not acted upon.
                $ignore_headers: $crate::exchange::conf::IgnoreHeaders,
                /// Whether responses of 300 and above are replaced by `error_page`.
                $intercept: conf_schema::value::Flag = "off",
                /// The most bytes a second that are read from the server of a buffered response; 0: no limit.
                $limit_rate: http_engine::values::SizeTemplate,
                /// The most of a response that is kept in a temporary file; 0: none.
                $max_temp: conf_schema::value::Offset = "1024m",
                /// When the next server is tried.
                $next: $crate::exchange::conf::$Next = "error timeout",
                /// How long the next server may be tried; 0: no limit.
                $next_timeout: conf_schema::value::Msec = "0",
                /// How many servers are tried; 0: all.
                $next_tries: conf_schema::value::Number = "0",
                /// Fields that would be hidden and are passed on.
                $show: conf_schema::value::List<$crate::exchange::conf::Name>,
                /// Whether the client's body is passed on.
                /// Differs: a body that is not passed on is not announced either: nginx leaves its `Content-Length`, and servers
                /// wait for it.
                $pass_body: conf_schema::value::Flag = "on",
                /// Whether the client's fields are passed on.
                $pass_headers: conf_schema::value::Flag = "on",
                /// How long the server may send nothing.
                $read_timeout: conf_schema::value::Msec = "60s",
                /// Whether the client's body is read whole before it is passed on.
                $request_buffering: conf_schema::value::Flag = "on",
                /// How long the server may take nothing of a request.
                $send_timeout: conf_schema::value::Msec = "60s",
                /// SO_KEEPALIVE on connections to servers.
                $keepalive: conf_schema::value::Flag = "off",
                /// SO_RCVBUF of connections to servers.
                $rcvbuf: conf_schema::value::Size = "0",
                /// SO_SNDBUF of connections to servers.
                $sndbuf: conf_schema::value::Size = "0",
                /// How much is written to a temporary file at once.
                $write_size: conf_schema::value::Size = "8k",
                /// The folder of temporary files with responses that a client is too slow for.
                $temp_path: http_engine::core_table::TempPath = $temp,
            }
        }

        impl $Plan {
            /// What the rows say that every protocol has.
            fn pass_conf(&self) -> $crate::exchange::conf::PassConf {
                $crate::exchange::conf::PassConf {
                    buffering: self.$buffering,
                    buffer_size: self.$buffer_size.0,
                    buffers: self.$buffers.clone(),
                    busy_buffers_size: self.$busy.as_ref().map(|size| size.0),
                    request_buffering: self.$request_buffering,
                    next_upstream: $crate::exchange::conf::NextUpstream(self.$next.0),
                    next_upstream_tries: self.$next_tries.0,
                    next_upstream_timeout: self.$next_timeout.0,
                    intercept_errors: self.$intercept,
                    limit_rate: self.$limit_rate.clone(),
                    connect_timeout: self.$connect_timeout.duration(),
                    send_timeout: self.$send_timeout.duration(),
                    read_timeout: self.$read_timeout.duration(),
                    socket_keepalive: self.$keepalive,
                    receive_buffer: self.$rcvbuf.0 as usize,
                    send_buffer: self.$sndbuf.0 as usize,
                    force_ranges: self.$force_ranges,
                    ignore_headers: self.$ignore_headers.unwrap_or_default(),
                    pass_request_headers: self.$pass_headers,
                    pass_request_body: self.$pass_body,
                    temp_path: Some(self.$temp_path.clone()),
                    max_temp_file_size: self.$max_temp.0,
                    temp_file_write_size: self.$write_size.0,
                    ignore_client_abort: self.$ignore_abort,
                    bind: self.$bind.clone(),
                    ..$crate::exchange::conf::PassConf::new($prefix)
                }
            }
            /// Names of response fields that are not passed on: a protocol's own, and what the operator says.
            fn hidden(&self, own: &[&str]) -> http_types::NameSet {
                let shown: http_types::NameSet = $crate::exchange::conf::names(&self.$show).collect();
                let hidden = $crate::exchange::conf::names(&self.$hide);
                own.iter().map(|name| name.as_bytes()).chain(hidden).filter(|name| !shown.has_name(name)).collect()
            }
        }
    };
}

/// The table itself, with its TLS part where one is given.
#[macro_export]
macro_rules! pass_table {
    ([] $($table:tt)*) => { conf_schema::directives! { $($table)* } };
    ([$prefix:literal $($name:ident)*] $(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident { $($rows:tt)* }) => {
        session_engine::upstream_tls_directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input, http_engine::Request, $prefix;
            $($name)*
            own { $($rows)* }
        }
    };
}
