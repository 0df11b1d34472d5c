//! The actions of rules that matched.

use super::evaluate::LinkMatch;
use super::facts::lower_case;
use super::{Removals, TargetOwner, Transaction, Verdict};
use crate::message::{MessageContext, RuleMatch};
use crate::number::leading_integer;
use crate::rule::{Control, DefaultAction, Disruption, Effect, EngineState, Link, Rule, VariableChange, VariablePlace};
use crate::store::StoreChange;
use crate::variable::Variable;
use std::sync::Arc;

/// Entries of each list that `ctl` fills.
const REMOVALS_MAX: usize = 10_000;
/// Matches that a transaction keeps for the log.
const MATCHES_MAX: usize = 1000;
/// Variables of `setenv`.
const ENVIRONMENT_MAX: usize = 100;

/// Status of `deny` and `drop`, and of `redirect`, without `status`.
const DENY_STATUS: u16 = 403;
const REDIRECT_STATUS: u16 = 302;

/// Returns whether matches of a rule are logged, and whether they are part of the audit log.
fn log_settings(rule: &Rule, default: Option<&DefaultAction>) -> (bool, bool) {
    let logs = rule.links.iter().find_map(|link| link.logs).or(default.and_then(|default| default.logs));
    let audits = rule.links.iter().find_map(|link| link.audits).or(default.and_then(|default| default.audits));
    (logs.unwrap_or(true), audits.unwrap_or(true))
}

impl Transaction {
    /// `initcol` and `setvar`, once for each value that matched, also if the chain does not match in the end.
    pub(super) fn perform_changes(&mut self, link: &Link) {
        for effect in &link.effects {
            if let Effect::SelectCollection(lasting, key) = effect {
                let key: Arc<[u8]> = self.expand(key).into();
                match self.keys.iter_mut().find(|(known, _)| known == lasting) {
                    Some((_, held)) => *held = key,
                    None => self.keys.push((*lasting, key)),
                }
            }
        }
        for (place, change) in &link.changes {
            self.change_variable(place, change);
        }
    }

    fn change_variable(&mut self, place: &VariablePlace, change: &VariableChange) {
        let name = self.expanded(&place.name);
        let Some(lasting) = place.lasting else {
            let number = |transaction: &Transaction| {
                let held = transaction.facts.tx.get(&lower_case(&name));
                held.map_or(0, |(_, value)| leading_integer(value))
            };
            let value = match change {
                VariableChange::Remove => return self.facts.tx.remove(&name),
                VariableChange::Set(value) => Arc::from(&*self.expanded(value)),
                VariableChange::Add(amount) => {
                    let amount = leading_integer(&self.expanded(amount));
                    number(self).saturating_add(amount).to_string().into_bytes().into()
                }
                VariableChange::Subtract(amount) => {
                    let amount = leading_integer(&self.expanded(amount));
                    number(self).saturating_sub(amount).to_string().into_bytes().into()
                }
            };
            return self.set_tx(&name, value);
        };
        let change = match change {
            VariableChange::Remove => StoreChange::Remove,
            VariableChange::Set(value) => StoreChange::Set(self.expand(value)),
            VariableChange::Add(amount) => StoreChange::Add(leading_integer(&self.expand(amount))),
            VariableChange::Subtract(amount) => {
                StoreChange::Add(leading_integer(&self.expand(amount)).saturating_neg())
            }
        };
        self.change_lasting(lasting, &name, change);
    }

    fn change_lasting(&self, lasting: crate::store::LastingCollection, name: &[u8], change: StoreChange) {
        if let Some(key) = self.collection_key(lasting) {
            let now = self.services.clock.now() / 1000;
            self.services.store.change(lasting, &key, &name.to_ascii_lowercase(), change, now);
        }
    }

