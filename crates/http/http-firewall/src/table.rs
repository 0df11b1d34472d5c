//! The directives, and the parts that a block gets from them.

use crate::chain::{RuleLine, RuleLines, compile_chain};
use crate::lookups::warn_lookups;
use crate::prepared::{note_set, plan_preparation};
use crate::state::BlockFirewall;
use crate::{audit_log, record, request, response, services};
use conf_schema::value::{Flag, Latest, parse_msec, word_at};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpTemplate, PlanOrder};
use std::any::Any;
use std::sync::Arc;
use waf::EngineState;

directives! {
    pub struct FirewallConf from FirewallInput {
        /// Inspects requests and responses with the rules of `modsecurity_rules` and `modsecurity_rules_file` (docs/waf.md).
        /// Differs: a response is held back until the rules have seen its body, so that phase 4 can deny it; nginx's
        /// connector has sent the head by then and breaks off. Responses of a location with `off` are not inspected.
        modsecurity: Flag = "off",
        /// Rules of SecLang in the configuration itself. Rules of outer blocks come first. May be repeated.
        modsecurity_rules: RuleLines,
        /// A file with rules of SecLang, relative to the folder of the configuration; its `Include` lines and data files
        /// are relative to the file itself. Rules of outer blocks come first. May be repeated.
        modsecurity_rules_file: RuleFileLines,
        /// Rules from another server.
        /// Refused: a start or reload would depend on another server, which could change all rules.
        modsecurity_rules_remote: RemoteRules,
        /// The id of transactions in all logs, instead of `$request_id`. At most 128 bytes; bytes other than visible ASCII
        /// become `_`.
        modsecurity_transaction_id: Latest<HttpTemplate>,
        /// Writes refusals to the error log, with level `error`. Matches of rules that do not refuse have level `info`.
        modsecurity_use_error_log: Flag = "on",
        /// The processor time of a transaction, over all phases, and the answer at its end if rules remain: `closed`
        /// denies the request with status 403 if the engine is on, `open` lets it pass.
        modsecurity_budget: BudgetLimit = "1s closed",
    }
}

/// `modsecurity_rules_file` lines.
#[derive(Clone, Debug)]
pub struct RuleFileLines(pub RuleLines);

impl ValueKind for RuleFileLines {
    const SYNTAX: &'static str = "file";
    const REPEATS: bool = true;
    const MERGES: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        RuleLine::of_file(cx, d).map(|line| RuleFileLines(RuleLines::of(line)))
    }
    fn append(&mut self, later: Self) {
        self.0.append(later.0);
    }
    fn merge(&mut self, outer: &Self) {
        self.0.merge(&outer.0);
    }
}

/// `modsecurity_rules_remote`: never a value.
#[derive(Clone, Debug)]
pub struct RemoteRules;

impl ValueKind for RemoteRules {
    const SYNTAX: &'static str = "key url";
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        let words = "is not supported: a start or reload would depend on another server, which could change all rules";
        Err(Problem::directive(words).hint("download the rules, and write modsecurity_rules_file"))
    }
}

/// `modsecurity_budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimit {
    /// Milliseconds of processor time.
    pub millis: u64,
    /// Requests pass at its end.
    pub is_open: bool,
}

/// Milliseconds of `modsecurity_budget` at most: a thread of the pool is busy for so long.
const BUDGET_MILLIS_MAX: u64 = 60_000;

impl ValueKind for BudgetLimit {
    const SYNTAX: &'static str = "time [open | closed]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?;
        let millis = parse_msec(&word.bytes).ok_or_else(|| {
            Problem::says(format!("invalid time \"{}\"", word.text())).at(0).hint("a time such as 500ms or 2s")
        })?;
        if millis == 0 || millis > BUDGET_MILLIS_MAX {
            let words = format!("the time must be from 1ms to {}s", BUDGET_MILLIS_MAX / 1000);
            return Err(Problem::says(words).at(0));
        }
        let is_open = match d.args.get(1).map(|word| word.text()).as_deref() {
            None | Some("closed") => false,
            Some("open") => true,
            Some(other) => {
                return Err(Problem::says(format!("invalid value \"{other}\"")).at(1).hint("one of: open, closed"));
            }
        };
        Ok(BudgetLimit { millis, is_open })
    }
}

/// The feature.
pub struct Firewall;

impl Feature for Firewall {
    fn table(&self) -> FeatureTable {
        FirewallConf::table("modsecurity", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    /// The resolver of a block is known before its rules are judged.
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<FirewallConf>() else { return Ok(()) };
        let files = conf.modsecurity_rules_file.as_ref().map(|lines| &lines.0);
        let lines = RuleLines::joined([conf.modsecurity_rules.as_ref(), files]);
        if lines.is_empty() && !conf.modsecurity {
            return Ok(());
        }
        // Rules with an error are one even where they do not apply.
        let rules = compile_chain(block.cx, &lines)?;
        if !conf.modsecurity {
            // A request may come here by an internal redirect with a transaction of its own.
            block.location.loggers.push(Arc::new(record::TransactionLog));
            return Ok(());
        }
        let audit = audit_log::plan(&rules.settings, &lines, block).map_err(|problem| lines.place(problem))?;
        let services = services::services(block.cx, &rules, &lines, conf.modsecurity_budget)?;
        if rules.settings.engine == EngineState::Off {
            lines.warn(block.cx, "modsecurity is on, but the rules leave SecRuleEngine off: no request is inspected");
            return Ok(());
        }
        warn_lookups(&rules, &lines, block);
        note_set(block.cx, &rules);
        let firewall = Arc::new(BlockFirewall {
            rules,
            services,
            audit,
            transaction_id: conf.modsecurity_transaction_id.clone().map(|Latest(template)| template),
            logs_refusals: conf.modsecurity_use_error_log,
            files: lines.names(),
        });
        block.handle(HandlerOrder::FirewallHead, Arc::new(request::HeadInspection(firewall)));
        block.handle(HandlerOrder::FirewallBody, Arc::new(request::BodyInspection));
        block.location.guard = Some(Arc::new(response::ResponseInspection));
        block.location.loggers.push(Arc::new(record::TransactionLog));
        Ok(())
    }
    fn after_servers(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.background.extend(plan_preparation(http.cx));
        Ok(())
    }
}
