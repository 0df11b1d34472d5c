//! Compiled expressions. Names are numbers of the stylesheet's table.

use super::functions::Function;
use crate::names::{ExpandedName, NameId};

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Arithmetic(Operator, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    Union(Vec<Expr>),
    Literal(String),
    Number(f64),
    Variable(ExpandedName),
    Call(Function, Vec<Expr>),
    /// Function of the stylesheet (`func:function`), or one that does not exist.
    CallNamed(ExpandedName, Vec<Expr>),
    /// A name with an undeclared prefix: an error if it is evaluated.
    Unbound(String),
    Path(Box<Path>),
    Filter(Box<Expr>, Vec<Predicate>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub start: PathStart,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum PathStart {
    Context,
    Root,
    Expr(Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub axis: Axis,
    pub test: NodeTest,
    pub predicates: Vec<Predicate>,
}

#[derive(Clone, Debug)]
pub(crate) struct Predicate {
    pub expr: Expr,
    /// Depends on the position or the size of the context.
    pub positional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Namespace,
    Parent,
    Preceding,
    PrecedingSibling,
    SelfNode,
}

impl Axis {
    pub fn is_reverse(self) -> bool {
        matches!(self, Axis::Ancestor | Axis::AncestorOrSelf | Axis::Preceding | Axis::PrecedingSibling)
    }
    pub fn named(name: &str) -> Option<Axis> {
        Some(match name {
            "ancestor" => Axis::Ancestor,
            "ancestor-or-self" => Axis::AncestorOrSelf,
            "attribute" => Axis::Attribute,
            "child" => Axis::Child,
            "descendant" => Axis::Descendant,
            "descendant-or-self" => Axis::DescendantOrSelf,
            "following" => Axis::Following,
            "following-sibling" => Axis::FollowingSibling,
            "namespace" => Axis::Namespace,
            "parent" => Axis::Parent,
            "preceding" => Axis::Preceding,
            "preceding-sibling" => Axis::PrecedingSibling,
            "self" => Axis::SelfNode,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeTest {
    /// `node()`
    Node,
    Text,
    Comment,
    Instruction(Option<NameId>),
    /// `*`
    Any,
    /// `prefix:*`
    InNamespace(NameId),
    Name(ExpandedName),
}

impl Expr {
    /// May depend on the context's position or size, or be a number that is compared with the position.
    pub fn is_positional(&self) -> bool {
        self.may_be_number() || self.uses_position()
    }
    fn may_be_number(&self) -> bool {
        match self {
            Expr::Number(_) | Expr::Arithmetic(..) | Expr::Negate(_) | Expr::Variable(_) | Expr::CallNamed(..) => true,
            Expr::Call(function, _) => function.may_be_number(),
            Expr::Filter(inner, _) => inner.may_be_number(),
            _ => false,
        }
    }
    /// Calls `position()` or `last()` in this context: predicates and later steps have contexts of their own.
    fn uses_position(&self) -> bool {
        match self {
            Expr::Or(parts) | Expr::And(parts) | Expr::Union(parts) => parts.iter().any(Expr::uses_position),
            Expr::Compare(_, a, b) | Expr::Arithmetic(_, a, b) => a.uses_position() || b.uses_position(),
            Expr::Negate(inner) | Expr::Filter(inner, _) => inner.uses_position(),
            Expr::Literal(_) | Expr::Number(_) | Expr::Variable(_) | Expr::Unbound(_) => false,
            Expr::Call(function, parts) => function.uses_position() || parts.iter().any(Expr::uses_position),
            Expr::CallNamed(_, parts) => parts.iter().any(Expr::uses_position),
            Expr::Path(path) => matches!(&path.start, PathStart::Expr(start) if start.uses_position()),
        }
    }
}
