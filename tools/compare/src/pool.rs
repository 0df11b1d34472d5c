//! Directives and requests that comparisons are made of.

use crate::place::BlockPlace;
use conf_schema::vocabulary;

/// A directive with arguments, and where it may stand.
pub struct PoolFragment {
    pub text: &'static str,
    pub places: Vec<BlockPlace>,
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
    // values that the request of a server must not have
    "proxy_set_header X-Server '$upstream_addr,$upstream_status,$upstream_http_etag,$upstream_cookie_one';",
    "proxy_set_header X-Time '$upstream_bytes_sent,$upstream_response_length,$sent_http_etag';",
    "proxy_set_body '$upstream_addr,$upstream_status,$upstream_cache_status';",
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
    // modules, with their variables
    "set_real_ip_from 127.0.0.1; real_ip_recursive on;",
    "set_real_ip_from 10.0.0.0/8;",
    "real_ip_header X-Forwarded-For;",
    "real_ip_header X-Real-IP;",
    "real_ip_header proxy_protocol;",
    "add_header X-Address '$remote_addr $realip_remote_addr' always;",
    "limit_req zone=slow;",
    "limit_req zone=slow burst=2 nodelay;",
    "limit_req_status 429;",
    "limit_req_dry_run on;",
    "limit_req_log_level info;",
    "limit_conn conns 1;",
    "limit_conn conns 0;",
    "limit_conn_status 599;",
    "add_header X-Limits '$limit_req_status $limit_conn_status' always;",
    "valid_referers none blocked *.example.com example.org/path ~\\.test;",
    "add_header X-Referer '[$invalid_referer]' always;",
    "if ($invalid_referer) { return 403; }",
    "secure_link $arg_md5,$arg_expires; secure_link_md5 '$uri secret';",
    "secure_link_secret word;",
    "add_header X-Link '[$secure_link] [$secure_link_expires]' always;",
    "map $uri $own { default other; ~^/(?<letter>[a-z])/(.*) $letter; /t/x exact; }",
    "map $request_method $own { volatile; hostnames; GET got; *.html wild; }",
    "geo $own { default far; 127.0.0.0/8 near; 127.0.0.1 here; }",
    "geo $arg_ip $own { ranges; default far; 10.0.0.0-10.0.0.255 near; }",
    "split_clients $uri $own { 50% one; 25% two; * three; }",
    "if ($request_method = POST) { return 405; }",
    "if (!-e $request_filename) { return 410; }",
    "if (-d $request_filename) { set $own folder; }",
    "if ($http_user_agent ~* msie) { set $own old; }",
    "if ($args ~ ^i=(.)) { set $own '$1'; }",
    "if ($own) { add_header X-Own $own; }",
    "add_header X-Paths '$document_root $request_filename $realpath_root $fastcgi_script_name' always;",
    "add_header X-Request '$request $request_uri $uri $document_uri $args $query_string $is_args $arg_i $scheme $https' always;",
    "add_header X-Client '$remote_user $http_user_agent $http_x_own $cookie_one $content_type $content_length' always;",
    "add_header X-Host '$host $http_host $server_name $server_addr $server_protocol $request_completion' always;",
    "add_header X-Status '$status $sent_http_content_type' always;",
    "sub_filter_types *;",
    "sub_filter_last_modified on;",
    "sub_filter 'hello' '$uri'; sub_filter 'world' 'w';",
    "ssi_types *;",
    "ssi_last_modified on;",
    "addition_types *;",
    "charset_types *;",
    "source_charset koi8-r;",
    "charset $own;",
    "gzip on; gzip_min_length 1000;",
    "gzip_http_version 1.0;",
    "gunzip_buffers 4 4k;",
    "slice 1m;",
    "add_header X-Slice '$slice_range' always;",
    "dav_methods PUT DELETE MKCOL;",
    "dav_methods off;",
    "create_full_put_path on;",
    "min_delete_depth 3;",
    "dav_access user:rw group:r all:r;",
    "userid log;",
    "auth_request_set $own $status;",
    "error_page 418 = @named;",
    "error_page 405 =204 /404.html;",
    "error_page 403 =200 @named;",
    "error_page 404 /a/x.html?err=$status;",
    "error_page 429 503 599 /404.html;",
    "try_files /404.html @named;",
    "try_files $uri.html $uri/x.html =418;",
    "try_files '' =404;",
    "index /404.html;",
    "root $document_root/none;",
    "alias @dir/html/$own;",
    "autoindex on; autoindex_format json; autoindex_exact_size off; autoindex_localtime off;",
    "autoindex on; autoindex_format xml;",
    "default_type $own;",
    "location /a/x { return 200 'prefix'; }",
    "location ~ \\.css$ { add_header X-Css 1; }",
    "location ^~ /a/ { return 200 'duplicate'; }",
    "location = /a/ { return 200 'exact'; }",
    "proxy_pass http://group;",
    "proxy_pass http://group/base/;",
    "proxy_pass http://group$uri;",
    "proxy_pass http://127.0.0.1:@backend$request_uri;",
    "proxy_pass $own;",
    "proxy_next_upstream error timeout http_500 non_idempotent;",
    "proxy_set_header X-Up '$proxy_host $proxy_port $proxy_add_x_forwarded_for';",
    "add_header X-Up '$upstream_status $upstream_http_x_powered_by $upstream_cookie_one' always;",
    "proxy_ignore_headers Cache-Control Expires Vary X-Accel-Expires;",
    "proxy_intercept_errors on; error_page 500 /404.html;",
    "proxy_pass_trailers on;",
    "proxy_store @dir/stored$uri;",
    "proxy_store_access user:rw;",
    "proxy_redirect default;",
    "proxy_cookie_path ~^/(.*)$ /own/$1; proxy_cookie_domain off;",
    "proxy_cookie_flags ~. samesite=lax nosecure;",
    "proxy_cache one; proxy_cache_valid 200 1m; add_header X-Cache $upstream_cache_status always;",
    "proxy_cache one; proxy_cache_valid any 1m; proxy_cache_methods POST;",
    "server_name_in_redirect on; port_in_redirect on;",
    "satisfy any; allow all;",
    "satisfy all; deny 127.0.0.1;",
    "return 308 $scheme://$host$request_uri;",
    "return 200 '$own';",
    "return 418 'body of 418';",
    "return http://example.com$uri;",
    "return '';",
    "return 600;",
    "return 1000;",
    "rewrite ^/a/(?<part>[^/]+)$ /n/$part?$args? last;",
    "rewrite ^/([a-z])/x /$1/none;",
    "rewrite (?i)X\\.HTML$ /404.html break;",
    "rewrite ^ https://example.com$request_uri redirect;",
    "rewrite ^ /%61%20b last;",
    "set $limit_rate 10m;",
    "set $own '$own+$uri';",
    "set $host other;",
    "set $http_x_own set;",
];

