//! `location` blocks: path, conditions, and one block for each way in which requests go on.

use std::collections::BTreeSet;

use cluster_model::{
    Action, Backend, BackendProtocol, Conditions, Filters, GroupName, Location, ObjectOrigin, PathMatch, ValueMatch,
};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::groups::GroupArea;
use crate::{Renderer, comment, line};

/// Value of a variable of weights that stands for a backend which does not exist.
const NO_BACKEND: &str = "-";

/// Groups that requests of a server are copied to.
pub(crate) type Mirrors = BTreeSet<(GroupName, BackendProtocol)>;

impl Renderer<'_> {
    /// Returns the blocks of a location: several, if its backends are used in different ways.
    pub(crate) fn location(&mut self, location: &Location, mirrors: &mut Mirrors) -> Vec<WriteNode> {
        let blocks = match &location.action {
            Action::Lines { groups, lines } => {
                for group in groups {
                    self.use_group(GroupArea::Http, group);
                }
                vec![(None, lines.clone())]
            }
            Action::Respond(status) => vec![(None, respond(*status))],
            Action::Redirect(redirect) => {
                let mut lines = self.filters(&location.filters, &mut Mirrors::new());
                lines.push(redirect_to(redirect));
                vec![(None, lines)]
            }
            Action::Proxy { backends, no_backend } => self.proxies(location, backends, *no_backend, mirrors),
        };
        blocks.into_iter().flat_map(|(drawn, lines)| self.block(location, drawn, lines)).collect()
    }

    /// Returns the lines behind the conditions, for each value of a variable that decides between the blocks.
    fn proxies(
        &mut self,
        location: &Location,
        backends: &[Backend],
        no_backend: u16,
        mirrors: &mut Mirrors,
    ) -> Vec<(Option<(String, String)>, Vec<WriteNode>)> {
        let backends: Vec<&Backend> = backends.iter().filter(|backend| backend.weight > 0).collect();
        let exists = |backend: &&Backend| backend.group.is_some() || backend.redirect.is_some();
        match backends.as_slice() {
            [] => return vec![(None, respond(no_backend))],
            all if !all.iter().any(exists) => return vec![(None, respond(no_backend))],
            [one] => return vec![(None, self.backend(location, one, no_backend, mirrors))],
            _ => {}
        }
        if let Some(lines) = self.uniform(location, &backends, no_backend, mirrors) {
            return vec![(None, lines)];
        }
        let entries = backends.iter().enumerate().map(|(index, backend)| (index.to_string(), backend.weight)).collect();
        let variable = self.weights(GroupArea::Http, &location.origin, entries);
        backends
            .iter()
            .enumerate()
            .map(|(index, backend)| {
                let drawn = (variable.clone(), index.to_string());
                (Some(drawn), self.backend(location, backend, no_backend, mirrors))
            })
            .collect()
    }

    /// Returns the lines of one block for all backends, if they differ in group and weight only.
    fn uniform(
        &mut self,
        location: &Location,
        backends: &[&Backend],
        no_backend: u16,
        mirrors: &mut Mirrors,
    ) -> Option<Vec<WriteNode>> {
        let first = backends.iter().find(|backend| backend.group.is_some())?;
        let alike = |backend: &&&Backend| {
            backend.group.is_none() || (backend.protocol == first.protocol && backend.tls == first.tls)
        };
        let plain = |backend: &&Backend| backend.filters == Filters::default() && backend.redirect.is_none();
        if !backends.iter().all(|backend| plain(backend) && alike(&backend)) {
            return None;
        }
        let mut entries: Vec<(String, u32)> = Vec::new();
        for backend in backends {
            let name = backend.group.as_ref().and_then(|group| self.use_group(GroupArea::Http, group));
            let value = name.map_or(NO_BACKEND.to_owned(), |name| name.to_string());
            match entries.iter_mut().find(|(known, _)| *known == value) {
                Some((_, weight)) => *weight = weight.saturating_add(backend.weight),
                None => entries.push((value, backend.weight)),
            }
        }
        let has_missing = entries.iter().any(|(value, _)| value == NO_BACKEND);
        let variable = self.weights(GroupArea::Http, &location.origin, entries);
        let mut lines = self.filters(&location.filters, mirrors);
        if has_missing {
            let test = format!("(${variable}");
            let answer = line("return", &[&no_backend.to_string()]);
            lines
                .push(NewDirective::new("if").arg(Argument::plain(test)).arg("=").arg("-)").block(vec![answer]).into());
        }
        lines.extend(self.pass(location, &location.filters, first, Argument::variable(variable)));
        Some(lines)
    }

    fn backend(
        &mut self,
        location: &Location,
        backend: &Backend,
        no_backend: u16,
        mirrors: &mut Mirrors,
    ) -> Vec<WriteNode> {
        let filters = location.filters.then(&backend.filters);
        if let Some(redirect) = &backend.redirect {
            let mut lines = self.filters(&filters, &mut Mirrors::new());
            lines.push(redirect_to(redirect));
            return lines;
        }
        let Some(group) = backend.group.as_ref().and_then(|group| self.use_group(GroupArea::Http, group)) else {
            return respond(no_backend);
        };
        let mut lines = self.filters(&filters, mirrors);
        lines.extend(self.pass(location, &filters, backend, Argument::plain(group.as_str())));
        lines
    }

    /// Returns a `location` block, or one that answers 500 if its lines cannot be written.
    fn block(&mut self, location: &Location, drawn: Option<(String, String)>, lines: Vec<WriteNode>) -> Vec<WriteNode> {
        let origin = &location.origin;
        let mut head = vec![comment(origin)];
        let preflight = preflight(location, drawn.clone());
        for conditions in [conditions(&location.conditions, drawn), preflight] {
            if !conditions.is_empty() {
                head.push(NewDirective::new("route_match").block(conditions).into());
            }
        }
        let route = ObjectOrigin { part: String::new(), namespace: String::new(), ..origin.clone() };
        let mut log = vec![set("route_namespace", &origin.namespace), set("route", &route.to_string())];
        if self.settings.route_zones && !origin.namespace.is_empty() {
            let zone = Argument::plain(format!("{}/{}/{}", origin.namespace, origin.kind, origin.name));
            log.push(NewDirective::new("status_zone").arg(zone).into());
        }
        let whole = path(&location.path).block([head.clone(), log, location.extra.clone(), lines].concat());
        let refusal = path(&location.path).block([head, respond(500)].concat());
        let block = self.checked(origin, vec![WriteNode::Blank, whole.into()]);
        block.or_else(|| self.checked(origin, vec![WriteNode::Blank, refusal.into()])).unwrap_or_default()
    }
}

