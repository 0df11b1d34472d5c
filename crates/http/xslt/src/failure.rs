//! Ends of transformations other than results.

/// End of a transformation.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Error(String),
    /// `xsl:message terminate="yes"`.
    Terminated,
}

pub(crate) type Run<T> = Result<T, Failure>;

/// Message of work whose result has no receiver any more.
pub(crate) const UNWANTED: &str = "the result is not wanted any more";

pub(crate) fn failed<T>(message: impl Into<String>) -> Run<T> {
    Err(Failure::Error(message.into()))
}
