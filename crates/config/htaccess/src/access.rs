//! Access control: `Require` of Apache 2.4, and `Order`, `Allow`, `Deny`, `Satisfy` of 2.2 (mod_authz_core,
//! mod_authz_host, mod_authz_user, mod_access_compat).

use crate::syntax::SyntaxLine;
use std::net::IpAddr;
use std::sync::Arc;

/// Facts about a request that access rules ask for.
pub struct AccessClient<'a> {
    pub address: Option<IpAddr>,
    pub method: &'a str,
    pub server: Option<IpAddr>,
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Name of the user whose password was right.
    pub user: Option<&'a str>,
    /// Groups of that user.
    pub groups: &'a dyn Fn() -> Vec<String>,
}

/// Methods that Apache knows.
const METHODS: &[&str] = &[
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "VERSION-CONTROL",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
];

/// Methods of `<Limit>` and `<LimitExcept>`, to which a directive inside applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedMethods {
    names: Vec<String>,
    /// `<LimitExcept>`: all other methods.
    others: bool,
}

impl LimitedMethods {
    /// Fails on names that are no methods.
    pub fn of(args: &[String], others: bool) -> Result<LimitedMethods, String> {
        match args.iter().find(|name| !METHODS.contains(&name.as_str())) {
            Some(name) => Err(format!("Could not register method '{name}' for <Limit")),
            None if args.is_empty() => Err("<Limit> names no method".into()),
            None if !others && args.iter().any(|name| name == "TRACE") => {
                Err("TRACE cannot be controlled by <Limit>, see TraceEnable".into())
            }
            None => {
                let names = args.iter().map(|name| if name == "HEAD" { "GET" } else { name }.to_string()).collect();
                Ok(LimitedMethods { names, others })
            }
        }
    }
    /// Tells whether directives inside apply to a method. HEAD counts as GET, as in Apache.
    pub fn has(&self, method: &str) -> bool {
        let method = if method == "HEAD" { "GET" } else { method };
        self.names.iter().any(|name| name == method) != self.others
    }
}

/// `None`: all methods.
pub type MethodLimit = Option<Arc<LimitedMethods>>;

fn applies(limited: &MethodLimit, method: &str) -> bool {
    limited.as_ref().is_none_or(|methods| methods.has(method))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Parses `10.1.2.3`, `10.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`.
    pub fn parse(text: &str) -> Option<Network> {
        let (head, mask) = text.split_once('/').map_or((text, None), |(head, mask)| (head, Some(mask)));
        if let Ok(address) = head.parse::<IpAddr>() {
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = match mask {
                None => width,
                Some(mask) => match mask.parse::<std::net::Ipv4Addr>() {
                    Ok(mask) => {
                        let bits = mask.to_bits().leading_ones();
                        (mask.to_bits().count_ones() == bits).then_some(bits as u8)?
                    }
                    Err(_) => mask.parse().ok().filter(|bits| *bits <= width)?,
                },
            };
            return Some(Network { address, bits });
        }
        let parts: Vec<u8> =
            head.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        if mask.is_some() || parts.is_empty() || parts.len() > 3 {
            return None;
        }
        let mut octets = [0; 4];
        octets.iter_mut().zip(&parts).for_each(|(octet, part)| *octet = *part);
        Some(Network { address: IpAddr::from(octets), bits: parts.len() as u8 * 8 })
    }
    pub fn has(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width - u32::from(self.bits);
            rest >= width || a >> rest == b >> rest
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
    pub fn shown(&self) -> String {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == width { self.address.to_string() } else { format!("{}/{}", self.address, self.bits) }
    }
}

/// Result of a requirement (Apache: `authz_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    Granted,
    Denied,
    /// Denied for want of a user: a name and a password may change it.
    DeniedWithoutUser,
    /// Decides nothing: a negated requirement that does not deny, or one for other methods.
    Neutral,
}

