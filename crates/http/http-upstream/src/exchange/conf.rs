//! Directives of passing requests on: value types, and one table that is mounted for each protocol.

use crate::binding::BindTo;
use conf_schema::value::{Buffers, ValueList, WordList};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::HttpTemplate;
use http_engine::core_table::{Conditions, TempPath};
use http_engine::values::SizeTemplate;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

conf_schema::word_set! {
    /// `proxy_next_upstream`; as nginx, accepts the words of `proxy_cache_use_stale`, too: `updating` means nothing here.
    pub struct NextUpstream {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_502 = 32 "http_502", HTTP_503 = 64 "http_503", HTTP_504 = 128 "http_504",
        HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404", HTTP_429 = 1024 "http_429", OFF = 2048 "off",
        UPDATING = 4096 "updating", DENIED = 8192 "denied",
    }
}
conf_schema::word_set! {
    /// `fastcgi_next_upstream` and the like: gateways do not send 502 and 504.
    pub struct NextProgram {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_503 = 64 "http_503", HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404",
        HTTP_429 = 1024 "http_429", OFF = 2048 "off", UPDATING = 4096 "updating", DENIED = 8192 "denied",
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

/// `proxy_retry`: tries after failed ones, also at the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRule {
    /// Further tries of a request.
    pub attempts: u64,
    /// Statuses of a response that is not passed on while tries are left, as ranges.
    pub codes: Vec<std::ops::RangeInclusive<u16>>,
    /// Time before each further try.
    pub backoff: Duration,
}

impl RetryRule {
    const DEFAULT: RetryRule = RetryRule { attempts: 1, codes: Vec::new(), backoff: Duration::ZERO };
    /// Tells whether a response of this status leads to another try.
    pub fn has(&self, status: u16) -> bool {
        self.codes.iter().any(|codes| codes.contains(&status))
    }
    fn codes(word: &str) -> Option<std::ops::RangeInclusive<u16>> {
        if let Some(class) = word.strip_suffix("xx") {
            let first = class.parse::<u16>().ok().filter(|class| (4..=5).contains(class))? * 100;
            return Some(first..=first + 99);
        }
        let code = word.parse::<u16>().ok().filter(|code| (400..600).contains(code))?;
        Some(code..=code)
    }
}

/// `None`: off.
#[derive(Clone, Debug)]
pub struct Retries(pub Option<RetryRule>);

impl ValueKind for Retries {
    const SYNTAX: &'static str = "off | attempts=number [codes=code,...] [backoff=time]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        if let [only] = d.args.as_slice()
            && only.bytes == b"off"
        {
            return Ok(Retries(None));
        }
        let mut rule = RetryRule::DEFAULT;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = |hint: &str| Problem::says(format!("invalid parameter \"{text}\"")).at(index).hint(hint);
            match text.split_once('=') {
                Some(("attempts", number)) => {
                    let attempts = number.parse().ok().filter(|number| (1..=100).contains(number));
                    rule.attempts = attempts.ok_or_else(|| invalid("a number from 1 to 100"))?;
                }
                Some(("codes", list)) => {
                    let codes: Option<Vec<_>> = list.split(',').map(RetryRule::codes).collect();
                    rule.codes =
                        codes.ok_or_else(|| invalid("statuses from 400 to 599, or 4xx and 5xx: codes=500,502,503"))?;
                }
                Some(("backoff", time)) => {
                    let millis = conf_schema::value::parse_msec(time.as_bytes())
                        .ok_or_else(|| invalid("a time, such as 100ms"))?;
                    rule.backoff = Duration::from_millis(millis);
                }
                _ => return Err(invalid("one of: off, attempts=, codes=, backoff=")),
            }
        }
        Ok(Retries(Some(rule)))
    }
}

/// Name of a field (`proxy_hide_header`, `proxy_pass_header`).
#[derive(Clone)]
pub struct FieldName(pub Vec<u8>);

impl ValueKind for FieldName {
    const SYNTAX: &'static str = "field";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        WordList::parse(cx, d).map(|w| FieldName(w.0.into_iter().next().unwrap_or_default()))
    }
}

/// Returns the names of a directive's lines.
pub fn name_list(list: &Option<ValueList<FieldName>>) -> impl Iterator<Item = &[u8]> {
    list.iter().flat_map(|list| list.0.iter().map(|name| name.0.as_slice()))
}

