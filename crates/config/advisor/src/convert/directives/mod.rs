//! Directives that become nginx's: addresses, names, folders, TLS, logs, proxies, scripts, times. All others are rules.

mod proxy;
mod values;

use super::rules::PlaceRules;
use super::{CLOSED, ConvertedBlock, Converter, Server, word};
use htaccess::syntax::SyntaxLine;
pub(super) use proxy::add_upgrade;
pub(super) use values::regex_quoted;
use values::{convert_protocols, convert_time, pattern_extensions};

/// Directives without a counterpart: nginx does so by default, or has no use for them.
const NEEDLESS: &[&str] = &[
    "serveradmin",
    "usecanonicalname",
    "hostnamelookups",
    "keepalive",
    "maxkeepaliverequests",
    "serversignature",
    "servertokens",
    "sslengine",
    "sslhonorcipherorder",
    "sslcompression",
    "sslsessiontickets",
    "sslsessioncache",
    "sslsessioncachetimeout",
    "proxyrequests",
    "sslusestapling",
    "sslstaplingcache",
    "enablesendfile",
    "enablemmap",
    "logformat",
    "protocols",
    "proxypassreverse",
    "proxypassreversecookiedomain",
    "proxypassreversecookiepath",
    "traceenable",
    "loglevel",
    "proxyvia",
    "ssloptions",
];

/// Words of the open sections' innermost one: its name in lower case, and its arguments.
fn innermost(open: &[String]) -> Option<(String, Vec<String>)> {
    let head = open.last()?.strip_prefix('<')?.strip_suffix('>')?;
    let mut words = htaccess::syntax::split_words(head);
    let name = if words.is_empty() { String::new() } else { words.remove(0).to_ascii_lowercase() };
    Some((name, words))
}

