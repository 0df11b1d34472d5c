//! Variables: declared in typed tables, indexed with the configuration, and not looked up by name afterwards.

pub use crate::session::VarId;
use crate::split_clients::Split;
use crate::{AreaTypes, Session, SessionOf, SessionSlot};
use conf_schema::{At, Complaint, ComplaintLevel, Directive, Problem};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// `false` if there is none.
pub type Get<A> = fn(&mut SessionOf<A>, &mut Vec<u8>) -> bool;
/// Getter of a family such as `$arg_NAME`; receives the rest of the name.
pub type GetPrefixed<A> = fn(&mut SessionOf<A>, &str, &mut Vec<u8>) -> bool;

pub trait Compute<A: AreaTypes>: Send + Sync {
    fn get(&self, r: &mut A::Session, out: &mut Vec<u8>) -> bool;
    /// Returns the shares of `split_clients`.
    fn as_split(&self) -> Option<&Split<A>> {
        None
    }
}

pub struct Builtin<A: AreaTypes> {
    /// Ends with `_` for a family.
    pub name: &'static str,
    pub get: BuiltinGet<A>,
    /// Setter for `set $name ...`, if the variable is settable.
    pub set: Option<fn(&mut A::Session, Vec<u8>)>,
    /// `set` and similar directives may replace its value (nginx: `NGX_HTTP_VAR_CHANGEABLE`).
    pub changeable: bool,
    pub doc: &'static str,
}

pub enum BuiltinGet<A: AreaTypes> {
    One(Get<A>),
    Family(GetPrefixed<A>),
}

impl<A: AreaTypes> Builtin<A> {
    pub const fn one(name: &'static str, get: Get<A>, doc: &'static str) -> Self {
        Builtin { name, get: BuiltinGet::One(get), set: None, changeable: false, doc }
    }
    pub const fn family(name: &'static str, get: GetPrefixed<A>, doc: &'static str) -> Self {
        Builtin { name, get: BuiltinGet::Family(get), set: None, changeable: false, doc }
    }
    #[must_use]
    pub const fn changeable(mut self) -> Self {
        self.changeable = true;
        self
    }
    #[must_use]
    pub const fn settable(mut self, set: fn(&mut A::Session, Vec<u8>)) -> Self {
        self.set = Some(set);
        self
    }
}

pub enum VariableSource<A: AreaTypes> {
    /// Referenced and not defined yet.
    Unknown,
    One(Get<A>),
    Family(GetPrefixed<A>, Box<str>),
    /// Stored in the request: `set`, named groups, `auth_request_set`.
    Slot(u32),
    /// A slot with a fallback to the family's value while unset (`set $http_name`).
    SlotOr(u32, GetPrefixed<A>, Box<str>),
    /// A slot with a fallback to a built-in variable (`set $proxy_host`).
    SlotOrOne(u32, Get<A>),
    /// Computed once per request and stored in the slot, unless volatile. A volatile variable has a slot if `set` or a
    /// named group writes it: the written value stands.
    Computed {
        by: Arc<dyn Compute<A>>,
        slot: Option<u32>,
        volatile: bool,
    },
}

pub struct Variable<A: AreaTypes> {
    pub name: Box<str>,
    pub source: VariableSource<A>,
    pub set: Option<fn(&mut A::Session, Vec<u8>)>,
    /// A variable of `set` without a value is empty, and not missing (nginx: `ngx_http_rewrite_var`).
    pub empty_if_unset: bool,
}

/// Variables of a configuration; kept in `Cx`.
pub struct VariableTable<A: AreaTypes> {
    all: Vec<Variable<A>>,
    by_name: HashMap<Box<str>, VarId>,
    first_use: Vec<Option<At>>,
    builtins: HashMap<&'static str, &'static Builtin<A>>,
    slots: u32,
    /// A template uses captures of the last match (`$1`).
    pub groups_used: bool,
}

