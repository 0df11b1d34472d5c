//! SecLang's compiler: files to a [`RuleSet`].

mod actions;
mod controls;
mod finish;
mod rules;
mod settings;
mod targets;
mod text;
mod updates;

use crate::failure::{Place, Refusal, RuleError, RuleWarning, nearest};
use crate::rule::{DefaultAction, Rule};
use crate::set::{RuleSet, Settings};
use crate::source::{RuleFiles, RuleText};
use controls::parse_ids;
use hashbrown::HashMap;
use std::sync::Arc;
use targets::parse_targets;
use text::{Directive, Word, directives};
pub(crate) use updates::RuleUpdate;
use updates::{RuleChoice, UpdateSource};

/// Files within files.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Transformations of a rule.
const TRANSFORMATIONS_MAX: usize = 32;
/// Rules of a set, with the links of chains.
const RULES_MAX: usize = 100_000;

/// A rule or a marker, in the order of the texts.
#[derive(Clone)]
pub(crate) enum Entry {
    Rule(Arc<Rule>),
    Marker(Arc<str>),
}

struct Compiler<'c> {
    files: &'c dyn RuleFiles,
    /// Rules in front.
    parent: Option<Arc<RuleSet>>,
    settings: Settings,
    entries: Vec<Entry>,
    /// Links so far.
    links: usize,
    defaults: [DefaultAction; 5],
    warnings: Vec<RuleWarning>,
    /// Those of the parents first.
    updates: Vec<Arc<RuleUpdate>>,
    /// Of the updates of these texts.
    update_sources: Vec<UpdateSource>,
    ids: HashMap<u64, Place>,
    /// The position of the last rule, if it ends with `chain`.
    open_chain: Option<Place>,
    file: Arc<str>,
}

impl RuleSet {
    /// Compiles rules in the order of `texts`. Returns warnings about directives that are accepted but not honoured
    /// in full. Fails at the first rule that cannot be honoured.
    pub fn compile(texts: &[RuleText], files: &dyn RuleFiles) -> Result<(Arc<RuleSet>, Vec<RuleWarning>), RuleError> {
        let compiler = Compiler {
            files,
            parent: None,
            settings: Settings::default(),
            entries: Vec::new(),
            links: 0,
            defaults: Default::default(),
            warnings: Vec::new(),
            updates: Vec::new(),
            update_sources: Vec::new(),
            ids: HashMap::new(),
            open_chain: None,
            file: Arc::from(""),
        };
        compiler.compile(texts)
    }

    /// Compiles rules that stand behind those of `parent`, as a location's behind its server's. The set is the one that
    /// [`RuleSet::compile`] makes of both texts; rules of `parent` that `texts` do not change are shared. Warnings are
    /// about `texts` alone.
    pub fn compile_behind(
        parent: &Arc<RuleSet>,
        texts: &[RuleText],
        files: &dyn RuleFiles,
    ) -> Result<(Arc<RuleSet>, Vec<RuleWarning>), RuleError> {
        let compiler = Compiler {
            files,
            settings: parent.settings.clone(),
            entries: parent.parts.entries.clone(),
            links: parent.parts.links,
            defaults: parent.defaults.clone(),
            warnings: Vec::new(),
            updates: parent.parts.updates.clone(),
            update_sources: Vec::new(),
            ids: parent.parts.ids.clone(),
            open_chain: None,
            file: Arc::from(""),
            parent: Some(parent.clone()),
        };
        compiler.compile(texts)
    }
}

impl Compiler<'_> {
    fn compile(mut self, texts: &[RuleText]) -> Result<(Arc<RuleSet>, Vec<RuleWarning>), RuleError> {
        texts.iter().try_for_each(|text| self.file(text, 0))?;
        self.finish().map(|(set, warnings)| (Arc::new(set), warnings))
    }

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
                        let update = RuleUpdate::Remove(RuleChoice::Ids(first, last));
                        self.add_update(directive, name, word, update);
                    }
                }
                Ok(())
            }
            "secruleremovebytag" | "secruleremovebymsg" => match arguments {
                [text] if lower.ends_with("tag") => {
                    let update = RuleUpdate::Remove(RuleChoice::Tag(text.text.clone()));
                    self.add_update(directive, name, text, update);
                    Ok(())
                }
                [text] => {
                    let update = RuleUpdate::Remove(RuleChoice::Message(text.text.clone()));
                    self.add_update(directive, name, text, update);
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
                    self.add_update(directive, name, choice, RuleUpdate::Targets(chosen, added, excluded));
                    Ok(())
                }
                [_, _, third] => {
                    let refusal = Refusal::new("a replaced variable is not supported, as in ModSecurity v3");
                    Err((third.start, refusal.suggest("exclude the variable with \"!\" and add the new one")))
                }
                _ => Err(misused("needs rules and variables")),
            },
            "secruleupdateactionbyid" => match arguments {
                [id, actions] => self.update_actions(directive, name, id, actions),
                _ => Err(misused("needs an id and actions")),
            },
            _ => self.setting(directive, name, arguments),
        }
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
}

#[cfg(test)]
mod tests;