    /// The actions of a rule whose links all matched: effects, disruption, message.
    pub(super) fn perform_rule(&mut self, rule: &Arc<Rule>, matched: Option<LinkMatch>) {
        let rules = self.rules.clone();
        let default = rules.defaults.get(usize::from(rule.phase).saturating_sub(1));
        let Some(head) = rule.links.first() else { return };
        for effect in default.into_iter().flat_map(|default| &default.effects) {
            self.perform_effect(effect);
        }
        for link in rule.links.iter().rev() {
            if let Some(severity) = link.labels.severity {
                self.highest_severity = self.highest_severity.min(severity);
            }
            link.effects.iter().for_each(|effect| self.perform_effect(effect));
        }
        let own = rule.disruption.as_ref();
        let (disruption, default_status) = match (own, default) {
            (Some(Disruption::Block), Some(default)) => (default.disruption.as_ref(), default.status),
            _ => (own, None),
        };
        let status = rule.status.or(default_status);
        let disrupts = self.disrupt(rule, disruption, status);
        let (logs, audits) = log_settings(rule, default);
        if (logs || audits || disrupts) && self.matches.len() < MATCHES_MAX {
            let text = |of: fn(&Link) -> Option<&crate::template::Template>| {
                rule.links.iter().find_map(of).map(|template| self.expand(template)).unwrap_or_default()
            };
            let message = text(|link| link.labels.message.as_ref());
            let data = text(|link| link.labels.data.as_ref());
            let links = rule.links.iter().rev();
            let tags = links.flat_map(|link| &link.labels.tags).map(|tag| self.expand(tag)).collect();
            let status = match &self.verdict {
                Verdict::Deny { status, .. } | Verdict::Redirect { status, .. } => *status,
                Verdict::Drop { .. } => status.unwrap_or(DENY_STATUS),
                Verdict::Pass => 0,
            };
            let found = RuleMatch::new(
                rule,
                head,
                matched.map(|found| (found.name.text(), found.value, found.parameter, found.reference)),
                (message, data, tags),
                disrupts.then_some(status),
                (logs, audits),
                &self.message_context(),
            );
            self.matches.push(found);
        }
    }

    /// Returns whether a match of the rule could make a message: for the log, the audit log, or with a refusal.
    pub(super) fn could_report(&self, rule: &Rule) -> bool {
        let (logs, audits) = log_settings(rule, self.rules.defaults.get(usize::from(rule.phase).saturating_sub(1)));
        logs || audits || !matches!(rule.disruption, None | Some(Disruption::Pass | Disruption::Allow(_)))
    }

