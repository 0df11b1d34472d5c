//! SecLang's compiler: files to a [`RuleSet`].

mod actions;
mod settings;
mod targets;
mod text;

use crate::failure::{Place, Refusal, RuleError, RuleWarning, nearest};
use crate::operator::{OperatorContext, make_operator};
use crate::rule::{Condition, DefaultAction, Disruption, Link, Rule, Step, Target, TargetSelector};
use crate::screen::ScreenBuilder;
use crate::set::{RuleSet, Settings};
use crate::source::{RuleFiles, RuleText};
use crate::template::Template;
use crate::transform::{ChainTree, Transformation};
use crate::variable::Variable;
use actions::{ActionList, parse_actions, parse_ids};
use hashbrown::HashMap;
use std::sync::Arc;
use targets::parse_targets;
use text::{Directive, Word, directives};

/// Files within files.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Transformations of a rule.
const TRANSFORMATIONS_MAX: usize = 32;
/// Rules of a set, with the links of chains.
const RULES_MAX: usize = 100_000;

/// A rule before the updates of later directives.
struct RuleDraft {
    rule: Rule,
    /// Transformations of each link.
    transformations: Vec<Vec<Transformation>>,
    place: Place,
}

enum Entry {
    Rule(Box<RuleDraft>),
    Marker(Arc<str>),
}

/// The rules that a directive means.
enum RuleChoice {
    Ids(u64, u64),
    Tag(String),
    Message(String),
}

impl RuleChoice {
    fn chooses(&self, rule: &Rule) -> bool {
        match self {
            RuleChoice::Ids(first, last) => (*first..=*last).contains(&rule.id),
            RuleChoice::Tag(tag) => rule.has_tag(tag),
            RuleChoice::Message(message) => rule.has_message(message),
        }
    }
}

/// A change of rules, made when all files are read.
enum RuleUpdate {
    Remove(RuleChoice),
    Targets(RuleChoice, Vec<Target>, Vec<Target>),
    Actions(u64, usize, Box<ActionList>),
}

struct Compiler<'c> {
    files: &'c dyn RuleFiles,
    settings: Settings,
    entries: Vec<Entry>,
    /// Links so far.
    links: usize,
    defaults: [DefaultAction; 5],
    warnings: Vec<RuleWarning>,
    updates: Vec<RuleUpdate>,
    ids: HashMap<u64, Place>,
    /// The position of the last rule, if it ends with `chain`.
    open_chain: Option<Place>,
    file: Arc<str>,
}

impl RuleSet {
    /// Compiles rules in the order of `texts`. Returns warnings about directives that are accepted but not honoured
    /// in full. Fails at the first rule that cannot be honoured.
    ///
    /// A location that inherits rules compiles its parents' texts before its own.
    pub fn compile(texts: &[RuleText], files: &dyn RuleFiles) -> Result<(Arc<RuleSet>, Vec<RuleWarning>), RuleError> {
        compile(texts, files).map(|(set, warnings)| (Arc::new(set), warnings))
    }
}

/// Compiles files in order.
fn compile(texts: &[RuleText], files: &dyn RuleFiles) -> Result<(RuleSet, Vec<RuleWarning>), RuleError> {
    let mut compiler = Compiler {
        files,
        settings: Settings::default(),
        entries: Vec::new(),
        links: 0,
        defaults: Default::default(),
        warnings: Vec::new(),
        updates: Vec::new(),
        ids: HashMap::new(),
        open_chain: None,
        file: Arc::from(""),
    };
    for text in texts {
        compiler.file(text, 0)?;
    }
    compiler.finish()
}

