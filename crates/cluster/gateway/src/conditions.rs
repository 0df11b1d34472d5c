//! Conditions, with the types and reasons of Gateway API's Go types (`apis/v1`).

use serde::Serialize;

/// Condition of an object, as `metav1.Condition` without its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// Reason and message of something that is not in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub reason: &'static str,
    pub message: String,
}

impl Fault {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Fault {
        Fault { reason, message: message.into() }
    }
}

impl Condition {
    /// Returns a condition that holds.
    pub(crate) fn good(r#type: &'static str, reason: &'static str, generation: i64) -> Condition {
        Condition {
            r#type,
            status: ConditionStatus::True,
            reason,
            message: String::new(),
            observed_generation: generation,
        }
    }

    /// Returns a condition that holds with a message, for conditions whose truth is bad news.
    pub(crate) fn raised(r#type: &'static str, fault: &Fault, generation: i64) -> Condition {
        let Fault { reason, message } = fault.clone();
        Condition { r#type, status: ConditionStatus::True, reason, message, observed_generation: generation }
    }

    /// Returns a condition that does not hold.
    pub(crate) fn bad(r#type: &'static str, fault: &Fault, generation: i64) -> Condition {
        Condition { status: ConditionStatus::False, ..Condition::raised(r#type, fault, generation) }
    }

    /// Returns a condition that holds with this reason, unless there is a fault.
    pub(crate) fn of(r#type: &'static str, good: &'static str, fault: Option<&Fault>, generation: i64) -> Condition {
        match fault {
            None => Condition::good(r#type, good, generation),
            Some(fault) => Condition::bad(r#type, fault, generation),
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}
