//! The http area's types of variables, templates and patterns. Plans consist of them; sessions of the area are requests (`session.rs`).

/// The `http` block.
pub struct HttpArea;

/// A text with variables of the http area.
pub type HttpTemplate = variables::Template<HttpArea>;
/// A regular expression whose captures become variables of a request.
pub type HttpPattern = variables::regex::Pattern<HttpArea>;
/// A table of host names with values, for maps and referers.
pub type Hosts<T> = variables::hosts::Hosts<HttpArea, T>;
/// The server names of a listener, each with the index of its server.
pub type HttpServerNames = variables::names::AreaNames<HttpArea>;
/// TLS settings and certificates of a virtual server.
pub type ServerTls = tls_directives::ServerTls<HttpArea>;
/// Getter of a variable: appends its value; `false` if the variable has none.
pub type Get = variables::variable::Get<HttpArea>;
/// Getter of a family of variables such as `$arg_NAME`; receives the rest of the name.
pub type GetPrefixed = variables::variable::GetPrefixed<HttpArea>;
/// A row of a feature's table of variables.
pub type Builtin = variables::variable::Builtin<HttpArea>;
/// The getter of a built-in variable or of a family.
pub type BuiltinGet = variables::variable::BuiltinGet<HttpArea>;
/// The origin of a variable's value: a getter, a slot of the request, or a computation.
pub type HttpSource = variables::variable::VariableSource<HttpArea>;
/// A variable of a plan, at the index of its `VarId`.
pub type Variable = variables::variable::Variable<HttpArea>;
/// Variables while a configuration is read; kept in [`Cx`](conf_schema::Cx).
pub type HttpVariables = variables::variable::VariableTable<HttpArea>;
/// Names of all variables, for lookups at run time (SSI).
pub type HttpNames = variables::variable::VariableNames<HttpArea>;
