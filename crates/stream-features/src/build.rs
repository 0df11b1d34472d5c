//! Builds the plan from the checked tree: inheritance, servers by address, additions of features.

#![allow(clippy::indexing_slicing, reason = "only a configuration comes here; the builder made the indices itself")]

use crate::core_table::{CoreConf, CoreInput};
use crate::plan::{Content, StreamListener, StreamNames, StreamPlan, StreamServer};
use crate::values::ServerName;
use crate::{Builtin, StreamVariables};
use area::background::Background;
use area::binding::Transparent;
use area::levels::{self, BlockLevel};
use area::listen::Listen;
use conf_schema::{At, CheckedBlock, Complaint, ContextArea, Contexts, Cx, FeatureTable, Problem, check};
use net::Address;
use net::listen::ListenSpec;
use std::any::Any;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A feature of the stream area: its directives and variables, and its additions to servers.
pub trait Feature: Sync {
    fn table(&self) -> FeatureTable;
    fn variables(&self) -> &'static [Builtin] {
        &[]
    }
    /// Called once for the stream block, before any server. Fails on faults of the block as a whole.
    fn plan_stream(&self, conf: &Arc<dyn Any + Send + Sync>, stream: &mut StreamBuild<'_>) -> Result<(), Problem> {
        let _ = (conf, stream);
        Ok(())
    }
    /// Called for every `upstream` block, before any server, with this feature's input.
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &conf_schema::Directive, cx: &mut Cx) -> Result<(), Problem> {
        let _ = (own, d, cx);
        Ok(())
    }
    /// `conf` is the table's inherited, complete plan.
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let _ = (conf, block);
        Ok(())
    }
}

pub struct StreamBuild<'a> {
    pub cx: &'a mut Cx,
    pub extensions: &'a mut Vec<Arc<dyn Any + Send + Sync>>,
    pub background: &'a mut Vec<Arc<dyn Background<StreamPlan>>>,
}

pub struct ServerBuild<'a> {
    pub cx: &'a mut Cx,
    pub server: &'a mut StreamServer,
    pub names: &'a [ServerName],
    pub extensions: &'a mut Vec<Arc<dyn Any + Send + Sync>>,
    /// Content handlers with the position of their directives: the last one wins.
    answers: Vec<(usize, Arc<dyn Content>)>,
}

impl ServerBuild<'_> {
    pub fn answers(&mut self, place: usize, content: Arc<dyn Content>) {
        self.answers.push((place, content));
    }
}

pub fn feature_tables(features: &[&dyn Feature]) -> Vec<FeatureTable> {
    let mut tables = vec![CoreConf::table("core", ContextArea::Stream)];
    tables.extend(features.iter().map(|f| f.table()));
    tables
}

/// Call before a configuration is checked.
pub fn offer_variables(features: &[&dyn Feature], cx: &mut Cx) {
    let variables = cx.get::<StreamVariables>();
    variables.offer(crate::variables::CORE);
    for feature in features {
        variables.offer(feature.variables());
    }
}

struct StreamBuilder<'a> {
    features: &'a [&'a dyn Feature],
    /// Tables by feature: `[0]` is the core's; the index in the checked block follows.
    tables: Vec<(FeatureTable, usize)>,
    cx: &'a mut Cx,
    servers: Vec<StreamServer>,
    extensions: Vec<Arc<dyn Any + Send + Sync>>,
    background: Vec<Arc<dyn Background<StreamPlan>>>,
    complaints: Vec<Complaint>,
    /// Servers with a reported error: further faults may be its consequence.
    faulty: Vec<usize>,
}

/// Builds the plan of a checked stream block; `table_index` maps features to their index in the schema. Warnings go to
/// `cx.warnings`.
pub fn build_plan(
    features: &[&dyn Feature],
    stream: &mut CheckedBlock<'_>,
    cx: &mut Cx,
    table_index: &dyn Fn(&str) -> Option<usize>,
) -> Result<StreamPlan, Vec<Complaint>> {
    // A feature without a table would shift later indices.
    let tables = feature_tables(features).into_iter().map(|t| (table_index(t.feature).unwrap_or(usize::MAX), t));
    let tables = tables.map(|(index, table)| (table, index)).collect();
    let mut b = StreamBuilder {
        features,
        tables,
        cx,
        servers: Vec::new(),
        extensions: Vec::new(),
        background: Vec::new(),
        complaints: Vec::new(),
        faulty: Vec::new(),
    };
    let plan = b.stream(stream);
    let complaints = std::mem::take(&mut b.complaints);
    let groups_used = cx.get::<StreamVariables>().groups_used;
    let (variables, _, unknown) = cx.take::<StreamVariables>().finish();
    let complaints: Vec<Complaint> = complaints.into_iter().chain(unknown).collect();
    if !complaints.is_empty() {
        return Err(complaints);
    }
    Ok(StreamPlan { variables, groups_used, ..plan })
}