#[allow(
    clippy::indexing_slicing,
    reason = "only a configuration comes here; `entry` makes the ids, one for each of `all` and `first_use`"
)]
impl<A: AreaTypes> VariableTable<A> {
    pub fn offer(&mut self, rows: &'static [Builtin<A>]) {
        self.builtins.extend(rows.iter().map(|row| (row.name, row)));
    }
    fn entry(&mut self, name: &str, at: Option<At>) -> VarId {
        let name = name.to_ascii_lowercase();
        if let Some(id) = self.by_name.get(name.as_str()) {
            return *id;
        }
        let id = VarId(self.all.len() as u32);
        let name_text = name.as_str().into();
        self.all.push(Variable { name: name_text, source: VariableSource::Unknown, set: None, empty_if_unset: false });
        self.first_use.push(at);
        self.by_name.insert(name.into_boxed_str(), id);
        id
    }
    /// Returns the index of a referenced variable, which may be defined later.
    pub fn read(&mut self, name: &str, at: Option<At>) -> VarId {
        self.entry(name, at)
    }
    fn builtin(&self, name: &str) -> Option<(&'static Builtin<A>, usize)> {
        builtin(&self.builtins, name)
    }
    /// Creates or finds a variable stored in the request (a named group).
    pub fn slot(&mut self, name: &str) -> VarId {
        let id = self.entry(name, None);
        let next = self.slots;
        match &mut self.all[id.0 as usize].source {
            source @ VariableSource::Unknown => *source = VariableSource::Slot(next),
            VariableSource::Computed { slot: slot @ None, .. } => *slot = Some(next),
            _ => return id,
        }
        self.slots += 1;
        id
    }
    /// Creates or finds a named group's variable; fails as [`VariableTable::writable`].
    pub fn group(&mut self, name: &str) -> Result<VarId, Problem> {
        match self.builtin(&name.to_ascii_lowercase()) {
            Some((row, _)) if matches!(row.get, BuiltinGet::One(_)) && !row.changeable && row.set.is_none() => {
                Err(Problem::says(format!("the duplicate \"{name}\" variable"))
                    .hint("this variable is built in and cannot be changed; give the group another name"))
            }
            _ => {
                let id = self.slot(name);
                let variable = &mut self.all[id.0 as usize];
                variable.empty_if_unset = false;
                // The group takes a map's variable over, which has no value without a match (nginx:
                // `ngx_http_regex_compile`).
                if let VariableSource::Computed { slot: Some(slot), .. } = variable.source {
                    variable.source = VariableSource::Slot(slot);
                }
                Ok(id)
            }
        }
    }
    /// Creates or finds a variable for `set`; fails as [`VariableTable::writable`].
    pub fn script(&mut self, name: &str) -> Result<VarId, Problem> {
        let known = self.by_name.get(name.to_ascii_lowercase().as_str());
        let is_new = known.is_none_or(|id| matches!(self.all[id.0 as usize].source, VariableSource::Unknown));
        let id = self.writable(name)?;
        self.all[id.0 as usize].empty_if_unset |= is_new;
        Ok(id)
    }
    /// Creates or finds a variable that directives write. Fails with `the duplicate "name" variable` for other built-in ones.
    pub fn writable(&mut self, name: &str) -> Result<VarId, Problem> {
        let lower = name.to_ascii_lowercase();
        if let Some((row, _)) = self.builtin(&lower)
            && !self
                .by_name
                .get(lower.as_str())
                .is_some_and(|id| matches!(self.all[id.0 as usize].source, VariableSource::Slot(_)))
        {
            if row.set.is_none() && !row.changeable && matches!(row.get, BuiltinGet::One(_)) {
                return Err(Problem::says(format!("the duplicate \"{name}\" variable"))
                    .hint("this variable is built in and cannot be changed; choose another name"));
            }
            if let (Some(set), BuiltinGet::One(get)) = (row.set, &row.get) {
                let id = self.entry(&lower, None);
                self.all[id.0 as usize].source = VariableSource::One(*get);
                self.all[id.0 as usize].set = Some(set);
                return Ok(id);
            }
        }
        Ok(self.slot(&lower))
    }
    /// Defines a computed variable; fails as [`VariableTable::writable`].
    pub fn computed(&mut self, name: &str, by: Arc<dyn Compute<A>>, volatile: bool) -> Result<VarId, Problem> {
        let lower = name.to_ascii_lowercase();
        if let Some((row, _)) = self.builtin(&lower)
            && matches!(row.get, BuiltinGet::One(_))
            && row.set.is_none()
            && !row.changeable
        {
            return Err(Problem::says(format!("the duplicate \"{name}\" variable")));
        }
        let id = self.entry(&lower, None);
        let slot = match &self.all[id.0 as usize].source {
            VariableSource::Slot(slot) => Some(*slot),
            _ if volatile => None,
            _ => {
                self.slots += 1;
                Some(self.slots - 1)
            }
        };
        self.all[id.0 as usize].source = VariableSource::Computed { by, slot, volatile };
        Ok(id)
    }
    /// Resolves built-in variables; unknown ones are errors.
    pub fn finish(mut self) -> (Vec<Variable<A>>, VariableNames<A>, Vec<Complaint>) {
        let mut complaints = Vec::new();
        for index in 0..self.all.len() {
            if let VariableSource::Slot(slot) = self.all[index].source
                && let Some((row, end)) = self.builtin(&self.all[index].name)
            {
                self.all[index].source = match row.get {
                    BuiltinGet::Family(get) => VariableSource::SlotOr(slot, get, self.all[index].name[end..].into()),
                    BuiltinGet::One(get) => VariableSource::SlotOrOne(slot, get),
                };
            }
            if !matches!(self.all[index].source, VariableSource::Unknown) {
                continue;
            }
            let name = self.all[index].name.clone();
            match self.builtin(&name) {
                Some((row, end)) => {
                    self.all[index].source = match row.get {
                        BuiltinGet::One(get) => VariableSource::One(get),
                        BuiltinGet::Family(get) => VariableSource::Family(get, name[end..].into()),
                    };
                    self.all[index].set = row.set;
                }
                None => complaints.push(Complaint {
                    level: ComplaintLevel::Emerg,
                    text: format!("unknown \"{name}\" variable"),
                    span: self.first_use[index].map(|at| at.span),
                    line: 0,
                    hint: match conf_schema::vocabulary::variables::is_of_http(&name) {
                        true => Some("this variable exists in the http block only".into()),
                        false => conf_schema::suggest::nearest_word(&name, self.builtins.keys().copied())
                            .map(|near| format!("did you mean \"${near}\"?")),
                    },
                }),
            }
        }
        (self.all, VariableNames { by_name: self.by_name, builtins: self.builtins }, complaints)
    }
}

