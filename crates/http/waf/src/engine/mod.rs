//! Transactions: facts of a request in, verdicts out.

mod budget;
mod evaluate;
mod facts;
mod names;
mod perform;
mod preparation;
mod request;
mod resolve;
mod response;
mod screening;

pub use budget::Budget;

use crate::clock::{ElapsedWork, SystemClock, WallClock, WorkClock};
use crate::message::RuleMatch;
use crate::places::GeoDatabase;
use crate::rule::{AllowReach, AuditState, BodyProcessor, EngineState, Rule, Target};
use crate::set::{ExhaustedAction, RuleSet};
use crate::store::{CollectionStore, LastingCollection, MemoryStore};
use budget::BudgetUse;
use facts::Facts;
pub use names::NAMES_MAX;
use names::NameLookups;
pub use preparation::prepare_patterns;
use std::sync::Arc;

/// Status of a request whose budget has ended: rules that did not run could have denied it.
pub const EXHAUSTED_STATUS: u16 = 403;

/// The parts that transactions share besides the rules.
pub struct Services {
    pub clock: Arc<dyn WallClock>,
    /// Measures [`Budget::microseconds`].
    pub work: Arc<dyn WorkClock>,
    pub store: Arc<dyn CollectionStore>,
    pub places: Option<Arc<dyn GeoDatabase>>,
    /// The caller asks DNS for the names of `@rbl` ([`Transaction::wanted_names`]); otherwise the operator does not match.
    pub asks_names: bool,
    pub budget: Budget,
    pub exhausted: ExhaustedAction,
    /// Seconds that local time is ahead of UTC, for `TIME_*` and the audit log.
    pub utc_offset: i32,
    /// The program in the audit log's JSON (`connector`).
    pub connector: String,
}

impl Default for Services {
    /// The system's clock, a store in memory, the default budget, at whose end requests are denied, UTC.
    fn default() -> Services {
        Services {
            clock: Arc::new(SystemClock),
            work: Arc::new(ElapsedWork),
            store: Arc::new(MemoryStore::default()),
            places: None,
            asks_names: false,
            budget: Budget::default(),
            exhausted: ExhaustedAction::Deny(EXHAUSTED_STATUS),
            utc_offset: 0,
            connector: format!("waf v{}", env!("CARGO_PKG_VERSION")),
        }
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// The connection of a transaction. Addresses are text, as variables show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    pub client_address: String,
    pub client_port: u16,
    pub server_address: String,
    pub server_port: u16,
    /// The id of the transaction in all logs; unique.
    pub unique_id: String,
    /// `[hostname]` of messages; the server's address if it is empty.
    pub hostname: String,
}

/// An answer of the engine to the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Pass,
    /// Answer with this status. `rule` is the id of the rule, 0 for an exhausted budget or a limit.
    Deny {
        status: u16,
        rule: u64,
    },
    /// Close the connection without an answer.
    Drop {
        rule: u64,
    },
    Redirect {
        status: u16,
        location: Vec<u8>,
        rule: u64,
    },
}

/// Rules and targets that `ctl` took out of the transaction.
#[derive(Debug, Default)]
struct Removals {
    ids: Vec<(u64, u64)>,
    tags: Vec<Box<str>>,
    messages: Vec<Box<str>>,
    targets: Vec<(TargetOwner, Target)>,
}

#[derive(Debug)]
enum TargetOwner {
    Ids(u64, u64),
    Tag(Box<str>),
    Message(Box<str>),
}

impl TargetOwner {
    fn owns(&self, rule: &Rule) -> bool {
        match self {
            TargetOwner::Ids(first, last) => (*first..=*last).contains(&rule.id),
            TargetOwner::Tag(tag) => rule.has_tag(tag),
            TargetOwner::Message(message) => rule.has_message(message),
        }
    }
}