struct StreamDraft {
    names: Vec<ServerName>,
    listens: Vec<Listen>,
    at: At,
}

impl StreamBuilder<'_> {
    fn complain(&mut self, at: Option<At>, problem: Problem) {
        let at = problem.inner.or(at);
        let mut complaint = check::word_complaint(&conf_schema::Directive::default(), problem);
        complaint.span = at.map(|at| at.span);
        complaint.line = at.map_or(0, |at| at.line);
        // A directive that several blocks inherit is wrong once.
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    fn stream(&mut self, stream: &mut CheckedBlock<'_>) -> StreamPlan {
        let levels = levels::block_levels(&self.tables, self.cx, stream, None);
        for (i, feature) in self.features.iter().enumerate() {
            let mut build =
                StreamBuild { cx: self.cx, extensions: &mut self.extensions, background: &mut self.background };
            if let Err(problem) = feature.plan_stream(&levels[i + 1].plan, &mut build) {
                self.complain(stream.directive.map(|d| At { span: d.span, line: d.line }), problem);
            }
        }
        for block in stream.children.iter_mut().filter(|b| b.context == Contexts::stream_upstream) {
            self.upstream(block);
        }
        let mut drafts = Vec::new();
        for block in stream.children.iter_mut().filter(|b| b.context == Contexts::stream_server) {
            drafts.push(self.server(block, &levels));
        }
        let listeners = self.listeners(&drafts);
        let places =
            listeners.iter().enumerate().map(|(i, l)| ((l.spec.address.clone(), l.spec.datagram), i)).collect();
        static GENERATIONS: AtomicU32 = AtomicU32::new(1);
        StreamPlan {
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            listeners,
            places,
            servers: std::mem::take(&mut self.servers),
            variables: Vec::new(),
            groups_used: true,
            transparent: self.cx.get::<Transparent>().0,
            extensions: std::mem::take(&mut self.extensions),
            background: std::mem::take(&mut self.background),
        }
    }

    fn upstream(&mut self, block: &mut CheckedBlock<'_>) {
        let Some(d) = block.directive else { return };
        let at = Some(At { span: d.span, line: d.block_end_line.max(d.line) });
        for (i, feature) in self.features.iter().enumerate() {
            let own = self.tables.get(i + 1).and_then(|(_, index)| block.take_any(*index));
            if let Err(problem) = feature.plan_upstream(own, d, self.cx) {
                self.complain(at, problem);
            }
        }
    }

    fn server(&mut self, block: &mut CheckedBlock<'_>, outer: &[Rc<BlockLevel>]) -> StreamDraft {
        let own: Option<CoreInput> = self.tables.first().and_then(|(_, i)| block.input::<CoreInput>(*i).cloned());
        let levels = levels::block_levels(&self.tables, self.cx, block, Some(outer));
        let conf = match levels[0].plan.downcast_ref::<CoreConf>() {
            Some(conf) => conf.clone(),
            None => unreachable!("the first table is the core's"),
        };
        let names = own.as_ref().and_then(|o| o.server_name.as_ref()).map(|n| n.value.0.clone()).unwrap_or_default();
        let listens = own.as_ref().and_then(|o| o.listen.as_ref()).map(|l| l.value.0.clone()).unwrap_or_default();
        let at = block.directive.map(|d| At { span: d.span, line: d.line }).unwrap_or_default();
        let error_log = match &conf.error_log {
            Some(lines) => lines.log(),
            None => self.cx.get::<observe::MainLog>().0.clone(),
        };
        let mut server = StreamServer {
            name: names.first().map(ServerName::written).unwrap_or_default(),
            error_log,
            tcp_nodelay: conf.tcp_nodelay,
            preread_bytes: usize::try_from(conf.preread_buffer_size.0).unwrap_or(usize::MAX),
            preread_timeout: conf.preread_timeout.duration(),
            proxy_protocol_timeout: conf.proxy_protocol_timeout.duration(),
            resolving: None,
            tls: None,
            post_accept: Vec::new(),
            preaccess: Vec::new(),
            access: Vec::new(),
            preread: Vec::new(),
            first_message: None,
            content: None,
            loggers: Vec::new(),
            extensions: Vec::new(),
            zone: None,
        };
        let mut answers = Vec::new();
        for (i, feature) in self.features.iter().enumerate() {
            let mut build = ServerBuild {
                cx: self.cx,
                server: &mut server,
                names: &names,
                extensions: &mut self.extensions,
                answers: std::mem::take(&mut answers),
            };
            let done = feature.plan(&levels[i + 1].plan, &mut build);
            answers = build.answers;
            if let Err(problem) = done {
                let written = self.tables.get(i + 1).and_then(|(table, _)| problem.place(table, &*levels[i + 1].input));
                self.complain(written.or(Some(at)), problem);
                self.faulty.push(self.servers.len());
            }
        }
        answers.sort_by_key(|(place, _)| *place);
        server.content = answers.pop().map(|(_, content)| content);
        server.preaccess.sort_by_key(|(order, _)| *order);
        self.servers.push(server);
        if listens.is_empty() {
            self.complain(Some(at), Problem::says("no \"listen\" is defined for server"));
        }
        StreamDraft { names, listens: listens.into_iter().map(|l| l.0).collect(), at }
    }

    /// Groups servers by address; checks `listen` lines of different servers with equal addresses.
    fn listeners(&mut self, drafts: &[StreamDraft]) -> Vec<StreamListener> {
        struct Group {
            spec: ListenSpec,
            options_set: bool,
            default: Option<usize>,
            proxy_protocol: bool,
            ssl: bool,
            servers: Vec<usize>,
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<(Address, bool), usize> = HashMap::new();
        for (server, draft) in drafts.iter().enumerate() {
            for listen in &draft.listens {
                for spec in &listen.specs {
                    let place = *places.entry((spec.address.clone(), spec.datagram)).or_insert_with(|| {
                        let bare = ListenSpec { datagram: spec.datagram, ..ListenSpec::new(spec.address.clone()) };
                        groups.push(Group {
                            spec: bare,
                            options_set: false,
                            default: None,
                            proxy_protocol: false,
                            ssl: false,
                            servers: Vec::new(),
                        });
                        groups.len() - 1
                    });
                    let (group, at) = (&mut groups[place], Some(listen.at));
                    let wrong = if group.servers.contains(&server) {
                        Some(format!("a duplicate listen {}", spec.address))
                    } else if listen.options_set && group.options_set {
                        Some(format!("duplicate listen options for {}", spec.address))
                    } else if listen.default_server && group.default.is_some() {
                        Some(format!("a duplicate default server for {}", spec.address))
                    } else {
                        None
                    };
                    if let Some(text) = wrong {
                        self.complain(at, Problem::says(text));
                        continue;
                    }
                    group.servers.push(server);
                    group.proxy_protocol |= listen.proxy_protocol;
                    group.ssl |= listen.ssl;
                    if listen.options_set {
                        group.options_set = true;
                        group.spec = spec.clone();
                    }
                    if listen.default_server {
                        group.default = Some(server);
                    }
                }
            }
        }
        for group in groups.iter().filter(|group| group.ssl) {
            let default = group.default.or(group.servers.first().copied()).unwrap_or(0);
            let rules = |server: usize| self.servers.get(server)?.tls.as_ref()?.rules.rules.as_ref();
            let bare = match rules(default) {
                None => Some(default),
                Some(rules) if rules.has_certificates() => None,
                // The default server rejects handshakes; the others need certificates.
                Some(_) => group.servers.iter().copied().find(|server| rules(*server).is_none()),
            };
            if let Some(server) = bare.filter(|server| !self.faulty.contains(server)) {
                let text = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive";
                self.complain(drafts.get(server).map(|d| d.at), Problem::says(text));
            }
        }
        groups
            .into_iter()
            .map(|group| {
                // A single server needs no selection.
                let is_shared = group.servers.len() > 1;
                let mut names = StreamNames::default();
                // A server without a name has the empty one, which no client sends.
                let mut is_unnamed = false;
                for &server in &group.servers {
                    let own = &drafts[server].names;
                    let is_second = own.is_empty() && std::mem::replace(&mut is_unnamed, true);
                    let mut taken = Vec::new();
                    for name in own {
                        if is_shared && name.is_unusable() {
                            let shown = name.shown();
                            let text = format!("invalid server name or wildcard \"{shown}\" on {}", group.spec.address);
                            self.complain(None, Problem::says(text));
                        } else if !names.add(name, server) && is_shared {
                            taken.push(name.shown());
                        }
                    }
                    for name in taken.into_iter().chain(is_second.then(String::new)) {
                        self.cx.warnings.push(Complaint {
                            level: conf_schema::ComplaintLevel::Warn,
                            text: format!("conflicting server name \"{name}\" on {}, ignored", group.spec.address),
                            span: None,
                            line: 0,
                            hint: Some("the name was given before, for this address".into()),
                        });
                    }
                }
                StreamListener {
                    default_server: group.default.or(group.servers.first().copied()).unwrap_or(0),
                    spec: group.spec,
                    proxy_protocol: group.proxy_protocol,
                    ssl: group.ssl,
                    names,
                }
            })
            .collect()
    }
}