impl Converter<'_> {
    pub(super) fn is_server_word(&self, name: &str) -> bool {
        NEEDLESS.contains(&name)
            || matches!(name, "addoutputfilterbytype" | "setoutputfilter" | "limitrequestbody" | "addoutputfilter")
    }

    /// Translates a directive to nginx's; `None`: it belongs to the rules. Fails with the reason to leave it; one that begins
    /// with [`CLOSED`] denies the place.
    pub(super) fn word(
        &mut self,
        line: &SyntaxLine,
        name: &str,
        open: &[String],
        server: &mut Server,
        place: &mut PlaceRules,
    ) -> Option<Result<(), String>> {
        let args: Vec<String> = line.args.iter().map(|arg| self.filled(arg)).collect();
        let arg = |index: usize| args.get(index).map_or("", String::as_str);
        let result = match name {
            "addoutputfilterbytype" => {
                compress_types(&args, &mut server.block);
                Ok(())
            }
            "setoutputfilter" if arg(0).eq_ignore_ascii_case("deflate") && open.is_empty() => {
                server.block.set("gzip", "on");
                Ok(())
            }
            "setoutputfilter" | "addoutputfilter" if !args.join(" ").to_ascii_lowercase().contains("includes") => {
                Err("filters have no translation here: see gzip".into())
            }
            "setoutputfilter" => Err(format!("{CLOSED}its files contain commands for the server")),
            "addoutputfilter" => self.refuse_extensions(&args, open, place),
            "sethandler" if matches!(arg(0).to_ascii_lowercase().as_str(), "none" | "default-handler") => return None,
            "sethandler" => self.handler_of_place(arg(0), open, server),
            "addtype" if !arg(0).contains("httpd-php") => return None,
            "addhandler" | "addtype" => self.handler_of_extensions(&args, open, server, place),
            "php_flag" | "php_admin_flag" if arg(0).eq_ignore_ascii_case("engine") => return None,
            "php_value" | "php_flag" => return None,
            "php_admin_value" | "php_admin_flag" if open.is_empty() => {
                server.php_values.insert(arg(0).to_string(), arg(1).to_string());
                Ok(())
            }
            "php_admin_value" | "php_admin_flag" => {
                Err("settings of PHP for a part of the server have no translation".into())
            }
            "proxypass" => {
                let location = proxy::location_of(open);
                match open.is_empty() || location.is_some() {
                    true => self.proxy_pass(&args, location.as_deref(), server),
                    false => Err(format!("{CLOSED}ProxyPass has no translation in this section")),
                }
            }
            _ if NEEDLESS.contains(&name) => Ok(()),
            _ if !open.is_empty() => return None,
            _ => return self.server_word(name, &args, server),
        };
        Some(result)
    }

    /// Translates a directive that stands outside of sections.
    fn server_word(&mut self, name: &str, args: &[String], server: &mut Server) -> Option<Result<(), String>> {
        let arg = |index: usize| args.get(index).map_or("", String::as_str);
        let file = |own: &Self| word(&own.absolute(arg(0)));
        match name {
            "servername" => {
                let bare = arg(0).split("://").last().unwrap_or_default();
                server.names.insert(0, bare.split(':').next().unwrap_or_default().to_string());
            }
            "serveralias" => server.names.extend(args.iter().cloned()),
            "documentroot" => server.root = Some(self.absolute(arg(0)).trim_end_matches('/').to_string()),
            "errorlog" if arg(0).starts_with('|') || arg(0) == "syslog" || arg(0).starts_with("syslog:") => {
                return Some(Err("logs of programs and syslog have no translation: see error_log".into()));
            }
            "errorlog" => server.block.line(format!("error_log {};", file(self))),
            "customlog" | "transferlog"
                if arg(0).starts_with('|') || arg(0).starts_with("syslog") || args.len() > 2 =>
            {
                return Some(Err("logs of programs, syslog and conditions have no translation: see access_log".into()));
            }
            "customlog" | "transferlog" => match proxy::log_format(args) {
                Ok(format) => server.block.line(format!("access_log {} {format};", file(self))),
                Err(why) => return Some(Err(why)),
            },
            "alias" if args.len() == 2 => return Some(self.alias(args, server)),
            "scriptalias" => {
                let block = server.block.location(&word(&format!("{}/", arg(0).trim_end_matches('/'))));
                block.line("deny all;");
                return Some(Err("CGI programs are not supported: use an application server".into()));
            }
            "aliasmatch" | "scriptaliasmatch" => {
                let block = server.block.location(&format!("~ {}", word(arg(0))));
                block.line("deny all;");
                return Some(Err("paths by patterns have no translation: they are denied".into()));
            }
            "proxypassmatch" => {
                if let Some(address) = fastcgi_address(arg(1)) {
                    server.php = Some(address);
                    return Some(Ok(()));
                }
                let block = server.block.location(&format!("~ {}", word(arg(0))));
                block.line("deny all;");
                return Some(Err("paths by patterns have no translation: they are denied".into()));
            }
            "proxypreservehost" => {
                if arg(0).eq_ignore_ascii_case("on") {
                    server.block.line("proxy_set_header Host $host;");
                }
            }
            "proxytimeout" | "timeout" | "keepalivetimeout" => {
                let Some(time) = convert_time(arg(0)) else { return Some(Err("this time has no translation".into())) };
                let names: &[&str] = match name {
                    "proxytimeout" => &["proxy_read_timeout"],
                    "timeout" => &["client_body_timeout", "send_timeout"],
                    _ => &["keepalive_timeout"],
                };
                names.iter().for_each(|name| server.block.set(name, &time));
            }
            "sslcertificatefile" => server.block.set("ssl_certificate", &file(self)),
            "sslcertificatekeyfile" => server.block.set("ssl_certificate_key", &file(self)),
            "sslcacertificatefile" => server.block.set("ssl_client_certificate", &file(self)),
            "sslcarevocationfile" => server.block.set("ssl_crl", &file(self)),
            "sslverifydepth" => server.block.set("ssl_verify_depth", arg(0)),
            "sslverifyclient" => match arg(0).to_ascii_lowercase().as_str() {
                "none" => {}
                "require" => server.block.set("ssl_verify_client", "on"),
                "optional" => server.block.set("ssl_verify_client", "optional"),
                _ => return Some(Err(format!("{CLOSED}this check of client certificates has no translation"))),
            },
            "sslcertificatechainfile" => {
                return Some(Err("append this file to the file of ssl_certificate".into()));
            }
            "sslprotocol" => server.block.set("ssl_protocols", &convert_protocols(args)),
            "sslciphersuite" => server.block.set("ssl_ciphers", &word(args.last().map_or("", String::as_str))),
            "requestheader" => match (arg(0).to_ascii_lowercase().as_str(), args.len()) {
                ("set", 3) if !arg(2).contains(['%', '$']) => {
                    server.block.line(format!("proxy_set_header {} {};", word(arg(1)), word(arg(2))));
                }
                ("unset", 2) if arg(1).eq_ignore_ascii_case("proxy") => {}
                ("unset", 2) => server.block.line(format!("proxy_set_header {} \"\";", word(arg(1)))),
                _ => return Some(Err("this form has no translation".into())),
            },
            "limitrequestbody" => server.block.set("client_max_body_size", arg(0)),
            "setenv" => {
                server.variables.push(arg(0).to_string());
                return None;
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn alias(&mut self, args: &[String], server: &mut Server) -> Result<(), String> {
        let (uri, folder) = (argument(args, 0), self.absolute(argument(args, 1)));
        if !uri.starts_with('/') {
            return Err(format!("{CLOSED}\"{uri}\" is no path"));
        }
        // Apache compares whole names, with or without a final slash of the alias.
        let bare = uri.trim_end_matches('/');
        let target = folder.trim_end_matches('/').to_string();
        if server.aliases.iter().any(|(own, _)| own == bare) {
            return Err("an earlier Alias takes these paths".into());
        }
        server.aliases.push((bare.to_string(), target));
        if !uri.ends_with('/') {
            server.block.location(&format!("= {}", word(bare))).set("alias", &word(&folder));
        }
        if bare.is_empty() {
            server.root = Some(folder.trim_end_matches('/').to_string());
            return Ok(());
        }
        let block = server.block.location(&word(&format!("{bare}/")));
        block.set("alias", &word(&format!("{}/", folder.trim_end_matches('/'))));
        Ok(())
    }

    /// `SetHandler` for the files of a place.
    fn handler_of_place(&mut self, handler: &str, open: &[String], server: &mut Server) -> Result<(), String> {
        let address = fastcgi_address(handler);
        if address.is_none() && !handler.contains("httpd-php") || handler.ends_with("php-source") {
            return Err(format!("{CLOSED}the handler \"{handler}\" has no translation"));
        }
        let names = match innermost(open) {
            Some((name, words)) => match (name.as_str(), words.as_slice()) {
                ("filesmatch", [pattern]) => pattern_extensions(pattern, false),
                ("files", [sign, pattern]) if sign == "~" => pattern_extensions(pattern, false),
                ("files", [pattern]) => pattern_extensions(pattern, true),
                _ => None,
            },
            None => None,
        };
        let Some(names) = names else {
            return Err(format!("{CLOSED}files without one of PHP's extensions would be served as text"));
        };
        if let Some(address) = address {
            server.php = Some(address);
        }
        server.extensions.extend(names);
        Ok(())
    }

    /// `AddHandler` and `AddType` for files by their extensions.
    fn handler_of_extensions(
        &mut self,
        args: &[String],
        open: &[String],
        server: &mut Server,
        place: &mut PlaceRules,
    ) -> Result<(), String> {
        if !argument(args, 0).contains("php") && fastcgi_address(argument(args, 0)).is_none() {
            return self.refuse_extensions(args, open, place);
        }
        if let Some(address) = fastcgi_address(argument(args, 0)) {
            server.php = Some(address);
        }
        let names = args.iter().skip(1).map(|name| name.trim_start_matches('.').to_ascii_lowercase());
        server.anywhere.extend(names.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric())));
        Ok(())
    }

    /// Denies files that Apache runs or changes, and that would be served as text.
    fn refuse_extensions(&mut self, args: &[String], open: &[String], place: &mut PlaceRules) -> Result<(), String> {
        const WHY: &str = "handlers for file types have no translation";
        if innermost(open).is_some_and(|(name, _)| !name.starts_with("directory")) {
            return Err(format!("{CLOSED}{WHY}"));
        }
        let names: Vec<String> = args.iter().skip(1).map(|name| regex_quoted(name.trim_start_matches('.'))).collect();
        place.deny_names(&format!("(?i)\\.({})(\\.|$)", names.join("|")));
        Err(format!("{WHY}: these files are denied"))
    }
}

