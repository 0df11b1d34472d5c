//! Addresses of stores, as a configuration has them.

use std::path::PathBuf;

/// Port of Redis, and of Sentinel.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Where a store is.
///
/// | Form | Store |
/// |---|---|
/// | `redis://[USER@]HOST[:PORT][/DATABASE]` | one server; `rediss://` with TLS |
/// | `redis+unix:/PATH` | one server, by a UNIX socket |
/// | `redis-sentinel://HOST[:PORT],...[/DATABASE]?master=NAME` | the server that Sentinels name; `rediss-sentinel://` |
/// | `redis-cluster://HOST[:PORT],...` | a cluster; `rediss-cluster://` |
/// | `file:/FOLDER` | a folder that all nodes have |
/// | `memory:` | this process |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    Memory,
    Folder(PathBuf),
    Redis {
        mode: RedisMode,
        /// Name or address, and port, of at least one server.
        hosts: Vec<(String, u16)>,
        uses_tls: bool,
        user: Option<String>,
        database: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisMode {
    Server,
    UnixSocket(PathBuf),
    /// With the name of the master.
    Sentinel(String),
    Cluster,
}

/// A text that is no address of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFault {
    pub reason: String,
    pub hint: String,
}

fn fault(reason: impl Into<String>, hint: impl Into<String>) -> AddressFault {
    AddressFault { reason: reason.into(), hint: hint.into() }
}

impl StoreAddress {
    /// Parses an address. Looks nothing up.
    ///
    /// # Errors
    /// With the reason, and a hint.
    pub fn parse(text: &str) -> Result<StoreAddress, AddressFault> {
        if text == "memory:" {
            return Ok(StoreAddress::Memory);
        }
        if let Some(path) = text.strip_prefix("file:") {
            return match path.starts_with('/') {
                true => Ok(StoreAddress::Folder(PathBuf::from(path))),
                false => Err(fault(format!("\"{path}\" is no absolute path"), "write file:/path/of/a/folder")),
            };
        }
        if let Some(path) = text.strip_prefix("redis+unix:") {
            if !path.starts_with('/') {
                return Err(fault(format!("\"{path}\" is no absolute path"), "write redis+unix:/path/of/the.sock"));
            }
            let mode = RedisMode::UnixSocket(PathBuf::from(path));
            return Ok(StoreAddress::Redis { mode, hosts: Vec::new(), uses_tls: false, user: None, database: 0 });
        }
        let forms = "the forms are redis://HOST:PORT, rediss://HOST:PORT (TLS), redis+unix:/PATH, \
                     redis-sentinel://HOST,HOST?master=NAME, redis-cluster://HOST,HOST, file:/FOLDER and memory:";
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(fault(format!("\"{text}\" is no address of a store"), forms));
        };
        let (uses_tls, kind) = match scheme.strip_prefix("redis") {
            Some(kind) => match kind.strip_prefix('s') {
                Some(kind) if kind.is_empty() || kind.starts_with('-') => (true, kind),
                _ => (false, kind),
            },
            None => return Err(fault(format!("unknown scheme \"{scheme}\""), forms)),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (rest, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), 0),
            Some((rest, number)) => match number.parse() {
                Ok(number) => (rest, number),
                Err(_) => {
                    return Err(fault(format!("\"{number}\" is no number of a database"), "write /0, for example"));
                }
            },
        };
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return Err(fault(
                    "a password in the address",
                    "everybody sees it who sees the configuration: \
                     put it into a file, and write password_file=FILE",
                ));
            }
            Some((user, rest)) => (Some(user.to_owned()).filter(|user| !user.is_empty()), rest),
            None => (None, rest),
        };
        let (mode, port) = match kind {
            "" => (RedisMode::Server, REDIS_PORT),
            "-cluster" => (RedisMode::Cluster, REDIS_PORT),
            "-sentinel" => {
                match query.and_then(|query| query.strip_prefix("master=")).filter(|name| !name.is_empty()) {
                    Some(name) => (RedisMode::Sentinel(name.to_owned()), SENTINEL_PORT),
                    None => {
                        return Err(fault("no name of the master", "write ?master=NAME behind the Sentinels' hosts"));
                    }
                }
            }
            _ => return Err(fault(format!("unknown scheme \"{scheme}\""), forms)),
        };
        if let Some(query) = query.filter(|_| !matches!(mode, RedisMode::Sentinel(_))) {
            return Err(fault(format!("unknown parameter \"{query}\""), "only redis-sentinel:// has one: master=NAME"));
        }
        if mode == RedisMode::Cluster && database != 0 {
            return Err(fault("a cluster has no databases but 0", "leave the number out"));
        }
        let hosts = rest.split(',').map(|host| parse_host(host, port)).collect::<Result<Vec<_>, _>>()?;
        if mode == RedisMode::Server && hosts.len() > 1 {
            return Err(fault("several hosts", "use redis-sentinel:// or redis-cluster://"));
        }
        Ok(StoreAddress::Redis { mode, hosts, uses_tls, user, database })
    }
}

