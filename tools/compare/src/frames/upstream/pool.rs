//! Directives that may change how responses of HTTP/2 servers are passed on.

use crate::frames::pool::FramePlace::{self, Http, Location, Server, Upstream};

const ANY: &[FramePlace] = &[Http, Server, Location];
const GROUP: &[FramePlace] = &[Upstream];

pub const POOL: &[(&str, &[FramePlace])] = &[
    ("AGAIN", GROUP),
    ("AGAIN", GROUP),
    ("keepalive_requests 2;", GROUP),
    ("keepalive_timeout 0;", GROUP),
    ("grpc_buffer_size 1k; proxy_buffer_size 1k; proxy_buffers 2 1k; proxy_busy_buffers_size 1k;", ANY),
    ("grpc_buffer_size 16k; proxy_buffer_size 16k; proxy_buffers 2 16k;", ANY),
    ("grpc_intercept_errors on; proxy_intercept_errors on; error_page 404 500 502 503 504 @named;", ANY),
    ("grpc_next_upstream off; proxy_next_upstream off;", ANY),
    ("grpc_next_upstream error timeout non_idempotent; proxy_next_upstream error timeout non_idempotent;", ANY),
    ("grpc_next_upstream invalid_header http_503 http_404; proxy_next_upstream invalid_header http_503 http_404;", ANY),
    ("grpc_next_upstream_tries 1; proxy_next_upstream_tries 1;", ANY),
    ("grpc_pass_header Server; proxy_pass_header Server;", ANY),
    ("grpc_hide_header X-Own; proxy_hide_header X-Own;", ANY),
    ("grpc_ignore_headers X-Accel-Redirect; proxy_ignore_headers X-Accel-Redirect X-Accel-Buffering;", ANY),
    ("grpc_set_header X-Own 'a b'; proxy_set_header X-Own 'a b';", &[Location]),
    ("grpc_set_header TE ''; proxy_set_header TE '';", &[Location]),
    ("proxy_request_buffering off;", ANY),
    ("proxy_buffering off;", ANY),
    ("proxy_pass_trailers on;", ANY),
    ("proxy_max_temp_file_size 0;", ANY),
    ("proxy_ignore_client_abort on;", ANY),
    ("proxy_pass_request_body off;", ANY),
    ("proxy_method POST;", ANY),
    ("proxy_cache one; proxy_cache_valid 1m;", ANY),
    ("client_max_body_size 1k;", ANY),
    ("client_body_buffer_size 1k;", ANY),
    ("underscores_in_headers on;", &[Http, Server]),
    ("add_trailer X-Trailer own;", ANY),
    ("add_header X-Added \"$upstream_status\" always;", ANY),
    ("gzip on; gzip_types text/plain; gzip_min_length 0;", ANY),
    ("early_hints 1;", ANY),
    ("chunked_transfer_encoding off;", ANY),
    ("sub_filter 0123 abc; sub_filter_types *;", ANY),
    ("limit_rate 20m;", ANY),
];
