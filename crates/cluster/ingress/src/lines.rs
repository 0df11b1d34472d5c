//! Directives that depend on settings alone.

use cluster_model::ObjectOrigin;
use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

use crate::config::{Cors, ProxyDirectives, is_buffer_size};
use crate::nodes::quote_pattern;
use crate::output::{directive, line};

/// Parameters of FastCGI, as in nginx's `fastcgi_params`.
pub(crate) const FASTCGI_PARAMS: &[(&str, &str)] = &[
    ("QUERY_STRING", "$query_string"),
    ("REQUEST_METHOD", "$request_method"),
    ("CONTENT_TYPE", "$content_type"),
    ("CONTENT_LENGTH", "$content_length"),
    ("SCRIPT_NAME", "$fastcgi_script_name"),
    ("REQUEST_URI", "$request_uri"),
    ("DOCUMENT_URI", "$document_uri"),
    ("DOCUMENT_ROOT", "$document_root"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("REQUEST_SCHEME", "$scheme"),
    ("HTTPS", "$https"),
    ("GATEWAY_INTERFACE", "CGI/1.1"),
    ("SERVER_SOFTWARE", "nginx/$nginx_version"),
    ("REMOTE_ADDR", "$remote_addr"),
    ("REMOTE_PORT", "$remote_port"),
    ("SERVER_ADDR", "$server_addr"),
    ("SERVER_PORT", "$server_port"),
    ("SERVER_NAME", "$server_name"),
    ("REDIRECT_STATUS", "200"),
];

/// Returns a location that only the server itself uses, with a comment of the Ingress that it belongs to.
pub(crate) fn inner_location(
    origin: &ObjectOrigin,
    modifier: &[&'static str],
    name: Argument,
    lines: Vec<WriteNode>,
) -> Vec<WriteNode> {
    let head = NewDirective::new("location").args(modifier.iter().map(Argument::plain)).arg(name);
    let lines = std::iter::once(WriteNode::Comment(origin.to_string())).chain(lines).collect();
    vec![WriteNode::Blank, head.block(lines).into()]
}

pub(crate) fn with_scheme(scheme: &str, argument: Argument) -> Argument {
    match argument {
        Argument::Plain(group) => Argument::Plain([scheme.as_bytes(), &group].concat()),
        Argument::Template(mut inner) => {
            if !scheme.is_empty() {
                inner.insert(0, TemplatePart::Text(scheme.as_bytes().to_vec()));
            }
            Argument::Template(inner)
        }
    }
}

/// Returns the directives of proxying; with `outer`, those that differ from the server's.
pub(crate) fn proxy_lines(proxy: &ProxyDirectives, outer: Option<&ProxyDirectives>, is_grpc: bool) -> Vec<WriteNode> {
    let mut lines = Vec::new();
    let differs = |get: fn(&ProxyDirectives) -> String| outer.is_none_or(|outer| get(outer) != get(proxy));
    let mut simple = |name: &'static str, get: fn(&ProxyDirectives) -> String| {
        if differs(get) {
            let value = get(proxy);
            lines.push(line(name, &value.split_whitespace().collect::<Vec<_>>()));
        }
    };
    simple("client_max_body_size", |proxy| proxy.body_size.clone());
    simple("proxy_connect_timeout", |proxy| format!("{}s", proxy.connect_timeout));
    simple("proxy_send_timeout", |proxy| format!("{}s", proxy.send_timeout));
    simple("proxy_read_timeout", |proxy| format!("{}s", proxy.read_timeout));
    simple("proxy_buffering", |proxy| proxy.buffering.clone());
    simple("proxy_buffer_size", |proxy| proxy.buffer_size.clone());
    simple("proxy_buffers", |proxy| format!("{} {}", proxy.buffers_number, proxy.buffer_size));
    simple("proxy_max_temp_file_size", |proxy| proxy.max_temp_file_size.clone());
    simple("proxy_request_buffering", |proxy| proxy.request_buffering.clone());
    simple("proxy_http_version", |proxy| proxy.http_version.clone());
    simple("proxy_next_upstream", |proxy| proxy.next_upstream.clone());
    simple("proxy_next_upstream_timeout", |proxy| proxy.next_upstream_timeout.to_string());
    simple("proxy_next_upstream_tries", |proxy| proxy.next_upstream_tries.to_string());
    simple("proxy_cookie_domain", |proxy| proxy.cookie_domain.clone());
    simple("proxy_cookie_path", |proxy| proxy.cookie_path.clone());
    let size = |name: &'static str, get: fn(&ProxyDirectives) -> &Option<String>| {
        let value = get(proxy).as_ref().filter(|value| is_buffer_size(value))?;
        outer.is_none_or(|outer| get(outer).as_ref() != Some(value)).then(|| line(name, &[value]))
    };
    lines.extend(size("client_body_buffer_size", |proxy| &proxy.body_buffer_size));
    lines.extend(size("proxy_busy_buffers_size", |proxy| &proxy.busy_buffers_size));
    if is_grpc {
        lines.push(line("grpc_connect_timeout", &[&format!("{}s", proxy.connect_timeout)]));
        lines.push(line("grpc_send_timeout", &[&format!("{}s", proxy.send_timeout)]));
        lines.push(line("grpc_read_timeout", &[&format!("{}s", proxy.read_timeout)]));
    }
    lines
}

