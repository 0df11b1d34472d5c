//! The features of the http area, one folder each, and their registry.
