//! The requested resource: method, host, path and arguments, as currently in effect.

use crate::path::CanonicalPath;
use http_types::{Method, Version};
use variables::regex::Captures;

/// The requested resource, which rewrites and internal redirects change.
#[derive(Default)]
pub struct Target {
    /// Effective method: error pages change it to GET.
    pub(crate) method: Method,
    /// Protocol version of the request.
    pub(crate) version: Version,
    /// `$host`, if the request has one: validated, lower case, without port.
    pub(crate) host: Vec<u8>,
    /// `$request_port`
    pub(crate) host_port: Option<u16>,
    /// `$uri`, and the query (`$args`).
    pub(crate) path: CanonicalPath,
    /// The query without `?`.
    pub(crate) args: Vec<u8>,
    /// There is a query, possibly empty: `$args` has a value.
    pub(crate) args_given: bool,
    /// The path was rewritten or differs from the request line: `$request_uri` must not be passed on.
    pub(crate) path_changed: bool,
    /// A rewrite with `break` changed the path within the location, whose name the path no longer starts with.
    pub(crate) left_location: bool,
    /// A rewrite changed the path: locations are matched again at the end of the phase.
    pub(crate) match_again: bool,
    /// The host's server could not be determined: the request ends with 500.
    pub(crate) undecided: bool,
    /// `try_files` found a file below an `alias` that replaces the whole URI.
    pub(crate) append_to_alias: bool,
    /// Captures of the last regular expression that matched.
    pub(crate) captures: Captures,
}

impl Target {
    /// Returns the effective method: error pages change it to GET.
    #[inline]
    pub fn method(&self) -> Method {
        self.method
    }
    /// Changes the effective method.
    #[inline]
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }
    /// Returns the protocol version of the request.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }
    /// Sets the protocol version that the request is answered in.
    #[inline]
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }
    /// Returns `$host`, validated, in lower case and without port; empty: the request has none.
    #[inline]
    pub fn host(&self) -> &[u8] {
        &self.host
    }
    /// Sets `$host`, which the caller has validated and converted to lower case.
    #[inline]
    pub fn set_host(&mut self, host: Vec<u8>) {
        self.host = host;
    }
    /// Takes `$host` with its memory.
    #[inline]
    pub fn take_host(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.host)
    }
    /// Forgets `$host`, and keeps its memory.
    #[inline]
    pub fn forget_host(&mut self) {
        self.host.clear();
    }
    /// Returns the port that the request names beside its host.
    #[inline]
    pub fn host_port(&self) -> Option<u16> {
        self.host_port
    }
    /// Sets the port beside the host.
    #[inline]
    pub fn set_host_port(&mut self, port: Option<u16>) {
        self.host_port = port;
    }
    /// Returns the path that is in effect (`$uri`).
    #[inline]
    pub fn path(&self) -> &CanonicalPath {
        &self.path
    }
    /// Returns the path to be filled from the request line.
    #[inline]
    pub fn path_mut(&mut self) -> &mut CanonicalPath {
        &mut self.path
    }
    /// Changes the path, within the location or before one is matched. Beyond a rewrite, [`Target::note_path_change`]
    /// follows.
    #[inline]
    pub fn set_path(&mut self, path: CanonicalPath) {
        self.path = path;
    }
    /// Puts another path in place, and returns the present one, which the caller puts back.
    #[inline]
    pub fn swap_path(&mut self, path: CanonicalPath) -> CanonicalPath {
        std::mem::replace(&mut self.path, path)
    }
    /// Returns the query (`$args`) without `?`.
    #[inline]
    pub fn args(&self) -> &[u8] {
        &self.args
    }
    /// Replaces the query. [`Target::note_args`] tells whether there is one if it is empty.
    #[inline]
    pub fn set_args(&mut self, args: Vec<u8>) {
        self.args = args;
    }
    /// Returns the query, to be changed in place.
    #[inline]
    pub fn args_mut(&mut self) -> &mut Vec<u8> {
        &mut self.args
    }
    /// Tells `$args` whether there is a query, possibly an empty one.
    #[inline]
    pub fn note_args(&mut self, is_given: bool) {
        self.args_given = is_given;
    }
    /// Tells whether the path differs from the request line: `$request_uri` must not be passed on.
    #[inline]
    pub fn is_path_changed(&self) -> bool {
        self.path_changed
    }
    /// Notes that the path differs from the request line.
    #[inline]
    pub fn note_path_change(&mut self) {
        self.path_changed = true;
    }
    /// Tells whether a rewrite within the location changed the path, which no longer starts with the location's name.
    #[inline]
    pub fn has_left_location(&self) -> bool {
        self.left_location
    }
    /// Notes that a rewrite within the location changed the path.
    #[inline]
    pub fn leave_location(&mut self) {
        self.left_location = true;
    }
    /// Has locations matched again at the end of the phase: a rewrite changed the path.
    #[inline]
    pub fn request_match(&mut self) {
        self.match_again = true;
    }
    /// Ends a rewrite with `break`: no match follows, and a changed path has left the location.
    #[inline]
    pub fn stay_in_location(&mut self) {
        self.left_location |= std::mem::take(&mut self.match_again);
    }
    /// Notes that `try_files` found a file below an `alias` that replaces the whole URI.
    #[inline]
    pub fn append_to_alias(&mut self) {
        self.append_to_alias = true;
    }
    /// Returns the captures of the last regular expression that matched.
    #[inline]
    pub fn captures(&self) -> &Captures {
        &self.captures
    }
    /// Returns the captures, to be filled or cleared.
    #[inline]
    pub fn captures_mut(&mut self) -> &mut Captures {
        &mut self.captures
    }
    pub(super) fn reset(&mut self) {
        let Target { host, path, args, captures, .. } = std::mem::take(self);
        (self.host, self.path, self.args, self.captures) = (host, path, args, captures);
        self.path.clear();
        self.captures.clear();
        self.host.clear();
        self.args.clear();
    }
}
