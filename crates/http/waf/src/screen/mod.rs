//! A look at each value instead of an evaluation of each rule with it.
//!
//! A value of a request is looked at once: which bytes does it have, and which texts that operators require? The answer is
//! a set of links that could match the value. Links that could match no value of their targets are left out, and the
//! others are evaluated only with the values that they could match. Transformations that leave a value as it is, but for
//! the case of letters, cost nothing: the look does not regard case. The screen never changes a verdict: left-out
//! rules and values could not match.
//!
//! Variables that some rule names together are a family, with one search for the texts of all links of the family.

mod builder;
mod family;
mod recent;

pub(crate) use builder::ScreenBuilder;
pub(crate) use family::{DeadLinks, ScreenFamily, has_bit, join_bits};
pub(crate) use recent::RecentLooks;

use crate::transform::Transformation;
use crate::variable::Variable;

/// The place of a link in a layer.
#[derive(Clone, Debug)]
pub(crate) struct ScreenPlace {
    /// Index in the layers of a [`crate::RuleSet`].
    pub layer: u32,
    /// The link's bit in the sets of its family.
    pub bit: u32,
    /// The entries of the link's targets in the layer, by index of the target; `None` for a target that counts.
    pub entries: Box<[Option<u32>]>,
    /// All targets have values that do not change within a phase: if the link could match none, it is left out.
    pub is_steady: bool,
}

/// Screens of rules that were compiled together.
#[derive(Debug, Default)]
pub(crate) struct ScreenLayer {
    pub families: Vec<ScreenFamily>,
    pub entries: Vec<ScreenEntry>,
}

/// A variable of a family: the forms in which its values are looked at.
#[derive(Debug)]
pub(crate) struct ScreenEntry {
    pub variable: Variable,
    pub family: u32,
    /// Signature bits of which a value has one, if a transformation of [`ScreenEntry::quiet_links`] changes more than its
    /// case.
    pub touched: u64,
    /// Links whose transformations leave some values as they are.
    pub quiet_links: Box<[u64]>,
    /// Links that see the value itself.
    pub root_links: Box<[u64]>,
    /// Transformations, each behind the one whose result it takes.
    pub steps: Vec<EntryStep>,
}

/// A transformation of a variable's values.
#[derive(Debug)]
pub(crate) struct EntryStep {
    /// Index of the transformation before, `None` for the value itself.
    pub parent: Option<u32>,
    pub step: Transformation,
    /// Signature bits of which a value has one, if the transformation changes more than case; `None` if it can change
    /// every value.
    pub touched: Option<u64>,
    /// The transformation leads to one that can change every value, and for which links wait.
    pub is_restless: bool,
    /// Links that see the result.
    pub links: Option<Box<[u64]>>,
}

/// Bytes of a value for which the `touched` of an entry and of a step hold.
pub(crate) const QUIET_BYTES_MIN: usize = 2;

/// Returns the variable that has the same values under the same numbers, of which `variable` has a part.
pub(crate) fn whole_variable(variable: Variable) -> Variable {
    match variable {
        Variable::ArgsGet | Variable::ArgsPost => Variable::Args,
        Variable::ArgsGetNames | Variable::ArgsPostNames => Variable::ArgsNames,
        other => other,
    }
}

/// Returns whether the values of a variable do not change within a phase.
fn is_steady(variable: Variable) -> bool {
    use Variable as V;
    matches!(
        variable,
        V::Args
            | V::ArgsGet
            | V::ArgsGetNames
            | V::ArgsNames
            | V::ArgsPost
            | V::ArgsPostNames
            | V::AuthType
            | V::Files
            | V::FilesNames
            | V::FullRequest
            | V::MultipartFilename
            | V::MultipartName
            | V::MultipartPartHeaders
            | V::PathInfo
            | V::QueryString
            | V::RemoteAddr
            | V::RequestBasename
            | V::RequestBody
            | V::RequestCookies
            | V::RequestCookiesNames
            | V::RequestFilename
            | V::RequestHeaders
            | V::RequestHeadersNames
            | V::RequestLine
            | V::RequestMethod
            | V::RequestProtocol
            | V::RequestUri
            | V::RequestUriRaw
            | V::ResponseBody
            | V::ResponseContentType
            | V::ResponseHeaders
            | V::ResponseHeadersNames
            | V::ResponseProtocol
            | V::ResponseStatus
            | V::ServerName
            | V::StatusLine
            | V::Xml
    )
}
