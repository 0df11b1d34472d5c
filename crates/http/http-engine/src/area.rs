//! The http area's types of variables, templates and patterns. Plans consist of them; sessions of the area are requests (`session.rs`).

/// The `http` block.
pub struct HttpArea;

pub type Template = session_engine::Template<HttpArea>;
pub type Pattern = session_engine::regex::Pattern<HttpArea>;
pub type Hosts<T> = session_engine::hosts::Hosts<HttpArea, T>;
pub type ServerNames = session_engine::names::Names<HttpArea>;
pub type ServerTls = session_engine::tls::ServerTls<HttpArea>;
pub type Get = session_engine::variable::Get<HttpArea>;
pub type GetPrefixed = session_engine::variable::GetPrefixed<HttpArea>;
pub type Builtin = session_engine::variable::Builtin<HttpArea>;
pub type BuiltinGet = session_engine::variable::BuiltinGet<HttpArea>;
pub type Source = session_engine::variable::Source<HttpArea>;
pub type Variable = session_engine::variable::Variable<HttpArea>;
pub type Variables = session_engine::variable::Variables<HttpArea>;
pub type Names = session_engine::variable::Names<HttpArea>;