    pub(super) fn message_context(&self) -> MessageContext<'_> {
        let hostname = &self.connection.hostname;
        MessageContext {
            hostname: if hostname.is_empty() { &self.connection.server_address } else { hostname },
            uri: self.facts.single(Variable::RequestFilename).map(|single| &*single.value).unwrap_or_default(),
            unique_id: &self.connection.unique_id,
        }
    }

    /// Executes the disruptive action; returns whether it decided about the request.
    fn disrupt(&mut self, rule: &Rule, disruption: Option<&Disruption>, status: Option<u16>) -> bool {
        // "allow" is no blocking action, but is left out in detection as well, as in ModSecurity.
        if self.engine != EngineState::On || self.verdict != Verdict::Pass || rule.phase == 5 {
            return false;
        }
        self.verdict = match disruption {
            Some(Disruption::Deny) => Verdict::Deny { status: status.unwrap_or(DENY_STATUS), rule: rule.id },
            Some(Disruption::Drop) => Verdict::Drop { rule: rule.id },
            Some(Disruption::Redirect(location)) => {
                let location = self.expand(location);
                let status = status.filter(|status| (301..=308).contains(status)).unwrap_or(REDIRECT_STATUS);
                Verdict::Redirect { status, location, rule: rule.id }
            }
            Some(Disruption::Allow(reach)) => {
                self.allowed = Some(*reach);
                return false;
            }
            Some(Disruption::Pass | Disruption::Block) | None => return false,
        };
        true
    }

    fn perform_effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Control(control) => self.perform_control(control),
            Effect::SetEnvironment(name, value) => {
                let value = self.expand(value);
                self.environment.retain(|(known, _)| known != name);
                if self.environment.len() < ENVIRONMENT_MAX {
                    self.environment.push((name.clone(), value));
                }
            }
            // `perform_changes` has done it.
            Effect::SelectCollection(..) => {}
            Effect::ExpireVariable(place, seconds) => {
                // Variables of TX end with the transaction anyway.
                if let Some(lasting) = place.lasting {
                    let seconds = u64::try_from(leading_integer(&self.expand(seconds))).unwrap_or(0);
                    let name = self.expand(&place.name);
                    self.change_lasting(lasting, &name, StoreChange::ExpireIn(seconds));
                }
            }
            Effect::DeprecateVariable(place, amount, period) => {
                if let Some(lasting) = place.lasting {
                    let name = self.expand(&place.name).to_ascii_lowercase();
                    self.deprecate(lasting, &name, *amount, *period);
                }
            }
        }
    }

    /// Subtracts `amount` for each `period` of seconds since the last time, but not below 0.
    fn deprecate(&self, lasting: crate::store::LastingCollection, name: &[u8], amount: i64, period: i64) {
        let Some(key) = self.collection_key(lasting) else { return };
        let store = &self.services.store;
        let now = self.services.clock.now() / 1000;
        let stamp_name = [b"__deprecated_", name].concat();
        let seconds = i64::try_from(now / 1000).unwrap_or(i64::MAX);
        let stamp = store.get(lasting, &key, &stamp_name, now).map(|stamp| leading_integer(&stamp));
        let held = store.get(lasting, &key, name, now).map(|value| leading_integer(&value));
        let (Some(stamp), Some(held)) = (stamp, held) else {
            let stamp = StoreChange::Set(seconds.to_string().into_bytes());
            return store.change(lasting, &key, &stamp_name, stamp, now);
        };
        let periods = seconds.saturating_sub(stamp) / period.max(1);
        if periods > 0 {
            let less = periods.saturating_mul(amount).min(held.max(0));
            store.change(lasting, &key, name, StoreChange::Add(less.saturating_neg()), now);
            let stamp = stamp.saturating_add(periods.saturating_mul(period));
            store.change(lasting, &key, &stamp_name, StoreChange::Set(stamp.to_string().into_bytes()), now);
        }
    }

    fn perform_control(&mut self, control: &Control) {
        fn add<T>(list: &mut Vec<T>, item: T) {
            if list.len() < REMOVALS_MAX {
                list.push(item);
            }
        }
        let Removals { ids, tags, messages, targets } = &mut self.removals;
        match control {
            Control::RuleEngine(state) => self.engine = *state,
            Control::AuditEngine(state) => self.audit = *state,
            Control::AddAuditParts(parts) => {
                let new = parts.chars().filter(|part| !self.audit_parts.contains(*part)).collect::<String>();
                self.audit_parts.insert_str(0, &new);
            }
            Control::RemoveAuditParts(parts) => self.audit_parts.retain(|part| !parts.contains(part)),
            Control::SetAuditParts(parts) => self.audit_parts = parts.to_string(),
            Control::RequestBodyAccess(access) => self.request_body_access = *access,
            Control::ResponseBodyAccess(access) => self.response_body_access = *access,
            Control::RequestBodyProcessor(processor) => self.set_processor(*processor),
            Control::ForceRequestBodyVariable(forces) => self.force_body_variable = *forces,
            Control::RemoveById(first, last) => add(ids, (*first, *last)),
            Control::RemoveByTag(tag) => add(tags, tag.clone()),
            Control::RemoveByMessage(message) => add(messages, message.clone()),
            Control::RemoveTargetById(first, last, target) => {
                add(targets, (TargetOwner::Ids(*first, *last), (**target).clone()));
            }
            Control::RemoveTargetByTag(tag, target) => {
                add(targets, (TargetOwner::Tag(tag.clone()), (**target).clone()));
            }
            Control::RemoveTargetByMessage(message, target) => {
                add(targets, (TargetOwner::Message(message.clone()), (**target).clone()));
            }
        }
    }
}
