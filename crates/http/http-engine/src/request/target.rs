//! The requested resource: method, host, path and arguments, as currently in effect.

use crate::path::CanonicalPath;
use http_types::{Method, Version};
use variables::regex::Captures;

/// The requested resource, which rewrites and internal redirects change.
#[derive(Default)]
pub struct Target {
    /// Effective method: error pages change it to GET.
    pub method: Method,
    /// Protocol version of the request.
    pub version: Version,
    /// `$host`, if the request has one: validated, lower case, without port.
    pub host: Vec<u8>,
    /// `$request_port`
    pub host_port: Option<u16>,
    /// `$uri`, and the query (`$args`).
    pub path: CanonicalPath,
    /// The query without `?`.
    pub args: Vec<u8>,
    /// There is a query, possibly empty: `$args` has a value.
    pub args_given: bool,
    /// The path was rewritten or differs from the request line: `$request_uri` must not be passed on.
    pub path_changed: bool,
    /// A rewrite with `break` changed the path within the location, whose name the path no longer starts with.
    pub left_location: bool,
    /// A rewrite changed the path: locations are matched again at the end of the phase.
    pub match_again: bool,
    /// The host's server could not be determined: the request ends with 500.
    pub undecided: bool,
    /// `try_files` found a file below an `alias` that replaces the whole URI.
    pub append_to_alias: bool,
    /// Captures of the last regular expression that matched.
    pub captures: Captures,
}

impl Target {
    pub(super) fn reset(&mut self) {
        let Target { host, path, args, captures, .. } = std::mem::take(self);
        (self.host, self.path, self.args, self.captures) = (host, path, args, captures);
        self.path.clear();
        self.captures.clear();
        self.host.clear();
        self.args.clear();
    }
}
