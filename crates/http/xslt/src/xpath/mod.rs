//! XPath 1.0 (W3C Recommendation of 16 November 1999): expressions and patterns, their parser, and values. `crate::evaluation` evaluates.

pub(crate) mod ast;
pub(crate) mod axes;
pub(crate) mod functions;
pub(crate) mod lex;
pub(crate) mod number;
pub(crate) mod parse;
pub(crate) mod pattern;

use crate::store::NodeRef;

/// Value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum XPathValue {
    /// In document order, without duplicates.
    Nodes(Vec<NodeRef>),
    Number(f64),
    Text(String),
    Bool(bool),
    /// Result tree fragment (XSLT 1.0, section 11.1): its document.
    Fragment(NodeRef),
}
