//! allow, deny (nginx: `ngx_http_access_module`, `ngx_stream_access_module`): the first matching rule decides.

use conf_schema::value::{Cidr, cidr};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use std::any::Any;
use std::net::IpAddr;

directives! {
    pub struct AccessConf from AccessInput {
        /// Allows clients by address or network, clients of UNIX-domain sockets, or all clients.
        allow: AccessRuleSet,
        /// Denies clients by address or network, clients of UNIX-domain sockets, or all clients.
        deny: AccessRuleSet,
    }
}

/// Rules of one kind, each with its position among all.
#[derive(Clone)]
pub struct AccessRuleSet(Vec<AccessRule>);

#[derive(Clone, Copy, Debug)]
struct AccessRule {
    place: usize,
    deny: bool,
    who: RuleSubject,
}

#[derive(Clone, Copy, Debug)]
enum RuleSubject {
    All,
    Unix,
    Network(Cidr),
}

/// Number of rules so far, in `Cx`: `allow` and `deny` lines form one list.
#[derive(Default)]
struct Places(usize);

impl ValueKind for AccessRuleSet {
    const SYNTAX: &'static str = "address | CIDR | unix: | all";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        let who = match text {
            b"all" => RuleSubject::All,
            b"unix:" => RuleSubject::Unix,
            text => RuleSubject::Network(Cidr::word(cx, d, text).map_err(|p| p.at(0))?),
        };
        let places = cx.get::<Places>();
        places.0 += 1;
        Ok(AccessRuleSet(vec![AccessRule { place: places.0, deny: d.name.bytes == b"deny", who }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// The table of an area's feature: a block with own rules inherits none.
pub fn access_table(area: ContextArea) -> FeatureTable {
    let mut table = AccessConf::table("access", area);
    table.inherit = |inner, outer| {
        if let (Some(inner), Some(outer)) = (inner.downcast_mut::<AccessInput>(), outer.downcast_ref())
            && inner.allow.is_none()
            && inner.deny.is_none()
        {
            inner.inherit(outer);
        }
    };
    table
}

pub fn access_list(conf: &(dyn Any + Send + Sync)) -> Option<AccessList> {
    let conf = conf.downcast_ref::<AccessConf>()?;
    let mut rules: Vec<AccessRule> =
        [&conf.allow, &conf.deny].into_iter().flatten().flat_map(|rules| rules.0.iter().copied()).collect();
    rules.sort_by_key(|rule| rule.place);
    (!rules.is_empty()).then(|| AccessList(rules.into()))
}

pub struct AccessList(Box<[AccessRule]>);

/// Marks a location whose rules deny all other clients: [`AccessList::denies_others`].
pub struct DeniesOthers;

impl AccessList {
    /// Tells whether the first matching rule denies a client (`None`: a UNIX-domain socket); `None` if none matches.
    pub fn refuses(&self, peer: Option<IpAddr>) -> Option<bool> {
        // An IPv4 client of a dual-stack socket is matched as IPv4.
        let peer = match peer {
            Some(IpAddr::V6(v6)) => v6.to_ipv4_mapped().map(IpAddr::V4).or(peer),
            other => other,
        };
        let fits = |rule: &&AccessRule| match (rule.who, peer) {
            (RuleSubject::All, _) | (RuleSubject::Unix, None) => true,
            (RuleSubject::Network(network), Some(address)) => {
                let (v6, number) = cidr::address_number(address);
                network.contains(v6, number)
            }
            _ => false,
        };
        self.0.iter().find(fits).map(|rule| rule.deny)
    }
    /// Tells whether clients of IPv4 and IPv6 that no narrower rule names are denied.
    pub fn denies_others(&self) -> bool {
        let denies = |is_v6: bool| {
            let is_for_all = |rule: &&AccessRule| match rule.who {
                RuleSubject::All => true,
                RuleSubject::Unix => false,
                RuleSubject::Network(network) => network.v6 == is_v6 && network.bits == 0,
            };
            self.0.iter().find(is_for_all).is_some_and(|rule| rule.deny)
        };
        denies(false) && denies(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    fn list(lines: &[(&str, &str)]) -> AccessList {
        let mut cx = Cx::default();
        let rules = lines
            .iter()
            .map(|(name, text)| AccessRuleSet::parse(&mut cx, &synthetic_directive(name, text)).expect(text).0[0]);
        AccessList(rules.collect())
    }

    #[test]
    fn the_first_rule_decides() {
        let list = list(&[
            ("deny", "192.0.2.1"),
            ("allow", "192.0.2.0/24"),
            ("allow", "2001:db8::/32"),
            ("allow", "unix:"),
            ("deny", "all"),
        ]);
        let refuses = |a: &str| list.refuses(Some(a.parse().expect(a)));
        assert_eq!(refuses("192.0.2.1"), Some(true));
        assert_eq!(refuses("192.0.2.2"), Some(false));
        assert_eq!(refuses("2001:db8::7"), Some(false));
        assert_eq!(refuses("::1"), Some(true));
        assert_eq!(list.refuses(None), Some(false));
    }

    #[test]
    fn without_a_rule_that_fits_nothing_is_said() {
        let list = list(&[("deny", "192.0.2.1")]);
        assert_eq!(list.refuses(Some("192.0.2.2".parse().expect("address"))), None);
        assert_eq!(list.refuses(None), None);
    }

    #[test]
    fn rules_for_all_clients_decide_about_others() {
        for (lines, denies) in [
            (&[("allow", "192.0.2.1"), ("deny", "all")][..], true),
            (&[("deny", "0.0.0.0/0"), ("deny", "::/0")], true),
            (&[("deny", "0.0.0.0/0")], false),
            (&[("allow", "192.0.2.1")], false),
            (&[("deny", "192.0.2.1")], false),
            (&[("allow", "all"), ("deny", "all")], false),
            (&[("allow", "::/0"), ("deny", "all")], false),
            (&[("allow", "unix:"), ("deny", "all")], true),
        ] {
            assert_eq!(list(lines).denies_others(), denies, "{lines:?}");
        }
    }

    #[test]
    fn an_outer_list_is_taken_whole_or_not_at_all() {
        let mut cx = Cx::default();
        let mut input = |lines: &[(&str, &str)]| -> Box<dyn Any> {
            let mut input: Box<dyn Any> = Box::new(AccessInput::default());
            for (name, text) in lines {
                let row = AccessConf::ROWS.iter().find(|row| row.name == *name).expect("a row");
                (row.set)(input.as_mut(), &mut cx, &synthetic_directive(name, text)).expect("parses");
            }
            input
        };
        let outer = input(&[("allow", "192.0.2.1"), ("deny", "all")]);
        let (mut own, mut none) = (input(&[("allow", "192.0.2.2")]), input(&[]));
        let inherit = access_table(ContextArea::Http).inherit;
        inherit(own.as_mut(), outer.as_ref());
        inherit(none.as_mut(), outer.as_ref());
        let denies = |input: &dyn Any| input.downcast_ref::<AccessInput>().expect("its type").deny.is_some();
        assert!(!denies(own.as_ref()) && denies(none.as_ref()));
    }
}
