//! The places of a configuration that a directive can be put into.

use conf_schema::Contexts;

/// A kind of block; those that stand for several are written into each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockPlace {
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

impl BlockPlace {
    pub const ALL: [BlockPlace; 8] = [
        BlockPlace::Http,
        BlockPlace::Server,
        BlockPlace::Location,
        BlockPlace::Nested,
        BlockPlace::If,
        BlockPlace::IfInServer,
        BlockPlace::LimitExcept,
        BlockPlace::Named,
    ];
    pub fn name(self) -> &'static str {
        match self {
            BlockPlace::Http => "http",
            BlockPlace::Server => "server",
            BlockPlace::Location => "location",
            BlockPlace::Nested => "nested",
            BlockPlace::If => "if",
            BlockPlace::IfInServer => "server if",
            BlockPlace::LimitExcept => "limit_except",
            BlockPlace::Named => "named",
        }
    }
    pub fn context(self) -> Contexts {
        match self {
            BlockPlace::Http => Contexts::http,
            BlockPlace::Server => Contexts::server,
            BlockPlace::Location | BlockPlace::Nested | BlockPlace::Named => Contexts::location,
            BlockPlace::If => Contexts::if_in_location,
            BlockPlace::IfInServer => Contexts::if_in_server,
            BlockPlace::LimitExcept => Contexts::limit_except,
        }
    }
}
