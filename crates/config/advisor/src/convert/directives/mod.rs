//! Translates Apache's directives except rewriting: each becomes nginx lines, or is left with a reason.

mod access;
mod values;

use super::{Block, Converter, Server, below, word};
use crate::scope::quoted;
use access::Access;
use htaccess::settings::section_holds;
use htaccess::syntax::Line;
pub use values::regex_quoted;
use values::{duration, of_glob, of_name, protocols};

/// Position of lines: the directory as a URI path (`/`, `/sub/`; `None`: the server), and the target location's words.
#[derive(Clone, Debug, Default)]
pub struct LinePlace {
    pub dir: Option<String>,
    pub location: Option<String>,
}

/// Directives without a counterpart: nginx does so by default, or has no use for them.
const NEEDLESS: &[&str] = &[
    "serveradmin",
    "usecanonicalname",
    "hostnamelookups",
    "keepalive",
    "maxkeepaliverequests",
    "serversignature",
    "servertokens",
    "allowoverride",
    "sslengine",
    "sslhonorcipherorder",
    "sslcompression",
    "sslsessiontickets",
    "sslsessioncache",
    "proxyrequests",
    "sslusestapling",
    "sslstaplingcache",
    "enablesendfile",
    "enablemmap",
    "fileetag",
    "logformat",
    "protocols",
    "directoryslash",
    "proxypassreversecookiedomain",
    "proxypassreversecookiepath",
    "traceenable",
    "loglevel",
    "setoutputfilter",
    "addencoding",
    "contentdigest",
    "proxyvia",
    "deflatecompressionlevel",
    "addoutputfilter",
    "browsermatch",
    "browsermatchnocase",
    "addlanguage",
    "indexoptions",
    "indexignore",
    "serverpath",
    "ssloptions",
    "acceptpathinfo",
];