/// A `Require` line or a section of such lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Require {
    limited: MethodLimit,
    negated: bool,
    kind: RequireKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequireKind {
    All(bool),
    Networks(Vec<Network>),
    Local,
    Methods(Vec<String>),
    Env(Vec<String>),
    Users(Vec<String>),
    Groups(Vec<String>),
    ValidUser,
    AnyOf(Vec<Require>),
    AllOf(Vec<Require>),
}

impl Require {
    /// Fails on unsupported requirements: hosts, expressions, other providers.
    pub fn of(line: &SyntaxLine, limited: &MethodLimit) -> Result<Require, String> {
        let made = |negated, kind| Require { limited: limited.clone(), negated, kind };
        if let Some(inner) = &line.section {
            let mut all = Vec::new();
            for line in inner {
                match crate::reader::section_holds(line) {
                    Some(true) => {
                        for line in line.section.iter().flatten() {
                            all.push(Require::of(line, limited)?);
                        }
                    }
                    Some(false) => {}
                    None => all.push(Require::of(line, limited)?),
                }
            }
            if all.is_empty() {
                return Err(format!("<{}> contains no authorization directives", line.name));
            }
            // A negated line neither grants nor, among alternatives, denies.
            let has_negated = all.iter().any(Require::is_negated);
            return match line.name.to_ascii_lowercase().as_str() {
                "requireany" | "requirenone" if has_negated => {
                    Err(format!("negative Require directive has no effect in <{}> directive", line.name))
                }
                "requireany" => Ok(made(false, RequireKind::AnyOf(all))),
                "requirenone" => Ok(made(true, RequireKind::AnyOf(all))),
                "requireall" => Ok(made(false, RequireKind::AllOf(all))),
                _ => Err(format!("<{}> not allowed here", line.name)),
            };
        }
        if !line.is("Require") {
            return Err(format!("{} not allowed here", line.name));
        }
        let mut words = line.args.iter().map(String::as_str).peekable();
        let negated = words.next_if(|word| word.eq_ignore_ascii_case("not")).is_some();
        Ok(made(negated, RequireKind::words(&mut words)?))
    }

    /// `Require not`, `<RequireNone>`: without effect outside of `<RequireAll>`.
    pub fn is_negated(&self) -> bool {
        self.negated
    }

    /// Adds a line to the others of one place: any of them grants.
    pub fn beside(others: Option<Require>, line: Require) -> Require {
        let mut list = match others.map(|others| others.kind) {
            Some(RequireKind::AnyOf(list)) => list,
            _ => Vec::new(),
        };
        list.push(line);
        Require { limited: None, negated: false, kind: RequireKind::AnyOf(list) }
    }

    /// Joins the requirements of two places (`AuthMerging`).
    pub fn merged(outer: Require, inner: Require, all: bool) -> Require {
        let list = vec![outer, inner];
        let kind = if all { RequireKind::AllOf(list) } else { RequireKind::AnyOf(list) };
        Require { limited: None, negated: false, kind }
    }

    /// Applies to the method, itself or through one of its lines (Apache: the union in `section->limited`).
    fn concerns(&self, method: &str) -> bool {
        match &self.kind {
            RequireKind::AnyOf(list) | RequireKind::AllOf(list) => list.iter().any(|one| one.concerns(method)),
            _ => applies(&self.limited, method),
        }
    }

    /// Judges a client, at the top level of a place.
    pub fn authorize(&self, client: &AccessClient<'_>) -> Authorization {
        self.judge(client, true)
    }

    /// `in_all`: the requirement is one of several that must all hold (Apache: `apply_authz_sections`).
    fn judge(&self, client: &AccessClient<'_>, in_all: bool) -> Authorization {
        use Authorization::{Denied, DeniedWithoutUser, Granted, Neutral};
        if !self.concerns(client.method) {
            return if in_all { Granted } else { Neutral };
        }
        let found = match &self.kind {
            RequireKind::AllOf(list) => list.iter().fold(Neutral, |so_far, one| match one.judge(client, true) {
                _ if so_far == Denied => so_far,
                Neutral => so_far,
                Denied => Denied,
                DeniedWithoutUser => DeniedWithoutUser,
                Granted if so_far == Neutral => Granted,
                Granted => so_far,
            }),
            RequireKind::AnyOf(list) => list.iter().fold(Neutral, |so_far, one| match one.judge(client, false) {
                _ if so_far == Granted => so_far,
                Neutral => so_far,
                Granted => Granted,
                DeniedWithoutUser => DeniedWithoutUser,
                Denied if so_far == Neutral => Denied,
                Denied => so_far,
            }),
            kind => kind.holds(client),
        };
        match (self.negated, found) {
            (false, found) => found,
            (true, Granted) => Denied,
            (true, _) => Neutral,
        }
    }
}

