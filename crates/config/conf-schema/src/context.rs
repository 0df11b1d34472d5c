//! Contexts in which a directive may stand.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contexts(pub u32);

macro_rules! contexts {
    ($($name:ident = $bit:literal, $text:literal;)+) => {
        #[allow(non_upper_case_globals)]
        impl Contexts {
            $(pub const $name: Contexts = Contexts(1 << $bit);)+
        }
        /// Every context with its name in nginx's documentation.
        pub const NAMES: &[(&str, Contexts)] = &[$(($text, Contexts::$name)),+];
    };
}

contexts! {
    main = 0, "main";
    events = 1, "events";
    http = 2, "http";
    server = 3, "server";
    location = 4, "location";
    if_in_server = 5, "if in server";
    if_in_location = 6, "if in location";
    limit_except = 7, "limit_except";
    upstream = 8, "upstream";
    stream = 9, "stream";
    stream_server = 10, "stream server";
    stream_upstream = 11, "stream upstream";
    mail = 12, "mail";
    mail_server = 13, "mail server";
}

impl Contexts {
    pub const NONE: Contexts = Contexts(0);
    pub const HTTP_ALL: Contexts = Contexts(0b1_1111_1100);
    #[must_use]
    pub const fn with(self, other: Contexts) -> Contexts {
        Contexts(self.0 | other.0)
    }
    #[must_use]
    pub const fn has(self, one: Contexts) -> bool {
        self.0 & one.0 != 0
    }
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, c)| self.has(*c)).map_or("nowhere", |(n, _)| n)
    }
}

impl fmt::Display for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = NAMES.iter().filter(|(_, c)| self.has(*c)).map(|(n, _)| *n).collect();
        f.write_str(&names.join(", "))
    }
}
