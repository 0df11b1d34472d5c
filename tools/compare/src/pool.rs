//! Directives and requests that comparisons are made of.

use crate::place::Place;
use conf_schema::vocabulary;

/// A directive with arguments, and where it may stand.
pub struct Fragment {
    pub text: &'static str,
    pub places: Vec<Place>,
}

/// Lines of every core, access, headers and proxy directive whose effect shows in an answer or a log at once, and of their neighbours.
/// `@backend`, `@dir` and `@port` are filled in.
const LINES: &[&str] = &[
    // core
    "root @dir/other;",
    "alias @dir/other/;",
    "alias @dir/html/x.html;",
    "default_type text/css;",
    "default_type '';",
    "types { text/x-own html; }",
    "types { }",
    "error_page 404 /404.html;",
    "error_page 404 =200 /404.html;",
    "error_page 404 = /404.html;",
    "error_page 404 =410 /404.html;",
    "error_page 404 @named;",
    "error_page 404 http://example.com/gone;",
    "error_page 403 404 405 500 502 /none.html;",
    "error_page 401 403 =402 /404.html;",
    "error_page 301 302 /404.html;",
    "recursive_error_pages on;",
    "server_tokens off;",
    "etag off;",
    "if_modified_since off;",
    "if_modified_since before;",
    "max_ranges 0;",
    "max_ranges 1;",
    "chunked_transfer_encoding off;",
    "keepalive_timeout 0;",
    "keepalive_timeout 65 20;",
    "keepalive_requests 1;",
    "keepalive_disable safari;",
    "client_max_body_size 2;",
    "client_max_body_size 0;",
    "client_body_buffer_size 1k;",
    "client_body_in_single_buffer on;",
    "satisfy any;",
    "absolute_redirect off;",
    "server_name_in_redirect on;",
    "port_in_redirect off;",
    "modern_browser msie 5.5;",
    "modern_browser unlisted;",
    "ancient_browser netscape4 none;",
    "modern_browser_value new;",
    "add_header X-Browser $modern_browser,$ancient_browser,$msie;",
    "msie_padding off;",
    "msie_refresh on;",
    "log_not_found off;",
    "internal;",
    "disable_symlinks on;",
    "merge_slashes off;",
    "underscores_in_headers on;",
    "ignore_invalid_headers off;",
    "sendfile on;",
    "tcp_nopush on;",
    "output_buffers 1 4k;",
    "open_file_cache max=10;",
    "lingering_close off;",
    "error_log @dir/own.log crit;",
    "access_log off;",
    "access_log @dir/own-access.log;",
    "log_subrequest on;",
    "try_files $uri /404.html;",
    "try_files $uri =404;",
    "try_files /none @named;",
    "try_files $uri $uri/ /none /404.html?q;",
    "index none.html x.html;",
    "index x.html;",
    "autoindex on;",
    "autoindex off;",
    // access
    "deny all;",
    "deny 127.0.0.1;",
    "allow 127.0.0.1;",
    "allow all;",
    "auth_basic realm;",
    "auth_basic off;",
    "auth_basic_user_file @dir/users;",
    "auth_basic_user_file @dir/none;",
    "auth_request /auth/yes;",
    "auth_request /auth/no;",
    "auth_request off;",
    // headers
    "add_header X-A 1;",
    "add_header X-B $uri always;",
    "add_header X-Empty '';",
    "add_header ETag own;",
    "add_header Cache-Control private;",
    "add_trailer X-T t;",
    "add_trailer X-U $uri always;",
    "add_trailer X-Empty '';",
    "add_header_inherit merge;",
    "add_header_inherit off;",
    "expires epoch;",
    "expires max;",
    "expires 1h;",
    "expires -1;",
    "expires off;",
    // rewrite
    "return 403;",
    "return 404;",
    "return 204;",
    "return 200 'own $uri';",
    "return 301 /moved?$args;",
    "return 302 http://example.com$uri;",
    "return 444;",
    "rewrite ^/(.*)/x.html$ /$1/none.html;",
    "rewrite ^ /404.html last;",
    "rewrite ^ /a/x.html break;",
    "rewrite ^/[a-z]+/(.*)$ /a/$1?y=1 last;",
    "rewrite ^ /gone? permanent;",
    "rewrite ^(.*)$ http://example.com$1 redirect;",
    "break;",
    "set $own set;",
    "set $args changed=1;",
    "rewrite_log on;",
    // proxy
    "proxy_pass http://127.0.0.1:@backend;",
    "proxy_pass http://127.0.0.1:@backend/;",
    "proxy_pass http://127.0.0.1:@backend/base/;",
    "proxy_pass http://127.0.0.1:1;",
    "proxy_set_header X-A a;",
    "proxy_set_header Host $host;",
    "proxy_set_header Host '';",
    "proxy_set_header X-Real-IP $remote_addr;",
    "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
    "proxy_set_header Accept-Encoding '';",
    "proxy_set_header User-Agent own;",
    "proxy_set_header Connection close;",
    "proxy_hide_header X-Powered-By;",
    "proxy_hide_header Set-Cookie;",
    "proxy_pass_header Server;",
    "proxy_pass_header Date;",
    "proxy_redirect off;",
    "proxy_redirect http://127.0.0.1:@backend/ /mapped/;",
    "proxy_redirect ~^http://[^/]+(/.*)$ http://example.com$1;",
    "proxy_redirect /relative /other;",
    "proxy_cookie_domain example.com example.org;",
    "proxy_cookie_path / /p/;",
    "proxy_cookie_flags one secure httponly;",
    "proxy_method PUT;",
    "proxy_set_body 'body of $uri';",
    "proxy_http_version 1.0;",
    "proxy_http_version 1.1;",
    "proxy_buffering off;",
    "proxy_request_buffering off;",
    "proxy_intercept_errors on;",
    "proxy_ignore_headers X-Accel-Redirect X-Accel-Charset Set-Cookie;",
    "proxy_pass_request_headers off;",
    "proxy_force_ranges on;",
    "proxy_next_upstream http_500 http_404;",
    "proxy_next_upstream off;",
    "proxy_buffer_size 8k;",
    "proxy_buffers 4 8k;",
    "proxy_limit_rate 0;",
    // the same, of those whose effect shows only in what they refuse
    "aio threads;",
    "aio off;",
    "auth_delay 1ms;",
    "client_body_in_file_only clean;",
    "client_body_in_file_only off;",
    "client_body_temp_path @dir/bodies 1 2;",
    "client_body_timeout 10s;",
    "client_header_buffer_size 2k;",
    "client_header_timeout 10s;",
    "connection_pool_size 1k;",
    "directio 4m;",
    "directio_alignment 4k;",
    "early_hints $arg_i;",
    "keepalive_min_timeout 1s;",
    "keepalive_time 10s;",
    "large_client_header_buffers 2 4k;",
    "limit_rate 1m;",
    "limit_rate_after 1k;",
    "lingering_time 1s;",
    "lingering_timeout 1s;",
    "lingering_timeout no;",
    "max_headers 5;",
    "open_file_cache_errors on;",
    "open_file_cache_min_uses 2;",
    "open_file_cache_valid 1s;",
    "postpone_output 0;",
    "read_ahead 1k;",
    "request_pool_size 8k;",
    "reset_timedout_connection on;",
    "send_timeout 10s;",
    "send_timeout 1x;",
    "sendfile_max_chunk 1k;",
    "subrequest_output_buffer_size 8k;",
    "tcp_nodelay off;",
    "types_hash_max_size 2048;",
    "server_names_hash_max_size 1024;",
    "variables_hash_max_size 2048;",
    "gzip_disable msie6;",
    "gzip_proxied any;",
    "proxy_bind 127.0.0.1;",
    "proxy_bind off;",
    "proxy_busy_buffers_size 8k;",
    "proxy_busy_buffers_size 1k;",
    "proxy_buffers 1 4k;",
    "proxy_cache one;",
    "proxy_cache off;",
    "proxy_cache none;",
    "proxy_cache_bypass $arg_i;",
    "proxy_cache_convert_head off;",
    "proxy_cache_key own$uri;",
    "proxy_cache_lock on;",
    "proxy_cache_max_range_offset 1;",
    "proxy_cache_methods POST;",
    "proxy_cache_min_uses 2;",
    "proxy_cache_revalidate on;",
    "proxy_cache_use_stale error http_500;",
    "proxy_cache_valid 1m;",
    "proxy_cache_valid any 1m;",
    "proxy_no_cache $arg_i;",
    "proxy_connect_timeout 10s;",
    "proxy_headers_hash_max_size 1024;",
    "proxy_ignore_client_abort on;",
    "proxy_max_temp_file_size 0;",
    "proxy_max_temp_file_size 1k;",
    "proxy_next_upstream_timeout 1s;",
    "proxy_next_upstream_tries 1;",
    "proxy_read_timeout 10s;",
    "proxy_send_timeout 10s;",
    "proxy_socket_keepalive on;",
    "proxy_temp_file_write_size 8k;",
    "proxy_temp_path @dir/temp 1;",
    // others
    "gunzip on;",
    "gzip_vary on;",
    "gzip_static on;",
    "sub_filter hello goodbye;",
    "sub_filter_once off;",
    "add_before_body /a/x.html;",
    "add_after_body /a/x.html;",
    "charset utf-8;",
    "charset koi8-r;",
    "override_charset on;",
    "ssi on;",
    "ssi_silent_errors on;",
    "mirror /t/mirror;",
    "mirror /p/mirror;",
    "mirror off;",
    "mirror_request_body off;",
    "post_action /t/after;",
    "post_action /p/after;",
    "post_action @named;",
    "stub_status;",
    "fastcgi_pass 127.0.0.1:1;",
    "uwsgi_pass 127.0.0.1:1;",
    "scgi_pass 127.0.0.1:1;",
    "memcached_pass 127.0.0.1:1; set $memcached_key $uri;",
    "empty_gif;",
    "valid_referers none server_names;",
    "userid_name own;",
];