/// Returns the words of `proxy_redirect`.
pub(crate) fn redirect_words(proxy: &ProxyDirectives) -> Vec<&str> {
    match (proxy.redirect_from.as_str(), proxy.redirect_to.as_str()) {
        (from @ ("off" | "default"), _) => vec![from],
        // A rule without its other half is no rule.
        (_, "off") => vec!["off"],
        (from, to) => vec![from, to],
    }
}

/// Answers preflights, and sets the fields of cross-origin requests.
pub(crate) fn cors_lines(cors: &Cors) -> Vec<WriteNode> {
    let is_any = cors.origins == ["*"];
    let set = |value: &str| directive("set", [Argument::variable("cors"), Argument::plain(value)]);
    let mut lines = Vec::new();
    if is_any {
        lines.push(set("true"));
    } else {
        lines.push(set(""));
        let origins: Vec<String> = cors
            .origins
            .iter()
            .map(|origin| format!("({})", quote_pattern(origin).replacen("\\*", "[A-Za-z0-9\\-]+", 1)))
            .collect();
        if !origins.is_empty() {
            let test =
                [Argument::plain("($http_origin"), "~*".into(), Argument::plain(format!("^({})$)", origins.join("|")))];
            lines.push(NewDirective::new("if").args(test).block(vec![set("true")]).into());
        }
    }
    let test = ["($request_method", "=", "OPTIONS)"].map(Argument::plain);
    let value = Argument::plain("${cors}options");
    let options = directive("set", [Argument::variable("cors"), value]);
    lines.push(NewDirective::new("if").args(test).block(vec![options]).into());
    let mut fields = Vec::new();
    let origin = if is_any { "*" } else { "$http_origin" };
    fields.push(Argument::plain(format!("Access-Control-Allow-Origin: {origin}")));
    if cors.credentials {
        fields.push(Argument::plain("Access-Control-Allow-Credentials: true"));
    }
    fields.push(Argument::plain(format!("Access-Control-Allow-Methods: {}", cors.methods)));
    fields.push(Argument::plain(format!("Access-Control-Allow-Headers: {}", cors.headers)));
    if let Some(expose) = &cors.expose {
        fields.push(Argument::plain(format!("Access-Control-Expose-Headers: {expose}")));
    }
    fields.push(Argument::plain(format!("Access-Control-Max-Age: {}", cors.max_age)));
    let fields: Vec<WriteNode> = fields.into_iter().map(|field| directive("more_set_headers", [field])).collect();
    let test = |value: &str| [Argument::plain("($cors"), "=".into(), Argument::plain(format!("{value})"))];
    lines.push(NewDirective::new("if").args(test("true")).block(fields.clone()).into());
    let mut preflight = fields;
    preflight.push(directive("more_set_headers", [Argument::plain("Content-Type: text/plain charset=UTF-8")]));
    preflight.push(line("return", &["204"]));
    lines.push(NewDirective::new("if").args(test("trueoptions")).block(preflight).into());
    lines
}
