//! The places of a configuration that a directive can be put into.

use conf_schema::Contexts;

/// A kind of block; those that stand for several are written into each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Http,
    Server,
    /// All locations of the server's own level.
    Location,
    /// Locations inside those.
    Nested,
    If,
    /// An `if` of the server's own level.
    IfInServer,
    LimitExcept,
    Named,
}

impl Place {
    pub const ALL: [Place; 8] = [
        Place::Http,
        Place::Server,
        Place::Location,
        Place::Nested,
        Place::If,
        Place::IfInServer,
        Place::LimitExcept,
        Place::Named,
    ];
    pub fn name(self) -> &'static str {
        match self {
            Place::Http => "http",
            Place::Server => "server",
            Place::Location => "location",
            Place::Nested => "nested",
            Place::If => "if",
            Place::IfInServer => "server if",
            Place::LimitExcept => "limit_except",
            Place::Named => "named",
        }
    }
    pub fn context(self) -> Contexts {
        match self {
            Place::Http => Contexts::http,
            Place::Server => Contexts::server,
            Place::Location | Place::Nested | Place::Named => Contexts::location,
            Place::If => Contexts::if_in_location,
            Place::IfInServer => Contexts::if_in_server,
            Place::LimitExcept => Contexts::limit_except,
        }
    }
}
