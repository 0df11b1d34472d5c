//! Parts of every configuration: process, logs, defaults of HTTP, API, probes.

use conf_syntax::writer::{Argument, NewDirective, WriteNode, dollar_definition};

use crate::{Renderer, joined, line};

/// Fields of the access log, as members of a JSON object.
const LOG_FIELDS: &[(&str, &str)] = &[
    ("time", "$time_iso8601"),
    ("client", "$remote_addr"),
    ("method", "$request_method"),
    ("scheme", "$scheme"),
    ("host", "$host"),
    ("uri", "$request_uri"),
    ("protocol", "$server_protocol"),
    ("status", "$status"),
    ("bytes", "$body_bytes_sent"),
    ("duration", "$request_time"),
    ("namespace", "$route_namespace"),
    ("route", "$route"),
    ("upstream", "$upstream_addr"),
    ("upstream_status", "$upstream_status"),
    ("upstream_duration", "$upstream_response_time"),
    ("request_id", "$request_id"),
    ("user_agent", "$http_user_agent"),
];

/// Fields towards backends, besides `Host`.
const FORWARDED: &[(&str, &str)] = &[
    ("X-Real-IP", "$remote_addr"),
    ("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
    ("X-Forwarded-Host", "$http_host"),
    ("X-Forwarded-Proto", "$scheme"),
    ("X-Request-ID", "$request_id"),
];

impl Renderer<'_> {
    /// Joins the parts of the areas.
    pub(crate) fn skeleton(&self, http: Vec<WriteNode>, stream: Vec<WriteNode>) -> Vec<WriteNode> {
        let run = &self.settings.run_folder;
        let mut nodes = vec![
            WriteNode::Comment("Written by tidegate-controller; changes in this file are lost.".into()),
            line("worker_processes", &["auto"]),
            NewDirective::new("pid").arg(Argument::plain(format!("{run}/tidegate.pid"))).into(),
            line("error_log", &["stderr", "notice"]),
            WriteNode::Blank,
            NewDirective::new("events").block(vec![line("worker_connections", &["16384"])]).into(),
            WriteNode::Blank,
            NewDirective::new("http").block(joined([self.http_defaults(), self.own_servers(), http])).into(),
        ];
        if !stream.is_empty() {
            let mut defaults = self.resolver();
            defaults.extend(stream);
            nodes.extend([WriteNode::Blank, NewDirective::new("stream").block(defaults).into()]);
        }
        nodes
    }

    fn http_defaults(&self) -> Vec<WriteNode> {
        let fields: Vec<String> = LOG_FIELDS.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        let log = Argument::plain(format!("{{{}}}", fields.join(",")));
        let upgrade = vec![line("default", &["upgrade"]), NewDirective::entry(Argument::plain("")).arg("").into()];
        let mut nodes = vec![
            dollar_definition().into(),
            NewDirective::new("map").arg("$http_upgrade").arg("$connection_upgrade").block(upgrade).into(),
            NewDirective::new("log_format").arg("routes").arg("escape=json").arg(log).into(),
            line("access_log", &["/dev/stdout", "routes"]),
            line("server_tokens", &["off"]),
            line("http2", &["on"]),
            line("underscores_in_headers", &["on"]),
            line("client_max_body_size", &["0"]),
            line("proxy_connect_timeout", &["5s"]),
            line("grpc_connect_timeout", &["5s"]),
            line("proxy_http_version", &["1.1"]),
        ];
        nodes.extend(proxy_fields(Argument::variable("http_host"), true));
        nodes.extend(grpc_fields(Argument::variable("http_host")));
        nodes.extend(self.resolver());
        nodes
    }

    fn resolver(&self) -> Vec<WriteNode> {
        let resolver = self.settings.resolver.as_ref();
        resolver.map(|address| NewDirective::new("resolver").arg(Argument::plain(address)).into()).into_iter().collect()
    }

    /// The API, probes, and the server that stands for groups without endpoints.
    fn own_servers(&self) -> Vec<WriteNode> {
        let run = &self.settings.run_folder;
        let api = vec![
            NewDirective::new("listen").arg(Argument::plain(format!("unix:{run}/api.sock"))).into(),
            line("access_log", &["off"]),
            NewDirective::new("location").arg("/api").block(vec![line("api", &["write=on", "config=write"])]).into(),
        ];
        let unavailable = vec![
            NewDirective::new("listen").arg(Argument::plain(self.settings.unavailable_address())).into(),
            line("access_log", &["off"]),
            // The log's variables exist without any host.
            line("set", &["$route_namespace", ""]),
            line("set", &["$route", ""]),
            line("return", &["503"]),
        ];
        let mut nodes = vec![
            WriteNode::Blank,
            WriteNode::Comment("Changes of servers and configurations, by the controller".into()),
            NewDirective::new("server").block(api).into(),
            WriteNode::Blank,
            WriteNode::Comment("Services without endpoints".into()),
            NewDirective::new("server").block(unavailable).into(),
        ];
        if let Some(port) = self.settings.probe_port {
            let ok = NewDirective::new("location").arg("=").arg("/healthz").block(vec![line("return", &["200"])]);
            let metrics = NewDirective::new("location").arg("=").arg("/metrics").block(vec![line("metrics", &[])]);
            let rest = NewDirective::new("location").arg("/").block(vec![line("return", &["404"])]);
            let probe = vec![
                line("listen", &[&port.to_string(), "default_server"]),
                line("access_log", &["off"]),
                ok.into(),
                metrics.into(),
                rest.into(),
            ];
            nodes.extend([
                WriteNode::Blank,
                WriteNode::Comment("Probes and metrics".into()),
                NewDirective::new("server").block(probe).into(),
            ]);
        }
        nodes
    }
}

/// Fields towards backends over HTTP. A location that changes `Host` repeats all of them, since a level that sets one
/// inherits none.
pub(crate) fn proxy_fields(host: Argument, can_upgrade: bool) -> Vec<WriteNode> {
    let mut nodes = forwarded("proxy_set_header", host);
    if can_upgrade {
        nodes.push(line("proxy_set_header", &["Upgrade", "$http_upgrade"]));
        nodes.push(line("proxy_set_header", &["Connection", "$connection_upgrade"]));
    }
    nodes
}

/// Fields towards backends over gRPC.
pub(crate) fn grpc_fields(host: Argument) -> Vec<WriteNode> {
    forwarded("grpc_set_header", host)
}

fn forwarded(directive: &'static str, host: Argument) -> Vec<WriteNode> {
    let mut nodes = vec![NewDirective::new(directive).arg("Host").arg(host).into()];
    nodes.extend(FORWARDED.iter().map(|(name, value)| line(directive, &[name, value])));
    nodes
}