/// Finds the row of a name, and the start of its variable part.
fn builtin<A: AreaTypes>(
    rows: &HashMap<&'static str, &'static Builtin<A>>,
    name: &str,
) -> Option<(&'static Builtin<A>, usize)> {
    if let Some(row) = rows.get(name).filter(|r| matches!(r.get, BuiltinGet::One(_))) {
        return Some((row, name.len()));
    }
    name.match_indices('_').map(|(i, _)| i + 1).rev().find_map(|end| {
        let row = rows.get(name.get(..end)?)?;
        matches!(row.get, BuiltinGet::Family(_)).then_some((*row, end))
    })
}

impl<A: AreaTypes> Default for VariableTable<A> {
    fn default() -> Self {
        VariableTable {
            all: Vec::new(),
            by_name: HashMap::new(),
            first_use: Vec::new(),
            builtins: HashMap::new(),
            slots: 0,
            groups_used: false,
        }
    }
}

impl<A: AreaTypes> Default for VariableNames<A> {
    fn default() -> Self {
        VariableNames { by_name: HashMap::new(), builtins: HashMap::new() }
    }
}

/// All names, for lookups at run time (SSI).
pub struct VariableNames<A: AreaTypes> {
    by_name: HashMap<Box<str>, VarId>,
    builtins: HashMap<&'static str, &'static Builtin<A>>,
}

