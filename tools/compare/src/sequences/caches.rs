//! Caches (`--caches`): freshness, variants, conditions, ranges, stale responses, over time.

use super::{ConfigLine, FreshRequest, Scene, SceneStep, SequenceSubject};
use crate::Dice;

pub const SUBJECT: SequenceSubject = SequenceSubject {
    name: "caches",
    site: "http {
    @own
    server_tokens off;
    log_format c '$request|$status|$upstream_status|$upstream_cache_status|$request_method';
    access_log @dir/access.log c;
    proxy_cache_path @dir/cache keys_zone=one:1m @(path);
    proxy_cache_path @dir/second keys_zone=two:1m levels=1 use_temp_path=off;
    proxy_http_version 1.1;
    add_header X-Cache '$upstream_cache_status' always;
    upstream o { server @origin0; server @origin0 max_fails=0; keepalive 0; }
    proxy_cache one;
    @(http)
    server {
        listen 127.0.0.1:@port;
        root @dir;
        location = /err { return 200 'error page $upstream_cache_status'; }
        location = /add { return 200 added; }
        location /a/ { @(a) proxy_pass http://o; }
        location /b/ { @(b) proxy_pass http://o; }
        location /c/ { @(c) proxy_pass http://o; }
    }
}
",
    draw,
    at_once: 6,
    in_parallel: false,
    numbers: false,
};

/// Lines of locations; of those that begin alike, a location has one.
const OF_LOCATION: &[&str] = &[
    "proxy_cache_valid 200 100s;",
    "proxy_cache_valid any 100s;",
    "proxy_cache_valid 200 302 100s;",
    "proxy_cache_valid 404 100s;",
    "proxy_cache_valid 100s;",
    "proxy_cache_valid 200 0;",
    "proxy_cache_valid 301 1s;",
    "proxy_cache_valid 500 502 100s;",
    "proxy_cache_valid 200 1s; proxy_cache_valid any 100s;",
    "proxy_cache_valid any 1s;",
    "proxy_cache_key $uri;",
    "proxy_cache_key $uri$is_args$args;",
    "proxy_cache_key $request_method$uri;",
    "proxy_cache_key $host$uri$http_x_k;",
    "proxy_cache_key $uri$slice_range;",
    "proxy_cache_methods POST;",
    "proxy_cache_methods GET HEAD POST;",
    "proxy_cache_min_uses 1;",
    "proxy_cache_min_uses 2;",
    "proxy_cache_min_uses 3;",
    "proxy_cache_bypass $arg_by;",
    "proxy_cache_bypass $arg_by $http_x_by;",
    "proxy_cache_bypass $cookie_by;",
    "proxy_no_cache $arg_no;",
    "proxy_no_cache $arg_no $http_x_no;",
    "proxy_no_cache $upstream_http_set_cookie;",
    "proxy_cache_use_stale error;",
    "proxy_cache_use_stale http_500;",
    "proxy_cache_use_stale error http_500 http_404 http_503;",
    "proxy_cache_use_stale updating;",
    "proxy_cache_use_stale error updating http_500;",
    "proxy_cache_use_stale timeout invalid_header http_403 http_429;",
    "proxy_cache_use_stale updating; proxy_cache_background_update on;",
    "proxy_cache_use_stale error updating http_500 http_404; proxy_cache_background_update on;",
    "proxy_cache_background_update on;",
    "proxy_cache_revalidate on;",
    "proxy_cache_revalidate on;",
    "proxy_cache_lock on;",
    "proxy_cache_lock on; proxy_cache_lock_age 1s; proxy_cache_lock_timeout 1s;",
    "proxy_cache_convert_head off;",
    "proxy_cache_convert_head off; proxy_cache_key $request_method$uri;",
    "proxy_cache_max_range_offset 0;",
    "proxy_cache_max_range_offset 10;",
    "proxy_cache_max_range_offset 1000;",
    "proxy_ignore_headers Cache-Control;",
    "proxy_ignore_headers Expires;",
    "proxy_ignore_headers Set-Cookie;",
    "proxy_ignore_headers Vary;",
    "proxy_ignore_headers X-Accel-Expires;",
    "proxy_ignore_headers Cache-Control Expires Set-Cookie Vary X-Accel-Expires;",
    "proxy_hide_header ETag;",
    "proxy_hide_header Cache-Control;",
    "proxy_hide_header Vary;",
    "proxy_hide_header Last-Modified;",
    "proxy_pass_header Set-Cookie;",
    "proxy_force_ranges on;",
    "proxy_buffering off;",
    "proxy_max_temp_file_size 0;",
    "proxy_intercept_errors on; error_page 404 500 502 503 = /err;",
    "proxy_intercept_errors on; error_page 404 500 502 503 =200 /err;",
    "gzip on; gzip_types text/plain; gzip_min_length 1; gzip_proxied any;",
    "gunzip on;",
    "gzip_vary on;",
    "expires 1h;",
    "expires epoch;",
    "expires -1;",
    "expires max;",
    "etag off;",
    "if_modified_since before;",
    "if_modified_since off;",
    "max_ranges 0;",
    "max_ranges 1;",
    "slice 10;",
    "slice 1k; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;",
    "slice 10; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;",
    "slice 10; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range; proxy_cache_valid 206 100s;",
    "slice 100; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range; proxy_cache_valid 200 206 1s;",
    "proxy_set_header If-None-Match own;",
    "proxy_set_header Accept-Encoding '';",
    "proxy_set_header Range $http_range; proxy_cache_key $uri$http_range; proxy_cache_valid 206 100s;",
    "proxy_buffer_size 1k;",
    "proxy_buffer_size 16k;",
    "proxy_cache off;",
    "proxy_cache two;",
    "proxy_cache $arg_zone;",
    "proxy_set_body b;",
    "proxy_method GET;",
    "proxy_http_version 1.0;",
    "sub_filter abc xyz; sub_filter_types *;",
    "addition_types *; add_after_body /add;",
    "proxy_next_upstream http_500 http_404;",
    "proxy_redirect / /x/;",
    "proxy_cookie_path / /p;",
    "charset utf-8;",
    "ssi on; ssi_types *;",
    "client_max_body_size 1;",
    "add_trailer X-T t;",
    "limit_except GET { deny all; }",
    "proxy_set_header X-Status $upstream_cache_status;",
];

fn some(dice: &mut Dice, block: &'static str, most: usize, lines: &mut Vec<ConfigLine>) {
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..dice.below(most + 1) {
        let text = dice.text(OF_LOCATION);
        let own: Vec<&str> = text.split("; ").filter_map(|part| part.split(' ').next()).collect();
        const OFTEN: [&str; 4] = ["proxy_set_header", "proxy_hide_header", "proxy_cache_valid", "expires"];
        if !own
            .iter()
            .any(|name| names.contains(name) && !OFTEN.contains(name) || *name == "expires" && names.contains(name))
        {
            names.extend(own);
            lines.push(ConfigLine { block, text: text.into() });
        }
    }
}

/// Arguments of responses: a chance in percent, and values. Chunked responses are left out: Tidegate knows the length of stored
/// ones, and serves their ranges.
const ARGUMENTS: &[(usize, &[&str])] = &[
    (
        50,
        &[
            "cc=max-age=100",
            "cc=max-age=1",
            "cc=no-cache",
            "cc=private",
            "cc=no-store",
            "cc=max-age=0",
            "cc=s-maxage=100",
            "cc=max-age=0,s-maxage=1",
            "cc=max-age=1,stale-while-revalidate=100",
            "cc=max-age=1,stale-if-error=100",
            "cc=public",
            "cc=MAX-AGE=5",
            "cc=max-age=bad",
            "cc=max-age=%225%22",
            "cc=max-age=1,%20must-revalidate",
            "cc=no-transform,%20max-age=100",
        ],
    ),
    (30, &["v=X-K", "v=Accept-Encoding", "v=*", "v=X-K,Accept-Language", "v=Accept-Encoding,X-K", "v=Range"]),
    (40, &["e=%22one%22", "e=W/%22w%22", "e=bare"]),
    (30, &["lm=Mon,%2001%20Jan%202024%2000:00:00%20GMT", "lm=bad"]),
    (15, &["xa=0", "xa=100", "xa=1", "xa=@0", "xa=@9999999999", "xa=off", "xa=bad"]),
    (15, &["sc=a=b"]),
    (15, &["ex=Thu,%2001%20Jan%202037%2000:00:00%20GMT", "ex=0", "ex=Mon,%2001%20Jan%202024%2000:00:00%20GMT"]),
    (10, &["ce=gzip", "ce=br"]),
    (40, &["c=1"]),
    (40, &["r=1"]),
    (30, &["z=0", "z=1", "z=1000", "z=5000", "z=20000", "z=70000"]),
    (
        30,
        &[
            "s=404",
            "s=500",
            "s=301&loc=/to",
            "s=204",
            "s=503",
            "s=206",
            "s=304",
            "s=403",
            "s=410",
            "s=302&loc=/to",
            "s=close",
        ],
    ),
    (
        30,
        &[
            "f=2&fs=500",
            "f=3&fs=404",
            "f=2&fs=503",
            "f=2&fs=200",
            "f=2&fs=304",
            "f=3&fs=429",
            "f=2&fs=403",
            "f=2&fs=close",
            "f=2&fs=204",
        ],
    ),
    (20, &["ct=html"]),
    (10, &["zone=one", "zone=two", "zone=none", "zone="]),
    (10, &["pr=no-cache"]),
    (5, &["age=50"]),
];

/// Fields of requests: a chance in percent, and values.
const FIELDS: &[(usize, &[&str])] = &[
    (25, &["X-K: a", "X-K: b", "X-K: "]),
    (20, &["Accept-Encoding: gzip", "Accept-Encoding: br", "Accept-Encoding: identity, gzip"]),
    (
        25,
        &[
            "Range: bytes=0-3",
            "Range: bytes=5-",
            "Range: bytes=-4",
            "Range: bytes=2-2,5-6",
            "Range: bytes=0-0",
            "Range: bytes=15-25",
            "Range: bytes=9-10",
            "Range: bytes=100000-",
            "Range: bytes=x",
        ],
    ),
    (15, &["If-None-Match: \"one\"", "If-None-Match: *", "If-None-Match: W/\"w\"", "If-None-Match: \"other\""]),
    (15, &["If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT", "If-Modified-Since: Mon, 01 Jan 2018 00:00:00 GMT"]),
    (5, &["If-Match: \"one\"", "If-Match: \"x\"", "If-Unmodified-Since: Mon, 01 Jan 2018 00:00:00 GMT"]),
    (5, &["If-Range: \"one\"", "If-Range: Mon, 01 Jan 2024 00:00:00 GMT", "If-Range: \"x\""]),
    (5, &["Cache-Control: no-cache", "Pragma: no-cache"]),
    (5, &["X-By: 1", "X-No: 1", "Cookie: by=1"]),
    (5, &["Authorization: x"]),
];

/// Draws from each row with its chance.
fn drawn(dice: &mut Dice, rows: &[(usize, &[&'static str])]) -> Vec<&'static str> {
    let mut out = Vec::new();
    for (percent, all) in rows {
        if dice.percent(*percent) {
            out.push(dice.text(all));
        }
    }
    out
}

fn draw(dice: &mut Dice) -> Scene {
    let mut lines = Vec::new();
    for (block, all) in [
        ("path", &["", "", "levels=1:2", "levels=2 use_temp_path=off", "inactive=1h", "max_size=1m"][..]),
        ("http", &["", "proxy_cache_valid any 100s;", "proxy_cache_valid 200 100s;", "proxy_cache_valid 200 404 1s;"]),
    ] {
        lines.push(ConfigLine { block, text: dice.text(all).into() });
    }
    for block in ["a", "b", "c"] {
        some(dice, block, 5, &mut lines);
    }
    // A request whose response is not going to be stored stays HEAD; nginx sends GET, and closes the connection.
    const NOT_STORED: [&str; 2] = ["proxy_cache_min_uses", "proxy_cache_max_range_offset"];
    let is_rare = lines.iter().any(|line| NOT_STORED.iter().any(|start| line.text.starts_with(start)));
    let mut targets = Vec::new();
    for index in 0..1 + dice.below(4) {
        let query = drawn(dice, ARGUMENTS).join("&");
        targets.push(format!("/{}/{index}?{query}", dice.text(&["a", "b", "c"])));
    }
    let mut steps = Vec::new();
    let mut pauses = 0;
    for _ in 0..6 + dice.below(18) {
        if pauses < 1 && dice.percent(8) {
            pauses += 1;
            steps.push(SceneStep::Pause);
            continue;
        }
        let mut target = dice.one(&targets).clone();
        for (percent, text) in [(10, "&by=0"), (10, "&by=1"), (10, "&no=1")] {
            if dice.percent(percent) {
                target += text;
            }
        }
        let mut fields: Vec<String> = drawn(dice, FIELDS).into_iter().map(String::from).collect();
        let method =
            dice.text(&["GET", "GET", "GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "PUT"]);
        if method == "HEAD" && is_rare {
            continue;
        }
        let has_body = matches!(method, "POST" | "PUT");
        if has_body {
            fields.push("Content-Length: 2".into());
        }
        let body = if has_body { b"ab".to_vec() } else { Vec::new() };
        steps.push(SceneStep::Ask(FreshRequest { method, target, fields, body }));
    }
    Scene { lines, steps }
}
