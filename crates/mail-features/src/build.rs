//! Builds the plan from the checked tree: inheritance, servers by address, additions of features.

#![allow(clippy::indexing_slicing, reason = "only a configuration comes here; the builder made the indices itself")]

use crate::Variables;
use crate::core_table::{CoreConf, CoreInput};
use crate::plan::{MailListener, MailPlan, ServerDraft};
use crate::protocol::{MailProtocol, Starttls};
use area::levels::{self, BlockLevel};
use area::listen::Listen;
use conf_schema::{At, CheckedBlock, Complaint, ContextArea, Contexts, Cx, FeatureTable, Problem, check};
use net::Address;
use std::any::Any;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A feature of the mail area: its directives, and its part of a server's plan.
pub trait Feature: Sync {
    fn table(&self) -> FeatureTable;
    /// Adds to one server; `conf` is the table's inherited, complete plan. Fails on faults of the server as a whole.
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem>;
}

pub struct ServerBuild<'a> {
    pub cx: &'a mut Cx,
    pub server: &'a mut ServerDraft,
    pub kind: MailProtocol,
    pub listens_ssl: bool,
}

pub fn feature_tables(features: &[&dyn Feature]) -> Vec<FeatureTable> {
    let mut tables = vec![CoreConf::table("core", ContextArea::Mail)];
    tables.extend(features.iter().map(|f| f.table()));
    tables
}

struct MailBuilder<'a> {
    features: &'a [&'a dyn Feature],
    /// Tables by feature: `[0]` is the core's; the index in the checked block follows.
    tables: Vec<(FeatureTable, usize)>,
    cx: &'a mut Cx,
    plan: MailPlan,
    complaints: Vec<Complaint>,
}

/// Builds the plan of a checked mail block; `table_index` maps features to their index in the schema. Warnings go to
/// `cx.warnings`.
pub fn build_plan(
    features: &[&dyn Feature],
    mail: &mut CheckedBlock<'_>,
    cx: &mut Cx,
    table_index: &dyn Fn(&str) -> Option<usize>,
) -> Result<MailPlan, Vec<Complaint>> {
    // A feature without a table would shift later indices.
    let tables = feature_tables(features).into_iter().map(|t| (table_index(t.feature).unwrap_or(usize::MAX), t));
    let tables = tables.map(|(index, table)| (table, index)).collect();
    static GENERATIONS: AtomicU32 = AtomicU32::new(1);
    let plan = MailPlan {
        generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
        listeners: Vec::new(),
        places: HashMap::new(),
        servers: Vec::new(),
    };
    let mut b = MailBuilder { features, tables, cx, plan, complaints: Vec::new() };
    b.mail(mail);
    let (plan, mut complaints) = (b.plan, b.complaints);
    let (_, _, unknown) = cx.take::<Variables>().finish();
    complaints.extend(unknown);
    if complaints.is_empty() { Ok(plan) } else { Err(complaints) }
}

impl MailBuilder<'_> {
    fn complain(&mut self, at: At, problem: Problem) {
        let at = problem.inner.unwrap_or(at);
        let mut complaint = check::word_complaint(&conf_schema::Directive::default(), problem);
        (complaint.span, complaint.line) = (Some(at.span), at.line);
        // A directive that several blocks inherit is wrong once.
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    fn mail(&mut self, mail: &mut CheckedBlock<'_>) {
        let levels = levels::block_levels(&self.tables, self.cx, mail, None);
        for block in mail.children.iter_mut().filter(|b| b.context == Contexts::mail_server) {
            self.server(block, &levels);
        }
    }

    fn server(&mut self, block: &mut CheckedBlock<'_>, outer: &[Rc<BlockLevel>]) {
        let own: Option<CoreInput> = self.tables.first().and_then(|(_, i)| block.input::<CoreInput>(*i).cloned());
        let own = own.unwrap_or_default();
        let levels = levels::block_levels(&self.tables, self.cx, block, Some(outer));
        let conf = match levels[0].plan.downcast_ref::<CoreConf>() {
            Some(conf) => conf.clone(),
            None => unreachable!("the first table is the core's"),
        };
        let at = block.directive.map(|d| At { span: d.span, line: d.line }).unwrap_or_default();
        let listens: Vec<Listen> = own.listen.iter().flat_map(|l| &l.value.0).map(|l| l.0.clone()).collect();
        if listens.is_empty() {
            self.complain(at, Problem::says("no \"listen\" is defined for server"));
            return;
        }
        // The first listen with a well-known port sets the protocol of the others, as in nginx.
        let by_port = listens.iter().find_map(|listen| match &listen.specs.first()?.address {
            Address::Ip(ip) => MailProtocol::of_port(ip.port()),
            Address::Unix(_) => None,
        });
        let Some(kind) = own.protocol.map(|p| p.value.0).or(by_port) else {
            let hint = "add \"protocol imap;\", \"protocol pop3;\" or \"protocol smtp;\"";
            self.complain(at, Problem::says("unknown mail protocol for server").hint(hint));
            return;
        };
        let name = match conf.server_name.str() {
            name if name.is_empty() => String::from_utf8_lossy(net::process::host_name()).into_owned(),
            name => name.into_owned(),
        };
        let error_log = match &conf.error_log {
            Some(lines) => lines.log(),
            None => self.cx.get::<observe::MainLog>().0.clone(),
        };
        let mut draft = ServerDraft {
            name,
            error_log,
            timeout: conf.timeout.duration(),
            max_errors: conf.max_errors.0,
            resolving: None,
            proxies: Vec::new(),
            starttls: Starttls::Off,
            tls: None,
            protocol: None,
            authenticator: None,
            passer: None,
        };
        let listens_ssl = listens.iter().any(|listen| listen.ssl);
        for (i, feature) in self.features.iter().enumerate() {
            let mut build = ServerBuild { cx: self.cx, server: &mut draft, kind, listens_ssl };
            if let Err(problem) = feature.plan(&levels[i + 1].plan, &mut build) {
                let written = self.tables.get(i + 1).and_then(|(table, _)| problem.place(table, &*levels[i + 1].input));
                self.complain(written.unwrap_or(at), problem);
            }
        }
        self.listen(&listens);
        if let Some(server) = draft.finish() {
            self.plan.servers.push(server);
        }
    }

    /// Adds the listeners of the next server. An address has one server.
    fn listen(&mut self, listens: &[Listen]) {
        let server = self.plan.servers.len();
        for listen in listens {
            for spec in &listen.specs {
                if self.plan.places.contains_key(&spec.address) {
                    let text = format!("duplicate \"{}\" address and port pair", spec.address);
                    self.complain(listen.at, Problem::says(text));
                    continue;
                }
                self.plan.places.insert(spec.address.clone(), self.plan.listeners.len());
                self.plan.listeners.push(MailListener {
                    spec: spec.clone(),
                    proxy_protocol: listen.proxy_protocol,
                    ssl: listen.ssl,
                    server,
                });
            }
        }
    }
}
