//! Lines of the firewall: in the locations of an Ingress, and in those that are reached inside the server.

use cluster_model::ObjectOrigin;
use conf_syntax::writer::{Argument, WriteNode};

use crate::output::{OutputState, directive, line};
use crate::template::template;

impl OutputState<'_, '_> {
    /// Returns the directives of the firewall.
    pub(crate) fn firewall_lines(&mut self, source: usize) -> Vec<WriteNode> {
        let sources = self.sources;
        let owner = &sources[source];
        let firewall = &owner.config.firewall;
        let mut lines = firewall.lines.clone();
        let variables = crate::snippets::variables(&owner.snippets.location);
        match firewall.transaction_id.as_ref().map(|value| template(value, &variables)) {
            Some(Ok(value)) => lines.push(directive("modsecurity_transaction_id", [value])),
            Some(Err(error)) => self.complain(source, format!("modsecurity-transaction-id is ignored: {error}")),
            None => {}
        }
        lines
    }

    /// Returns a location that requests reach inside the server only: the firewall has seen them before.
    pub(crate) fn inner_location(
        &self,
        origin: &ObjectOrigin,
        modifier: &[&'static str],
        name: Argument,
        mut lines: Vec<WriteNode>,
    ) -> Vec<WriteNode> {
        if self.defaults.firewall.is_on {
            lines.insert(0, line("modsecurity", &["off"]));
        }
        crate::lines::inner_location(origin, modifier, name, lines)
    }
}