/// Address of a FastCGI server in `proxy:unix:/socket|fcgi://name` or `fcgi://host:port/path`.
fn fastcgi_address(text: &str) -> Option<String> {
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    if let Some((socket, rest)) = text.split_once('|') {
        return (socket.starts_with("unix:") && rest.starts_with("fcgi:")).then(|| socket.to_string());
    }
    text.strip_prefix("fcgi://").map(|rest| rest.split('/').next().unwrap_or_default().to_string())
}

fn argument(args: &[String], index: usize) -> &str {
    args.get(index).map_or("", String::as_str)
}

/// `AddOutputFilterByType`: adds types to those that are compressed.
fn compress_types(args: &[String], block: &mut ConvertedBlock) {
    let types = args.iter().skip(1).filter(|name| *name != "text/html");
    let on = if argument(args, 0).to_ascii_lowercase().contains("brotli") { "brotli" } else { "gzip" };
    block.set(on, "on");
    let start = format!("{on}_types ");
    let old = block.lines.iter().find_map(|line| line.strip_prefix(&start).map(|line| line.trim_end_matches(';')));
    let mut all: Vec<String> = old.iter().flat_map(|old| old.split(' ')).map(str::to_string).collect();
    for name in types {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    if !all.is_empty() {
        block.set(&format!("{on}_types"), &all.join(" "));
    }
}
