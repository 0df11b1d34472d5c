//! Parameters of requests to FastCGI, SCGI and uwsgi applications (RFC 3875, and those that PHP reads).

use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

/// Names and variables of all three protocols.
const COMMON: &[(&str, &str)] = &[
    ("SERVER_PROTOCOL", "server_protocol"),
    ("SERVER_NAME", "server_name"),
    ("SERVER_ADDR", "server_addr"),
    ("SERVER_PORT", "server_port"),
    ("REMOTE_ADDR", "remote_addr"),
    ("REMOTE_PORT", "remote_port"),
    ("REMOTE_USER", "remote_user"),
    ("REQUEST_METHOD", "request_method"),
    ("REQUEST_SCHEME", "scheme"),
    ("REQUEST_URI", "request_uri"),
    ("QUERY_STRING", "query_string"),
    ("CONTENT_TYPE", "content_type"),
    ("CONTENT_LENGTH", "content_length"),
    ("DOCUMENT_ROOT", "document_root"),
    ("DOCUMENT_URI", "document_uri"),
];

fn param(directive: &'static str, name: &str, parts: Vec<TemplatePart>) -> WriteNode {
    NewDirective::new(directive).arg(Argument::plain(name)).arg(Argument::Template(parts)).into()
}

fn variable(name: &str) -> TemplatePart {
    TemplatePart::Variable(name.to_owned())
}

fn common(directive: &'static str) -> Vec<WriteNode> {
    let mut nodes: Vec<WriteNode> =
        COMMON.iter().map(|(name, value)| param(directive, name, vec![variable(value)])).collect();
    nodes.push(NewDirective::new(directive).arg("HTTPS").arg(Argument::variable("https")).arg("if_not_empty").into());
    nodes
}

/// Returns the parameters of FastCGI.
pub fn fastcgi() -> Vec<WriteNode> {
    let mut nodes = common("fastcgi_param");
    nodes.push(NewDirective::new("fastcgi_param").arg("GATEWAY_INTERFACE").arg("CGI/1.1").into());
    nodes.push(NewDirective::new("fastcgi_param").arg("REDIRECT_STATUS").arg("200").into());
    nodes.push(param("fastcgi_param", "SCRIPT_NAME", vec![variable("fastcgi_script_name")]));
    let file = vec![variable("document_root"), variable("fastcgi_script_name")];
    nodes.push(param("fastcgi_param", "SCRIPT_FILENAME", file));
    nodes
}

/// Returns the parameters of SCGI.
pub fn scgi() -> Vec<WriteNode> {
    let mut nodes = common("scgi_param");
    nodes.push(NewDirective::new("scgi_param").arg("SCGI").arg("1").into());
    nodes.push(param("scgi_param", "SCRIPT_NAME", vec![variable("document_uri")]));
    nodes
}

/// Returns the parameters of uwsgi.
pub fn uwsgi() -> Vec<WriteNode> {
    let mut nodes = common("uwsgi_param");
    nodes.push(param("uwsgi_param", "PATH_INFO", vec![variable("document_uri")]));
    nodes
}
