//! Header fields, CORS and copies of requests.

use cluster_model::{BackendProtocol, Cors, FieldEdits, Filters, GroupName, Mirror};
use conf_syntax::writer::{Argument, NewDirective, TemplatePart, WriteNode};

use crate::groups::GroupArea;
use crate::location::Mirrors;
use crate::{Renderer, line};

/// Folder of the internal locations that copies of requests go through.
const MIRROR_FOLDER: &str = "/.tidegate/mirror/";

impl Renderer<'_> {
    /// Returns the lines of filters, except for host and path, which stand with the action.
    pub(crate) fn filters(&mut self, filters: &Filters, mirrors: &mut Mirrors) -> Vec<WriteNode> {
        let mut lines = Vec::new();
        if let Some(cors) = &filters.cors {
            lines.push(cors_block(cors));
        }
        let request = ["request_header_set", "request_header_add", "request_header_remove"];
        let response = ["response_header_set", "response_header_add", "response_header_remove"];
        lines.extend(edits(&filters.request_fields, request));
        lines.extend(edits(&filters.response_fields, response));
        for mirror in &filters.mirrors {
            lines.extend(self.mirror(mirror, mirrors));
        }
        lines
    }

    fn mirror(&mut self, mirror: &Mirror, mirrors: &mut Mirrors) -> Option<WriteNode> {
        let group = self.use_group(GroupArea::Http, &mirror.group)?;
        let uri = mirror_uri(&group);
        mirrors.insert((group, mirror.protocol));
        let mut directive = NewDirective::new("mirror").arg(Argument::plain(uri));
        if mirror.share < 10_000 {
            let (whole, rest) = (mirror.share / 100, mirror.share % 100);
            let share = if rest == 0 { format!("share={whole}%") } else { format!("share={whole}.{rest:02}%") };
            directive = directive.arg(Argument::plain(share));
        }
        Some(directive.into())
    }

    /// Returns the internal location that copies of requests go through.
    pub(crate) fn mirror_location(&self, group: &GroupName, protocol: BackendProtocol) -> Vec<WriteNode> {
        let mut lines = vec![line("internal", &[])];
        let text = |text: &str| TemplatePart::Text(text.as_bytes().to_vec());
        match protocol {
            BackendProtocol::Grpc => {
                lines.push(line("rewrite", &["^", "$request_uri", "break"]));
                let target = Argument::Template(vec![text("grpc://"), text(group.as_str())]);
                lines.push(NewDirective::new("grpc_pass").arg(target).into());
            }
            BackendProtocol::Http1 | BackendProtocol::Http2 => {
                if protocol == BackendProtocol::Http2 {
                    lines.push(line("proxy_http_version", &["2"]));
                }
                let uri = TemplatePart::Variable("request_uri".into());
                let target = Argument::Template(vec![text("http://"), text(group.as_str()), uri]);
                lines.push(NewDirective::new("proxy_pass").arg(target).into());
            }
        }
        let uri = Argument::plain(mirror_uri(group));
        vec![WriteNode::Blank, NewDirective::new("location").arg("=").arg(uri).block(lines).into()]
    }
}

fn mirror_uri(group: &GroupName) -> String {
    format!("{MIRROR_FOLDER}{group}")
}

fn edits(edits: &FieldEdits, [set, add, remove]: [&'static str; 3]) -> Vec<WriteNode> {
    let pair = |directive: &'static str, (name, value): &(String, String)| {
        NewDirective::new(directive).arg(Argument::plain(name)).arg(Argument::literal(value)).into()
    };
    let mut lines: Vec<WriteNode> = edits.set.iter().map(|field| pair(set, field)).collect();
    lines.extend(edits.add.iter().map(|field| pair(add, field)));
    lines.extend(edits.remove.iter().map(|name| NewDirective::new(remove).arg(Argument::plain(name)).into()));
    lines
}

fn cors_block(cors: &Cors) -> WriteNode {
    let mut lines = Vec::new();
    let mut list = |directive: &'static str, values: &[String]| {
        if !values.is_empty() {
            lines.push(NewDirective::new(directive).args(values.iter().map(Argument::plain)).into());
        }
    };
    list("allow_origin", &cors.allow_origins);
    list("allow_methods", &cors.allow_methods);
    list("allow_headers", &cors.allow_headers);
    list("expose_headers", &cors.expose_headers);
    if cors.allow_credentials {
        lines.push(line("allow_credentials", &["on"]));
    }
    if let Some(age) = cors.max_age {
        lines.push(line("max_age", &[&format!("{}s", age.as_secs())]));
    }
    NewDirective::new("cors").block(lines).into()
}
