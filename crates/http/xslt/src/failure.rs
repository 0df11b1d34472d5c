//! Errors of a transformation, and its end by `xsl:message terminate`.

/// End of a transformation.
#[derive(Clone, Debug)]
pub(crate) enum TransformFailure {
    Error(String),
    /// `xsl:message terminate="yes"`.
    Terminated,
}

pub(crate) type RunResult<T> = Result<T, TransformFailure>;

/// Message of work whose result has no receiver any more.
pub(crate) const UNWANTED: &str = "the result is not wanted any more";

pub(crate) fn failed<T>(message: impl Into<String>) -> RunResult<T> {
    Err(TransformFailure::Error(message.into()))
}
