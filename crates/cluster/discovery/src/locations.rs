//! Lines of locations: access and the way to the group.

use std::fmt::Write as _;

use cluster_model::{Action, Backend, BackendProtocol, Filters, GroupName, PathMatch, PathRewrite};
use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

use crate::params;
use crate::routes::{EndpointProtocol, RouteSettings};

fn line(name: &'static str, words: &[&str]) -> WriteNode {
    NewDirective::new(name).args(words.iter().map(Argument::plain)).into()
}

/// Returns the lines in front of those of [`route_action`].
pub fn access_lines(settings: &RouteSettings) -> Vec<WriteNode> {
    let mut lines: Vec<WriteNode> = settings.allow.iter().map(|network| line("allow", &[network])).collect();
    if !lines.is_empty() {
        lines.push(line("deny", &["all"]));
    }
    lines.extend(settings.snippet.iter().cloned());
    lines
}

/// Returns the filters and the action that send a request to a group.
pub fn route_action(settings: &RouteSettings, path: &PathMatch, group: GroupName) -> (Filters, Action) {
    if settings.protocol == EndpointProtocol::Http2 {
        // The fields towards such a backend are others.
        let rewrite = Some(&settings.rewrite).filter(|path| !path.is_empty());
        let filters = Filters { path: rewrite.cloned().map(PathRewrite::Prefix), ..Filters::default() };
        let backend = Backend { protocol: BackendProtocol::Http2, ..Backend::new(Some(group)) };
        return (filters, Action::Proxy { backends: vec![backend], no_backend: 503 });
    }
    let lines = pass(settings, path, &group);
    (Filters::default(), Action::Lines { groups: vec![group], lines })
}

fn pass(settings: &RouteSettings, path: &PathMatch, group: &GroupName) -> Vec<WriteNode> {
    let group = group.as_str();
    let mut lines = Vec::new();
    match settings.protocol {
        EndpointProtocol::Http | EndpointProtocol::Https | EndpointProtocol::Http2 => {
            let scheme = if settings.protocol == EndpointProtocol::Https { "https" } else { "http" };
            let mut target = format!("{scheme}://{group}");
            match path {
                _ if settings.rewrite.is_empty() => {}
                PathMatch::Prefix(_) => lines.push(line("rewrite_prefix", &[&settings.rewrite])),
                // The directive replaces the text of the location.
                _ => target.push_str(&encoded(&settings.rewrite)),
            }
            lines.push(NewDirective::new("proxy_pass").arg(Argument::literal(target)).into());
        }
        EndpointProtocol::Grpc | EndpointProtocol::Grpcs => {
            if !settings.rewrite.is_empty() {
                lines.push(line("rewrite_prefix", &[&settings.rewrite]));
            }
            let scheme = if settings.protocol == EndpointProtocol::Grpcs { "grpcs" } else { "grpc" };
            lines.push(line("grpc_pass", &[&format!("{scheme}://{group}")]));
        }
        EndpointProtocol::FastCgi => {
            lines.push(root(settings));
            lines.push(line("fastcgi_index", &["index.php"]));
            lines.push(line("fastcgi_keep_conn", &["on"]));
            lines.extend(params::fastcgi());
            lines.push(line("fastcgi_pass", &[group]));
        }
        EndpointProtocol::Scgi => {
            lines.push(root(settings));
            lines.extend(params::scgi());
            lines.push(line("scgi_pass", &[group]));
        }
        EndpointProtocol::Uwsgi => {
            lines.extend(params::uwsgi());
            lines.push(line("uwsgi_pass", &[group]));
        }
    }
    lines
}

fn root(settings: &RouteSettings) -> WriteNode {
    let folder = settings.root.as_deref().unwrap_or(crate::docker::ROOT);
    let folder = Argument::Template(vec![TemplatePart::Text(folder.as_bytes().to_vec())]);
    NewDirective::new("root").arg(folder).into()
}

/// Encodes a path as it stands in a request.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'%' | b'?' | b'#' | b' ' | b'"' | b'\\' | 0x80.. => {
                let _ = write!(out, "%{byte:02X}");
            }
            _ => out.push(char::from(byte)),
        }
    }
    out
}