/// Appends the value of an entry of the plan's table, for [`Session::variable`].
#[inline]
pub fn append_value<A: AreaTypes>(s: &mut A::Session, variable: &Variable<A>, out: &mut Vec<u8>) -> bool {
    match &variable.source {
        VariableSource::One(get) => get(s, out),
        VariableSource::Family(get, rest) => get(s, rest, out),
        VariableSource::Slot(slot) => match s.read_slot(*slot, out) {
            Some(found) => found,
            None if variable.empty_if_unset => {
                s.uninitialized(&variable.name);
                s.write_slot(*slot, SessionSlot::Value(Box::default()));
                true
            }
            None => false,
        },
        VariableSource::SlotOr(slot, get, rest) => match s.read_slot(*slot, out) {
            Some(found) => found,
            None => get(s, rest, out),
        },
        VariableSource::SlotOrOne(slot, get) => match s.read_slot(*slot, out) {
            Some(found) => found,
            None => get(s, out),
        },
        VariableSource::Computed { by, slot: None, .. } => compute(s, variable, by, out),
        VariableSource::Computed { by, slot: Some(slot), volatile } => {
            if let Some(found) = s.read_slot(*slot, out) {
                return found;
            }
            if *volatile {
                return compute(s, variable, by, out);
            }
            let start = out.len();
            let found = compute(s, variable, by, out);
            let value = match out.get(start..) {
                Some(value) if found => SessionSlot::of(value),
                _ => SessionSlot::Missing,
            };
            s.write_slot(*slot, value);
            found
        }
        VariableSource::Unknown => false,
    }
}

/// Computed variables that may be nested (nginx: `ngx_http_variable_depth`).
const DEPTH_MAX: u32 = 100;

#[derive(Clone, Copy, Default)]
struct NestingDepth {
    depth: u32,
    /// A cycle was found: the computations that led to it end without another one.
    is_cycle: bool,
}

thread_local! {
    static NESTING: Cell<NestingDepth> = const { Cell::new(NestingDepth { depth: 0, is_cycle: false }) };
}

/// Leaves a computation, also after a panic.
struct NestedEvaluation;

impl Drop for NestedEvaluation {
    fn drop(&mut self) {
        NESTING.with(|nesting| {
            let NestingDepth { depth, is_cycle } = nesting.get();
            nesting.set(NestingDepth { depth: depth - 1, is_cycle: is_cycle && depth > 1 });
        });
    }
}

/// Computes a value, which may use other computed variables. Values that depend on themselves are missing, with an error
/// in the log.
fn compute<A: AreaTypes>(
    s: &mut A::Session,
    variable: &Variable<A>,
    by: &Arc<dyn Compute<A>>,
    out: &mut Vec<u8>,
) -> bool {
    let NestingDepth { depth, is_cycle } = NESTING.get();
    if is_cycle {
        return false;
    }
    let is_cycle = depth >= DEPTH_MAX;
    NESTING.set(NestingDepth { depth: depth + 1, is_cycle });
    let _nested = NestedEvaluation;
    if is_cycle {
        s.log(observe::Severity::Error, format_args!("cycle while evaluating variable \"{}\"", variable.name));
        return false;
    }
    by.get(s, out)
}

impl<A: AreaTypes> Variable<A> {
    pub fn slot(&self) -> Option<u32> {
        match &self.source {
            VariableSource::Slot(slot)
            | VariableSource::SlotOr(slot, ..)
            | VariableSource::SlotOrOne(slot, _)
            | VariableSource::Computed { slot: Some(slot), .. } => Some(*slot),
            _ => None,
        }
    }
}

impl<A: AreaTypes> VariableNames<A> {
    /// Appends the value of the variable with this lower-case name; `false` if there is none.
    pub fn value(&self, s: &mut A::Session, name: &str, out: &mut Vec<u8>) -> bool {
        if let Some(id) = self.by_name.get(name) {
            return s.variable(*id, out);
        }
        match builtin(&self.builtins, name) {
            Some((Builtin { get: BuiltinGet::One(get), .. }, _)) => get(s, out),
            Some((Builtin { get: BuiltinGet::Family(get), .. }, end)) => {
                get(s, name.get(end..).unwrap_or_default(), out)
            }
            None => false,
        }
    }
}

/// Returns the position of a directive, for messages about its variables.
pub fn directive_place(d: &Directive) -> Option<At> {
    Some(At { span: d.span, line: d.line })
}
