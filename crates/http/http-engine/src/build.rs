//! Builds the plan from the checked tree: inheritance, listeners, location trees, handlers and filters.

#![allow(clippy::indexing_slicing, reason = "only a configuration comes here; the builder made the indices itself")]

mod listeners;

use crate::answering::{AnswerWork, PassWork};
use crate::area::{Builtin, HttpVariables};
use crate::block_rules::{allowed_methods, misplaced_location};
use crate::core_table::{CoreConf, CoreInput};
use crate::engine::sort_filters;
use crate::order::{HandlerOrder, Phase, PlanOrder};
use crate::own_socket::{Datagrams, OwnSocket};
use crate::plan::{Core, HttpPlan, LimitExcept, Location, Server};
use crate::tree::Tree;
use crate::values::{Alias, LocationKind, PrefixRule, Root, ServerName, ServerTokens, Types};
use area::levels::{self, BlockLevel, InnerLevels};
use conf_schema::{At, CheckedBlock, Complaint, ContextArea, Contexts, Cx, FeatureTable, Problem, check};
use listeners::{default_address, plain_listen};
use net::Address;
use std::any::Any;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A feature of the http area: its directives, its variables, and their translation into handlers and filters.
///
/// For each configuration, [`build_plan`] calls [`Feature::plan_http`], [`Feature::plan_upstream`] for each `upstream`
/// block, [`Feature::plan`] for each block of the servers, inner blocks first, and [`Feature::after_servers`].
pub trait Feature: Sync {
    /// Returns the feature's table of directives. Its name identifies the feature and must be unique.
    fn table(&self) -> FeatureTable;
    /// Returns the feature's built-in variables. Names must be unique among all features.
    fn variables(&self) -> &'static [Builtin] {
        &[]
    }
    /// Returns the feature's position among others when blocks are planned. It does not order handlers at run time
    /// ([`HandlerOrder`]).
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Usual
    }
    /// Tells whether [`Feature::plan`] does anything for a block if none of the table's directives is set, neither
    /// there nor in an enclosing block. `false`: it is not called for such blocks.
    fn acts_by_default(&self) -> bool {
        true
    }
    /// Adds handlers and filters to a block's location; `conf` is the table's complete plan. Fails on problems of the
    /// block as a whole.
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem>;
    /// Called once for the http block, before any location.
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let _ = (conf, http);
        Ok(())
    }
    /// Called once, after all servers.
    fn after_servers(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let _ = (conf, http);
        Ok(())
    }
    /// Called for every `upstream` block with its input, before any location.
    fn plan_upstream(&self, own: Option<Box<dyn Any>>, d: &conf_schema::Directive, cx: &mut Cx) -> Result<(), Problem> {
        let _ = (own, d, cx);
        Ok(())
    }
}

/// Parts of the plan that a feature may extend for the http block as a whole; the lists go into the [`HttpPlan`].
pub struct HttpBuild<'a> {
    /// State shared by all parsers of the configuration, with its warnings.
    pub cx: &'a mut Cx,
    /// Values that features find again by their type with [`HttpPlan::ext`].
    pub extensions: &'a mut Vec<Arc<dyn Any + Send + Sync>>,
    /// Functions that write the buffered log lines of the calling thread.
    pub flushers: &'a mut Vec<fn()>,
    /// Work of the control thread while the plan serves.
    pub background: &'a mut Vec<Arc<dyn crate::plan::Background<HttpPlan>>>,
    /// Folders that the master creates before the first request.
    pub folders: &'a mut Vec<crate::plan::Folder>,
    /// Files that the master creates together with the folders.
    pub new_files: &'a mut Vec<crate::plan::NewFile>,
    /// Datagrams that features answer, and their sockets.
    pub datagrams: &'a mut Vec<Datagrams>,
    /// TCP sockets, opened if no server listens there.
    pub sockets: &'a mut Vec<OwnSocket>,
}

