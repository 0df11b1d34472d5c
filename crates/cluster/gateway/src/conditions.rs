//! Conditions, with the types and reasons of Gateway API's Go types (`apis/v1`).

use serde::Serialize;

/// Condition of an object, as `metav1.Condition` without its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCondition {
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
pub(crate) struct ConditionFault {
    pub reason: &'static str,
    pub message: String,
}

impl ConditionFault {
    pub fn new(reason: &'static str, message: impl Into<String>) -> ConditionFault {
        ConditionFault { reason, message: message.into() }
    }
}

impl ObjectCondition {
    /// Returns a condition that holds.
    pub(crate) fn good(r#type: &'static str, reason: &'static str, generation: i64) -> ObjectCondition {
        ObjectCondition {
            r#type,
            status: ConditionStatus::True,
            reason,
            message: String::new(),
            observed_generation: generation,
        }
    }

    /// Returns a condition that holds with a message, for conditions whose truth is bad news.
    pub(crate) fn raised(r#type: &'static str, fault: &ConditionFault, generation: i64) -> ObjectCondition {
        let ConditionFault { reason, message } = fault.clone();
        ObjectCondition { r#type, status: ConditionStatus::True, reason, message, observed_generation: generation }
    }

    /// Returns a condition that does not hold.
    pub(crate) fn bad(r#type: &'static str, fault: &ConditionFault, generation: i64) -> ObjectCondition {
        ObjectCondition { status: ConditionStatus::False, ..ObjectCondition::raised(r#type, fault, generation) }
    }

    /// Returns a condition that holds with this reason, unless there is a fault.
    pub(crate) fn of(
        r#type: &'static str,
        good: &'static str,
        fault: Option<&ConditionFault>,
        generation: i64,
    ) -> ObjectCondition {
        match fault {
            None => ObjectCondition::good(r#type, good, generation),
            Some(fault) => ObjectCondition::bad(r#type, fault, generation),
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}