impl Converter<'_> {
    pub(super) fn directives(&mut self, lines: &[Line], server: &mut Server, dir: Option<&str>) {
        let location = dir.filter(|dir| *dir != "/").map(|dir| format!("^~ {}", word(dir)));
        let place = LinePlace { dir: dir.map(str::to_string), location };
        for line in lines.iter().filter(|line| line.is("DocumentRoot")) {
            server.root = Some(self.absolute(line.arg(0)));
        }
        for line in lines.iter().filter(|line| line.is("Alias")) {
            server
                .aliases
                .push((line.arg(0).to_string(), self.absolute(line.arg(1)).trim_end_matches('/').to_string()));
        }
        self.lines(lines, server, &if dir.is_none() { LinePlace::default() } else { place });
    }

    fn absolute(&self, path: &str) -> String {
        let path = self.filled(path);
        if path.starts_with('/') { path } else { format!("{}/{path}", self.options.server_root) }
    }

    fn lines(&mut self, lines: &[Line], server: &mut Server, place: &LinePlace) {
        let mut access = Access::default();
        for line in lines {
            if let Some(inner) = &line.section {
                match section_holds(line) {
                    Some(true) => self.lines(inner, server, place),
                    Some(false) if line.is("IfModule") && super::usual(line.arg(0)) => self.lines(inner, server, place),
                    Some(false) => {}
                    None => self.section(line, inner, server, place, &mut access),
                }
                continue;
            }
            let name = line.name.to_ascii_lowercase();
            if name.starts_with("rewrite") {
                let result = server.rewrites.take(line, place.dir.as_deref(), &self.file);
                self.settle(line, result, server, place);
                continue;
            }
            if access.take(line, &name) {
                continue;
            }
            let result = self.directive(line, &name, server, place);
            self.settle(line, result, server, place);
        }
        if !access.is_empty() {
            let result = access.lines();
            let line = access.first.clone().unwrap_or_default();
            let mut target = Block::default();
            match result {
                Ok(lines) => target.lines = lines,
                // An untranslatable rule denies: allowing would open a protected resource.
                Err(why) => {
                    target.line("deny all;");
                    self.leave(&line, &why, &mut target);
                }
            }
            // The default; written only where another rule stood.
            if place.location.is_none() && target.lines == ["allow all;"] {
                return;
            }
            let block = block(server, place);
            for line in target.lines {
                block.line(line);
            }
        }
    }

    fn settle(&mut self, line: &Line, result: Result<(), String>, server: &mut Server, place: &LinePlace) {
        if let Err(why) = result {
            let mut comment = Block::default();
            self.leave(line, &why, &mut comment);
            block(server, place).lines.extend(comment.lines);
        }
    }

    fn section(&mut self, line: &Line, inner: &[Line], server: &mut Server, place: &LinePlace, access: &mut Access) {
        let name = line.name.to_ascii_lowercase();
        let words = match name.as_str() {
            "directory" if line.args.len() == 1 && !line.arg(0).contains(['*', '?', '[']) => {
                let path = self.absolute(line.arg(0));
                let alias = server.aliases.iter().find_map(|(uri, folder)| Some((uri.clone(), below(&path, folder)?)));
                match (server.root.as_deref().and_then(|root| below(&path, root)), alias) {
                    (Some(rest), _) => return self.directives_of(inner, server, &format!("{rest}/")),
                    (None, Some((uri, rest))) => {
                        return self.directives_of(inner, server, &format!("{}{rest}/", uri.trim_end_matches('/')));
                    }
                    // Rules of directories above the root apply to the whole server.
                    _ if server.root.as_deref().is_some_and(|root| below(root, &path).is_some()) => {
                        return self.lines(inner, server, &LinePlace { dir: Some("/".into()), location: None });
                    }
                    _ => None,
                }
            }
            "location" if line.args.len() == 1 && !line.arg(0).contains(['*', '?']) => {
                let path = line.arg(0);
                if path == "/" {
                    return self.lines(inner, server, place);
                }
                Some(format!("^~ {}", word(path)))
            }
            "locationmatch" if line.args.len() == 1 => Some(format!("~ {}", word(line.arg(0)))),
            "files" if line.args.len() == 1 => Some(format!("~ {}", word(&of_glob(line.arg(0))))),
            "files" if line.arg(0) == "~" => Some(format!("~ {}", word(&of_name(line.arg(1))))),
            "filesmatch" if line.args.len() == 1 => {
                if inner.iter().any(|line| line.is("SetHandler")) && line.arg(0).contains("php") {
                    for handler in inner.iter().filter(|line| line.is("SetHandler")) {
                        let result = self.directive(handler, "sethandler", server, place);
                        self.settle(handler, result, server, place);
                    }
                    return;
                }
                Some(format!("~ {}", word(&of_name(line.arg(0)))))
            }
            "requireany" | "requireall" | "requirenone" => {
                access.require(line);
                return;
            }
            "limit" | "limitexcept" => {
                if name == "limitexcept" {
                    let mut own = Access::default();
                    if inner.iter().all(|line| own.take(line, &line.name.to_ascii_lowercase()))
                        && let Ok(lines) = own.lines()
                        && place.location.is_some()
                    {
                        let target = block(server, place);
                        target.line(format!("limit_except {} {{", line.args.join(" ")));
                        target.lines.extend(lines);
                        target.line("}");
                        return;
                    }
                }
                None
            }
            _ => None,
        };
        match words {
            Some(words) => {
                let nested = place.location.as_ref().map(|outer| format!("{outer}\n{words}"));
                self.lines(inner, server, &LinePlace { dir: None, location: Some(nested.unwrap_or(words)) });
            }
            None => {
                let mut comment = Block::default();
                self.leave(line, "this section and its contents have no translation", &mut comment);
                for inner in inner {
                    self.leave(inner, "the enclosing section has no translation", &mut comment);
                }
                block(server, place).lines.extend(comment.lines);
            }
        }
    }

    fn directives_of(&mut self, inner: &[Line], server: &mut Server, dir: &str) {
        let location = (dir != "/").then(|| format!("^~ {}", word(dir)));
        self.lines(inner, server, &LinePlace { dir: Some(dir.to_string()), location });
    }

    fn directive(&mut self, line: &Line, name: &str, server: &mut Server, place: &LinePlace) -> Result<(), String> {
        let args: Vec<String> = line.args.iter().map(|arg| self.filled(arg)).collect();
        let arg = |index: usize| args.get(index).map_or("", String::as_str);
        let value = |text: &str| word(text);
        match name {
            _ if NEEDLESS.contains(&name) => {
                if name == "sslengine" {
                    server.secure = arg(0).eq_ignore_ascii_case("on");
                }
            }
            "servername" => {
                let bare = arg(0).split("://").last().unwrap_or_default();
                server.names.insert(0, bare.split(':').next().unwrap_or_default().to_string());
            }
            "serveralias" => server.names.extend(args.iter().cloned()),
            "documentroot" => {}
            "directoryindex" => {
                let names: Vec<String> = args.iter().map(|name| value(name)).collect();
                block(server, place).set("index", &names.join(" "));
            }
            "errorlog" if !arg(0).starts_with(['|', 's']) => {
                let path = self.absolute(arg(0));
                block(server, place).line(format!("error_log {};", value(&path)));
            }
            "customlog" | "transferlog" if !arg(0).starts_with('|') && args.len() <= 2 => {
                return self.custom_log(&args, block(server, place));
            }
            "errordocument" => return error_document(&args, block(server, place)),
            "redirect" | "redirectpermanent" | "redirecttemp" | "redirectmatch" => {
                return redirect(name, &args, server);
            }
            "alias" => self.alias(&args, server),
            "proxypass" => return proxy_pass(&args, server, place),
            "proxypassreverse" => {}
            "proxypreservehost" => {
                if arg(0).eq_ignore_ascii_case("on") {
                    server.block.line("proxy_set_header Host $host;");
                }
            }
            "proxytimeout" => {
                let seconds: u32 = arg(0).parse().map_err(|_| "this time has no translation")?;
                block(server, place).set("proxy_read_timeout", &format!("{seconds}s"));
            }
            "sslcertificatefile" => server.block.set("ssl_certificate", &value(&self.absolute(arg(0)))),
            "sslcertificatekeyfile" => server.block.set("ssl_certificate_key", &value(&self.absolute(arg(0)))),
            "sslcertificatechainfile" => {
                return Err("append this file to the file of ssl_certificate".into());
            }
            "sslprotocol" => {
                server.block.set("ssl_protocols", &protocols(&args));
            }
            "sslciphersuite" => server.block.set("ssl_ciphers", &value(args.last().map_or("", String::as_str))),
            "header" => return header(&args, block(server, place)),
            "requestheader" => match (arg(0).to_ascii_lowercase().as_str(), args.len()) {
                ("set", 3) if !arg(2).contains('%') => {
                    let line = format!("proxy_set_header {} {};", value(arg(1)), value(arg(2)));
                    block(server, place).line(line);
                }
                ("unset", 2) if arg(1).eq_ignore_ascii_case("proxy") => {}
                ("unset", 2) => block(server, place).line(format!("proxy_set_header {} \"\";", value(arg(1)))),
                _ => return Err("this form has no translation".into()),
            },
            "options" => return options(&args, block(server, place)),
            "adddefaultcharset" => {
                let charset = match arg(0).to_ascii_lowercase().as_str() {
                    "on" => "iso-8859-1".to_string(),
                    other => other.to_string(),
                };
                block(server, place).set("charset", &value(&charset));
            }
            "addtype" if !arg(0).contains("php") => {
                let extensions: Vec<&str> = args.iter().skip(1).map(|e| e.trim_start_matches('.')).collect();
                let target = block(server, place);
                target.line(format!("location ~* {} {{", value(&format!("\\.({})$", extensions.join("|")))));
                target.line("types { }");
                target.line(format!("default_type {};", value(arg(0))));
                target.line("}");
            }
            "forcetype" => {
                let target = block(server, place);
                target.line("types { }");
                target.set("default_type", &value(arg(0)));
            }
            "addhandler" | "sethandler" | "addtype" => return self.handler(&args, server),
            "php_value" | "php_admin_value" | "php_flag" | "php_admin_flag" => {
                server.php_values.insert(arg(0).to_string(), arg(1).to_string());
                server.php.get_or_insert_with(|| self.options.php.clone());
            }
            "expiresactive" => {
                if arg(0).eq_ignore_ascii_case("off") {
                    block(server, place).set("expires", "off");
                }
            }
            "expiresdefault" | "expiresbytype" => {
                return self.expires(name, &args, server, place);
            }
            "addoutputfilterbytype" => compress_types(&args, &mut server.block),
            "limitrequestbody" => block(server, place).set("client_max_body_size", arg(0)),
            "timeout" => {
                server.block.set("client_body_timeout", &format!("{}s", arg(0)));
                server.block.set("send_timeout", &format!("{}s", arg(0)));
            }
            "keepalivetimeout" => server.block.set("keepalive_timeout", &format!("{}s", arg(0))),
            "setenv" => {
                return Err("set it where requests are proxied: fastcgi_param NAME VALUE".into());
            }
            "setenvif" | "setenvifnocase" => return Err("use a map of the attribute".into()),
            "include" | "includeoptional" => return Err("add the included files to the command line".into()),
            "scriptalias" | "scriptaliasmatch" => {
                return Err("CGI programs are not supported: use an application server".into());
            }
            _ => return Err("it has no translation".into()),
        }
        Ok(())
    }

    fn custom_log(&mut self, args: &[String], block: &mut Block) -> Result<(), String> {
        let format = match argument(args, 1) {
            "" | "combined" | "vhost_combined" => "combined",
            other => return Err(format!("the format \"{other}\" has no counterpart; write a log_format")),
        };
        let path = self.absolute(argument(args, 0));
        block.line(format!("access_log {} {format};", word(&path)));
        Ok(())
    }

    fn alias(&mut self, args: &[String], server: &mut Server) {
        let (uri, folder) = (argument(args, 0), self.absolute(argument(args, 1)));
        let alias = (uri.to_string(), folder.trim_end_matches('/').to_string());
        if !server.aliases.contains(&alias) {
            server.aliases.push(alias);
        }
        let is_folder = uri.ends_with('/') || !uri.rsplit('/').next().unwrap_or_default().contains('.');
        let words = if is_folder {
            format!("^~ {}", word(&format!("{}/", uri.trim_end_matches('/'))))
        } else {
            format!("= {}", word(uri))
        };
        let folder = if is_folder { format!("{}/", folder.trim_end_matches('/')) } else { folder };
        server.block.location(&words).line(format!("alias {};", word(&folder)));
        if is_folder && !uri.ends_with('/') {
            let target = word(&format!("{uri}/"));
            server.block.location(&format!("= {}", word(uri))).line(format!("return 301 {target};"));
        }
    }

    /// `AddHandler`, `SetHandler` and `AddType` for PHP.
    fn handler(&mut self, args: &[String], server: &mut Server) -> Result<(), String> {
        let what = args.join(" ");
        if let Some(proxy) = what.strip_prefix("proxy:") {
            let socket = proxy.split('|').next().unwrap_or_default();
            let tcp = proxy.strip_prefix("fcgi://").map(|rest| rest.split('/').next().unwrap_or_default().to_string());
            server.php = Some(tcp.unwrap_or_else(|| socket.to_string()));
        } else if what.contains("php") && !what.contains(".html") {
            server.php.get_or_insert_with(|| self.options.php.clone());
        } else {
            return Err("handlers for file types have no translation".into());
        }
        Ok(())
    }

    fn expires(&mut self, name: &str, args: &[String], server: &mut Server, place: &LinePlace) -> Result<(), String> {
        let (media, text) = match name {
            "expiresdefault" => (None, args.join(" ")),
            _ => (args.first(), args.get(1..).unwrap_or_default().join(" ")),
        };
        // A variable of `expires` holds no time after the modification.
        const BY_TYPE: &str =
            "a time after the modification cannot depend on the type: write \"expires modified\" in a location";
        let time = duration(&text).ok_or("this time has no translation")?;
        let modified = time.starts_with("modified ");
        let has =
            |start: &str, server: &mut Server| block(server, place).lines.iter().any(|line| line.starts_with(start));
        let Some(media) = media else {
            if has("expires $", server) {
                if modified {
                    return Err(BY_TYPE.into());
                }
            } else {
                block(server, place).set("expires", &time);
            }
            if modified {
                return Ok(());
            }
            self.map(None, &time);
            return Ok(());
        };
        if modified || has("expires modified ", server) {
            return Err(BY_TYPE.into());
        }
        self.map(Some(media), &time);
        block(server, place).set("expires", "$expires_by_type");
        Ok(())
    }

    fn map(&mut self, media: Option<&str>, time: &str) {
        const HEAD: &str = "map $sent_http_content_type $expires_by_type {";
        if !self.http.lines.iter().any(|line| line == HEAD) {
            if media.is_none() {
                return;
            }
            self.http.lines.extend([HEAD.to_string(), "default off;".into(), "}".into()]);
        }
        let Some(at) = self.http.lines.iter().position(|line| line == HEAD) else { return };
        match media {
            None => {
                if let Some(line) = self.http.lines.get_mut(at + 1) {
                    *line = format!("default {time};");
                }
            }
            Some(media) => {
                let pattern = format!("\"~*^{}\"", media.replace('.', "\\.").replace('+', "\\+").replace('*', ".*"));
                let line = format!("{pattern} {time};");
                if !self.http.lines.iter().any(|own| own.starts_with(&format!("{pattern} "))) {
                    self.http.lines.insert(at + 2, line);
                }
            }
        }
    }
}

