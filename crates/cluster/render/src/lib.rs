//! Makes a configuration of a [`Model`]: nginx.conf, its files, and the servers of its groups.
//!
//! The configuration is a tree that `conf_syntax::writer` writes: no value passes through text that is parsed again. Each
//! block names the object that it comes from. A part that cannot be written is left out with a complaint.

#![forbid(unsafe_code)]

mod action;
mod config_text;
mod filters;
mod groups;
mod hosts;
mod line_owner;
mod location;
mod skeleton;
mod stream;

use std::collections::BTreeMap;

use cluster_model::{FileName, Model, ObjectOrigin};
use conf_syntax::writer::{self, Argument, NewDirective, WriteNode};

pub use config_text::ConfigText;
pub use groups::{GroupArea, GroupId, GroupServer, group_servers};
pub use line_owner::line_owner;

/// Settings of the process, which no object has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Folder of the process's sockets and its PID file.
    pub run_folder: String,
    /// Port of `/healthz` and `/metrics`, in cleartext; none by default.
    pub probe_port: Option<u16>,
    /// Counts the requests of each object with routes, under the name `NAMESPACE/KIND/NAME`.
    pub route_zones: bool,
    /// Argument of `resolver`: servers with names are then resolved while the server runs.
    pub resolver: Option<String>,
    /// Listens on all IPv6 addresses, too, where a listener has no address.
    pub ipv6: bool,
    /// File with the certificate authorities of the operating system.
    pub system_authorities: String,
}

impl Settings {
    /// Address of the server that stands for groups without endpoints.
    pub(crate) fn unavailable_address(&self) -> String {
        format!("unix:{}/unavailable.sock", self.run_folder)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            run_folder: "/run/tidegate".into(),
            probe_port: None,
            route_zones: false,
            resolver: None,
            ipv6: false,
            system_authorities: "/etc/ssl/certs/ca-certificates.crt".into(),
        }
    }
}

/// Configuration of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedConfig {
    /// Text of nginx.conf.
    pub main: String,
    /// Contents by path, relative to the folder of nginx.conf. Keys (`.key`) are for their owner only.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Servers of each group: `PUT /api/9/http/upstreams/NAME/servers/` (or `stream`) makes them the ones of a running
    /// server. Never empty: a group without endpoints has a server that stands for none.
    pub groups: BTreeMap<GroupId, Vec<GroupServer>>,
    /// Parts that are left out, and why.
    pub complaints: Vec<(ObjectOrigin, String)>,
}

/// Makes a configuration of a model. Equal models give equal configurations, byte for byte.
pub fn render_model(model: &Model, settings: &Settings) -> RenderedConfig {
    let (nodes, complaints, groups) = tree(model, settings);
    RenderedConfig { main: text(&nodes), files: files(model), groups, complaints }
}

/// Writes the tree without the servers of groups. [`ConfigText::skeleton`] is the same text, made of [`RenderedConfig::main`] without another
/// rendering.
pub fn render_skeleton(model: &Model, settings: &Settings) -> String {
    let mut nodes = tree(model, settings).0;
    remove_servers(&mut nodes);
    text(&nodes)
}

/// Returns the tree that [`render_model`] writes.
pub fn render_tree(model: &Model, settings: &Settings) -> Vec<WriteNode> {
    tree(model, settings).0
}

type Tree = (Vec<WriteNode>, Vec<(ObjectOrigin, String)>, BTreeMap<GroupId, Vec<GroupServer>>);

fn tree(model: &Model, settings: &Settings) -> Tree {
    let mut renderer =
        Renderer { model, settings, complaints: Vec::new(), groups: BTreeMap::new(), weights: BTreeMap::new() };
    let http = renderer.http();
    let stream = renderer.stream();
    let nodes = renderer.skeleton(http, stream);
    (nodes, renderer.complaints, renderer.groups)
}

/// Removes the servers of all groups.
fn remove_servers(nodes: &mut [WriteNode]) {
    let blocks = |nodes: &mut [WriteNode], names: &[&str], change: fn(&mut Vec<WriteNode>)| {
        for node in nodes {
            if let WriteNode::Directive(directive) = node
                && let Some(lines) = &mut directive.block
                && names.iter().any(|name| directive.name == Argument::plain(name))
            {
                change(lines);
            }
        }
    };
    blocks(nodes, &["http", "stream"], |lines| remove_servers(lines));
    blocks(nodes, &["upstream"], |lines| {
        let server = Argument::plain("server");
        lines.retain(|line| !matches!(line, WriteNode::Directive(directive) if directive.name == server));
    });
}

/// State of one rendering.
struct Renderer<'a> {
    model: &'a Model,
    settings: &'a Settings,
    complaints: Vec<(ObjectOrigin, String)>,
    groups: BTreeMap<GroupId, Vec<GroupServer>>,
    /// Entries of `backend_weights` by area and name of the variable.
    weights: BTreeMap<(GroupArea, String), Vec<(String, u32)>>,
}

impl Renderer<'_> {
    fn complain(&mut self, origin: &ObjectOrigin, reason: impl Into<String>) {
        let complaint = (origin.clone(), reason.into());
        // Hosts of several listeners repeat the locations of a route.
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    /// Returns lines that can be written; a complaint and none otherwise.
    fn checked(&mut self, origin: &ObjectOrigin, lines: Vec<WriteNode>) -> Option<Vec<WriteNode>> {
        match writer::write_tree(&lines) {
            Ok(_) => Some(lines),
            Err(error) => {
                self.complain(origin, error.to_string());
                None
            }
        }
    }
}

/// Writes a tree whose parts were checked one by one.
fn text(tree: &[WriteNode]) -> String {
    let bytes = writer::write_tree(tree).unwrap_or_else(|error| {
        debug_assert!(false, "an unchecked part: {error}");
        format!("# {error}\n").into_bytes()
    });
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn files(model: &Model) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (name, certificate) in &model.certificates {
        files.insert(certificate_path(name), certificate.chain().to_vec());
        files.insert(key_path(name), certificate.key().to_vec());
    }
    for (name, authority) in &model.authorities {
        files.insert(authority_path(name), authority.bundle().to_vec());
    }
    for (name, users) in &model.passwords {
        files.insert(name.password_path(), users.clone());
    }
    files
}

fn certificate_path(name: &FileName) -> String {
    name.certificate_path()
}

fn key_path(name: &FileName) -> String {
    name.key_path()
}

fn authority_path(name: &FileName) -> String {
    name.authority_path()
}

/// A directive with words of the language as arguments.
fn line(name: &'static str, words: &[&str]) -> WriteNode {
    NewDirective::new(name).args(words.iter().map(Argument::plain)).into()
}

/// Joins parts without a copy of their nodes: thousands of servers are in some.
fn joined<const N: usize>(parts: [Vec<WriteNode>; N]) -> Vec<WriteNode> {
    parts.into_iter().flatten().collect()
}

fn comment(origin: &ObjectOrigin) -> WriteNode {
    WriteNode::Comment(origin.to_string())
}
