//! Variables of a request; what they are stands in `session_engine::variable`.

use crate::Request;
pub use session_engine::variable::{Compute, VarId, place};

pub type Get = session_engine::variable::Get<Request>;
pub type GetPrefixed = session_engine::variable::GetPrefixed<Request>;
pub type Builtin = session_engine::variable::Builtin<Request>;
pub type BuiltinGet = session_engine::variable::BuiltinGet<Request>;
pub type Source = session_engine::variable::Source<Request>;
pub type Variable = session_engine::variable::Variable<Request>;
pub type Variables = session_engine::variable::Variables<Request>;
pub type Names = session_engine::variable::Names<Request>;