/// Independent of the directives' prefix.
#[derive(Clone)]
pub struct PassConf {
    /// Prefix of the directives, such as `proxy`.
    pub prefix: &'static str,
    /// Replaces the client's body.
    pub set_body: Option<HttpTemplate>,
    /// `proxy_buffering`: reads the response ahead of the client.
    pub buffering: bool,
    /// In bytes.
    pub buffer_size: u64,
    /// `proxy_buffers`: the bytes in memory that are read ahead.
    pub buffers: Buffers,
    /// `None`: twice the larger of `buffer_size` and one of `buffers`.
    pub busy_buffers_size: Option<u64>,
    /// `proxy_request_buffering`: reads the whole body before a server is asked.
    pub request_buffering: bool,
    /// `proxy_next_upstream`.
    pub next_upstream: NextUpstream,
    /// 0: no limit.
    pub next_upstream_tries: u64,
    /// Milliseconds; 0: no limit.
    pub next_upstream_timeout: u64,
    /// `proxy_retry`.
    pub retry: Option<RetryRule>,
    /// Until the response's head, of all tries and of each; zero: no limit.
    pub request_timeout: Duration,
    /// Limit of each try.
    pub try_timeout: Duration,
    /// `proxy_intercept_errors`.
    pub intercept_errors: bool,
    /// Replaces a 404 by the server's own, as for memcached.
    pub intercept_404: bool,
    /// `proxy_limit_rate` in bytes per second.
    pub limit_rate: Option<SizeTemplate>,
    /// `proxy_pass_trailers`.
    pub pass_trailers: bool,
    /// `proxy_connect_timeout`, for each step of connecting.
    pub connect_timeout: Duration,
    /// `proxy_send_timeout`: between two writes.
    pub send_timeout: Duration,
    /// `proxy_read_timeout`: between two reads.
    pub read_timeout: Duration,
    /// `proxy_socket_keepalive`.
    pub socket_keepalive: bool,
    /// SO_RCVBUF and SO_SNDBUF in bytes; 0: the system's default.
    pub receive_buffer: usize,
    /// SO_SNDBUF in bytes; 0: the system's default.
    pub send_buffer: usize,
    /// `proxy_force_ranges`.
    pub force_ranges: bool,
    /// `proxy_ignore_headers`.
    pub ignore_headers: IgnoreHeaders,
    /// `proxy_pass_request_headers`.
    pub pass_request_headers: bool,
    /// `proxy_pass_request_body`.
    pub pass_request_body: bool,
    /// `None`: no temporary files.
    pub temp_path: Option<TempPath>,
    /// `proxy_max_temp_file_size` in bytes.
    pub max_temp_file_size: u64,
    /// `proxy_temp_file_write_size` in bytes.
    pub temp_file_write_size: u64,
    /// `proxy_ignore_client_abort`.
    pub ignore_client_abort: bool,
    /// `proxy_bind`; `None`: the system selects the address.
    pub bind: Option<BindTo>,
    /// Evaluates `bind` for each server, so that its variables can describe the server.
    pub bind_dynamic: bool,
    /// Makes the request for each server, so that its variables can describe the server.
    pub request_dynamic: bool,
    /// Conditions, evaluated for each server, under which the server may be asked.
    pub allow_upstream: Option<Conditions>,
}

/// Default of `proxy_temp_file_write_size`, in bytes, which is exempt from the check against the buffers.
const WRITE_SIZE: u64 = 8 * 1024;

/// Settings whose buffer sizes were checked, in `Cx`.
#[derive(Default)]
struct CheckedBuffers(Vec<Arc<dyn Any + Send + Sync>>);