/// A block in planning: its location, to which a feature adds handlers, filters and settings, and the block's
/// surroundings.
pub struct BlockPlan<'a> {
    /// State shared by all parsers of the configuration, with its warnings.
    pub cx: &'a mut Cx,
    /// The location of the block; handlers go through [`BlockPlan::handle`].
    pub location: &'a mut Location,
    /// One of server, location, if_in_server, if_in_location and limit_except.
    pub context: Contexts,
    /// Indices of the locations of the blocks directly inside this one; their plans are complete.
    pub children: &'a [usize],
    /// Names of the server that the block belongs to.
    pub server_names: &'a [ServerName],
    /// Addresses of that server's `listen` lines; empty if it has none.
    pub listens: &'a [Address],
    /// Writable folders: see [`crate::HttpPlan::folders`].
    pub folders: &'a mut Vec<crate::plan::Folder>,
    /// Values of the http block: see [`HttpPlan::ext`].
    pub extensions: &'a mut Vec<Arc<dyn Any + Send + Sync>>,
}

impl BlockPlan<'_> {
    /// Adds a handler. Handlers of [`Phase::ServerRewrite`] take effect at the server level only.
    pub fn handle(&mut self, order: HandlerOrder, handler: Arc<dyn crate::handler::Handler>) {
        self.location.drafts.push((order, handler));
    }
}

/// Returns the tables of the core module and of all features. The core's table is the first.
pub fn feature_tables(features: &[&dyn Feature]) -> Vec<FeatureTable> {
    let mut tables = vec![CoreConf::table("core", ContextArea::Http)];
    tables.extend(features.iter().map(|f| f.table()));
    tables
}

/// Makes the built-in variables known to parsers; to be called before any directive is parsed.
pub fn offer_variables(features: &[&dyn Feature], cx: &mut Cx) {
    let variables = cx.get::<HttpVariables>();
    variables.offer(crate::variables::CORE);
    for feature in features {
        variables.offer(feature.variables());
    }
}

struct HttpBuilder<'a> {
    features: &'a [&'a dyn Feature],
    order: Vec<usize>,
    /// Tables by feature, `[0]` being the core's, with the index in the checked block.
    tables: Vec<(FeatureTable, usize)>,
    cx: &'a mut Cx,
    locations: Vec<Location>,
    servers: Vec<Server>,
    extensions: Vec<Arc<dyn Any + Send + Sync>>,
    flushers: Vec<fn()>,
    background: Vec<Arc<dyn crate::plan::Background<HttpPlan>>>,
    folders: Vec<crate::plan::Folder>,
    new_files: Vec<crate::plan::NewFile>,
    datagrams: Vec<Datagrams>,
    sockets: Vec<OwnSocket>,
    complaints: Vec<Complaint>,
    /// Cores by the address of their plan and the kind of root. Keeping the plan keeps the address unique.
    cores: HashMap<(usize, Alias), (Arc<dyn Any + Send + Sync>, Arc<Core>)>,
    server_names: Vec<ServerName>,
    listens: Vec<Address>,
    /// Servers with a complaint: further problems may be its consequence.
    faulty: Vec<usize>,
}

