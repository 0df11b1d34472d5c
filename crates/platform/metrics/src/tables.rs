//! The table of all metrics. Names follow Prometheus's conventions: base units, the unit last, `_total` (added on
//! output) for counters.

metrics! {
    /// The process
    pub mod process [] {
        /// Accepted client connections.
        CONNECTIONS_ACCEPTED: Counter None "tidegate_connections_accepted";
        /// Accepted connections by area, without those closed at once because `worker_connections` was exhausted.
        CONNECTIONS_HANDLED: Counter None "tidegate_connections_handled" by "area" ["http", "stream", "mail"];
        /// Open HTTP client connections.
        CONNECTIONS_ACTIVE: Gauge None "tidegate_connections_active";
        /// HTTP client connections with a request being read.
        CONNECTIONS_READING: Gauge None "tidegate_connections_reading";
        /// HTTP client requests handled by a task. Requests answered on the inline path are not counted.
        CONNECTIONS_WRITING: Gauge None "tidegate_connections_writing";
        /// Idle HTTP client connections waiting for a request.
        CONNECTIONS_WAITING: Gauge None "tidegate_connections_waiting";
        /// HTTP client requests by protocol version. A malformed request head counts as 1.1.
        HTTP_REQUESTS: Counter None "tidegate_http_requests" by "version" ["0.9", "1.0", "1.1", "2", "3"];
        /// HTTP client requests with a response, complete or partial, by status class.
        HTTP_RESPONSES: Counter None "tidegate_http_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// HTTP client requests that ended without a byte of a response.
        HTTP_DISCARDED: Counter None "tidegate_http_discarded";
        /// Request bytes received, heads and bodies, as counted by `$request_length`.
        HTTP_RECEIVED: Counter Bytes "tidegate_http_received_bytes";
        /// Response bytes sent, as counted by `$bytes_sent`.
        HTTP_SENT: Counter Bytes "tidegate_http_sent_bytes";
        /// Completed TLS handshakes with clients, by area.
        TLS_HANDSHAKES: Counter None "tidegate_tls_handshakes" by "area" ["http", "stream", "mail"];
        /// Failed TLS handshakes with clients, by area.
        TLS_HANDSHAKES_FAILED: Counter None "tidegate_tls_handshakes_failed" by "area" ["http", "stream", "mail"];
        /// TLS handshakes with clients that resumed a session, by area.
        TLS_SESSION_REUSES: Counter None "tidegate_tls_session_reuses" by "area" ["http", "stream", "mail"];
        /// Failed TLS handshakes with clients, by reason.
        TLS_FAILURES: Counter None "tidegate_tls_failures"
            by "reason" ["timeout", "no_common_protocol", "no_common_cipher", "peer_rejected_cert", "other"];
        /// Completed TLS handshakes with clients, by protocol version.
        TLS_VERSIONS: Counter None "tidegate_tls_handshake_versions" by "version" ["1.2", "1.3"];
        /// Refused client certificates, by reason.
        TLS_VERIFY_FAILURES: Counter None "tidegate_tls_verify_failures"
            by "reason" ["no_cert", "expired_cert", "revoked_cert", "hostname_mismatch", "other"];
        /// Client connections that used a protocol with concurrent requests (HTTP/2, HTTP/3).
        MULTIPLEXED: Counter None "tidegate_multiplexed_connections" by "version" ["2", "3"];
        /// Open client connections of a protocol with concurrent requests.
        MULTIPLEXED_ACTIVE: Gauge None "tidegate_multiplexed_connections_active" by "version" ["2", "3"];
        /// HTTP/2 and HTTP/3 requests cancelled by the client (`RST_STREAM`, `STOP_SENDING`).
        STREAMS_RESET: Counter None "tidegate_multiplexed_resets" by "version" ["2", "3"];
        /// Connections on which the client sent `GOAWAY`.
        GOAWAYS: Counter None "tidegate_multiplexed_goaways" by "version" ["2", "3"];
        /// UDP datagrams received by HTTP/3 listeners.
        QUIC_DATAGRAMS: Counter None "tidegate_quic_datagrams_received";
        /// HTTP/3 clients whose address was validated with a Retry packet (`quic_retry`, or a flood).
        QUIC_RETRIES: Counter None "tidegate_quic_retries";
        /// Client requests with a cache lookup, by result (`$upstream_cache_status`).
        CACHE_RESPONSES: Counter None "tidegate_cache_responses"
            by "status" ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
        /// Requests that rules of the firewall have inspected (`modsecurity`).
        FIREWALL_TRANSACTIONS: Counter None "tidegate_firewall_transactions";
        /// Inspected requests that rules, a limit or the end of the budget have refused.
        FIREWALL_DENIED: Counter None "tidegate_firewall_denied";
        /// Requests sent to upstream servers, including retries.
        UPSTREAM_REQUESTS: Counter None "tidegate_upstream_requests";
        /// Requests retried on another upstream server.
        UPSTREAM_RETRIES: Counter None "tidegate_upstream_retries";
        /// Upstream requests that failed by an error, a timeout or a status listed in `next_upstream`.
        UPSTREAM_FAILURES: Counter None "tidegate_upstream_failures";
        /// Time to connect to an upstream server, in seconds. Reused connections are not counted.
        UPSTREAM_CONNECT: Histogram Seconds "tidegate_upstream_connect_seconds";
        /// Time to the response head of an upstream server, in seconds.
        UPSTREAM_HEADER: Histogram Seconds "tidegate_upstream_header_seconds";
        /// Time to the end of an upstream server's response, in seconds.
        UPSTREAM_RESPONSE: Histogram Seconds "tidegate_upstream_response_seconds";
        /// Requests checked by limit_req, by result.
        LIMIT_REQ: Counter None "tidegate_limit_req_requests"
            by "verdict" ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
        /// Requests and sessions checked by limit_conn, by result.
        LIMIT_CONN: Counter None "tidegate_limit_conn_requests" by "verdict" ["passed", "rejected", "rejected_dry_run"];
        /// DNS queries by kind.
        RESOLVER_REQUESTS: Counter None "tidegate_resolver_requests" by "kind" ["name", "srv", "addr"];
        /// DNS responses by code, and queries that timed out.
        RESOLVER_RESPONSES: Counter None "tidegate_resolver_responses"
            by "code" ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
        /// Files with contents or metadata cached in memory, over all threads.
        FILE_CACHE_FILES: Gauge None "tidegate_file_cache_files";
        /// Active stream sessions.
        STREAM_SESSIONS: Gauge None "tidegate_stream_sessions_active";
        /// Finished stream sessions by status class.
        STREAM_SESSIONS_ENDED: Counter None "tidegate_stream_sessions" by "class" ["2xx", "4xx", "5xx"];
        /// Queries that the `dns` directive received, by transport.
        DNS_QUERIES: Counter None "tidegate_dns_queries" by "transport" ["udp", "tcp"];
        /// Responses of the `dns` directive by code; `nodata` is a `noerror` without a record of the type.
        DNS_RESPONSES: Counter None "tidegate_dns_responses"
            by "code" ["noerror", "nodata", "nxdomain", "formerr", "servfail", "notimp", "refused", "badvers"];
        /// Responses of the `dns` directive that were cut and ask for TCP, by reason: their size, or `dns_rate_limit`.
        DNS_TRUNCATED: Counter None "tidegate_dns_truncated" by "reason" ["size", "rate"];
        /// Queries that the `dns` directive left without a response, by reason.
        DNS_DROPPED: Counter None "tidegate_dns_dropped" by "reason" ["malformed", "rate"];
        /// Answers of pools none of whose servers was available.
        DNS_POOLS_DOWN: Counter None "tidegate_dns_pools_down";
        /// Active mail sessions.
        MAIL_SESSIONS: Gauge None "tidegate_mail_sessions_active";
        /// Spawned tasks.
        TASKS_STARTED: Counter None "tidegate_tasks_started";
        /// Live tasks.
        TASKS: Gauge None "tidegate_tasks_active";
        /// Caught panics. Each one terminated a request and its connection; the error log has the details.
        PANICS: Counter None "tidegate_panics";
        /// Layers of the sandbox (`sandbox`): 1 if enforced for the worker process, otherwise 0.
        SANDBOX: Gauge None "tidegate_sandbox" by "layer" ["calls", "files", "ports"];
        /// System calls that the sandbox refused.
        SANDBOX_REFUSED: Counter None "tidegate_sandbox_refused_calls";
        /// Signatures made by the key process (`ssl_key_isolation`).
        KEY_SIGNATURES: Counter None "tidegate_key_signatures";
        /// Signatures that the key process did not make. Each one ended a handshake.
        KEY_FAILURES: Counter None "tidegate_key_signatures_failed";
        /// Time that worker threads waited for the key process, in seconds.
        KEY_WAITED: Counter Seconds "tidegate_key_wait_seconds";
        /// Connections of worker threads to the key process. A thread opens another when the key process was replaced.
        KEY_CHANNELS: Counter None "tidegate_key_connections";
        /// Spans for `otel_exporter`, by result: accepted by the receiver; dropped because the queue was full; rejected
        /// by the receiver (partial success); given up after failed exports.
        OTEL_SPANS: Counter None "tidegate_otel_spans" by "result" ["exported", "dropped", "rejected", "failed"];
        /// Requests to the endpoint of `otel_exporter`, by result. A retried request is followed by another one.
        OTEL_EXPORTS: Counter None "tidegate_otel_exports" by "result" ["ok", "retried", "failed"];
        /// Event loop iterations of the worker threads.
        LOOP_TURNS: Counter None "tidegate_loop_turns";
        /// Event loop iterations longer than 1 millisecond, which delayed all other connections of the thread.
        LOOP_TURNS_LONG: Counter None "tidegate_loop_turns_long";
        /// Time that the worker threads were busy, in seconds; otherwise they slept.
        LOOP_BUSY: Counter Seconds "tidegate_loop_busy_seconds";
        /// Duration of event loop iterations of the worker threads, in seconds.
        LOOP_TIMES: Histogram Seconds "tidegate_loop_turn_seconds";
    }
    /// Worker threads
    pub mod worker ["worker"] {
        /// Accepted client connections.
        CONNECTIONS_ACCEPTED: Counter None "tidegate_worker_connections_accepted";
        /// Open HTTP client connections.
        CONNECTIONS_ACTIVE: Gauge None "tidegate_worker_connections_active";
        /// HTTP client requests.
        REQUESTS: Counter None "tidegate_worker_http_requests";
        /// CPU time of the thread, in seconds.
        CPU: Counter Seconds "tidegate_worker_cpu_seconds";
        /// Duration of event loop iterations, in seconds: the maximum delay of the thread's other connections.
        TURNS: Histogram Seconds "tidegate_worker_loop_turn_seconds";
    }
    /// The worker process
    pub mod worker_process [] {
        /// Start time of the process, in seconds since 1970.
        BEGAN: Gauge Seconds "tidegate_process_start_timestamp_seconds";
        /// CPU time of all threads, in seconds.
        CPU: Counter Seconds "tidegate_process_cpu_seconds";
        /// Resident memory, in bytes; 0 if unknown.
        RESIDENT: Gauge Bytes "tidegate_process_resident_memory_bytes";
        /// Open file descriptors; 0 if unknown.
        DESCRIPTORS: Gauge None "tidegate_process_descriptors_open";
        /// Maximum number of file descriptors (`worker_rlimit_nofile`).
        DESCRIPTORS_MAX: Gauge None "tidegate_process_descriptors_limit";
        /// Worker processes that ended abnormally and were restarted.
        RESPAWNED: Counter None "tidegate_worker_processes_respawned";
        /// Key processes that ended or hung and were replaced (`ssl_key_isolation`).
        KEYS_RESPAWNED: Counter None "tidegate_key_processes_respawned";
    }
    /// Reloads
    pub mod reload [] {
        /// Configuration reloads by result. After a failure the previous configuration stays active.
        RELOADS: Counter None "tidegate_reloads" by "result" ["success", "failure"];
        /// 1 if the last reload succeeded or there was no reload; 0 if it failed.
        LAST_OK: Gauge None "tidegate_reload_last_success";
        /// Time of the last reload, successful or not, in seconds since 1970; the start time without a reload.
        LAST: Gauge Seconds "tidegate_reload_last_timestamp_seconds";
        /// Load time of the active configuration, in seconds since 1970.
        LOADED: Gauge Seconds "tidegate_config_loaded_timestamp_seconds";
    }
    /// Certificates from files and from ACME
    pub mod certificate ["certificate"] {
        /// Start of the certificate's validity, in seconds since 1970; 0 before the first ACME order is complete.
        NOT_BEFORE: Gauge Seconds "tidegate_certificate_not_before_timestamp_seconds";
        /// End of the certificate's validity, in seconds since 1970; 0 before the first ACME order is complete.
        NOT_AFTER: Gauge Seconds "tidegate_certificate_not_after_timestamp_seconds";
    }
    /// Servers of the http block with `status_zone`
    pub mod server_zone ["server_zone"] {
        /// Requests being processed.
        PROCESSING: Gauge None "tidegate_server_zone_processing";
        /// Requests received by the server.
        REQUESTS: Counter None "tidegate_server_zone_requests";
        /// Requests with a response, complete or partial, by status class.
        RESPONSES: Counter None "tidegate_server_zone_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Requests that ended without a byte of a response.
        DISCARDED: Counter None "tidegate_server_zone_discarded";
        /// Request bytes received.
        RECEIVED: Counter Bytes "tidegate_server_zone_received_bytes";
        /// Response bytes sent.
        SENT: Counter Bytes "tidegate_server_zone_sent_bytes";
        /// Time from the first byte of a request to its end, in seconds.
        TIME: Histogram Seconds "tidegate_server_zone_request_seconds";
        /// Completed TLS handshakes of the server.
        TLS_HANDSHAKES: Counter None "tidegate_server_zone_tls_handshakes";
        /// TLS handshakes of the server that resumed a session.
        TLS_REUSES: Counter None "tidegate_server_zone_tls_session_reuses";
        /// Failed TLS handshakes of the server, by reason.
        TLS_FAILURES: Counter None "tidegate_server_zone_tls_failures"
            by "reason" ["timeout", "no_common_protocol", "no_common_cipher", "peer_rejected_cert", "other"];
        /// Refused client certificates of the server, by reason.
        TLS_VERIFY_FAILURES: Counter None "tidegate_server_zone_tls_verify_failures"
            by "reason" ["no_cert", "expired_cert", "revoked_cert", "hostname_mismatch", "other"];
    }
    /// Locations with `status_zone`
    pub mod location_zone ["location_zone"] {
        /// Requests that ended in the location.
        REQUESTS: Counter None "tidegate_location_zone_requests";
        /// Requests with a response, complete or partial, by status class.
        RESPONSES: Counter None "tidegate_location_zone_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Requests that ended without a byte of a response.
        DISCARDED: Counter None "tidegate_location_zone_discarded";
        /// Request bytes received.
        RECEIVED: Counter Bytes "tidegate_location_zone_received_bytes";
        /// Response bytes sent.
        SENT: Counter Bytes "tidegate_location_zone_sent_bytes";
        /// Time from the first byte of a request to its end, in seconds.
        TIME: Histogram Seconds "tidegate_location_zone_request_seconds";
    }
    /// Upstream servers in groups with `zone`
    pub mod peer ["upstream", "peer"] {
        /// Active requests, or active stream connections, of the server.
        ACTIVE: Gauge None "tidegate_upstream_peer_active";
        /// Requests, or stream connections, passed to the server.
        REQUESTS: Counter None "tidegate_upstream_peer_requests";
        /// Responses by status class.
        RESPONSES: Counter None "tidegate_upstream_peer_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Bytes sent to the server.
        SENT: Counter Bytes "tidegate_upstream_peer_sent_bytes";
        /// Bytes received from the server.
        RECEIVED: Counter Bytes "tidegate_upstream_peer_received_bytes";
        /// Failures counted for `max_fails`.
        FAILS: Counter None "tidegate_upstream_peer_fails";
        /// Times the server became unavailable because of failures.
        UNAVAILABLE: Counter None "tidegate_upstream_peer_unavailable";
        /// Time to the response head, or to the established connection for stream, in seconds.
        HEADER: Histogram Seconds "tidegate_upstream_peer_header_seconds";
        /// Time to the end of the response, or of the stream connection, in seconds.
        RESPONSE: Histogram Seconds "tidegate_upstream_peer_response_seconds";
        /// 1 if the server receives requests; 0 if it is down, draining, failing, full or unhealthy.
        UP: Gauge None "tidegate_upstream_peer_up";
        /// 1 for a backup server.
        BACKUP: Gauge None "tidegate_upstream_peer_backup";
        /// The server's weight.
        WEIGHT: Gauge None "tidegate_upstream_peer_weight";
    }
    /// Caches
    pub mod cache ["cache"] {
        /// Responses of locations that use the cache, by lookup result (`$upstream_cache_status`).
        RESPONSES: Counter None "tidegate_cache_zone_responses"
            by "status" ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
        /// Response bytes sent to clients, heads included, by lookup result.
        SENT: Counter Bytes "tidegate_cache_zone_sent_bytes"
            by "status" ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
        /// Entries in the index.
        ENTRIES: Gauge None "tidegate_cache_zone_entries";
        /// Size on disk, in bytes.
        SIZE: Gauge Bytes "tidegate_cache_zone_size_bytes";
        /// Maximum size on disk (`max_size`), in bytes; 0 means no limit.
        SIZE_MAX: Gauge Bytes "tidegate_cache_zone_size_limit_bytes";
        /// Size of entries held in memory, in bytes.
        MEMORY: Gauge Bytes "tidegate_cache_zone_memory_bytes";
        /// 1 until the cache loader has scanned the whole directory.
        COLD: Gauge None "tidegate_cache_zone_cold";
    }
    /// Zones of limit_req
    pub mod limit_req ["zone"] {
        /// Requests checked by the zone, by result.
        REQUESTS: Counter None "tidegate_limit_req_zone_requests"
            by "verdict" ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    }
    /// Zones of limit_conn
    pub mod limit_conn ["zone"] {
        /// Requests and sessions checked by the zone, by result.
        REQUESTS: Counter None "tidegate_limit_conn_zone_requests"
            by "verdict" ["passed", "rejected", "rejected_dry_run"];
    }
    /// Rules of the firewall (`modsecurity`) that have matched a request, by id
    pub mod firewall_rule ["rule"] {
        /// Requests that the rule has matched, by the verdict on the request: of this rule or of another one. Matches
        /// that are not logged (`nolog`) do not count.
        REQUESTS: Counter None "tidegate_firewall_rule_requests" by "verdict" ["passed", "denied"];
    }
    /// Stores of `shared_store`
    pub mod store ["store"] {
        /// 1 if the store is there; 0 if it is not.
        CONNECTED: Gauge None "tidegate_store_connected";
        /// Servers that share the store, this one included; those that were seen last while the store is gone.
        NODES: Gauge None "tidegate_store_nodes";
        /// Changes that wait for the store.
        PENDING: Gauge None "tidegate_store_records_pending";
        /// Changes by what became of them: sent to the store; taken over from other servers; not taken over, because a
        /// zone has no room.
        RECORDS: Counter None "tidegate_store_records" by "kind" ["sent", "applied", "no_room"];
        /// Connections that were lost, or could not be made.
        FAILURES: Counter None "tidegate_store_failures";
        /// Permits of limits, by result: fetched from the store; refused to requests.
        PERMITS: Counter None "tidegate_store_permits" by "result" ["taken", "refused"];
    }
    /// Resolvers with `status_zone=`
    pub mod resolver ["resolver"] {
        /// DNS queries by kind.
        REQUESTS: Counter None "tidegate_resolver_zone_requests" by "kind" ["name", "srv", "addr"];
        /// DNS responses by code, and queries that timed out.
        RESPONSES: Counter None "tidegate_resolver_zone_responses"
            by "code" ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
    }
    /// Servers of the stream block with `status_zone`
    pub mod stream_zone ["server_zone"] {
        /// Active sessions.
        PROCESSING: Gauge None "tidegate_stream_zone_processing";
        /// Sessions received: TCP connections and first datagrams of UDP clients.
        CONNECTIONS: Counter None "tidegate_stream_zone_connections";
        /// Finished sessions by status class.
        SESSIONS: Counter None "tidegate_stream_zone_sessions" by "class" ["2xx", "4xx", "5xx"];
        /// Bytes received from clients.
        RECEIVED: Counter Bytes "tidegate_stream_zone_received_bytes";
        /// Bytes sent to clients.
        SENT: Counter Bytes "tidegate_stream_zone_sent_bytes";
        /// Duration of sessions in seconds.
        TIME: Histogram Seconds "tidegate_stream_zone_session_seconds";
        /// Completed TLS handshakes of the server.
        TLS_HANDSHAKES: Counter None "tidegate_stream_zone_tls_handshakes";
        /// TLS handshakes of the server that resumed a session.
        TLS_REUSES: Counter None "tidegate_stream_zone_tls_session_reuses";
        /// Failed TLS handshakes of the server, by reason.
        TLS_FAILURES: Counter None "tidegate_stream_zone_tls_failures"
            by "reason" ["timeout", "no_common_protocol", "no_common_cipher", "peer_rejected_cert", "other"];
        /// Refused client certificates of the server, by reason.
        TLS_VERIFY_FAILURES: Counter None "tidegate_stream_zone_tls_verify_failures"
            by "reason" ["no_cert", "expired_cert", "revoked_cert", "hostname_mismatch", "other"];
    }
}

