//! The http area's types of variables, templates and patterns. Plans consist of them; sessions of the area are requests (`session.rs`).

/// The `http` block.
pub struct HttpArea;

pub type HttpTemplate = session_engine::Template<HttpArea>;
pub type HttpPattern = session_engine::regex::Pattern<HttpArea>;
pub type Hosts<T> = session_engine::hosts::Hosts<HttpArea, T>;
pub type HttpServerNames = session_engine::names::AreaNames<HttpArea>;
pub type ServerTls = session_engine::tls::ServerTls<HttpArea>;
pub type Get = session_engine::variable::Get<HttpArea>;
pub type GetPrefixed = session_engine::variable::GetPrefixed<HttpArea>;
pub type Builtin = session_engine::variable::Builtin<HttpArea>;
pub type BuiltinGet = session_engine::variable::BuiltinGet<HttpArea>;
pub type HttpSource = session_engine::variable::VariableSource<HttpArea>;
pub type Variable = session_engine::variable::Variable<HttpArea>;
pub type HttpVariables = session_engine::variable::VariableTable<HttpArea>;
pub type HttpNames = session_engine::variable::VariableNames<HttpArea>;