pub fn block<'s>(server: &'s mut Server, place: &LinePlace) -> &'s mut Block {
    match &place.location {
        None => &mut server.block,
        Some(words) => words.split('\n').fold(&mut server.block, |block, words| block.location(words)),
    }
}

fn argument(args: &[String], index: usize) -> &str {
    args.get(index).map_or("", String::as_str)
}

fn error_document(args: &[String], block: &mut Block) -> Result<(), String> {
    let target = args.get(1..).unwrap_or_default().join(" ");
    if target.contains('$') {
        return Err("a URL with \"$\" has no translation".into());
    }
    if !target.starts_with('/') && !target.starts_with("http") {
        return Err("inline text: write it to a file and use error_page".into());
    }
    block.line(format!("error_page {} {};", argument(args, 0), word(&target)));
    Ok(())
}

fn options(args: &[String], block: &mut Block) -> Result<(), String> {
    let on = |name: &str| args.iter().any(|word| word.trim_start_matches('+').eq_ignore_ascii_case(name));
    let off = args.iter().any(|word| word.eq_ignore_ascii_case("-Indexes"));
    if on("indexes") || on("all") {
        block.set("autoindex", "on");
    } else if off {
        block.set("autoindex", "off");
    }
    if on("includes") {
        block.set("ssi", "on");
    }
    if on("execcgi") {
        return Err("CGI programs are not supported: use an application server".into());
    }
    if on("multiviews") {
        return Err("MultiViews has no equivalent; try_files $uri $uri.html is similar".into());
    }
    Ok(())
}

