//! Directives and requests of the gateway protocols (`--gateways`): FastCGI, SCGI, uwsgi and memcached.

use crate::pool::{PoolRequest, make_ask};

/// Lines for each of FastCGI, SCGI and uwsgi, whose name replaces `@g`.
const OF_EACH: &[&str] = &[
    "@g_param X_OWN $uri;",
    "@g_param HTTPS $https if_not_empty;",
    "@g_param HTTPS on if_not_empty;",
    "@g_param REQUEST_URI $request_uri;",
    "@g_param HTTP_HOST own;",
    "@g_param HTTP_X_OWN '';",
    "@g_param EMPTY '';",
    "@g_param TWICE 1; @g_param TWICE 2;",
    "@g_param CONTENT_LENGTH $content_length;",
    "@g_param SCRIPT_NAME $fastcgi_script_name; @g_param REQUEST_METHOD $request_method;",
    "@g_buffering off;",
    "@g_request_buffering off;",
    "@g_buffer_size 1k;",
    "@g_buffers 2 1k;",
    "@g_buffers 4 8k;",
    "@g_busy_buffers_size 8k;",
    "@g_busy_buffers_size 1k;",
    "@g_intercept_errors on;",
    "@g_intercept_errors on; error_page 404 500 /404.html;",
    "@g_hide_header X-Powered-By;",
    "@g_hide_header Set-Cookie;",
    "@g_hide_header Content-Type;",
    "@g_pass_header Server;",
    "@g_pass_header X-Accel-Redirect;",
    "@g_pass_header X-Accel-Expires;",
    "@g_pass_header Status;",
    "@g_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset;",
    "@g_ignore_headers Cache-Control Expires Set-Cookie Vary;",
    "@g_cache one;",
    "@g_cache one; @g_cache_valid any 1m; @g_cache_key $uri; add_header X-Cache $upstream_cache_status always;",
    "@g_cache one; @g_cache_valid 200 404 1m; @g_cache_key $uri; @g_cache_methods POST;",
    "@g_cache one; @g_cache_key $uri; @g_ignore_headers Vary;",
    "@g_cache_key k;",
    "@g_cache_min_uses 2;",
    "@g_cache_bypass $arg_i;",
    "@g_cache_use_stale http_500;",
    "@g_cache_background_update on;",
    "@g_cache_revalidate on;",
    "@g_cache_lock on;",
    "@g_no_cache $arg_i;",
    "@g_next_upstream http_500 http_404;",
    "@g_next_upstream error http_403 invalid_header non_idempotent;",
    "@g_next_upstream off;",
    "@g_next_upstream_tries 1;",
    "@g_pass_request_headers off;",
    "@g_store @dir/stored/$request_id;",
    "@g_store off;",
    "@g_store_access user:rw all:r;",
    "@g_force_ranges on;",
    "@g_ignore_client_abort on;",
    "@g_max_temp_file_size 0;",
    "@g_temp_file_write_size 8k;",
    "@g_temp_path @dir/gateway 1;",
    "@g_limit_rate 0;",
    "@g_connect_timeout 10s;",
    "@g_read_timeout 10s;",
    "@g_send_timeout 10s;",
    "@g_socket_keepalive on;",
    "@g_bind off;",
    "@g_pass group;",
    "@g_pass two;",
    "@g_pass 127.0.0.1:1;",
    "@g_pass 127.0.0.1:@backend;",
    "@g_pass localhost:@backend;",
    "@g_pass unix:@dir/none.sock;",
    "@g_pass $own;",
];