impl Compiler<'_> {
    fn file(&mut self, text: &RuleText, depth: usize) -> Result<(), RuleError> {
        let outer = std::mem::replace(&mut self.file, text.name.clone());
        for directive in directives(&text.name, &text.text)? {
            self.directive(&directive, depth)?;
        }
        self.file = outer;
        Ok(())
    }

    fn directive(&mut self, directive: &Directive, depth: usize) -> Result<(), RuleError> {
        let file = self.file.clone();
        let words = directive.words().map_err(|refusal| directive.error(&file, 0, refusal))?;
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        let fail = |(word, refusal): (usize, Refusal)| directive.error(&file, word, refusal);
        if name.text.eq_ignore_ascii_case("Include") {
            return self.include(arguments, name.start, depth).map_err(|error| match error {
                Ok(error) => error,
                Err(refused) => fail(refused),
            });
        }
        if let Some(place) = &self.open_chain
            && !name.text.eq_ignore_ascii_case("SecRule")
            && !name.text.eq_ignore_ascii_case("SecAction")
        {
            let refusal = Refusal::new(format!("{} follows a rule with \"chain\" ({place})", name.text));
            return Err(fail((name.start, refusal.suggest("a chain continues with SecRule"))));
        }
        self.dispatch(directive, name, arguments).map_err(fail)
    }

    /// Fails with an error of an included file, or with a refusal at a word.
    fn include(
        &mut self,
        arguments: &[Word],
        start: usize,
        depth: usize,
    ) -> Result<(), Result<RuleError, (usize, Refusal)>> {
        let [pattern] = arguments else {
            return Err(Err((start, Refusal::new("Include needs one file or pattern"))));
        };
        if depth >= INCLUDE_DEPTH_MAX {
            let words = format!("files include each other, or more than {INCLUDE_DEPTH_MAX} deep");
            return Err(Err((pattern.start, Refusal::new(words))));
        }
        let texts = self.files.include(&pattern.text, &self.file);
        let texts = texts.and_then(|texts| match texts.is_empty() {
            true => Err("no file has such a name".to_string()),
            false => Ok(texts),
        });
        let texts = texts.map_err(|reason| {
            let refusal = Refusal::new(format!("cannot include \"{}\": {reason}", pattern.text));
            Err((pattern.start, refusal.suggest("a relative name is looked up beside the including file")))
        })?;
        texts.iter().try_for_each(|text| self.file(text, depth + 1)).map_err(Ok)
    }

    fn dispatch(&mut self, directive: &Directive, name: &Word, arguments: &[Word]) -> Result<(), (usize, Refusal)> {
        let lower = name.text.to_ascii_lowercase();
        let misused = |words: &str| (name.start, Refusal::new(format!("{} {words}", name.text)));
        match lower.as_str() {
            "secrule" => match arguments {
                [targets, operator] => self.rule(directive, Some((targets, operator)), None),
                [targets, operator, actions] => self.rule(directive, Some((targets, operator)), Some(actions)),
                [_] => Err(misused("needs variables, an operator and actions")),
                [.., extra] => {
                    let refusal = Refusal::new("SecRule has more than variables, an operator and actions");
                    Err((extra.start, refusal.suggest("quote the operator and the actions")))
                }
                [] => Err(misused("needs variables, an operator and actions")),
            },
            "secaction" => match arguments {
                [actions] => self.rule(directive, None, Some(actions)),
                _ => Err(misused("needs a list of actions")),
            },
            "secmarker" => match arguments {
                [marker] => {
                    self.entries.push(Entry::Marker(marker.text.as_str().into()));
                    Ok(())
                }
                _ => Err(misused("needs a name")),
            },
            "secdefaultaction" => match arguments {
                [actions] => self.default_action(actions),
                _ => Err(misused("needs a list of actions")),
            },
            "secruleremovebyid" => {
                if arguments.is_empty() {
                    return Err(misused("needs ids of rules"));
                }
                for word in arguments {
                    for part in word.text.split([',', ' ']).filter(|part| !part.is_empty()) {
                        let (first, last) = parse_ids(part).map_err(|refusal| (word.start, refusal))?;
                        self.updates.push(RuleUpdate::Remove(RuleChoice::Ids(first, last)));
                    }
                }
                Ok(())
            }
            "secruleremovebytag" | "secruleremovebymsg" => match arguments {
                [text] if lower.ends_with("tag") => {
                    self.updates.push(RuleUpdate::Remove(RuleChoice::Tag(text.text.clone())));
                    Ok(())
                }
                [text] => {
                    self.updates.push(RuleUpdate::Remove(RuleChoice::Message(text.text.clone())));
                    Ok(())
                }
                _ => Err(misused("needs one text")),
            },
            "secruleupdatetargetbyid" | "secruleupdatetargetbytag" | "secruleupdatetargetbymsg" => match arguments {
                [choice, targets] => {
                    let chosen = match lower.as_str() {
                        "secruleupdatetargetbyid" => {
                            let (first, last) = parse_ids(&choice.text).map_err(|refusal| (choice.start, refusal))?;
                            RuleChoice::Ids(first, last)
                        }
                        "secruleupdatetargetbytag" => RuleChoice::Tag(choice.text.clone()),
                        _ => RuleChoice::Message(choice.text.clone()),
                    };
                    let commas = targets.text.replace(",!", "|!");
                    let (added, excluded) = parse_targets(&commas, &[]).map_err(|refusal| (targets.start, refusal))?;
                    self.updates.push(RuleUpdate::Targets(chosen, added, excluded));
                    Ok(())
                }
                [_, _, third] => {
                    let refusal = Refusal::new("a replaced variable is not supported, as in ModSecurity v3");
                    Err((third.start, refusal.suggest("exclude the variable with \"!\" and add the new one")))
                }
                _ => Err(misused("needs rules and variables")),
            },
            "secruleupdateactionbyid" => match arguments {
                [id, actions] => self.update_actions(id, actions),
                _ => Err(misused("needs an id and actions")),
            },
            _ => self.setting(directive, name, arguments),
        }
    }

    /// Adds a rule, or a link to the open chain.
    fn rule(
        &mut self,
        directive: &Directive,
        tested: Option<(&Word, &Word)>,
        actions: Option<&Word>,
    ) -> Result<(), (usize, Refusal)> {
        let start = actions.map_or_else(|| tested.map_or(0, |(targets, _)| targets.start), |word| word.start);
        let list = match actions {
            Some(word) => parse_actions(&word.text).map_err(|refusal| (word.start, refusal))?,
            None => ActionList::default(),
        };
        if list.transformations.len() > TRANSFORMATIONS_MAX {
            let words = format!("more than {TRANSFORMATIONS_MAX} transformations");
            return Err((start, Refusal::new(words)));
        }
        self.links += 1;
        if self.links > RULES_MAX {
            return Err((0, Refusal::new(format!("more than {RULES_MAX} rules"))));
        }
        let (mut targets, mut exclusions, mut condition) = (Vec::new(), Vec::new(), None);
        if let Some((words, operator)) = tested {
            (targets, exclusions) =
                parse_targets(&words.text, &list.namespaces).map_err(|refusal| (words.start, refusal))?;
            if targets.is_empty() {
                return Err((words.start, Refusal::new("a rule needs a variable besides exclusions")));
            }
            condition = Some(self.condition(operator).map_err(|refusal| (operator.start, refusal))?);
        }
        let place = directive.place(&self.file, 0);
        let mut link = Link {
            targets,
            exclusions,
            condition,
            chain_node: 0,
            screen: None,
            multi_match: false,
            captures: false,
            changes: Vec::new(),
            effects: Vec::new(),
            labels: Default::default(),
            line: directive.line(),
            ignores_default_chain: list.ignores_default_chain,
            logs: None,
            audits: None,
        };
        let continues = list.chained;
        if let Some(Entry::Rule(draft)) = self.entries.last_mut().filter(|_| self.open_chain.is_some()) {
            let misplaced = [
                ("id", list.id.is_some()),
                (
                    "a disruptive action",
                    matches!(&list.disruption, Some(found) if !matches!(found, Disruption::Pass | Disruption::Block)),
                ),
                ("skip", list.skip > 0),
                ("skipAfter", list.skip_after.is_some()),
                ("phase", list.phase.is_some_and(|phase| phase != draft.rule.phase)),
            ];
            if let Some((words, _)) = misplaced.iter().find(|(_, is_used)| *is_used) {
                let refusal = Refusal::new(format!("{words} belongs to the first rule of a chain"));
                return Err((start, refusal));
            }
            draft.transformations.push(list.transformations.clone());
            list.update(&mut link);
            draft.rule.links.push(link);
        } else {
            let id = list.id.ok_or_else(|| {
                (
                    start,
                    Refusal::new("a rule needs an id")
                        .suggest("add id:NUMBER to the actions; no other rule may have it"),
                )
            })?;
            if let Some(first) = self.ids.insert(id, place.clone()) {
                return Err((start, Refusal::new(format!("the rule at {first} has the id {id} as well"))));
            }
            let mut rule = Rule {
                id,
                phase: list.phase.unwrap_or(2),
                file: self.file.clone(),
                links: Vec::new(),
                disruption: list.disruption.clone(),
                status: list.status,
                skip: list.skip,
                skip_after: list.skip_after.clone(),
                tag_texts: list.tag_texts.clone(),
                message_text: list.message_text.clone(),
            };
            let transformations = vec![list.transformations.clone()];
            list.update(&mut link);
            rule.links.push(link);
            self.entries.push(Entry::Rule(Box::new(RuleDraft { rule, transformations, place: place.clone() })));
        }
        self.open_chain = continues.then_some(place);
        Ok(())
    }

    fn condition(&self, word: &Word) -> Result<Condition, Refusal> {
        let text = word.text.as_str();
        let trimmed = text.trim_start();
        let (negated, rest) = match trimmed.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, trimmed),
        };
        let offset = text.len() - rest.len();
        let (name, parameter) = match rest.strip_prefix('@') {
            // The pattern of an operator-less rule is taken as written.
            None => ("rx", if negated { rest } else { text }),
            Some(called) => {
                let end = called.find(|c: char| c.is_ascii_whitespace()).unwrap_or(called.len());
                let (name, parameter) = called.split_at(end);
                (name, parameter.trim_start())
            }
        };
        let parameter = if name.eq_ignore_ascii_case("rx") { parameter } else { parameter.trim_end() };
        let parameter_offset = text.len() - parameter.len();
        let is_text = |name: &str| matches!(name.to_ascii_lowercase().as_str(), "pm" | "pmf" | "pmfromfile");
        let template = match is_text(name) {
            true => Template::literal(parameter.as_bytes()),
            false => Template::parse(parameter.as_bytes()).map_err(|refusal| refusal.at(parameter_offset))?,
        };
        let cx = OperatorContext { files: self.files, file: &self.file, match_steps: self.settings.match_steps };
        let (operator, shown) = make_operator(name, parameter, &template, &cx)
            .map_err(|refusal| refusal.at(if rest.starts_with('@') { parameter_offset } else { offset }))?;
        Ok(Condition { negated, operator, name: shown, parameter: template })
    }

    fn default_action(&mut self, word: &Word) -> Result<(), (usize, Refusal)> {
        let list = parse_actions(&word.text).map_err(|refusal| (word.start, refusal))?;
        let refused = |words: &str| Err((word.start, Refusal::new(format!("SecDefaultAction {words}"))));
        let Some(phase) = list.phase else { return refused("needs a phase") };
        if matches!(list.disruption, Some(Disruption::Block)) {
            return refused("defines what block does, and cannot block itself");
        }
        if list.id.is_some() || list.chained || !list.changes.is_empty() {
            return refused("cannot have id, chain or setvar");
        }
        if let Some(slot) = self.defaults.get_mut(usize::from(phase) - 1) {
            *slot = DefaultAction {
                disruption: list.disruption,
                status: list.status,
                logs: list.logs,
                audits: list.audits,
                effects: list.effects,
                chain: list.transformations,
            };
        }
        Ok(())
    }

    /// `SecRuleUpdateActionById ID[:OFFSET] ACTIONS`.
    fn update_actions(&mut self, id: &Word, actions: &Word) -> Result<(), (usize, Refusal)> {
        let (number, offset) = id.text.split_once(':').unwrap_or((&id.text, "0"));
        let (Ok(number), Ok(offset)) = (number.parse(), offset.parse()) else {
            return Err((id.start, Refusal::new(format!("\"{}\" is no id of a rule", id.text))));
        };
        let list = parse_actions(&actions.text).map_err(|refusal| (actions.start, refusal))?;
        if list.id.is_some() || list.phase.is_some() || list.chained {
            let refusal = Refusal::new("id, phase and chain of a rule cannot be changed");
            return Err((actions.start, refusal));
        }
        self.updates.push(RuleUpdate::Actions(number, offset, Box::new(list)));
        Ok(())
    }

    fn warn(&mut self, directive: &Directive, word: usize, reason: impl Into<String>) {
        let place = directive.place(&self.file, word);
        self.warnings.push(RuleWarning { place, reason: reason.into() });
    }

    fn unknown(&self, name: &Word) -> (usize, Refusal) {
        let refusal = Refusal::new(format!("unknown directive \"{}\"", name.text));
        let refusal = match nearest(&name.text, settings::directive_names()) {
            Some(known) => refusal.suggest(format!("did you mean {known}?")),
            None => refusal,
        };
        (name.start, refusal)
    }

    fn apply_updates(&mut self) {
        for update in std::mem::take(&mut self.updates) {
            match update {
                RuleUpdate::Remove(choice) => {
                    self.entries.retain(|entry| !matches!(entry, Entry::Rule(draft) if choice.chooses(&draft.rule)));
                }
                RuleUpdate::Targets(choice, added, excluded) => {
                    let drafts = self.entries.iter_mut().filter_map(|entry| match entry {
                        Entry::Rule(draft) if choice.chooses(&draft.rule) => Some(draft),
                        _ => None,
                    });
                    for draft in drafts {
                        if let Some(head) = draft.rule.links.first_mut().filter(|head| head.condition.is_some()) {
                            head.targets.extend(added.iter().cloned());
                            head.exclusions.extend(excluded.iter().cloned());
                        }
                    }
                }
                RuleUpdate::Actions(id, offset, list) => {
                    let draft = self.entries.iter_mut().find_map(|entry| match entry {
                        Entry::Rule(draft) if draft.rule.id == id => Some(draft),
                        _ => None,
                    });
                    if let Some(draft) = draft {
                        update_draft(draft, offset, *list);
                    }
                }
            }
        }
    }

    fn finish(mut self) -> Result<(RuleSet, Vec<RuleWarning>), RuleError> {
        if let Some(place) = self.open_chain.take() {
            let reason = "the rule ends with \"chain\", and no rule follows".to_string();
            return Err(RuleError { place, reason, suggestion: Some("remove chain, or add the next rule".into()) });
        }
        self.apply_updates();
        self.check_markers()?;
        let mut chains = ChainTree::default();
        let mut screens = ScreenBuilder::default();
        let mut phases: [Vec<Step>; 5] = Default::default();
        let mut xml_paths: Vec<Arc<crate::body::xml::XmlPath>> = Vec::new();
        let mut uses_full_request = false;
        for entry in self.entries {
            let mut draft = match entry {
                Entry::Marker(name) => {
                    phases.iter_mut().for_each(|steps| steps.push(Step::Marker(name.clone())));
                    continue;
                }
                Entry::Rule(draft) => draft,
            };
            let phase = usize::from(draft.rule.phase) - 1;
            for (link, own) in draft.rule.links.iter_mut().zip(&draft.transformations) {
                let default = self.defaults.get(phase).filter(|_| !link.ignores_default_chain);
                let inherited = default.map(|default| default.chain.as_slice()).unwrap_or_default();
                link.chain_node = chains.sequence(&[inherited, own].concat());
                for target in link.targets.iter_mut().chain(&mut link.exclusions) {
                    uses_full_request |= matches!(target.variable, Variable::FullRequest | Variable::FullRequestLength);
                    if let TargetSelector::Path(path) = &mut target.selector {
                        match xml_paths.iter().find(|known| *known == path) {
                            Some(known) => *path = known.clone(),
                            None => xml_paths.push(path.clone()),
                        }
                    }
                }
                link.screen = screens.place(link);
            }
            if let Some(steps) = phases.get_mut(phase) {
                steps.push(Step::Rule(Arc::new(draft.rule)));
            }
        }
        let set = RuleSet {
            settings: self.settings,
            phases,
            defaults: self.defaults,
            chains,
            screens: screens.finish(),
            xml_paths,
            uses_full_request,
        };
        Ok((set, self.warnings))
    }

    /// A `skipAfter` without its marker would skip all remaining rules of the phase.
    fn check_markers(&self) -> Result<(), RuleError> {
        for (index, entry) in self.entries.iter().enumerate() {
            let Entry::Rule(draft) = entry else { continue };
            let Some(name) = &draft.rule.skip_after else { continue };
            let later = self.entries.iter().skip(index + 1);
            let is_end = |entry: &Entry| match entry {
                Entry::Marker(marker) => marker == name,
                Entry::Rule(_) => false,
            };
            if !later.into_iter().any(is_end) {
                let reason = format!("skipAfter:{name} has no SecMarker \"{name}\" behind the rule");
                let suggestion =
                    Some(format!("add SecMarker \"{name}\"; without it all remaining rules of the phase are skipped"));
                return Err(RuleError { place: draft.place.clone(), reason, suggestion });
            }
        }
        Ok(())
    }
}

fn update_draft(draft: &mut RuleDraft, offset: usize, list: ActionList) {
    if offset == 0 {
        let rule = &mut draft.rule;
        rule.disruption = list.disruption.clone().or(rule.disruption.take());
        rule.status = list.status.or(rule.status);
        rule.skip = if list.skip > 0 { list.skip } else { rule.skip };
        rule.skip_after = list.skip_after.clone().or(rule.skip_after.take());
        rule.tag_texts.extend(list.tag_texts.iter().cloned());
        rule.message_text = list.message_text.clone().or(rule.message_text.take());
    }
    if let Some(own) = draft.transformations.get_mut(offset) {
        if list.ignores_default_chain {
            own.clear();
        }
        own.extend(&list.transformations);
    }
    if let Some(link) = draft.rule.links.get_mut(offset) {
        link.ignores_default_chain |= list.ignores_default_chain;
        list.update(link);
    }
}

#[cfg(test)]
mod tests;
