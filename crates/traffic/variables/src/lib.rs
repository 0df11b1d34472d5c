//! Variables of the areas (http, stream, mail): templates, regular expressions and their captures, maps, names of servers.
//! Generic over the [`AreaTypes`] and its [`Session`] (request or connection), without dynamic dispatch; an area names its types
//! once (`type Template = variables::Template<HttpArea>`), so that they cannot mix.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod forwarded;
pub mod hosts;
pub mod map;
pub mod names;
pub mod regex;
pub mod session;
pub mod split_clients;
pub mod template;
pub mod testing;
pub mod variable;

pub use session::{AreaTypes, Session, SessionOf, SessionSlot};
pub use template::Template;

/// Version of nginx whose configuration language and behaviour apply.
pub const NGINX_VERSION: &str = "1.31.6";
