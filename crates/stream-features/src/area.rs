//! The stream area's types of variables and templates. Plans consist of them; sessions of the area are connections and exchanges of datagrams
//! (`session.rs`).

/// The `stream` block.
pub struct StreamArea;

pub type StreamTemplate = session_engine::Template<StreamArea>;
pub type Builtin = session_engine::variable::Builtin<StreamArea>;
pub type StreamVariables = session_engine::variable::VariableTable<StreamArea>;