/// Lines that Debian's older versions do not have, or word in another way.
const NEWER: &[&str] =
    &["add_header_inherit", "proxy_limit_rate", "early_hints", "keepalive_min_timeout", "max_headers", "proxy_bind"];

/// Beginnings of lines with another effect in older versions: upstream requests use HTTP/1.0, `.gz` files have no
/// ranges, and proxied locations are left out.
const OTHERWISE: &[&str] = &["proxy_pass ", "gzip_static ", "mirror /p", "post_action /p"];

/// A version that has what [`NEWER`] names, and does what [`OTHERWISE`] is about as we do.
pub const WHOLE: (u32, u32) = (1, 29);

/// The fragments for a version of nginx, with the places that the language allows.
pub fn all(version: (u32, u32), only: Option<&str>) -> Vec<Fragment> {
    let mut all = Vec::new();
    for text in LINES.iter().copied().filter(|text| only.is_none_or(|only| text.contains(only))) {
        let name = text.split([' ', ';']).next().unwrap_or(text);
        let otherwise = OTHERWISE.iter().any(|start| text.starts_with(start));
        if version < WHOLE && (otherwise || NEWER.contains(&name)) {
            continue;
        }
        let contexts = vocabulary::find(name);
        let places: Vec<Place> =
            Place::ALL.into_iter().filter(|place| contexts.iter().any(|k| k.contexts.has(place.context()))).collect();
        if !places.is_empty() {
            all.push(Fragment { text, places });
        }
    }
    all
}

