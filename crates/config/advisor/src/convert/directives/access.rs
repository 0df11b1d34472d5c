//! Translates access rules: `Require`, `Order`, `Allow`, `Deny`, `Satisfy` and basic authentication.

use crate::convert::word;
use crate::scope::quoted;
use htaccess::access::{Ordered, Require, Subject};
use htaccess::syntax::Line;

#[derive(Default)]
pub struct Access {
    require: Vec<Result<Require, String>>,
    ordered: Option<Ordered>,
    wrong: Option<String>,
    auth: Vec<String>,
    user: bool,
    any: bool,
    /// First line that belongs to the rules.
    pub first: Option<Line>,
}

impl Access {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
    pub fn require(&mut self, line: &Line) {
        self.first.get_or_insert_with(|| line.clone());
        self.require.push(Require::of(line));
    }
    /// Takes a line that belongs to access rules; `name` in lower case. `false`: it does not.
    pub fn take(&mut self, line: &Line, name: &str) -> bool {
        match name {
            "require" if line.arg(0).eq_ignore_ascii_case("valid-user") => self.user = true,
            "require" => self.require.push(Require::of(line)),
            "order" => {
                let order = line.args.join(",").to_ascii_lowercase();
                self.ordered.get_or_insert_default().deny_last = order.starts_with("allow");
            }
            "allow" | "deny" => match Subject::list(&line.args) {
                Ok(list) if name == "allow" => self.ordered.get_or_insert_default().allow.extend(list),
                Ok(list) => self.ordered.get_or_insert_default().deny.extend(list),
                Err(why) => self.wrong = Some(why),
            },
            "satisfy" => self.any = line.arg(0).eq_ignore_ascii_case("any"),
            "authtype" if line.arg(0).eq_ignore_ascii_case("basic") => {}
            "authname" => self.auth.push(format!("auth_basic {};", quoted(line.arg(0), true))),
            "authuserfile" => self.auth.push(format!("auth_basic_user_file {};", word(line.arg(0)))),
            "authbasicprovider" if line.arg(0).eq_ignore_ascii_case("file") => {}
            _ => return false,
        }
        self.first.get_or_insert_with(|| line.clone());
        true
    }
    /// Fails on requirements that allow and deny cannot express.
    pub fn lines(&self) -> Result<Vec<String>, String> {
        let mut out = Vec::new();
        if let Some(why) = &self.wrong {
            return Err(why.clone());
        }
        if self.user {
            if !self.auth.iter().any(|line| line.starts_with("auth_basic ")) {
                out.push("auth_basic restricted;".to_string());
            }
            out.extend(self.auth.iter().cloned());
        }
        if self.any || (self.user && !self.require.is_empty()) {
            out.push("satisfy any;".into());
        }
        for require in &self.require {
            let require = require.as_ref().map_err(Clone::clone)?;
            rules(require, &mut out)?;
        }
        if out.iter().any(|line| line.starts_with("allow ")) && !out.iter().any(|line| line.ends_with(" all;")) {
            out.push("deny all;".into());
        }
        if let Some(ordered) = &self.ordered {
            let one = |word: &str, who: &Subject| match who {
                Subject::All => Ok(format!("{word} all;")),
                Subject::Network(network) => Ok(format!("{word} {};", network.shown())),
                Subject::Env(_) => Err("a rule for a variable has no translation".to_string()),
            };
            let allow = ordered.allow.iter().map(|who| one("allow", who)).collect::<Result<Vec<_>, _>>()?;
            let deny = ordered.deny.iter().map(|who| one("deny", who)).collect::<Result<Vec<_>, _>>()?;
            // The list that decides last in Apache comes first in nginx; the catch-all stands last.
            let (first, second, end) =
                if ordered.deny_last { (deny, allow, "deny all;") } else { (allow, deny, "allow all;") };
            let is_all = |line: &String| line.ends_with(" all;");
            if first.iter().any(is_all) {
                out.extend(first.iter().filter(|line| is_all(line)).cloned());
            } else {
                out.extend(first);
                out.extend(second.iter().filter(|line| !is_all(line)).cloned());
                out.extend(second.iter().filter(|line| is_all(line)).cloned());
                if !out.iter().any(is_all) {
                    out.push(end.into());
                }
            }
        }
        Ok(out)
    }
}

fn rules(require: &Require, out: &mut Vec<String>) -> Result<(), String> {
    match require {
        Require::All(true) => out.push("allow all;".into()),
        Require::All(false) => out.push("deny all;".into()),
        Require::Networks(list) => out.extend(list.iter().map(|network| format!("allow {};", network.shown()))),
        Require::Local => out.extend(["allow 127.0.0.0/8;".into(), "allow ::1;".into()]),
        Require::AnyOf(list) => {
            for one in list {
                rules(one, out)?;
            }
        }
        Require::AllOf(list) => {
            // "all but these": the denied clients first, then everyone.
            let (not, rest): (Vec<_>, Vec<_>) = list.iter().partition(|one| matches!(one, Require::Not(_)));
            if rest.as_slice() != [&Require::All(true)] && rest.len() > 1 {
                return Err("several requirements at once have no translation".into());
            }
            for one in not {
                let Require::Not(inner) = one else { continue };
                let Require::Networks(networks) = &**inner else {
                    return Err("\"not\" of anything but addresses has no translation".into());
                };
                out.extend(networks.iter().map(|network| format!("deny {};", network.shown())));
            }
            for one in rest {
                rules(one, out)?;
            }
        }
        _ => return Err("this requirement has no translation".into()),
    }
    Ok(())
}
