//! The table of metrics: everything that is counted, and what it is called.
//!
//! Names follow the conventions of Prometheus: base units, the unit at the end, `_total` behind that of counters (it is added when
//! they are told). Lines of documentation are for people who look at a dashboard.

metrics! {
    /// The process
    pub mod process [] {
        /// Connections that were accepted.
        CONNECTIONS_ACCEPTED: Counter None "tidegate_connections_accepted";
        /// Connections that were accepted and not closed at once for want of room, by area.
        CONNECTIONS_HANDLED: Counter None "tidegate_connections_handled" by "area" ["http", "stream", "mail"];
        /// Connections of HTTP clients that are open.
        CONNECTIONS_ACTIVE: Gauge None "tidegate_connections_active";
        /// Connections of HTTP clients whose request is being read.
        CONNECTIONS_READING: Gauge None "tidegate_connections_reading";
        /// Requests of HTTP clients that are being answered by a task; one that is answered at once is not seen.
        CONNECTIONS_WRITING: Gauge None "tidegate_connections_writing";
        /// Connections of HTTP clients that wait for a request.
        CONNECTIONS_WAITING: Gauge None "tidegate_connections_waiting";
        /// Requests of HTTP clients, by the version of the protocol. A head that cannot be parsed counts as 1.1.
        HTTP_REQUESTS: Counter None "tidegate_http_requests" by "version" ["0.9", "1.0", "1.1", "2"];
        /// Requests of HTTP clients of which something was answered, by the class of the status.
        HTTP_RESPONSES: Counter None "tidegate_http_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Requests of HTTP clients that ended without a byte of an answer.
        HTTP_DISCARDED: Counter None "tidegate_http_discarded";
        /// Bytes of requests, heads and bodies, as `$request_length` counts them.
        HTTP_RECEIVED: Counter Bytes "tidegate_http_received_bytes";
        /// Bytes of responses, as `$bytes_sent` counts them.
        HTTP_SENT: Counter Bytes "tidegate_http_sent_bytes";
        /// Handshakes with clients that were finished, by area.
        TLS_HANDSHAKES: Counter None "tidegate_tls_handshakes" by "area" ["http", "stream", "mail"];
        /// Handshakes with clients that failed, by area.
        TLS_HANDSHAKES_FAILED: Counter None "tidegate_tls_handshakes_failed" by "area" ["http", "stream", "mail"];
        /// Handshakes with clients that took up an earlier session, by area.
        TLS_SESSION_REUSES: Counter None "tidegate_tls_session_reuses" by "area" ["http", "stream", "mail"];
        /// Requests of clients that a cache was looked into for, by what came of it (`$upstream_cache_status`).
        CACHE_RESPONSES: Counter None "tidegate_cache_responses"
            by "status" ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
        /// Requests that were passed to a server; one that several servers were asked for counts for each.
        UPSTREAM_REQUESTS: Counter None "tidegate_upstream_requests";
        /// Requests that were passed to another server after the first.
        UPSTREAM_RETRIES: Counter None "tidegate_upstream_retries";
        /// Requests to servers that failed: by an error, a time-out or a status that `next_upstream` names.
        UPSTREAM_FAILURES: Counter None "tidegate_upstream_failures";
        /// Time to a connection to a server; kept connections count with nothing.
        UPSTREAM_CONNECT: Histogram Seconds "tidegate_upstream_connect_seconds";
        /// Time to the head of a server's response.
        UPSTREAM_HEADER: Histogram Seconds "tidegate_upstream_header_seconds";
        /// Time to the end of a server's response.
        UPSTREAM_RESPONSE: Histogram Seconds "tidegate_upstream_response_seconds";
        /// Requests that limit_req has judged, by the verdict.
        LIMIT_REQ: Counter None "tidegate_limit_req_requests"
            by "verdict" ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
        /// Requests and sessions that limit_conn has judged, by the verdict.
        LIMIT_CONN: Counter None "tidegate_limit_conn_requests" by "verdict" ["passed", "rejected", "rejected_dry_run"];
        /// Questions to name servers, by what was asked for.
        RESOLVER_REQUESTS: Counter None "tidegate_resolver_requests" by "kind" ["name", "srv", "addr"];
        /// Answers of name servers, and questions that nobody answered in time.
        RESOLVER_RESPONSES: Counter None "tidegate_resolver_responses"
            by "code" ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
        /// Files whose contents or facts are kept in memory, of all threads.
        FILE_CACHE_FILES: Gauge None "tidegate_file_cache_files";
        /// Sessions of the stream area that are there.
        STREAM_SESSIONS: Gauge None "tidegate_stream_sessions_active";
        /// Sessions of the stream area that ended, by the class of the status.
        STREAM_SESSIONS_ENDED: Counter None "tidegate_stream_sessions" by "class" ["2xx", "4xx", "5xx"];
        /// Sessions of the mail area that are there.
        MAIL_SESSIONS: Gauge None "tidegate_mail_sessions_active";
        /// Tasks that were begun.
        TASKS_STARTED: Counter None "tidegate_tasks_started";
        /// Tasks that are there.
        TASKS: Gauge None "tidegate_tasks_active";
        /// Panics that were caught. Each has cost a request and its connection, and stands in the error log.
        PANICS: Counter None "tidegate_panics";
        /// Turns of the worker threads' loops.
        LOOP_TURNS: Counter None "tidegate_loop_turns";
        /// Turns that took longer than a millisecond: for so long others had to wait.
        LOOP_TURNS_LONG: Counter None "tidegate_loop_turns_long";
        /// Time that the worker threads have worked; the rest they have slept.
        LOOP_BUSY: Counter Seconds "tidegate_loop_busy_seconds";
    }
    /// Servers of the http block with `status_zone`
    pub mod server_zone ["server_zone"] {
        /// Requests that are being handled.
        PROCESSING: Gauge None "tidegate_server_zone_processing";
        /// Requests that came to the server.
        REQUESTS: Counter None "tidegate_server_zone_requests";
        /// Requests of which something was answered, by the class of the status.
        RESPONSES: Counter None "tidegate_server_zone_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Requests that ended without a byte of an answer.
        DISCARDED: Counter None "tidegate_server_zone_discarded";
        /// Bytes of requests.
        RECEIVED: Counter Bytes "tidegate_server_zone_received_bytes";
        /// Bytes of responses.
        SENT: Counter Bytes "tidegate_server_zone_sent_bytes";
    }
    /// Locations with `status_zone`
    pub mod location_zone ["location_zone"] {
        /// Requests that ended in the location.
        REQUESTS: Counter None "tidegate_location_zone_requests";
        /// Requests of which something was answered, by the class of the status.
        RESPONSES: Counter None "tidegate_location_zone_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Requests that ended without a byte of an answer.
        DISCARDED: Counter None "tidegate_location_zone_discarded";
        /// Bytes of requests.
        RECEIVED: Counter Bytes "tidegate_location_zone_received_bytes";
        /// Bytes of responses.
        SENT: Counter Bytes "tidegate_location_zone_sent_bytes";
    }
    /// Servers of groups with `zone`
    pub mod peer ["upstream", "peer"] {
        /// Requests, or connections of the stream area, that the server is busy with.
        ACTIVE: Gauge None "tidegate_upstream_peer_active";
        /// Requests, or connections of the stream area, that were passed to the server.
        REQUESTS: Counter None "tidegate_upstream_peer_requests";
        /// Responses, by the class of the status.
        RESPONSES: Counter None "tidegate_upstream_peer_responses" by "class" ["1xx", "2xx", "3xx", "4xx", "5xx"];
        /// Failures that count against the server (`max_fails`).
        FAILS: Counter None "tidegate_upstream_peer_fails";
        /// Times that failures have put the server out of use.
        UNAVAILABLE: Counter None "tidegate_upstream_peer_unavailable";
        /// Time to the head of a response, or to the connection in the stream area.
        HEADER: Histogram Seconds "tidegate_upstream_peer_header_seconds";
        /// Time to the end of a response, or of the connection.
        RESPONSE: Histogram Seconds "tidegate_upstream_peer_response_seconds";
        /// Whether the server is asked at the moment: 1, or 0 when it is down, draining, failing, full or unhealthy.
        UP: Gauge None "tidegate_upstream_peer_up";
        /// 1 for a backup server.
        BACKUP: Gauge None "tidegate_upstream_peer_backup";
        /// The server's weight.
        WEIGHT: Gauge None "tidegate_upstream_peer_weight";
    }
    /// Caches
    pub mod cache ["cache"] {
        /// Responses of the cache's locations, by what came of it (`$upstream_cache_status`).
        RESPONSES: Counter None "tidegate_cache_zone_responses"
            by "status" ["hit", "miss", "expired", "bypass", "stale", "updating", "revalidated"];
        /// Entries that the index knows.
        ENTRIES: Gauge None "tidegate_cache_zone_entries";
        /// Bytes on the disk.
        SIZE: Gauge Bytes "tidegate_cache_zone_size_bytes";
        /// The most that these may be (`max_size`); 0: there is no limit.
        SIZE_MAX: Gauge Bytes "tidegate_cache_zone_size_limit_bytes";
        /// Bytes of entries that are kept in memory.
        MEMORY: Gauge Bytes "tidegate_cache_zone_memory_bytes";
        /// 1 while the loader has not been through the folder yet.
        COLD: Gauge None "tidegate_cache_zone_cold";
    }
    /// Zones of limit_req
    pub mod limit_req ["zone"] {
        /// Requests that the zone has judged, by the verdict.
        REQUESTS: Counter None "tidegate_limit_req_zone_requests"
            by "verdict" ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    }
    /// Zones of limit_conn
    pub mod limit_conn ["zone"] {
        /// Requests and sessions that the zone has judged, by the verdict.
        REQUESTS: Counter None "tidegate_limit_conn_zone_requests"
            by "verdict" ["passed", "rejected", "rejected_dry_run"];
    }
    /// Resolvers with `status_zone=`
    pub mod resolver ["resolver"] {
        /// Questions to its name servers, by what was asked for.
        REQUESTS: Counter None "tidegate_resolver_zone_requests" by "kind" ["name", "srv", "addr"];
        /// Answers, and questions that nobody answered in time.
        RESPONSES: Counter None "tidegate_resolver_zone_responses"
            by "code" ["noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "timedout", "unknown"];
    }
    /// Servers of the stream block with `status_zone`
    pub mod stream_zone ["server_zone"] {
        /// Sessions that are there.
        PROCESSING: Gauge None "tidegate_stream_zone_processing";
        /// Connections, and first datagrams of clients, that came to the server.
        CONNECTIONS: Counter None "tidegate_stream_zone_connections";
        /// Sessions that ended, by the class of the status.
        SESSIONS: Counter None "tidegate_stream_zone_sessions" by "class" ["2xx", "4xx", "5xx"];
        /// Bytes that came from clients.
        RECEIVED: Counter Bytes "tidegate_stream_zone_received_bytes";
        /// Bytes that went to clients.
        SENT: Counter Bytes "tidegate_stream_zone_sent_bytes";
    }
}

/// The place of a status among the classes of responses.
#[inline]
pub fn class(status: u16) -> usize {
    (status / 100).clamp(1, 5) as usize - 1
}

/// The place of a status among the classes of sessions.
pub fn session_class(status: u16) -> usize {
    match status / 100 {
        4 => 1,
        5 => 2,
        _ => 0,
    }
}

/// What `area` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Http = 0,
    Stream = 1,
    Mail = 2,
}

/// The place of a `$upstream_cache_status` in the tables.
pub fn cache_status(status: &str) -> Option<usize> {
    let row = cache::SET.rows.first()?;
    row.values.iter().position(|value| value.eq_ignore_ascii_case(status))
}

/// A handshake with a client has ended: with a session, new or (`Some(true)`) taken up again, or (`None`) without one.
pub fn count_handshake(area: Area, resumed: Option<bool>) {
    let Some(resumed) = resumed else { return process::TLS_HANDSHAKES_FAILED.up_at(area as usize) };
    process::TLS_HANDSHAKES.up_at(area as usize);
    if resumed {
        process::TLS_SESSION_REUSES.up_at(area as usize);
    }
}