impl RequireKind {
    fn words<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<RequireKind, String> {
        let kind = words.next().unwrap_or_default().to_ascii_lowercase();
        let rest: Vec<&str> = words.collect();
        let owned = || rest.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        match (kind.as_str(), rest.as_slice()) {
            ("all", [word]) if word.eq_ignore_ascii_case("granted") => Ok(RequireKind::All(true)),
            ("all", [word]) if word.eq_ignore_ascii_case("denied") => Ok(RequireKind::All(false)),
            ("ip", rest) if !rest.is_empty() => {
                let networks = rest.iter().map(|text| {
                    Network::parse(text).ok_or_else(|| format!("ip address '{text}' appears to be invalid"))
                });
                Ok(RequireKind::Networks(networks.collect::<Result<_, _>>()?))
            }
            ("local", []) => Ok(RequireKind::Local),
            ("method", [_, ..]) => Ok(RequireKind::Methods(owned())),
            ("env", [_, ..]) => Ok(RequireKind::Env(owned())),
            ("user", [_, ..]) => Ok(RequireKind::Users(owned())),
            ("group", [_, ..]) => Ok(RequireKind::Groups(owned())),
            ("valid-user", []) => Ok(RequireKind::ValidUser),
            _ => Err(format!("\"Require {kind}\" is not supported here: write it into the server's configuration")),
        }
    }

    fn holds(&self, client: &AccessClient<'_>) -> Authorization {
        let decided = |holds: bool| if holds { Authorization::Granted } else { Authorization::Denied };
        let of_user = |holds: &dyn Fn(&str) -> bool| match client.user {
            Some(user) => decided(holds(user)),
            None => Authorization::DeniedWithoutUser,
        };
        match self {
            RequireKind::All(granted) => decided(*granted),
            RequireKind::Networks(list) => {
                decided(client.address.is_some_and(|a| list.iter().any(|network| network.has(a))))
            }
            RequireKind::Local => {
                decided(client.address.is_some_and(|a| a.to_canonical().is_loopback() || Some(a) == client.server))
            }
            RequireKind::Methods(list) => {
                let method = if client.method == "HEAD" { "GET" } else { client.method };
                decided(list.iter().any(|own| own == method || own == client.method))
            }
            RequireKind::Env(names) => decided(names.iter().any(|name| (client.env)(name).is_some())),
            RequireKind::Users(names) => of_user(&|user| names.iter().any(|name| name == user)),
            RequireKind::Groups(names) => {
                of_user(&|_| (client.groups)().iter().any(|group| names.iter().any(|name| name == group)))
            }
            RequireKind::ValidUser => of_user(&|_| true),
            RequireKind::AnyOf(_) | RequireKind::AllOf(_) => Authorization::Denied,
        }
    }
}

/// `Order`, `Allow`, `Deny` and `Satisfy` of one place. An inner place with any of them replaces all of an outer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderedAccess {
    /// `Order allow,deny` (`true`): clients must be allowed, and `Deny` decides last.
    orders: Vec<(MethodLimit, bool)>,
    allow: Vec<(MethodLimit, AccessSubject)>,
    deny: Vec<(MethodLimit, AccessSubject)>,
    /// `Satisfy any` (`true`).
    satisfy: Vec<(MethodLimit, bool)>,
}

