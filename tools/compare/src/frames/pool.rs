//! Directives that may change how HTTP/2 clients are served.

/// Block that a directive is put into; `Location`: all locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePlace {
    Http,
    Server,
    Location,
    /// Groups of servers.
    Upstream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePut {
    pub text: &'static str,
    pub place: FramePlace,
}

use FramePlace::{Http, Location, Server};

const ANY: &[FramePlace] = &[Http, Server, Location];
const SERVERS: &[FramePlace] = &[Http, Server];

pub const POOL: &[(&str, &[FramePlace])] = &[
    ("http2_max_concurrent_streams 1;", SERVERS),
    ("http2_max_concurrent_streams 3;", SERVERS),
    ("http2_max_concurrent_streams 10;", SERVERS),
    ("http2_body_preread_size 0;", SERVERS),
    ("http2_body_preread_size 100;", SERVERS),
    ("http2_body_preread_size 5000;", SERVERS),
    ("http2_body_preread_size 128k;", SERVERS),
    ("http2_chunk_size 1k;", ANY),
    ("http2_chunk_size 16k;", ANY),
    ("http2_recv_buffer_size 512;", &[Http]),
    ("http2 off;", &[Server]),
    ("large_client_header_buffers 1 1k;", SERVERS),
    ("large_client_header_buffers 4 1k;", SERVERS),
    ("large_client_header_buffers 2 4k;", SERVERS),
    ("large_client_header_buffers 4 64k;", SERVERS),
    ("client_header_buffer_size 16k;", SERVERS),
    ("client_max_body_size 1k;", ANY),
    ("client_max_body_size 0;", ANY),
    ("client_body_buffer_size 1k;", ANY),
    ("client_body_in_single_buffer on;", ANY),
    ("client_body_in_file_only clean;", ANY),
    ("keepalive_requests 1;", SERVERS),
    ("keepalive_requests 3;", SERVERS),
    ("keepalive_timeout 0;", SERVERS),
    ("underscores_in_headers on;", SERVERS),
    ("ignore_invalid_headers off;", SERVERS),
    ("max_headers 5;", SERVERS),
    ("lingering_close off;", ANY),
    ("sendfile on;", ANY),
    ("tcp_nopush on;", ANY),
    ("output_buffers 1 1k;", ANY),
    ("postpone_output 0;", ANY),
    ("limit_rate 20m;", ANY),
    ("gzip on; gzip_types text/plain; gzip_min_length 0;", ANY),
    ("server_tokens off;", ANY),
    ("error_page 400 405 413 494 /return;", ANY),
    ("error_page 404 =200 /small.txt;", ANY),
    ("merge_slashes off;", SERVERS),
    ("add_trailer X-Trailer t;", ANY),
    ("add_header X-Added \"$http2 $request_length\" always;", ANY),
    ("chunked_transfer_encoding off;", ANY),
    ("expires 1d;", ANY),
    ("etag off;", ANY),
    ("max_ranges 0;", ANY),
    ("limit_except GET { deny all; }", &[Location]),
    ("allow_connect on;", ANY),
    ("proxy_request_buffering off; proxy_http_version 1.1;", ANY),
    ("proxy_request_buffering off;", ANY),
    ("proxy_buffering off;", ANY),
    ("proxy_buffers 2 1k; proxy_buffer_size 1k; proxy_busy_buffers_size 1k;", ANY),
    ("proxy_pass_request_body off;", ANY),
    ("proxy_pass_request_headers off;", ANY),
    ("proxy_intercept_errors on;", ANY),
    ("proxy_method POST;", ANY),
    ("proxy_set_body 'a body';", ANY),
    ("proxy_ignore_client_abort on;", ANY),
    ("client_body_temp_path DIR/bodies;", ANY),
];
