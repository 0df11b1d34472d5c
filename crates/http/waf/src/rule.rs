//! Compiled rules: targets, operator, actions.

use crate::operator::{Operator, Pattern};
use crate::store::LastingCollection;
use crate::template::Template;
use crate::variable::Variable;
use std::sync::Arc;

/// The elements of a collection that a target means.
#[derive(Clone, Debug)]
pub(crate) enum TargetSelector {
    All,
    /// A name in lower case.
    Name(Arc<[u8]>),
    /// A name with macros.
    Macro(Template),
    Pattern(Arc<Pattern>),
    /// An XPath expression of `XML`, with the rule's `xmlns`.
    Path(Arc<crate::body::xml::XmlPath>),
}

/// A variable of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub variable: Variable,
    pub selector: TargetSelector,
    /// `&`: the number of values instead of the values.
    pub counts: bool,
    /// As written, for exclusions of a whole variable.
    pub text: Arc<str>,
}

impl Target {
    /// Returns whether the target, as an exclusion, covers an element of `variable` by the name `element` (any case).
    pub fn covers(&self, variable: Variable, element: Option<&[u8]>) -> bool {
        if self.variable != variable {
            return false;
        }
        match (&self.selector, element) {
            (TargetSelector::All, _) => true,
            (TargetSelector::Name(name), Some(element)) => name.eq_ignore_ascii_case(element),
            (TargetSelector::Pattern(pattern), Some(element)) => pattern.is_match(element) == Ok(true),
            _ => false,
        }
    }
}

/// A rule's operator with its parameter.
#[derive(Debug)]
pub(crate) struct Condition {
    pub negated: bool,
    pub operator: Operator,
    /// The operator's name as messages show it.
    pub name: &'static str,
    pub parameter: Template,
}

/// The change of a variable by `setvar`.
#[derive(Clone, Debug)]
pub(crate) enum VariableChange {
    Set(Template),
    Add(Template),
    Subtract(Template),
    Remove,
}

/// A variable that rules can change: one of `TX` or of a lasting collection.
#[derive(Clone, Debug)]
pub(crate) struct VariablePlace {
    /// `None` for `TX`.
    pub lasting: Option<LastingCollection>,
    pub name: Template,
}

/// The body's reader, by `ctl:requestBodyProcessor` or the content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyProcessor {
    Urlencoded,
    Multipart,
    Json,
    Xml,
}

/// `SecRuleEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EngineState {
    On,
    /// Rules are evaluated and logged; disruptive actions are left out.
    DetectionOnly,
    #[default]
    Off,
}

/// `SecAuditEngine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AuditState {
    On,
    #[default]
    Off,
    /// Transactions with a match to be logged, or with a status that `SecAuditLogRelevantStatus` matches.
    RelevantOnly,
}

/// A setting of the transaction, by `ctl`.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    RuleEngine(EngineState),
    AuditEngine(AuditState),
    AddAuditParts(Box<str>),
    RemoveAuditParts(Box<str>),
    SetAuditParts(Box<str>),
    RequestBodyAccess(bool),
    ResponseBodyAccess(bool),
    RequestBodyProcessor(BodyProcessor),
    ForceRequestBodyVariable(bool),
    RemoveById(u64, u64),
    RemoveByTag(Box<str>),
    RemoveByMessage(Box<str>),
    RemoveTargetById(u64, u64, Box<Target>),
    RemoveTargetByTag(Box<str>, Box<Target>),
    RemoveTargetByMessage(Box<str>, Box<Target>),
}

/// Actions of a match that are neither disruptive nor about the log.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Control(Control),
    SetEnvironment(Box<str>, Template),
    /// `initcol`, and `setuid`, `setsid`, `setrsc`.
    SelectCollection(LastingCollection, Template),
    ExpireVariable(VariablePlace, Template),
    /// `deprecatevar`: subtracts the first number for every so many seconds.
    DeprecateVariable(VariablePlace, i64, i64),
}

/// How far `allow` reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowReach {
    Phase,
    Request,
    Transaction,
}

/// The action that decides about the request.
#[derive(Clone, Debug)]
pub(crate) enum Disruption {
    Pass,
    /// The disruptive action of `SecDefaultAction`.
    Block,
    Deny,
    Drop,
    Allow(AllowReach),
    Redirect(Template),
}

/// The facts of a rule that only messages need.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleLabels {
    pub message: Option<Template>,
    pub data: Option<Template>,
    pub tags: Vec<Template>,
    pub revision: Box<str>,
    pub version: Box<str>,
    pub maturity: u32,
    pub accuracy: u32,
    pub severity: Option<u8>,
}

/// A rule without its chain: a chain is a list of links, of which the first carries the id and the disruptive action.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub targets: Vec<Target>,
    pub exclusions: Vec<Target>,
    /// `None` for `SecAction`, which always matches.
    pub condition: Option<Arc<Condition>>,
    /// The node of the transformations in the set's tree.
    pub chain_node: u32,
    /// The link's place in the screen of its layer.
    pub screen: Option<Arc<crate::screen::ScreenPlace>>,
    /// A screen was asked for a place since the targets and transformations changed; without a place the link is always
    /// evaluated.
    pub has_asked_screen: bool,
    pub multi_match: bool,
    pub captures: bool,
    pub changes: Vec<(VariablePlace, VariableChange)>,
    pub effects: Vec<Effect>,
    pub labels: RuleLabels,
    pub line: u32,
    /// Those of the link itself, without those of `SecDefaultAction`.
    pub transformations: Vec<crate::transform::Transformation>,
    /// `t:none` among the transformations: those of `SecDefaultAction` do not count.
    pub ignores_default_chain: bool,
    pub logs: Option<bool>,
    pub audits: Option<bool>,
}

/// A compiled rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub id: u64,
    pub phase: u8,
    pub place: crate::failure::Place,
    pub links: Vec<Link>,
    pub disruption: Option<Disruption>,
    pub status: Option<u16>,
    pub skip: u32,
    pub skip_after: Option<Arc<str>>,
    /// A tag or message with macros is compared by its text with macros.
    pub tag_texts: Vec<Box<str>>,
    pub message_text: Option<Box<str>>,
}

impl Rule {
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tag_texts.iter().any(|known| &**known == tag)
    }
    pub fn has_message(&self, message: &str) -> bool {
        self.message_text.as_deref() == Some(message)
    }
}

/// An entry of a phase.
#[derive(Debug)]
pub(crate) enum Step {
    Rule(Arc<Rule>),
    Marker,
}

/// `SecDefaultAction` of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct DefaultAction {
    pub disruption: Option<Disruption>,
    pub status: Option<u16>,
    pub logs: Option<bool>,
    pub audits: Option<bool>,
    pub effects: Vec<Effect>,
    pub chain: Vec<crate::transform::Transformation>,
}
