//! Routes in the form of the model.

use cluster_model::{Backend, Location, ObjectOrigin};
use cluster_objects::{Kind, ObjectName};

use crate::attach::Attachment;
use crate::conditions::ConditionFault;

/// A route with its parents and its rules.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRoute {
    pub kind: Kind,
    pub name: ObjectName,
    pub generation: i64,
    pub attachments: Vec<Attachment>,
    pub compiled: CompiledRules,
}

/// Rules in the form of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledRules {
    /// Why the route is served nowhere.
    pub accepted: Option<ConditionFault>,
    /// Rules that are left out or answered with an error, while others are served.
    pub partially: Option<ConditionFault>,
    pub resolved: Option<ConditionFault>,
    /// Of routes over HTTP, in order of rules and matches.
    pub locations: Vec<Location>,
    /// Of other routes.
    pub backends: Vec<Backend>,
    /// Fields that have no effect.
    pub leftovers: Vec<String>,
}

impl CompiledRules {
    /// Compiles the rules of a route over HTTP, each by `compile` with its origin. Rules that it refuses are left out.
    pub(crate) fn of_rules<'a, R>(
        route: &ObjectOrigin,
        rules: &'a [R],
        name: impl Fn(&'a R) -> Option<&'a String>,
        mut compile: impl FnMut(&'a R, &ObjectOrigin, &mut CompiledRules) -> Result<Vec<Location>, ConditionFault>,
    ) -> CompiledRules {
        let mut compiled = CompiledRules::default();
        let mut dropped = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut part = format!("rule {}", index + 1);
            if let Some(name) = name(rule).filter(|name| !name.is_empty()) {
                part = format!("{part} ({name})");
            }
            match compile(rule, &route.part(&part), &mut compiled) {
                Ok(locations) => compiled.locations.extend(locations),
                Err(fault) => dropped.push((part, fault)),
            }
        }
        compiled.note_dropped(&dropped, rules.len());
        compiled
    }

    /// Notes rules that are left out: the route as a whole, if none is left or two filters exclude each other.
    fn note_dropped(&mut self, dropped: &[(String, ConditionFault)], rules: usize) {
        let excluding = dropped.iter().find(|(_, fault)| fault.reason == "IncompatibleFilters");
        let Some((part, fault)) = excluding.or(dropped.first()) else { return };
        let message = format!("Dropped Rule: {part}: {}", fault.message);
        let fault = ConditionFault::new(fault.reason, message);
        if excluding.is_some() || dropped.len() == rules {
            self.accepted = Some(fault);
            self.partially = None;
        } else {
            self.partially = Some(fault);
        }
    }
}