fn path(path: &PathMatch) -> NewDirective {
    let modifier = match path {
        PathMatch::Text(text) => return text_location(text),
        PathMatch::Exact(_) => "=",
        PathMatch::Prefix(_) => "^/",
        PathMatch::Regex { is_case_insensitive: false, .. } => "~",
        PathMatch::Regex { is_case_insensitive: true, .. } => "~*",
    };
    NewDirective::new("location").arg(modifier).arg(Argument::plain(path.text()))
}

/// Returns a location that nginx compares as a prefix. Only paths without a slash could be taken for a modifier.
fn text_location(text: &str) -> NewDirective {
    NewDirective::new("location").arg(Argument::plain(text))
}

fn conditions(conditions: &Conditions, drawn: Option<(String, String)>) -> Vec<WriteNode> {
    let mut lines = Vec::new();
    if let Some(method) = &conditions.method {
        lines.push(NewDirective::new("method").arg(Argument::plain(method)).into());
    }
    let mut compare = |directive: &'static str, name: &str, value: &ValueMatch| {
        let line = NewDirective::new(directive).arg(Argument::plain(name));
        lines.push(match value {
            ValueMatch::Exact(value) => line.arg(Argument::plain(value)).into(),
            ValueMatch::Regex(pattern) => line.arg("~").arg(Argument::plain(pattern)).into(),
        });
    };
    for (name, value) in &conditions.fields {
        compare("header", name, value);
    }
    for (name, value) in &conditions.query {
        compare("query", name, value);
    }
    if let Some((variable, value)) = drawn {
        lines.push(NewDirective::new("variable").arg(Argument::variable(variable)).arg(Argument::plain(value)).into());
    }
    lines
}

/// Returns the conditions of preflight requests for a location that answers them (`cors`): of its conditions, such a request has
/// neither the method nor the fields. Empty without such conditions.
fn preflight(location: &Location, drawn: Option<(String, String)>) -> Vec<WriteNode> {
    let Conditions { method, fields, query } = &location.conditions;
    if location.filters.cors.is_none() || (method.is_none() && fields.is_empty()) {
        return Vec::new();
    }
    let asked = NewDirective::new("header").arg("Access-Control-Request-Method");
    let asked = match method {
        Some(method) => asked.arg(Argument::plain(method)),
        None => asked,
    };
    let of_query = Conditions { query: query.clone(), ..Conditions::default() };
    let mut lines = vec![line("method", &["OPTIONS"]), asked.into()];
    lines.extend(conditions(&of_query, drawn));
    lines
}

fn set(variable: &str, value: &str) -> WriteNode {
    NewDirective::new("set").arg(Argument::variable(variable)).arg(Argument::literal(value)).into()
}

fn respond(status: u16) -> Vec<WriteNode> {
    vec![line("return", &[&status.to_string()])]
}

fn redirect_to(redirect: &cluster_model::ModelRedirect) -> WriteNode {
    crate::action::redirect_to(redirect)
}