impl PassConf {
    /// To be adjusted by each protocol.
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
            retry: None,
            request_timeout: Duration::ZERO,
            try_timeout: Duration::ZERO,
            intercept_errors: false,
            intercept_404: false,
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
            bind_dynamic: false,
            request_dynamic: false,
            allow_upstream: None,
        }
    }
    /// Checks buffer sizes once per settings (`whose`). Fails with nginx's message.
    pub fn check(&self, cx: &mut Cx, whose: &Arc<dyn Any + Send + Sync>) -> Result<(), Problem> {
        let seen = cx.get::<CheckedBuffers>();
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

/// Mounts the table under a protocol's prefix, with the protocol's own rows and optional TLS rows.
#[macro_export]
macro_rules! pass_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $prefix:literal;
     $allow:ident $bind:ident $bind_dynamic:ident $request_dynamic:ident $buffer_size:ident $buffering:ident $buffers:ident $busy:ident $connect_timeout:ident $force_ranges:ident
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
                /// Local address of connections to the server.
                $bind: $crate::binding::BindTo,
                /// Determines the local address anew for each server, from variables such as `$upstream_last_addr`.
                $bind_dynamic: conf_schema::value::Flag = "off",
                /// Makes the request anew for each server: its fields and parameters can contain
                /// `$upstream_last_server_name`. Otherwise, a request is made once, and variables of the server are
                /// empty in it.
                $request_dynamic: conf_schema::value::Flag = "off",
                /// Denies the connection to a selected server if a value is empty or `0`: another server is tried with
                /// `denied`, or the client gets 403. With `$upstream_last_addr`, limits the addresses of servers whose
                /// names come from requests or from DNS.
                $allow: http_engine::core_table::Conditions,
                /// Maximum size of a response head.
                $buffer_size: conf_schema::value::Size = "4k",
                /// Reads the response ahead of the client.
                $buffering: conf_schema::value::Flag = "on",
                /// Number and size of buffers for reading a response.
                $buffers: conf_schema::value::Buffers = "8 4k",
                /// In nginx, the part of the buffers that may be in transit to the client while the response is read.
                /// Tidegate reads ahead up to the size of all buffers; the value is checked as in nginx and has no
                /// further effect.
                $busy: conf_schema::value::Size,
                /// Maximum time to establish a connection.
                $connect_timeout: conf_schema::value::Msec = "60s",
                /// Supports ranges even if the server's response does not announce them.
                $force_ranges: conf_schema::value::Flag = "off",
                /// Response fields that are not passed to the client.
                $hide: conf_schema::value::ValueList<$crate::exchange::conf::FieldName>,
                /// Continues a request after its client has disconnected.
                $ignore_abort: conf_schema::value::Flag = "off",
                /// Response fields that Tidegate does not process.
                $ignore_headers: $crate::exchange::conf::IgnoreHeaders,
                /// Replaces responses with status 300 and above by `error_page`.
                $intercept: conf_schema::value::Flag = "off",
                /// Maximum bytes per second read from the server for a buffered response; 0: no limit.
                $limit_rate: http_engine::values::SizeTemplate,
                /// Maximum part of a response in a temporary file; 0 disables temporary files.
                $max_temp: conf_schema::value::Offset = "1024m",
                /// Conditions under which a request is passed to the next server.
                $next: $crate::exchange::conf::$Next = "error timeout",
                /// Maximum time for passing a request to further servers; 0: no limit.
                $next_timeout: conf_schema::value::Msec = "0",
                /// Maximum number of servers per request; 0: no limit.
                $next_tries: conf_schema::value::Number = "0",
                /// Response fields that are passed although they are hidden by default.
                $show: conf_schema::value::ValueList<$crate::exchange::conf::FieldName>,
                /// Passes the request body.
                /// Differs: a body that is not passed is not announced; nginx keeps its `Content-Length`, and servers
                /// wait for the body.
                $pass_body: conf_schema::value::Flag = "on",
                /// Passes the client's request fields.
                $pass_headers: conf_schema::value::Flag = "on",
                /// Maximum time between two reads from the server.
                $read_timeout: conf_schema::value::Msec = "60s",
                /// Reads the whole request body before the request is passed.
                $request_buffering: conf_schema::value::Flag = "on",
                /// Maximum time between two writes to the server.
                $send_timeout: conf_schema::value::Msec = "60s",
                /// Enables TCP keepalive (SO_KEEPALIVE) on connections to the server.
                $keepalive: conf_schema::value::Flag = "off",
                /// Receive buffer (SO_RCVBUF) of connections to the server; 0: the system's default.
                $rcvbuf: conf_schema::value::Size = "0",
                /// Send buffer (SO_SNDBUF) of connections to the server; 0: the system's default.
                $sndbuf: conf_schema::value::Size = "0",
                /// Amount of data per write to a temporary file.
                $write_size: conf_schema::value::Size = "8k",
                /// Directory of temporary files with responses to slow clients.
                $temp_path: http_engine::core_table::TempPath = $temp,
            }
        }

        impl $Plan {
            /// Returns the settings that all protocols share.
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
                    intercept_404: false,
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
                    bind_dynamic: self.$bind_dynamic,
                    request_dynamic: self.$request_dynamic,
                    allow_upstream: self.$allow.clone(),
                    ..$crate::exchange::conf::PassConf::new($prefix)
                }
            }
            /// Returns the names of hidden response fields: the protocol's own, and the configured ones.
            fn hidden(&self, own: &[&str]) -> http_types::NameSet {
                let shown: http_types::NameSet = $crate::exchange::conf::name_list(&self.$show).collect();
                let hidden = $crate::exchange::conf::name_list(&self.$hide);
                own.iter().map(|name| name.as_bytes()).chain(hidden).filter(|name| !shown.has_name(name)).collect()
            }
        }
    };
}

/// Declares the table of [`pass_directives`], with TLS rows if there are names for them.
#[macro_export]
macro_rules! pass_table {
    ([] $($table:tt)*) => { conf_schema::directives! { $($table)* } };
    ([$prefix:literal $($name:ident)*] $(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident { $($rows:tt)* }) => {
        tls_directives::upstream_tls_directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input, http_engine::HttpArea, $prefix;
            $($name)*
            own { $($rows)* }
        }
    };
}