/// One request: method, target, fields and body.
pub struct Ask {
    pub method: &'static str,
    pub target: &'static str,
    pub fields: &'static str,
    pub body: &'static str,
}

impl Ask {
    pub fn bytes(&self) -> Vec<u8> {
        let length = if self.body.is_empty() && self.method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", self.body.len())
        };
        let Ask { method, target, fields, body } = self;
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}Connection: close\r\n\r\n{body}")
            .into()
    }
}

impl Ask {
    /// Converts the request for HTTP/2.
    pub fn request(&self) -> cases::Request {
        let field = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()));
        let has_body = !self.body.is_empty() || self.method == "POST";
        cases::Request {
            method: self.method.into(),
            target: self.target.into(),
            fields: self.fields.split("\r\n").filter_map(field).collect(),
            body: has_body.then(|| self.body.into()),
        }
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.method, self.target, self.fields.replace("\r\n", "; "))
    }
}

const fn ask(method: &'static str, target: &'static str, fields: &'static str, body: &'static str) -> Ask {
    Ask { method, target, fields, body }
}

const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";

/// Requests for every configuration; the first letter of a path names the location (see `site.rs`).
const REQUESTS: &[Ask] = &[
    ask("GET", "/a/x.html", "", ""),
    ask("HEAD", "/a/x.html", "", ""),
    ask("POST", "/a/x.html", "", "abcd"),
    ask("GET", "/a/none", "", ""),
    ask("GET", "/a/", "", ""),
    ask("GET", "/a/folder", "", ""),
    ask("GET", "/a/none/", "", ""),
    ask("GET", "/a/x.html/", "", ""),
    ask("GET", "/a//x.html", "", ""),
    ask("GET", "/a/x.html?arg=1", "Range: bytes=1-3\r\n", ""),
    ask("GET", "/a/x.html", "Range: bytes=900-\r\n", ""),
    ask("GET", "/a/x.html", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", ""),
    ask("GET", "/a/x.html", "If-None-Match: \"6553f100-c\"\r\n", ""),
    ask("GET", "/a/x.html", "If-Match: \"other\"\r\n", ""),
    ask("GET", "/a/x.html", JOE, ""),
    ask("GET", "/a/x.html", "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n", ""),
    ask("GET", "/a/x.css", "Accept-Encoding: gzip\r\n", ""),
    ask("GET", "/n/x.html", "", ""),
    ask("GET", "/n/in/x.html", "", ""),
    ask("GET", "/n/in/none", "", ""),
    ask("GET", "/n/re.html", "", ""),
    ask("GET", "/i/x.html", "", ""),
    ask("GET", "/i/x.html?i=1", "", ""),
    ask("GET", "/i/none?i=1", "", ""),
    ask("GET", "/a/x.html?s=1", "", ""),
    ask("GET", "/l/x.html", "", ""),
    ask("DELETE", "/l/x.html", "", ""),
    ask("DELETE", "/l/x.html", JOE, ""),
    ask("GET", "/m/x.html", "", ""),
    ask("GET", "/m/none", "", ""),
    ask("GET", "/t/x", "", ""),
    ask("HEAD", "/t/x", "", ""),
    ask("GET", "/r/x", "", ""),
    ask("GET", "/e/x.html", "", ""),
];

/// Those that go through the proxy.
const PROXIED: &[Ask] = &[
    ask("GET", "/p/echo", "", ""),
    ask("HEAD", "/p/echo", "", ""),
    ask("GET", "/p/echo?i=1", "X-Own: o\r\nAccept-Encoding: gzip\r\n", ""),
    ask("GET", "/p/a%20b//c?d=e", "", ""),
    ask("POST", "/p/echo", "Content-Type: text/plain\r\n", "abcd"),
    ask("DELETE", "/p/echo", "", ""),
    ask("GET", "/p/in/echo", "", ""),
    ask("GET", "/p/redirect", "", ""),
    ask("GET", "/p/relative", "", ""),
    ask("GET", "/p/cookie", "", ""),
    ask("GET", "/p/error", "", ""),
    ask("GET", "/p/missing", "", ""),
    ask("GET", "/p/page", "Range: bytes=1-3\r\n", ""),
    ask("GET", "/p/page", "If-None-Match: \"page\"\r\n", ""),
    ask("GET", "/p/chunked", "", ""),
    ask("GET", "/p/accel", "", ""),
    ask("GET", "/p", "", ""),
];

/// The requests for a version: older ones talk to servers in another way.
pub fn requests(version: (u32, u32)) -> Vec<&'static Ask> {
    REQUESTS.iter().chain(PROXIED.iter().filter(|_| version >= WHOLE)).collect()
}
