//! `ProxyPass` and groups of servers (`balancer://`).

use super::argument;
use crate::convert::rules::closes;
use crate::convert::{CLOSED, ConvertedBlock, Converter, Server, word};
use htaccess::syntax::SyntaxLine;

impl Converter<'_> {
    /// `ProxyPass`. Apache takes the first line that matches, nginx the longest location: a later line below an earlier one
    /// has no effect.
    pub(super) fn proxy_pass(
        &mut self,
        args: &[String],
        location: Option<&str>,
        server: &mut Server,
    ) -> Result<(), String> {
        let (uri, url, options) = match (args, location) {
            ([uri, url, options @ ..], None) => (uri.as_str(), url.as_str(), options),
            ([url, options @ ..], Some(uri)) => (uri, url.as_str(), options),
            _ => return Err("it has no translation".into()),
        };
        if !uri.starts_with('/') {
            return Err(format!("{CLOSED}\"{uri}\" is no path"));
        }
        let bare = uri.trim_end_matches('/');
        let is_shadowed = server.proxies.iter().any(|outer| {
            bare.strip_prefix(outer.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if is_shadowed {
            return Err("an earlier ProxyPass takes these paths".into());
        }
        server.proxies.push(uri.to_string());
        if url == "!" {
            server.folder(&format!("{bare}/"));
            if !bare.is_empty() && !uri.ends_with('/') {
                server.folder_exact(bare);
            }
            return Ok(());
        }
        let timeout = options.iter().find_map(|option| option.strip_prefix("timeout="));
        let known = |option: &&String| {
            let name = option.split('=').next().unwrap_or_default().to_ascii_lowercase();
            [
                "timeout",
                "connectiontimeout",
                "retry",
                "keepalive",
                "nocanon",
                "upgrade",
                "disablereuse",
                "max",
                "flushpackets",
                "ttl",
                "acquire",
                "enablereuse",
                "ping",
            ]
            .contains(&name.as_str())
        };
        let target = match options.iter().find(|option| !known(option)) {
            Some(option) => Err(format!("the parameter \"{option}\" has no translation")),
            None => self.proxy_target(url),
        };
        let (target, upgrades) = match target {
            Ok(target) => target,
            Err(why) => {
                // Without the proxy, files of these paths would be served.
                for words in [format!("{bare}/"), bare.to_string()].iter().filter(|words| !words.is_empty()) {
                    let words = if words.ends_with('/') { word(words) } else { format!("= {}", word(words)) };
                    let block = server.block.location(&words);
                    block.line("htaccess off;");
                    block.line("deny all;");
                }
                return Err(why);
            }
        };
        let upgrades = upgrades || options.iter().any(|option| option.to_ascii_lowercase().starts_with("upgrade="));
        self.has_proxy = true;
        let fill = |block: &mut ConvertedBlock, url: &str| {
            block.set("htaccess", "off");
            block.set("proxy_pass", &word(url));
            if upgrades {
                add_upgrade(block);
            }
            if let Some(seconds) = timeout.and_then(super::values::convert_time) {
                block.set("proxy_read_timeout", &seconds);
            }
        };
        // A final slash of one of the two belongs to the replaced part, as in Apache.
        if bare.is_empty() {
            fill(server.block.location("/"), &target);
            return Ok(());
        }
        if uri.ends_with('/') {
            fill(server.block.location(&word(uri)), &target);
        } else {
            let path = target.split_once("://").map_or(target.as_str(), |(_, rest)| rest);
            let has_path = path.trim_start_matches("unix:").split_once('/').is_some();
            let exact = if has_path { target.clone() } else { format!("{target}/") };
            fill(server.block.location(&format!("= {}", word(bare))), &exact);
            fill(server.block.location(&word(&format!("{bare}/"))), &format!("{}/", target.trim_end_matches('/')));
        }
        Ok(())
    }

    /// Returns nginx's URL, and whether the connection is upgraded to WebSocket.
    fn proxy_target(&mut self, url: &str) -> Result<(String, bool), String> {
        if url.contains('$') {
            return Err("variables in a target have no translation".into());
        }
        let lower = url.to_ascii_lowercase();
        if lower.starts_with("http://") || lower.starts_with("https://") {
            return Ok((url.to_string(), false));
        }
        if let Some(rest) = url.strip_prefix("ws://") {
            return Ok((format!("http://{rest}"), true));
        }
        if let Some(rest) = url.strip_prefix("wss://") {
            return Ok((format!("https://{rest}"), true));
        }
        if let Some(rest) = url.strip_prefix("balancer://") {
            let (name, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
            return Ok((format!("http://{name}{path}"), false));
        }
        if let Some((socket, after)) = url.strip_prefix("unix:").and_then(|rest| rest.split_once('|'))
            && let Some(rest) = after.strip_prefix("http://")
        {
            let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default();
            return Ok((
                if path.is_empty() { format!("http://unix:{socket}") } else { format!("http://unix:{socket}:{path}") },
                false,
            ));
        }
        Err("this kind of ProxyPass has no translation".into())
    }

    /// `<Proxy>`: members of a group, or access rules for requests that are passed on.
    pub(in crate::convert) fn proxy_section(&mut self, line: &SyntaxLine, inner: &[SyntaxLine], server: &mut Server) {
        let Some(name) = line.arg(0).strip_prefix("balancer://") else {
            if closes(inner) {
                server.proxy_rules.push(inner.to_vec());
            }
            for line in inner.iter().filter(|line| !closes(std::slice::from_ref(line)) && !line.is("ProxySet")) {
                self.leave(line, "it has no translation", &mut server.block);
            }
            return;
        };
        let name = name.trim_end_matches('/').to_string();
        let mut lines = vec![format!("upstream {} {{", word(&name))];
        for line in inner {
            match self.member(line) {
                Ok(member) => lines.extend(member),
                Err(why) if closes(std::slice::from_ref(line)) => self.fail(line, &why),
                Err(why) => self.leave(line, &why, &mut server.block),
            }
        }
        lines.push("}".into());
        if lines.len() == 2 {
            return self.leave(line, "the group has no members", &mut server.block);
        }
        self.http.lines.extend(lines);
    }

    fn member(&self, line: &SyntaxLine) -> Result<Option<String>, String> {
        if line.is("BalancerMember") {
            let url = self.filled(line.arg(0));
            let host = url.strip_prefix("http://").ok_or("only http:// members have a translation")?;
            let (host, path) = host.split_once('/').unwrap_or((host, ""));
            if !path.is_empty() {
                return Err("members with a path have no translation".into());
            }
            let mut words = vec![if host.contains(':') { host.to_string() } else { format!("{host}:80") }];
            for option in line.args.iter().skip(1) {
                match option.split_once('=') {
                    Some(("loadfactor", weight)) if weight.parse::<u32>().is_ok() => {
                        words.push(format!("weight={weight}"))
                    }
                    Some(("status", "+H")) => words.push("backup".into()),
                    Some(("status", "+D")) => words.push("down".into()),
                    Some(("route" | "retry" | "timeout" | "connectiontimeout" | "ping" | "keepalive", _)) => {}
                    _ => return Err(format!("the parameter \"{option}\" has no translation")),
                }
            }
            return Ok(Some(format!("server {};", words.join(" "))));
        }
        if line.is("ProxySet") {
            return match line
                .args
                .iter()
                .find(|word| !word.starts_with("lbmethod=byrequests") && !word.starts_with("timeout="))
            {
                None => Ok(None),
                Some(word) if word.starts_with("lbmethod=bybusyness") => Ok(Some("least_conn;".into())),
                Some(word) => Err(format!("the parameter \"{word}\" has no translation")),
            };
        }
        if line.rest.eq_ignore_ascii_case("all granted")
            || line.rest.eq_ignore_ascii_case("from all") && line.is("Allow")
            || line.is("Order")
        {
            return Ok(None);
        }
        Err("it has no translation in a group".into())
    }
}

/// Fields that WebSocket needs.
pub fn add_upgrade(block: &mut ConvertedBlock) {
    block.set("proxy_http_version", "1.1");
    block.set("proxy_set_header Upgrade", "$http_upgrade");
    block.set("proxy_set_header Connection", "upgrade");
}

/// Path of the innermost `<Location>` among open sections.
pub fn location_of(open: &[String]) -> Option<String> {
    let head = open.last()?;
    let rest = head.strip_prefix("<Location ").or(head.strip_prefix("<location "))?.strip_suffix('>')?;
    let words = htaccess::syntax::split_words(rest);
    match words.as_slice() {
        [path] if !path.contains(['*', '?', '[']) => Some(path.clone()),
        _ => None,
    }
}

/// Words of a log's format.
pub fn log_format(args: &[String]) -> Result<&'static str, String> {
    match argument(args, 1) {
        "" | "combined" | "vhost_combined" => Ok("combined"),
        other => Err(format!("the format \"{other}\" has no counterpart; write a log_format")),
    }
}