impl OrderedAccess {
    /// Takes a line of these directives; `name` in lower case. Fails on host names and malformed lines.
    pub fn take(&mut self, name: &str, args: &[String], limited: &MethodLimit) -> Result<(), String> {
        let listed = |list: Vec<AccessSubject>| list.into_iter().map(|who| (limited.clone(), who)).collect::<Vec<_>>();
        match name {
            "order" => {
                let order = args.join(",").to_ascii_lowercase();
                let deny_last = match order.as_str() {
                    "allow,deny" | "mutual-failure" => true,
                    "deny,allow" => false,
                    _ => return Err("unknown order".into()),
                };
                self.orders.push((limited.clone(), deny_last));
            }
            "allow" => self.allow.extend(listed(AccessSubject::list(args)?)),
            "deny" => self.deny.extend(listed(AccessSubject::list(args)?)),
            _ => match args {
                [word] if word.eq_ignore_ascii_case("all") => self.satisfy.push((limited.clone(), false)),
                [word] if word.eq_ignore_ascii_case("any") => self.satisfy.push((limited.clone(), true)),
                _ => return Err("Satisfy either 'any' or 'all'.".into()),
            },
        }
        Ok(())
    }
    pub fn satisfies_any(&self, method: &str) -> bool {
        self.satisfy.iter().rev().find(|(limited, _)| applies(limited, method)).is_some_and(|(_, any)| *any)
    }
    pub fn allows(&self, client: &AccessClient<'_>) -> bool {
        let fits = |list: &[(MethodLimit, AccessSubject)]| {
            list.iter().any(|(limited, who)| applies(limited, client.method) && who.fits(client))
        };
        let deny_last = self.orders.iter().rev().find(|(limited, _)| applies(limited, client.method));
        let (allowed, denied) = (fits(&self.allow), fits(&self.deny));
        if deny_last.is_some_and(|(_, deny_last)| *deny_last) { allowed && !denied } else { allowed || !denied }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessSubject {
    All,
    Network(Network),
    Env(String),
}

impl AccessSubject {
    /// Parses the words after "from". Fails on host names.
    pub fn list(args: &[String]) -> Result<Vec<AccessSubject>, String> {
        let rest = match args.split_first() {
            Some((from, rest)) if from.eq_ignore_ascii_case("from") && !rest.is_empty() => rest,
            _ => return Err("allow and deny must be followed by 'from'".into()),
        };
        let one = |text: &String| {
            if text.eq_ignore_ascii_case("all") {
                return Ok(AccessSubject::All);
            }
            if let Some(name) = text.strip_prefix("env=") {
                return Ok(AccessSubject::Env(name.to_string()));
            }
            Network::parse(text)
                .map(AccessSubject::Network)
                .ok_or_else(|| format!("names of hosts (\"{text}\") are not looked up"))
        };
        rest.iter().map(one).collect()
    }
    fn fits(&self, client: &AccessClient<'_>) -> bool {
        match self {
            AccessSubject::All => true,
            AccessSubject::Network(network) => client.address.is_some_and(|address| network.has(address)),
            AccessSubject::Env(name) => match name.strip_prefix('!') {
                Some(name) => (client.env)(name).is_none(),
                None => (client.env)(name).is_some(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_match_addresses() {
        for (text, inside, outside) in [
            ("10.1", "10.1.2.3", "10.2.0.0"),
            ("192.0.2.0/24", "192.0.2.9", "192.0.3.9"),
            ("10.0.0.0/255.0.0.0", "10.9.9.9", "11.0.0.1"),
            ("2001:db8::/32", "2001:db8::1", "2001:db9::1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::2"),
        ] {
            let network = Network::parse(text).expect(text);
            assert!(
                network.has(inside.parse().expect("address")) && !network.has(outside.parse().expect("address")),
                "{text}"
            );
        }
        for wrong in ["", "example.com", "1.2.3.4/33", "10.0.0.0/255.0.255.0", "1.2.3.4.5", "300.1"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }

    fn require(text: &str) -> Require {
        let file = crate::reader::read_htaccess(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        file.base.require.unwrap_or_else(|| panic!("{text}: no requirement"))
    }

    fn judge(text: &str, method: &str, user: Option<&str>) -> Authorization {
        let env = |name: &str| (name == "set").then(String::new);
        let groups = || vec!["admins".to_string()];
        let address = Some(IpAddr::from([127, 0, 0, 1]));
        let client = AccessClient { address, server: None, method, env: &env, user, groups: &groups };
        require(text).authorize(&client)
    }

    #[test]
    fn requirements_join_as_in_apache() {
        use Authorization::{Denied, DeniedWithoutUser, Granted, Neutral};
        for (text, want) in [
            ("Require all granted", Granted),
            ("Require ip 192.0.2.1\nRequire env set", Granted),
            ("Require ip 192.0.2.1\nRequire valid-user", DeniedWithoutUser),
            ("Require all denied\nRequire user joe", DeniedWithoutUser),
            ("<RequireAll>\nRequire all granted\nRequire not ip 127.0.0.1\n</RequireAll>", Denied),
            ("<RequireAll>\nRequire all denied\nRequire valid-user\n</RequireAll>", Denied),
            ("<RequireAll>\nRequire local\nRequire valid-user\n</RequireAll>", DeniedWithoutUser),
            ("<RequireAll>\nRequire not env other\n</RequireAll>", Neutral),
            ("<RequireAll>\nRequire local\n<RequireNone>\nRequire env set\n</RequireNone>\n</RequireAll>", Denied),
            ("<Limit POST>\nRequire all denied\n</Limit>", Granted),
            ("Require all denied\n<Limit GET>\nRequire local\n</Limit>", Granted),
            ("Require all denied\n<Limit POST>\nRequire local\n</Limit>", Denied),
            ("<LimitExcept GET>\nRequire all denied\n</LimitExcept>", Granted),
            ("<LimitExcept POST>\nRequire all denied\n</LimitExcept>", Denied),
        ] {
            assert_eq!(judge(text, "GET", None), want, "{text}");
            assert_eq!(judge(text, "HEAD", None), want, "HEAD: {text}");
        }
        for (text, want) in [
            ("Require valid-user", Granted),
            ("Require user anna joe", Granted),
            ("Require user anna", Denied),
            ("Require group admins", Granted),
            ("Require group others", Denied),
        ] {
            assert_eq!(judge(text, "GET", Some("joe")), want, "{text}");
        }
        for wrong in [
            "Require not ip 127.0.0.1",
            "<RequireAny>\nRequire not local\n</RequireAny>",
            "<RequireNone>\nRequire local\n</RequireNone>",
            "<RequireAll>\n</RequireAll>",
            "Require host example.com",
            "<Limit get>\nRequire local\n</Limit>",
            "<Limit TRACE>\nRequire local\n</Limit>",
        ] {
            assert!(crate::reader::read_htaccess(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_the_old_language_are_kept_by_method() {
        let env = |_: &str| None;
        let groups = Vec::new;
        let allows = |text: &str, method: &str| {
            let file = crate::reader::read_htaccess(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            let address = Some(IpAddr::from([127, 0, 0, 1]));
            let client = AccessClient { address, server: None, method, env: &env, user: None, groups: &groups };
            let ordered = file.base.ordered.unwrap_or_default();
            (ordered.allows(&client), ordered.satisfies_any(method))
        };
        for (text, get, post) in [
            ("Deny from all", false, false),
            ("Satisfy any", true, true),
            ("Order allow,deny", false, false),
            ("<Limit POST>\nOrder deny,allow\nDeny from all\n</Limit>", true, false),
            ("Order deny,allow\nDeny from all\n<Limit GET>\nAllow from 127\n</Limit>", true, false),
            ("<LimitExcept GET>\nOrder allow,deny\n</LimitExcept>", true, false),
        ] {
            assert_eq!((allows(text, "GET").0, allows(text, "POST").0), (get, post), "{text}");
        }
        assert_eq!(allows("<Limit POST>\nSatisfy any\n</Limit>", "POST"), (true, true));
        assert!(!allows("<Limit POST>\nSatisfy any\n</Limit>", "GET").1);
    }
}