/// Lines that Debian's older versions do not have, or word in another way.
const NEWER: &[&str] = &[
    "add_header_inherit",
    "proxy_limit_rate",
    "early_hints",
    "keepalive_min_timeout",
    "max_headers",
    "proxy_bind",
    // A missing folder is 500.
    "dav_methods",
];

/// Beginnings of lines with another effect in older versions: upstream requests use HTTP/1.0, `.gz` files have no
/// ranges, and proxied locations are left out.
const OTHERWISE: &[&str] = &["proxy_pass ", "gzip_static ", "mirror /p", "post_action /p"];

/// A version that has what [`NEWER`] names, and does what [`OTHERWISE`] is about as we do.
pub const WHOLE: (u32, u32) = (1, 29);

/// The fragments for a version of nginx, with the places that the language allows.
pub fn version_fragments(version: (u32, u32), only: Option<&str>) -> Vec<PoolFragment> {
    line_fragments(LINES, version, only)
}

/// The fragments of lines, with the places that the language allows.
pub fn line_fragments(lines: &[&'static str], version: (u32, u32), only: Option<&str>) -> Vec<PoolFragment> {
    let mut all = Vec::new();
    for text in lines.iter().copied().filter(|text| only.is_none_or(|only| text.contains(only))) {
        let name = text.split([' ', ';']).next().unwrap_or(text);
        let otherwise = OTHERWISE.iter().any(|start| text.starts_with(start));
        if version < WHOLE && (otherwise || NEWER.contains(&name)) {
            continue;
        }
        let contexts = vocabulary::find_directives(name);
        let places: Vec<BlockPlace> = BlockPlace::ALL
            .into_iter()
            .filter(|place| contexts.iter().any(|k| k.contexts.has(place.context())))
            .collect();
        if !places.is_empty() {
            all.push(PoolFragment { text, places });
        }
    }
    all
}

/// One request: method, target, fields and body.
pub struct PoolRequest {
    pub method: &'static str,
    pub target: &'static str,
    pub fields: &'static str,
    pub body: &'static str,
}

impl PoolRequest {
    pub fn bytes(&self) -> Vec<u8> {
        let length = if self.body.is_empty() && self.method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", self.body.len())
        };
        let PoolRequest { method, target, fields, body } = self;
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}Connection: close\r\n\r\n{body}")
            .into()
    }
}

impl PoolRequest {
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

impl std::fmt::Display for PoolRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.method, self.target, self.fields.replace("\r\n", "; "))
    }
}

pub const fn make_ask(
    method: &'static str,
    target: &'static str,
    fields: &'static str,
    body: &'static str,
) -> PoolRequest {
    PoolRequest { method, target, fields, body }
}

const JOE: &str = "Authorization: Basic am9lOnNlY3JldA==\r\n";