/// `AddOutputFilterByType`: adds types to those that are compressed.
fn compress_types(args: &[String], block: &mut Block) {
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

fn proxy_pass(args: &[String], server: &mut Server, place: &LinePlace) -> Result<(), String> {
    const OTHER: &str = "this kind of ProxyPass has no translation";
    let (uri, url) = match args {
        [uri, url, ..] if place.location.is_none() => (uri.as_str(), url),
        [url, ..] if place.location.is_some() => ("", url),
        _ => return Err("it has no translation".into()),
    };
    if !(url.starts_with("http://") || url.starts_with("https://")) || args.len() > 3 {
        return Err(OTHER.into());
    }
    let target = match uri {
        "" => block(server, place),
        "/" => server.block.location("/"),
        // Apache joins the rest of the path to the URL: both need a slash.
        uri => {
            let prefix = format!("{}/", uri.trim_end_matches('/'));
            server.block.location(&format!("^~ {}", word(&prefix)))
        }
    };
    proxy(target, uri, url);
    Ok(())
}

fn proxy(target: &mut Block, uri: &str, url: &str) {
    let url = match uri {
        "" | "/" => url.to_string(),
        _ => format!("{}/", url.trim_end_matches('/')),
    };
    target.set("proxy_pass", &word(&url));
}

fn redirect(name: &str, args: &[String], server: &mut Server) -> Result<(), String> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut status = if name == "redirectpermanent" { 301 } else { 302 };
    let named = words.first().and_then(|word| match word.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        number => number.parse::<u16>().ok(),
    });
    if let (Some(code), "redirect" | "redirectmatch") = (named, name) {
        status = code;
        words.remove(0);
    }
    let from = words.first().copied().ok_or("bad arguments")?;
    let is_redirect = (300..400).contains(&status);
    let (words, target) = match (name, words.get(1), is_redirect) {
        ("redirectmatch", to, _) => (format!("~ {}", word(from)), to.map(|to| (*to).to_string())),
        (_, Some(to), true) if from == "/" => {
            ("/".to_string(), Some(format!("{}$request_uri", to.trim_end_matches('/'))))
        }
        (_, Some(to), true) => {
            let pattern = format!("^{}(?<rest>/.*)?$", regex_quoted(from.trim_end_matches('/')));
            (format!("~ {}", word(&pattern)), Some(format!("{}$rest$is_args$args", to.trim_end_matches('/'))))
        }
        (_, None, false) => (format!("^~ {}", word(from)), None),
        _ => return Err("bad arguments".into()),
    };
    let location = server.block.location(&words);
    match target.filter(|_| is_redirect) {
        Some(target) => location.line(format!("return {status} {};", word(&target))),
        None => location.line(format!("return {status};")),
    }
    Ok(())
}

