//! The PROXY protocol, versions 1 and 2, as a sans-io core.