/// Builds the plan of a checked http block; `table_index` maps features to the schema. Warnings go to `cx.warnings`.
pub fn build_plan(
    features: &[&dyn Feature],
    http: &mut CheckedBlock<'_>,
    cx: &mut Cx,
    table_index: &dyn Fn(&str) -> Option<usize>,
) -> Result<HttpPlan, Vec<Complaint>> {
    let tables = feature_tables(features).into_iter().filter_map(|t| table_index(t.feature).map(|i| (t, i))).collect();
    let mut order: Vec<usize> = (0..features.len()).collect();
    order.sort_by_key(|i| features[*i].plan_order());
    let mut b = HttpBuilder {
        features,
        order,
        tables,
        cx,
        locations: Vec::new(),
        servers: Vec::new(),
        extensions: Vec::new(),
        flushers: Vec::new(),
        background: Vec::new(),
        folders: Vec::new(),
        new_files: Vec::new(),
        datagrams: Vec::new(),
        sockets: Vec::new(),
        complaints: Vec::new(),
        cores: HashMap::new(),
        server_names: Vec::new(),
        listens: Vec::new(),
        faulty: Vec::new(),
    };
    let plan = b.http(http);
    let complaints = std::mem::take(&mut b.complaints);
    let groups_used = cx.get::<HttpVariables>().groups_used;
    let (variables, names, unknown) = cx.take::<HttpVariables>().finish();
    let mut complaints: Vec<Complaint> = complaints.into_iter().chain(unknown).collect();
    // nginx initialises zones last and reports all other errors before.
    complaints.sort_by_key(|complaint| complaint.text.starts_with(area::zones::UNDECLARED));
    if !complaints.is_empty() {
        return Err(complaints);
    }
    const FIELDS: [&str; 5] =
        ["sent_http_", "sent_trailer_", "upstream_http_", "upstream_cookie_", "upstream_trailer_"];
    let asks_for_fields = variables.iter().any(|v| FIELDS.iter().any(|prefix| v.name.starts_with(prefix)));
    let ht_names_hidden = plan.locations.iter().any(|location| location.ht_names_hidden);
    Ok(HttpPlan { variables, names, groups_used, asks_for_fields, ht_names_hidden, ..plan })
}

struct ServerDraft {
    names: Vec<ServerName>,
    listens: Vec<crate::listen::Listen>,
    at: At,
}