fn header(args: &[String], block: &mut Block) -> Result<(), String> {
    let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut always = false;
    if let Some(first) =
        words.first().copied().filter(|w| w.eq_ignore_ascii_case("always") || w.eq_ignore_ascii_case("onsuccess"))
    {
        always = first.eq_ignore_ascii_case("always");
        words.remove(0);
    }
    match words.as_slice() {
        [action, name, value] if !value.contains("%{") => {
            let value = value.replace("%%", "%");
            if !matches!(action.to_ascii_lowercase().as_str(), "set" | "add" | "append" | "merge" | "setifempty") {
                return Err("this action has no translation".into());
            }
            if value.contains('$') {
                return Err("a value with \"$\" has no translation".into());
            }
            // `set` also replaces fields of upstream responses.
            if action.eq_ignore_ascii_case("set") {
                block.lines.retain(|line| !line.starts_with(&format!("add_header {name} ")));
            }
            let always = if always { " always" } else { "" };
            block.line(format!("add_header {} {}{always};", word(name), quoted(&value, true)));
            Ok(())
        }
        [action, name] if action.eq_ignore_ascii_case("unset") => {
            block.line(format!("more_clear_headers {};", word(name)));
            Ok(())
        }
        _ => Err("this form has no translation".into()),
    }
}
