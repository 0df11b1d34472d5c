//! The stream area's types of variables and templates. Plans consist of them; sessions of the area are connections and exchanges of datagrams
//! (`session.rs`).

/// The `stream` block.
pub struct StreamArea;

pub type StreamTemplate = variables::Template<StreamArea>;
pub type Builtin = variables::variable::Builtin<StreamArea>;
pub type StreamVariables = variables::variable::VariableTable<StreamArea>;