/// Lines of one protocol, and others whose effect shows with them.
const LINES: &[&str] = &[
    "fastcgi_index x.php;",
    "fastcgi_index /own;",
    "fastcgi_split_path_info ^(.+?\\.php)(/.*)$;",
    "fastcgi_split_path_info ^(.+)$;",
    "fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_param SCRIPT_NAME $fastcgi_script_name;",
    "fastcgi_param SERVER '$upstream_addr,$upstream_status,$upstream_cache_status';",
    "scgi_param SERVER '$upstream_addr,$upstream_status';",
    "uwsgi_param SERVER '$upstream_addr,$upstream_status';",
    "fastcgi_keep_conn on;",
    "fastcgi_catch_stderr 'a line';",
    "fastcgi_catch_stderr another; fastcgi_next_upstream invalid_header;",
    "fastcgi_send_lowat 0;",
    "fastcgi_pass_request_body off;",
    "uwsgi_pass_request_body off;",
    "uwsgi_modifier1 5;",
    "uwsgi_modifier2 7;",
    "uwsgi_modifier1 300;",
    "memcached_pass 127.0.0.1:@backend;",
    "memcached_pass two;",
    "memcached_gzip_flag 2;",
    "memcached_gzip_flag 2; gunzip on;",
    "memcached_next_upstream not_found;",
    "memcached_next_upstream invalid_response error;",
    "memcached_buffer_size 1k;",
    "set $memcached_key own;",
    "set $memcached_key 'with space and \x01';",
    "error_page 404 = @named;",
    "error_page 502 504 =200 /404.html;",
    "error_page 500 502 @named;",
    "add_header X-Up '$upstream_addr $upstream_status' always;",
    "add_header X-Up '$upstream_http_x_powered_by $upstream_http_status $upstream_cookie_one' always;",
    "add_header X-Script '$fastcgi_script_name $fastcgi_path_info' always;",
    "ssi on; ssi_types *;",
    "sub_filter hello goodbye;",
    "client_body_in_file_only clean;",
    "client_body_buffer_size 1k;",
    "underscores_in_headers on;",
    "ignore_invalid_headers off;",
    "if ($arg_i) { fastcgi_pass 127.0.0.1:1; }",
    "rewrite ^/f/(.*)$ /u/$1 last;",
    "rewrite ^/u/(.*)$ /s/own/$1 break;",
    "rewrite ^/s/in/(.*)$ /k/$1;",
    "limit_except GET { deny all; }",
    "internal;",
    "auth_request /f/status204;",
    "post_action /u/after;",
    "mirror /s/mirror;",
];

/// All lines. They are few, and live as long as the process.
pub fn gateway_lines() -> Vec<&'static str> {
    let of_each = ["fastcgi", "scgi", "uwsgi"]
        .iter()
        .flat_map(|name| OF_EACH.iter().map(move |line| &*line.replace("@g", name).leak()));
    of_each.chain(LINES.iter().copied()).collect()
}

/// The blocks of the gateways; `@g`, `@p`: name and path.
pub fn gateway_locations(location: &str, nested: &str, in_if: &str) -> String {
    let one = |name: &str, path: &str| {
        format!(
            "location /{path}/ {{ {location} {name}_pass 127.0.0.1:@backend;
            location /{path}/in/ {{ {nested} {name}_pass 127.0.0.1:@backend; }}
            if ($arg_i) {{ {in_if} }}
        }}"
        )
    };
    format!(
        "set $memcached_key $uri;
        {} {} {} {}",
        one("fastcgi", "f"),
        one("scgi", "s"),
        one("uwsgi", "u"),
        one("memcached", "k")
    )
}

/// Parameters, in the `http` block.
pub fn gateway_params() -> String {
    let names = [
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SCRIPT_FILENAME", "$document_root$fastcgi_script_name"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("SERVER_PROTOCOL", "$server_protocol"),
    ];
    let mut out = "upstream two { server 127.0.0.1:@backend; server 127.0.0.1:@backend max_fails=0; }\n".to_string();
    for name in ["fastcgi", "scgi", "uwsgi"] {
        for (param, value) in names {
            out += &format!("{name}_param {param} {value};\n");
        }
    }
    out
}