fn parse_host(text: &str, default: u16) -> Result<(String, u16), AddressFault> {
    let wrong = || fault(format!("\"{text}\" is no HOST or HOST:PORT"), "for example 10.0.0.1:6379, or [::1]:6379");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong());
            }
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(wrong());
    }
    let port = match port {
        None => default,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(
        mode: RedisMode,
        hosts: &[(&str, u16)],
        uses_tls: bool,
        user: Option<&str>,
        database: u32,
    ) -> StoreAddress {
        let hosts = hosts.iter().map(|(host, port)| (host.to_string(), *port)).collect();
        StoreAddress::Redis { mode, hosts, uses_tls, user: user.map(str::to_owned), database }
    }

    #[test]
    fn addresses_have_one_meaning() {
        let server = RedisMode::Server;
        let table = [
            ("redis://a", redis(server.clone(), &[("a", 6379)], false, None, 0)),
            ("rediss://me@a.b:1/3", redis(server.clone(), &[("a.b", 1)], true, Some("me"), 3)),
            ("redis://[::1]:7/", redis(server.clone(), &[("::1", 7)], false, None, 0)),
            ("redis://[::1]", redis(server, &[("::1", 6379)], false, None, 0)),
            ("redis-cluster://a,b:2", redis(RedisMode::Cluster, &[("a", 6379), ("b", 2)], false, None, 0)),
            (
                "rediss-sentinel://a,b/2?master=m",
                redis(RedisMode::Sentinel("m".into()), &[("a", 26379), ("b", 26379)], true, None, 2),
            ),
            ("redis+unix:/run/r.sock", redis(RedisMode::UnixSocket("/run/r.sock".into()), &[], false, None, 0)),
            ("file:/var/x", StoreAddress::Folder("/var/x".into())),
            ("memory:", StoreAddress::Memory),
        ];
        for (text, address) in table {
            assert_eq!(StoreAddress::parse(text), Ok(address), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        let table = [
            ("", "is no address of a store"),
            ("redis:a", "is no address of a store"),
            ("valkey://a", "unknown scheme"),
            ("redisx://a", "unknown scheme"),
            ("redis-x://a", "unknown scheme"),
            ("redis://", "is no HOST"),
            ("redis://a:0", "is no HOST"),
            ("redis://a:70000", "is no HOST"),
            ("redis://[x]", "is no HOST"),
            ("redis://[::1]7", "is no HOST"),
            ("redis://a b", "is no HOST"),
            ("redis://a,b", "several hosts"),
            ("redis://a/x", "no number of a database"),
            ("redis://a?master=m", "unknown parameter"),
            ("redis://me:secret@a", "a password in the address"),
            ("redis-sentinel://a", "no name of the master"),
            ("redis-sentinel://a?master=", "no name of the master"),
            ("redis-cluster://a/1", "no databases but 0"),
            ("file:x", "no absolute path"),
            ("redis+unix:x", "no absolute path"),
        ];
        for (text, reason) in table {
            let fault = StoreAddress::parse(text).expect_err(text);
            assert!(fault.reason.contains(reason) && !fault.hint.is_empty(), "{text}: {fault:?}");
        }
    }
}