/// Requests for every configuration; the first letter of a path names the location (see `site.rs`).
const REQUESTS: &[PoolRequest] = &[
    make_ask("GET", "/a/x.html", "", ""),
    make_ask("HEAD", "/a/x.html", "", ""),
    make_ask("POST", "/a/x.html", "", "abcd"),
    make_ask("GET", "/a/none", "", ""),
    make_ask("GET", "/a/", "", ""),
    make_ask("GET", "/a/folder", "", ""),
    make_ask("GET", "/a/none/", "", ""),
    make_ask("GET", "/a/x.html/", "", ""),
    make_ask("GET", "/a//x.html", "", ""),
    make_ask("GET", "/a/x.html?arg=1", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/a/x.html", "Range: bytes=900-\r\n", ""),
    make_ask("GET", "/a/x.html", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", ""),
    make_ask("GET", "/a/x.html", "If-None-Match: \"6553f100-c\"\r\n", ""),
    make_ask("GET", "/a/x.html", "If-Match: \"other\"\r\n", ""),
    make_ask("GET", "/a/x.html", JOE, ""),
    make_ask("GET", "/a/x.html", "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n", ""),
    make_ask("GET", "/a/x.css", "Accept-Encoding: gzip\r\n", ""),
    make_ask("GET", "/n/x.html", "", ""),
    make_ask("GET", "/n/in/x.html", "", ""),
    make_ask("GET", "/n/in/none", "", ""),
    make_ask("GET", "/n/re.html", "", ""),
    make_ask("GET", "/i/x.html", "", ""),
    make_ask("GET", "/i/x.html?i=1", "", ""),
    make_ask("GET", "/i/none?i=1", "", ""),
    make_ask("GET", "/a/x.html?s=1", "", ""),
    make_ask("GET", "/l/x.html", "", ""),
    make_ask("DELETE", "/l/x.html", "", ""),
    make_ask("DELETE", "/l/x.html", JOE, ""),
    make_ask("GET", "/m/x.html", "", ""),
    make_ask("GET", "/m/none", "", ""),
    make_ask("GET", "/t/x", "", ""),
    make_ask("HEAD", "/t/x", "", ""),
    make_ask("GET", "/r/x", "", ""),
    make_ask("GET", "/e/x.html", "", ""),
    make_ask("GET", "/a/x.html", "X-Forwarded-For: 192.0.2.1, 10.1.2.3, 127.0.0.1\r\nX-Real-IP: 192.0.2.9\r\n", ""),
    make_ask("GET", "/t/x", "X-Forwarded-For: 192.0.2.1, bad\r\nX-Real-IP: [::1]:80\r\n", ""),
    make_ask("GET", "/a/x.html", "Referer: https://www.example.com/page\r\nCookie: one=1; two=2\r\n", ""),
    make_ask("GET", "/t/x", "Referer: bad\r\nX-Own: o\r\n", ""),
    make_ask("GET", "/t/x?md5=AAAAAAAAAAAAAAAAAAAAAA&expires=1&ip=10.0.0.7", "", ""),
    make_ask("PUT", "/l/new/y.html", "", "abcd"),
    make_ask("GET", "/l/new/y.html", "", ""),
    make_ask("DELETE", "/l/new/", "", ""),
    make_ask("MKCOL", "/l/made/", "", ""),
    make_ask("OPTIONS", "/a/x.html", "", ""),
    make_ask("GET", "/a/%2e%2e/%61/x.html?%20", "", ""),
    make_ask("GET", "http://other.example/a/x.html", "", ""),
];

/// Those that go through the proxy.
const PROXIED: &[PoolRequest] = &[
    make_ask("GET", "/p/echo", "", ""),
    make_ask("HEAD", "/p/echo", "", ""),
    make_ask("GET", "/p/echo?i=1", "X-Own: o\r\nAccept-Encoding: gzip\r\n", ""),
    make_ask("GET", "/p/a%20b//c?d=e", "", ""),
    make_ask("POST", "/p/echo", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("DELETE", "/p/echo", "", ""),
    make_ask("GET", "/p/in/echo", "", ""),
    make_ask("GET", "/p/redirect", "", ""),
    make_ask("GET", "/p/relative", "", ""),
    make_ask("GET", "/p/cookie", "", ""),
    make_ask("GET", "/p/error", "", ""),
    make_ask("GET", "/p/missing", "", ""),
    make_ask("GET", "/p/page", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/p/page", "If-None-Match: \"page\"\r\n", ""),
    make_ask("GET", "/p/chunked", "", ""),
    make_ask("GET", "/p/accel", "", ""),
    make_ask("GET", "/p", "", ""),
];

/// The requests for a version: older ones talk to servers in another way.
pub fn version_requests(version: (u32, u32)) -> Vec<&'static PoolRequest> {
    REQUESTS.iter().chain(PROXIED.iter().filter(|_| version >= WHOLE)).collect()
}
