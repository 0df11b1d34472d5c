//! Complaints about objects that are left out, in whole or in part.

use std::fmt;

use crate::kinds::Kind;

/// Something that is left out, and the reason. Written on one line: `NAMESPACE/KIND NAME: reason`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// `NAMESPACE/KIND NAME`, `KIND NAME` for objects without a namespace, or the file and number of a document.
    pub subject: String,
    pub reason: String,
}

impl Complaint {
    /// Returns a complaint about an object.
    pub fn about(kind: Kind, namespace: &str, name: &str, reason: impl Into<String>) -> Complaint {
        let subject = match namespace {
            "" => format!("{} {name}", kind.name()),
            _ => format!("{namespace}/{} {name}", kind.name()),
        };
        Complaint { subject, reason: reason.into() }
    }

    /// Returns a complaint about a document of a file that is no object.
    pub fn document(source: &str, number: usize, reason: impl Into<String>) -> Complaint {
        Complaint { subject: format!("{source}, document {number}"), reason: reason.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}: {}", self.subject, self.reason);
        for c in text.chars() {
            if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