pub const REQUESTS: &[PoolRequest] = &[
    make_ask("GET", "/f/echo", "", ""),
    make_ask("HEAD", "/f/echo", "", ""),
    make_ask(
        "GET",
        "/f/echo?i=1",
        "X-Own: o\r\nX-Own: p\r\nAccept-Encoding: gzip\r\nX_Under: u\r\nCookie: one=1\r\nCookie: two=2\r\n",
        "",
    ),
    make_ask("GET", "/f/a%20b//c?d=e", "", ""),
    make_ask("GET", "/f/", "", ""),
    make_ask("GET", "/f/x.php/path/info", "", ""),
    make_ask("POST", "/f/echo", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("POST", "/f/echo", "", ""),
    make_ask("DELETE", "/f/echo", "", ""),
    make_ask("GET", "/f/in/echo", "", ""),
    make_ask("GET", "/f/redirect", "", ""),
    make_ask("GET", "/f/relative", "", ""),
    make_ask("GET", "/f/local", "", ""),
    make_ask("GET", "/f/cookie", "", ""),
    make_ask("GET", "/f/error", "", ""),
    make_ask("GET", "/f/missing", "", ""),
    make_ask("GET", "/f/denied", "", ""),
    make_ask("GET", "/f/login", "", ""),
    make_ask("GET", "/f/page", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/f/page", "If-None-Match: \"page\"\r\n", ""),
    make_ask("GET", "/f/accel", "", ""),
    make_ask("GET", "/f/expires", "", ""),
    make_ask("GET", "/f/expires", "X-Own: 2\r\n", ""),
    make_ask("GET", "/f/limit", "", ""),
    make_ask("GET", "/f/none", "", ""),
    make_ask("GET", "/f/bare", "", ""),
    make_ask("GET", "/f/folded", "", ""),
    make_ask("GET", "/f/bad", "", ""),
    make_ask("GET", "/f/under_score", "", ""),
    make_ask("GET", "/f/status", "", ""),
    make_ask("GET", "/f/early", "", ""),
    make_ask("GET", "/f/empty204", "", ""),
    make_ask("GET", "/f/same304", "", ""),
    make_ask("GET", "/f/short", "", ""),
    make_ask("GET", "/f/long", "", ""),
    make_ask("GET", "/f/twice", "", ""),
    make_ask("GET", "/f/cut", "", ""),
    make_ask("GET", "/f/large", "", ""),
    make_ask("GET", "/f/echo", "", ""),
    make_ask("GET", "/s/echo", "X-Own: o\r\nX-Own: p\r\n", ""),
    make_ask("HEAD", "/s/page", "", ""),
    make_ask("POST", "/s/echo?i=1", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("GET", "/s/in/echo", "", ""),
    make_ask("GET", "/s/redirect", "", ""),
    make_ask("GET", "/s/local", "", ""),
    make_ask("GET", "/s/error", "", ""),
    make_ask("GET", "/s/missing", "", ""),
    make_ask("GET", "/s/page", "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n", ""),
    make_ask("GET", "/s/none", "", ""),
    make_ask("GET", "/s/bad", "", ""),
    make_ask("GET", "/s/status", "", ""),
    make_ask("GET", "/s/short", "", ""),
    make_ask("GET", "/s/long", "", ""),
    make_ask("GET", "/s/expires", "", ""),
    make_ask("GET", "/u/echo", "X-Own: o\r\nX-Own: p\r\n", ""),
    make_ask("HEAD", "/u/page", "", ""),
    make_ask("POST", "/u/echo?i=1", "Content-Type: text/plain\r\n", "abcd"),
    make_ask("GET", "/u/in/echo", "", ""),
    make_ask("GET", "/u/relative", "", ""),
    make_ask("GET", "/u/accel", "", ""),
    make_ask("GET", "/u/error", "", ""),
    make_ask("GET", "/u/page", "", ""),
    make_ask("GET", "/u/none", "", ""),
    make_ask("GET", "/u/bare", "", ""),
    make_ask("GET", "/u/bad", "", ""),
    make_ask("GET", "/u/short", "", ""),
    make_ask("GET", "/u/long", "", ""),
    make_ask("GET", "/k/key", "", ""),
    make_ask("HEAD", "/k/key", "", ""),
    make_ask("POST", "/k/key", "", "abcd"),
    make_ask("GET", "/k/a%20b", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/k/none", "", ""),
    make_ask("GET", "/k/error", "", ""),
    make_ask("GET", "/k/bad", "", ""),
    make_ask("GET", "/k/length", "", ""),
    make_ask("GET", "/k/flags?i=1", "Accept-Encoding: gzip\r\n", ""),
    make_ask("GET", "/k/flags", "", ""),
    make_ask("GET", "/k/empty", "", ""),
    make_ask("GET", "/k/in/x", "", ""),
];
