//! Selects the server by the host, and the location by the canonical path, with nginx's precedence.

use crate::area::HttpTemplate;
use crate::path::CanonicalPath;
use crate::plan::{HttpPlan, Listener, Server};
use crate::request::Request;
use crate::route_match::RouteMatches;
use crate::trace::StepKind;
use crate::tree::{Match, RegexLocation, Tree};
use variables::regex::MatchFailed;

/// The result of the search for a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// No location matches: the settings of the server's own level apply.
    Server,
    /// The location of this index.
    Location(usize),
    /// The location `/name/` of this index, to which `/name` is redirected.
    Slash(usize),
}

/// Fails with a regular expression.
pub fn find_route(r: &mut Request) -> Result<Route, MatchFailed> {
    let plan = r.plan_rc();
    let server: &Server = plan.srv(r.scope.server);
    let path = std::mem::take(&mut r.target.path);
    let route = within(&plan, &server.tree, &path, r);
    r.target.path = path;
    Ok(route?.map_or(Route::Server, |(route, _)| route))
}

#[cold]
fn note_prefix(plan: &HttpPlan, r: &Request, found: &Match, final_: bool) {
    let (location, words) = match found {
        Match::Nothing => return,
        Match::Final(location) => (*location, "is the path itself: nothing else is looked at"),
        Match::Slash(location) => (*location, "wants its slash: a redirect"),
        Match::Prefix(location) if final_ => {
            (*location, "is the longest matching prefix, and final: no regular expression is tried")
        }
        Match::Prefix(location) => {
            (*location, "is the longest matching prefix; a matching regular expression would take precedence")
        }
    };
    let location = plan.loc(location);
    let sign = match (location.exact, final_) {
        (true, _) => "= ",
        (_, true) => "^~ ",
        _ => "",
    };
    let name = String::from_utf8_lossy(&location.name).into_owned();
    r.note(StepKind::Candidate, location.at, |_| format!("{sign}{name}: {words}"));
}

/// Evaluates the predicate of a location. `path` is that of the request, which the search has borrowed.
fn is_selected(
    plan: &HttpPlan,
    r: &mut Request,
    predicate: &HttpTemplate,
    location: usize,
    path: &CanonicalPath,
) -> bool {
    r.target.path = path.clone();
    let value = predicate.eval(r);
    r.target.path.clear();
    let is_selected = variables::template::is_true(&value);
    let location = plan.loc(location);
    r.note(StepKind::Candidate, location.at, |_| {
        let (name, value) = (String::from_utf8_lossy(&location.name), String::from_utf8_lossy(&value));
        format!("{name}: {} (\"{value}\")", if is_selected { "matches" } else { "does not match" })
    });
    is_selected
}

/// Tells whether the `route_match` of a location holds. `path`: as in [`is_selected`].
fn are_met(
    plan: &HttpPlan,
    r: &mut Request,
    conditions: &RouteMatches,
    location: usize,
    path: &CanonicalPath,
) -> Result<bool, MatchFailed> {
    let held = conditions.hold(r, path)?;
    let location = plan.loc(location);
    r.note(StepKind::Candidate, location.at, |_| {
        let name = String::from_utf8_lossy(&location.name);
        match held {
            Ok(()) => format!("{name}: route_match holds"),
            Err(line) => format!("{name}: skipped, because \"{line}\" of its route_match does not hold"),
        }
    });
    Ok(held.is_ok())
}

/// Searches a tree and its inner trees; the flag tells that the result is final.
fn within(
    plan: &HttpPlan,
    tree: &Tree,
    path: &CanonicalPath,
    r: &mut Request,
) -> Result<Option<(Route, bool)>, MatchFailed> {
    let mut failed = None;
    let mut holds = |conditions: &RouteMatches, location| {
        are_met(plan, r, conditions, location, path).unwrap_or_else(|e| {
            failed = Some(e);
            false
        })
    };
    let (found, final_) = tree.static_location(&|location| plan.loc(location).auto_redirect, path, &mut holds);
    if let Some(e) = failed {
        return Err(e);
    }
    let mut best = None;
    if r.trace().is_some() {
        note_prefix(plan, r, &found, final_);
    }
    match found {
        Match::Final(location) => return Ok(Some((Route::Location(location), true))),
        Match::Slash(location) => return Ok(Some((Route::Slash(location), true))),
        Match::Nothing => {}
        Match::Prefix(location) => {
            let inner = &plan.loc(location).inner;
            best = Some((Route::Location(location), false));
            if !inner.is_empty()
                && let Some(deeper) = within(plan, inner, path, r)?
            {
                if deeper.1 {
                    return Ok(Some(deeper));
                }
                best = Some(deeper);
            }
        }
    }
    if !final_ {
        for RegexLocation { pattern, location, conditions } in &tree.regexes {
            if let Some(conditions) = conditions
                && !are_met(plan, r, conditions, *location, path)?
            {
                continue;
            }
            let matches = pattern.run(r, path)?;
            r.note(StepKind::Candidate, plan.loc(*location).at, |_| {
                let text = String::from_utf8_lossy(pattern.text()).into_owned();
                format!("~ {text}: {}", if matches { "matches" } else { "does not match" })
            });
            if matches {
                let inner = &plan.loc(*location).inner;
                if !inner.is_empty()
                    && let Some((deeper, _)) = within(plan, inner, path, r)?
                {
                    return Ok(Some((deeper, true)));
                }
                return Ok(Some((Route::Location(*location), true)));
            }
        }
        for (predicate, location) in &tree.predicates {
            if is_selected(plan, r, predicate, *location, path) {
                let inner = &plan.loc(*location).inner;
                if !inner.is_empty()
                    && let Some((deeper, _)) = within(plan, inner, path, r)?
                {
                    return Ok(Some((deeper, true)));
                }
                return Ok(Some((Route::Location(*location), true)));
            }
        }
    }
    Ok(best.map(|(route, _)| (route, false)))
}

/// Returns the index of the server that a listener selects by the request's host: its default server if no name fits.
/// If a regular expression fails, sets `target.undecided`, and [`crate::engine::start_phases`] responds with 500.
pub fn server_for(listener: &Listener, r: &mut Request) -> usize {
    if listener.names.is_empty() {
        return listener.default_server;
    }
    let host = std::mem::take(&mut r.target.host);
    let found = listener.names.find(&host, r);
    r.target.host = host;
    // After a failed match of a regular expression the request ends with 500 instead of another server's response.
    r.target.undecided = found.is_err();
    found.ok().flatten().unwrap_or(listener.default_server)
}