#[inline]
pub fn status_class(status: u16) -> usize {
    (status / 100).clamp(1, 5) as usize - 1
}

pub fn session_class(status: u16) -> usize {
    match status / 100 {
        4 => 1,
        5 => 2,
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Http = 0,
    Stream = 1,
    Mail = 2,
}

pub fn cache_status(status: &str) -> Option<usize> {
    let row = cache::SET.rows.first()?;
    row.values.iter().position(|value| value.eq_ignore_ascii_case(status))
}

/// Reasons of failed handshakes, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    Timeout = 0,
    NoCommonProtocol = 1,
    NoCommonCipher = 2,
    PeerRejectedCert = 3,
    Other = 4,
}

/// Reasons to refuse a certificate, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyFailure {
    NoCert = 0,
    ExpiredCert = 1,
    RevokedCert = 2,
    HostnameMismatch = 3,
    Other = 4,
}

/// Counts a client's handshake: `Ok(true)` resumed, `Ok(false)` new session.
pub fn count_handshake(area: Area, done: Result<bool, TlsFailure>) {
    match done {
        Ok(resumed) => {
            process::TLS_HANDSHAKES.up_at(area as usize);
            if resumed {
                process::TLS_SESSION_REUSES.up_at(area as usize);
            }
        }
        Err(reason) => {
            process::TLS_HANDSHAKES_FAILED.up_at(area as usize);
            process::TLS_FAILURES.up_at(reason as usize);
        }
    }
}

/// Counts the protocol version of a completed handshake: `TLSv1.2`, `TLSv1.3`.
pub fn count_tls_version(protocol: &str) {
    process::TLS_VERSIONS.up_at(usize::from(protocol == "TLSv1.3"));
}

/// Counts a client's handshake for its server's zone, too.
pub fn count_handshake_of(zone: &crate::MetricZone<server_zone::Of>, done: Result<bool, TlsFailure>) {
    match done {
        Ok(resumed) => {
            zone.up(server_zone::TLS_HANDSHAKES);
            zone.add(server_zone::TLS_REUSES, u64::from(resumed));
        }
        Err(reason) => zone.up_at(server_zone::TLS_FAILURES, reason as usize),
    }
}

/// As [`count_handshake_of`], for a server of the stream area.
pub fn count_stream_handshake_of(zone: &crate::MetricZone<stream_zone::Of>, done: Result<bool, TlsFailure>) {
    match done {
        Ok(resumed) => {
            zone.up(stream_zone::TLS_HANDSHAKES);
            zone.add(stream_zone::TLS_REUSES, u64::from(resumed));
        }
        Err(reason) => zone.up_at(stream_zone::TLS_FAILURES, reason as usize),
    }
}