/// A request with its response, from the first byte to the log.
///
/// Call [`Transaction::uri`], [`Transaction::request_header`] for each header, [`Transaction::request_headers`],
/// [`Transaction::request_body`], [`Transaction::response_header`] for each header, [`Transaction::response_headers`],
/// [`Transaction::response_body`] and [`Transaction::log`], in this order. If a verdict is not [`Verdict::Pass`], go on
/// with [`Transaction::log`]; later phases return the same verdict.
pub struct Transaction {
    rules: Arc<RuleSet>,
    services: Arc<Services>,
    connection: Connection,
    facts: Facts,
    engine: EngineState,
    audit: AuditState,
    audit_parts: String,
    request_body_access: bool,
    response_body_access: bool,
    processor: Option<BodyProcessor>,
    /// `ctl:forceRequestBodyVariable`
    force_body_variable: bool,
    removals: Removals,
    allowed: Option<AllowReach>,
    verdict: Verdict,
    matches: Vec<RuleMatch>,
    /// The keys of lasting collections, as `initcol` set them.
    keys: Vec<(LastingCollection, Arc<[u8]>)>,
    environment: Vec<(Box<str>, Vec<u8>)>,
    spent: BudgetUse,
    started: u64,
    highest_severity: u8,
    /// Transformed values by (value, node): index `id`.
    cache: Vec<Vec<(u32, Arc<[u8]>)>>,
    /// Looks at values, by layer of the rules' screens.
    looks: Vec<screening::LayerLooks>,
    /// [`Transaction::evaluate_all_values`] was called.
    evaluates_all: bool,
    /// The phase under evaluation.
    phase: u8,
    /// The rule under evaluation, for `RULE`.
    current: Option<Arc<Rule>>,
    status: u16,
    names: NameLookups,
    /// Values of the link under evaluation; kept to reuse its memory.
    values: Vec<(usize, resolve::FoundValue)>,
    request_body: Arc<[u8]>,
    response_body: Arc<[u8]>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        shown.field("id", &self.connection.unique_id).field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins a transaction. Nothing is evaluated yet.
    pub fn new(rules: &Arc<RuleSet>, services: &Arc<Services>, connection: Connection) -> Transaction {
        let settings = &rules.settings;
        let started = services.clock.now();
        let empty: Arc<[u8]> = Arc::from(&[][..]);
        let mut transaction = Transaction {
            rules: rules.clone(),
            services: services.clone(),
            facts: Facts::default(),
            engine: settings.engine,
            audit: settings.audit,
            audit_parts: settings.audit_parts.clone(),
            request_body_access: settings.request_body_access,
            response_body_access: settings.response_body_access,
            processor: None,
            force_body_variable: false,
            removals: Removals::default(),
            allowed: None,
            verdict: Verdict::Pass,
            matches: Vec::new(),
            keys: Vec::new(),
            environment: Vec::new(),
            spent: BudgetUse::default(),
            started,
            highest_severity: u8::MAX,
            cache: Vec::new(),
            looks: Vec::new(),
            evaluates_all: false,
            phase: 0,
            current: None,
            status: 200,
            names: NameLookups::default(),
            values: Vec::new(),
            request_body: empty.clone(),
            response_body: empty,
            connection,
        };
        transaction.set_connection();
        transaction
    }

    /// Matches so far, in order, for the logs.
    pub fn matches(&self) -> &[RuleMatch] {
        &self.matches
    }
    /// The decision so far.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }
    /// Variables that rules set by `setenv`.
    pub fn environment(&self) -> &[(Box<str>, Vec<u8>)] {
        &self.environment
    }
    /// Returns whether rules are evaluated at all.
    pub fn is_off(&self) -> bool {
        self.engine == EngineState::Off
    }
    /// Returns whether the caller has to hand in the request's body: the setting, or `ctl:requestBodyAccess`.
    pub fn wants_request_body(&self) -> bool {
        !self.is_off() && self.request_body_access
    }
    /// Returns whether the caller has to hand in the response's body. Meaningful behind [`Transaction::response_headers`].
    pub fn wants_response_body(&self) -> bool {
        !self.is_off() && self.response_body_access && self.inspects_response()
    }
    /// Frees memory that only the phase that has ended needed. Call it between phases, before a wait for a body.
    pub fn release_spare_memory(&mut self) {
        self.looks.iter_mut().for_each(screening::LayerLooks::release_spare);
        self.values = Vec::new();
    }
    /// Sets the status of a response that phase 3 has not seen, for the logs.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
    }
    /// The id of the transaction, as in [`Connection::unique_id`].
    pub fn unique_id(&self) -> &str {
        &self.connection.unique_id
    }
    /// The rules of the transaction.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
    /// Returns whether the budget has ended: some rules were left out.
    pub fn is_exhausted(&self) -> bool {
        self.spent.exhausted.is_some()
    }
    /// Steps spent so far; see [`Budget`].
    pub fn steps(&self) -> u64 {
        self.spent.steps
    }
}

#[cfg(test)]
mod tests;
