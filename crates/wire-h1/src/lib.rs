//! HTTP/1.x as a sans-io core, both roles: bytes to heads and bodies and back.
