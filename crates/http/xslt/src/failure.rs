//! Ends of transformations other than results.

/// End of a transformation.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Error(String),
    /// `xsl:message terminate="yes"`.
    Terminated,
}

pub(crate) type Run<T> = Result<T, Failure>;

pub(crate) fn failed<T>(message: impl Into<String>) -> Run<T> {
    Err(Failure::Error(message.into()))
}