impl HttpBuilder<'_> {
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

    fn core_conf<'l>(&self, levels: &'l [Rc<BlockLevel>]) -> &'l CoreConf {
        match levels[0].plan.downcast_ref::<CoreConf>() {
            Some(conf) => conf,
            None => unreachable!("the first table is the core's"),
        }
    }

    /// Returns the core's settings with derived values; locations without settings of their own share their server's.
    fn core(&mut self, levels: &[Rc<BlockLevel>], root: Root) -> Arc<Core> {
        let key = (Arc::as_ptr(&levels[0].plan).cast::<u8>() as usize, root.alias);
        if let Some((_, core)) = self.cores.get(&key) {
            return core.clone();
        }
        let conf = self.core_conf(levels).clone();
        let folder =
            crate::plan::Folder { path: conf.client_body_temp_path.path.clone(), needed: false, is_state: false };
        if !self.folders.contains(&folder) {
            self.folders.push(folder);
        }
        let identity = &conf.server_identity;
        let word = match conf.server_tokens {
            ServerTokens::Off => &identity.name,
            ServerTokens::On | ServerTokens::Build => &identity.full,
        };
        let error_log = match &conf.error_log {
            Some(lines) => lines.log(),
            None => self.cx.get::<observe::MainLog>().0.clone(),
        };
        let rate_limited = !matches!(conf.limit_rate, crate::values::SizeTemplate::Fixed(0));
        let core = Arc::new(Core {
            root,
            signature: word.clone(),
            types: conf.types.clone().unwrap_or_else(Types::builtin),
            default_type: conf.default_type.0.as_slice().into(),
            error_log,
            rate_limited,
            needs_task: rate_limited || conf.post_action.is_some(),
            conf,
        });
        self.cores.insert(key, (levels[0].plan.clone(), core.clone()));
        core
    }

    fn http(&mut self, http: &mut CheckedBlock<'_>) -> HttpPlan {
        let levels = levels::block_levels(&self.tables, self.cx, http, None);
        self.whole(http, &levels, |feature, conf, build| feature.plan_http(conf, build));
        for block in http.children.iter_mut().filter(|b| b.context == Contexts::upstream) {
            self.upstream(block);
        }
        let mut drafts = Vec::new();
        let mut inner = InnerLevels::new(&levels);
        for block in &mut http.children {
            if block.context == Contexts::server {
                drafts.push(self.server(block, &mut inner));
            }
        }
        self.whole(http, &levels, |feature, conf, build| feature.after_servers(conf, build));
        for socket in std::mem::take(&mut self.sockets) {
            let implied = default_address(self.cx.store.superuser());
            if !drafts.iter().any(|draft| socket.is_open(&draft.listens, &implied)) {
                let mut block = CheckedBlock::empty(Contexts::server);
                drafts.push(self.own_server(&mut block, &mut inner, &socket));
            }
        }
        let listeners = self.listeners(&drafts);
        static GENERATIONS: AtomicU32 = AtomicU32::new(1);
        HttpPlan {
            asks_for_fields: false,
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            groups_used: true,
            ht_names_hidden: false,
            servers_counted: self.servers.iter().any(|server| server.zone.is_some()),
            cache_bytes: self.core_conf(&levels).tidegate_cache.bytes,
            cache_recheck: self.core_conf(&levels).tidegate_cache.recheck,
            transparent: self.cx.get::<crate::plan::Transparent>().0,
            listeners,
            servers: std::mem::take(&mut self.servers),
            locations: std::mem::take(&mut self.locations),
            variables: Vec::new(),
            names: crate::area::HttpNames::default(),
            flushers: std::mem::take(&mut self.flushers),
            extensions: std::mem::take(&mut self.extensions),
            background: std::mem::take(&mut self.background),
            folders: std::mem::take(&mut self.folders),
            new_files: std::mem::take(&mut self.new_files),
            datagrams: std::mem::take(&mut self.datagrams),
        }
    }

    /// Calls a method of all features for the http block.
    fn whole(
        &mut self,
        http: &CheckedBlock<'_>,
        levels: &[Rc<BlockLevel>],
        call: impl Fn(&dyn Feature, &Arc<dyn Any + Send + Sync>, &mut HttpBuild<'_>) -> Result<(), Problem>,
    ) {
        for (i, feature) in self.features.iter().enumerate() {
            let mut build = HttpBuild {
                cx: self.cx,
                extensions: &mut self.extensions,
                flushers: &mut self.flushers,
                background: &mut self.background,
                folders: &mut self.folders,
                new_files: &mut self.new_files,
                datagrams: &mut self.datagrams,
                sockets: &mut self.sockets,
            };
            if let Err(problem) = call(*feature, &levels[i + 1].plan, &mut build) {
                self.complain(http.directive.map(|d| At { span: d.span, line: d.line }), problem);
            }
        }
    }

    /// Plans the server of a feature's socket.
    fn own_server(
        &mut self,
        block: &mut CheckedBlock<'_>,
        outer: &mut InnerLevels<'_>,
        socket: &OwnSocket,
    ) -> ServerDraft {
        let mut draft = self.server(block, outer);
        if let Some(location) = self.servers.last().and_then(|server| self.locations.get_mut(server.location)) {
            location.content = Some(Arc::new(crate::handler::CloseHandler));
            location.loggers.clear();
        }
        draft.listens.push(plain_listen(Address::Ip(socket.address), At::default()));
        draft
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

    fn server(&mut self, block: &mut CheckedBlock<'_>, outer: &mut InnerLevels<'_>) -> ServerDraft {
        let index = self.servers.len();
        let own = self.tables.first().and_then(|(_, i)| block.input::<CoreInput>(*i));
        let names = own.and_then(|o| o.server_name.as_ref()).map(|n| n.value.0.clone()).unwrap_or_default();
        let listens = own.and_then(|o| o.listen.as_ref()).map(|l| l.value.0.clone()).unwrap_or_default();
        let levels = outer.of(&self.tables, block);
        let conf = self.core_conf(&levels);
        let large = conf.large_client_header_buffers;
        if large.size < conf.connection_pool_size.0 {
            let at = block.directive.map(|d| At { span: d.span, line: d.block_end_line.max(d.line) });
            let words =
                "the \"large_client_header_buffers\" size must be equal to or greater than \"connection_pool_size\"";
            self.complain(at, Problem::says(words));
        }
        let name = names.first().map(ServerName::written).unwrap_or_default();
        self.servers.push(Server {
            name,
            location: 0,
            tree: Tree::default(),
            limits: wire_h1::HeadLimits {
                line_max: large.size.max(conf.client_header_buffer_size.0) as usize,
                field_max: large.size.max(conf.client_header_buffer_size.0) as usize,
                total_max: (large.size * large.count + conf.client_header_buffer_size.0) as usize,
                fields_max: conf.max_headers.0 as usize,
                underscores: conf.underscores_in_headers,
                ignore_invalid: conf.ignore_invalid_headers,
            },
            allow_connect: false,
            tls: None,
            http2: crate::plan::Http2::default(),
            http3: crate::plan::Http3::default(),
            rewrite: Vec::new(),
            zone: None,
        });
        self.server_names.clone_from(&names);
        self.listens = listens.iter().flat_map(|listen| &listen.specs).map(|spec| spec.address.clone()).collect();
        let root = self.core_conf(&levels).root.0.clone();
        let (location, tree) = self.location(block, &levels, index, None, None, root);
        self.servers[index].location = location;
        self.servers[index].allow_connect = self.locations[location..].iter().any(|l| l.connect);
        self.servers[index].tree = tree;
        let at = block.directive.map(|d| At { span: d.span, line: d.line }).unwrap_or_default();
        ServerDraft { names, listens, at }
    }

    /// Plans a block with a location of its own: the server level, a location, an `if`, a `limit_except`.
    fn location(
        &mut self,
        block: &mut CheckedBlock<'_>,
        levels: &[Rc<BlockLevel>],
        server: usize,
        kind: Option<&LocationKind>,
        parent: Option<&LocationKind>,
        root: Root,
    ) -> (usize, Tree) {
        let index = self.locations.len();
        let core = self.core(levels, root.clone());
        let shown = kind.or(parent);
        self.locations.push(Location {
            name: shown.map(|k| k.name().to_vec()).unwrap_or_default(),
            at: block.directive.map(|d| At { span: d.span, line: d.line }).unwrap_or_default(),
            orders: Vec::new(),
            answered_by: None,
            regex: matches!(shown, Some(LocationKind::Regex(_))),
            named: matches!(shown, Some(LocationKind::Named(_))),
            http2_chunk: 8192,
            exact: matches!(shown, Some(LocationKind::Exact(_))),
            internal: core.conf.internal.is_some(),
            ht_names_hidden: false,
            file_guard: None,
            core,
            server,
            auto_redirect: false,
            passes: false,
            connect: false,
            inner: Tree::default(),
            limit_except: None,
            charset: crate::area::HttpTemplate::default(),
            rewrite: Vec::new(),
            preaccess: Vec::new(),
            access: Vec::new(),
            precontent: Vec::new(),
            content: None,
            drafts: Vec::new(),
            content_chain: Vec::new(),
            filters: Vec::new(),
            transform: None,
            late_transform: None,
            guard: None,
            loggers: Vec::new(),
            sampler: None,
            zone: None,
            extensions: Vec::new(),
        });
        let mut tree = Tree::default();
        let mut children = Vec::with_capacity(block.children.len());
        let mut nameless = Vec::new();
        let mut limit_except = None;
        let mut inner = InnerLevels::new(levels);
        for child in &mut block.children {
            let at = child.directive.map(|d| At { span: d.span, line: d.line });
            let said = self.tables.first().and_then(|(_, i)| child.input::<CoreInput>(*i));
            let said = said.map_or((false, false), |own| (own.root.is_some(), own.alias.is_some()));
            let inner_levels = inner.of(&self.tables, child);
            match child.context {
                Contexts::location => {
                    let Some(d) = child.directive else { continue };
                    self.cx.at = At { span: d.span, line: d.line };
                    let inner_kind = match LocationKind::parse(self.cx, d) {
                        Ok(kind) => kind,
                        Err(problem) => {
                            self.complaints.push(check::word_complaint(d, problem));
                            continue;
                        }
                    };
                    if let Some(problem) = kind.and_then(|outer| misplaced_location(outer, &inner_kind)) {
                        self.complain(at, problem);
                        continue;
                    }
                    let inner_root = self.root_of(&inner_levels, said, &inner_kind, &root);
                    let (inner, inner_tree) =
                        self.location(child, &inner_levels, server, Some(&inner_kind), None, inner_root);
                    self.locations[inner].inner = inner_tree;
                    children.push(inner);
                    let conditions = self.locations[inner].core.conf.route_match.clone();
                    if conditions.is_some()
                        && matches!(inner_kind, LocationKind::Named(_) | LocationKind::Predicate(..))
                    {
                        let words = "a location without a path has no \"route_match\"";
                        self.complain(
                            at,
                            Problem::says(words).hint("only locations that are searched by path have conditions"),
                        );
                    }
                    if let Err(first) = tree.add(&inner_kind, inner, conditions) {
                        let name = String::from_utf8_lossy(inner_kind.name()).into_owned();
                        let mut problem = Problem::says(format!("duplicate location \"{name}\""));
                        if let Some(first) = self.locations.get(first) {
                            problem = problem.hint(format!("the first one is in {}", self.cx.place_of(first.at)));
                        }
                        self.complain(at, problem);
                    }
                }
                _ => {
                    let outer_kind = shown.cloned().unwrap_or(LocationKind::Prefix(Vec::new(), PrefixRule::Octets));
                    let inner_root = self.root_of(&inner_levels, said, &outer_kind, &root);
                    let (inner, _) = self.location(child, &inner_levels, server, None, Some(&outer_kind), inner_root);
                    children.push(inner);
                    nameless.push((inner, child.context == Contexts::limit_except));
                    if let Some(d) = child.directive.filter(|_| child.context == Contexts::limit_except) {
                        if limit_except.is_some() {
                            self.complaints.push(check::word_complaint(d, Problem::duplicate()));
                        }
                        limit_except = Some((d, inner));
                    }
                }
            }
        }
        tree.finish();
        if let Some((d, inner)) = limit_except {
            match allowed_methods(d) {
                Ok(allowed) => self.locations[index].limit_except = Some(LimitExcept { allowed, location: inner }),
                Err(problem) => self.complaints.push(check::word_complaint(d, problem)),
            }
        }
        let passing = self.features(block, levels, index, &children);
        self.pass_on(index, &nameless, passing);
        (index, tree)
    }

    /// Copies a content handler to `if` blocks, and to `limit_except` if it passes requests on.
    fn pass_on(&mut self, from: usize, nameless: &[(usize, bool)], passing: PassWork) {
        if nameless.is_empty() {
            return;
        }
        let Location { content, extensions, passes, answered_by, .. } = &self.locations[from];
        let (content, extensions, passes, by) = (content.clone(), extensions.clone(), *passes, *answered_by);
        let video = content_handler(&self.locations[from]);
        for (inner, is_limit) in nameless {
            let inner = &mut self.locations[*inner];
            if let Some(handler) = video.clone().filter(|_| !is_limit) {
                inherit_content_handler(inner, handler);
            }
            if inner.content.is_some() || (*is_limit && !passes) {
                continue;
            }
            inner.content.clone_from(if *is_limit { &passing } else { &content });
            inner.answered_by = by;
            if passes {
                inner.extensions.extend(extensions.iter().cloned());
            }
        }
    }

    /// Returns the `root` or `alias` of a block or of its outer blocks, with the length of the replaced prefix.
    fn root_of(&self, levels: &[Rc<BlockLevel>], said: (bool, bool), kind: &LocationKind, outer: &Root) -> Root {
        let conf = self.core_conf(levels);
        match (said, &conf.alias) {
            ((_, true), Some(alias)) => {
                let replaces = match kind {
                    LocationKind::Regex(_) | LocationKind::Predicate(..) => Alias::Whole,
                    kind => Alias::Prefix(kind.name().len()),
                };
                Root { alias: replaces, ..alias.0.clone() }
            }
            ((true, false), _) => conf.root.0.clone(),
            _ => outer.clone(),
        }
    }

    fn features(
        &mut self,
        block: &CheckedBlock<'_>,
        levels: &[Rc<BlockLevel>],
        index: usize,
        children: &[usize],
    ) -> PassWork {
        let server = self.locations[index].server;
        let is_server = block.context == Contexts::server;
        let mut answering = AnswerWork::default();
        for place in 0..self.order.len() {
            let i = self.order[place];
            let feature = self.features[i];
            let is_idle = !levels[i + 1].is_given && !feature.acts_by_default();
            if is_idle && !cfg!(debug_assertions) {
                continue;
            }
            let before = is_idle.then(|| self.locations[index].footprint());
            answering.begin(&self.locations[index]);
            let mut plan = BlockPlan {
                cx: self.cx,
                location: &mut self.locations[index],
                context: block.context,
                children,
                server_names: &self.server_names,
                listens: &self.listens,
                folders: &mut self.folders,
                extensions: &mut self.extensions,
            };
            if let Err(problem) = feature.plan(&levels[i + 1].plan, &mut plan) {
                let written = self.tables.get(i + 1).and_then(|(table, _)| problem.place(table, &*levels[i + 1].input));
                let at = written.or(block.directive.map(|d| At { span: d.span, line: d.line }));
                self.complain(at, problem);
                self.faulty.push(server);
            }
            answering.end(&mut self.locations[index], block, &self.tables[i + 1].0);
            if let Some(before) = before {
                let name = self.tables[i + 1].0.feature;
                debug_assert_eq!(before, self.locations[index].footprint(), "{name} acts by default");
            }
        }
        sort_filters(&mut self.locations[index].filters);
        let location = &mut self.locations[index];
        location.drafts.sort_by_key(|(order, _)| *order);
        location.orders = location.drafts.iter().map(|(order, _)| *order).collect();
        location.answered_by = answering.by;
        let mut server_rewrite = Vec::new();
        for (order, handler) in location.drafts.drain(..) {
            let phase = match order.phase() {
                Phase::ServerRewrite => &mut server_rewrite,
                Phase::Rewrite => &mut location.rewrite,
                Phase::Preaccess => &mut location.preaccess,
                Phase::Access => &mut location.access,
                Phase::Precontent => &mut location.precontent,
                _ => &mut location.content_chain,
            };
            phase.push(handler);
        }
        if is_server {
            self.servers[server].rewrite = server_rewrite;
            self.servers[server].tls = location.ext::<Arc<crate::area::ServerTls>>().cloned();
            self.servers[server].zone = location.ext::<crate::counting::ServerZone>().map(|zone| zone.0.clone());
            self.servers[server].http2 = location.ext::<crate::plan::Http2>().copied().unwrap_or_default();
            self.servers[server].http3 = location.ext::<crate::plan::Http3>().cloned().unwrap_or_default();
        }
        answering.passing
    }
}

/// Orders of a location's content chain.
fn content_orders(location: &Location) -> impl Iterator<Item = HandlerOrder> {
    location.orders.iter().copied().filter(|order| order.phase() == Phase::Content)
}

/// Returns the handler of `flv`, `mp4` or `hls`, which are content handlers in nginx and part of the content chain here.
fn content_handler(location: &Location) -> Option<Arc<dyn crate::handler::Handler>> {
    let at = content_orders(location).position(|order| order == HandlerOrder::Video)?;
    location.content_chain.get(at).cloned()
}

/// Adds such a handler to an `if` block, which inherits the content handler of its location.
fn inherit_content_handler(inner: &mut Location, handler: Arc<dyn crate::handler::Handler>) {
    if inner.content.is_some() || content_handler(inner).is_some() {
        return;
    }
    let at = content_orders(inner).filter(|order| *order < HandlerOrder::Video).count();
    inner.content_chain.insert(at.min(inner.content_chain.len()), handler);
    let place = inner.orders.iter().filter(|order| **order < HandlerOrder::Video).count();
    inner.orders.insert(place, HandlerOrder::Video);
}
