//! Settings of an Ingress: its annotations over the defaults of the ConfigMap.

use crate::settings::Defaults;
use crate::values::{Reader, is_size, parse_bool, parse_integer, parse_networks};

pub(crate) use crate::config_types::*;

const CORS_METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const CORS_HEADERS: &str =
    "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
const NEXT_UPSTREAM: &[&str] = &[
    "error",
    "timeout",
    "invalid_header",
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_403",
    "http_404",
    "http_429",
    "non_idempotent",
    "off",
];

/// Tells whether a value has only the characters that ingress-nginx permits in addresses and paths.
fn is_url(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/:,?&=".contains(c))
}

/// As [`is_url`], with variables.
fn is_url_template(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/:,?&=$ {}%".contains(c))
}

fn is_basic(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/:".contains(c))
}

fn is_header_list(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-_, ".contains(c))
}

fn is_variable(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-_${}".contains(c))
}

impl Config {
    /// Reads the annotations. Invalid values give complaints, and what ingress-nginx does without them.
    pub fn read(reader: &mut Reader<'_>, defaults: &Defaults) -> Config {
        let mut config = Config {
            use_regex: reader.boolean("use-regex").unwrap_or(false),
            ssl_redirect: reader.boolean("ssl-redirect").unwrap_or(defaults.ssl_redirect),
            force_ssl_redirect: reader.boolean("force-ssl-redirect").unwrap_or(defaults.force_ssl_redirect),
            preserve_trailing_slash: reader
                .boolean("preserve-trailing-slash")
                .unwrap_or(defaults.preserve_trailing_slash),
            www_redirect: reader.boolean("from-to-www-redirect").unwrap_or(false),
            relative_redirects: reader.boolean("relative-redirects").unwrap_or(defaults.relative_redirects),
            port_in_redirects: reader.boolean("use-port-in-redirects").unwrap_or(false),
            ssl_passthrough: reader.boolean("ssl-passthrough").unwrap_or(false),
            service_upstream: reader.boolean("service-upstream").unwrap_or(defaults.service_upstream),
            access_log: reader.boolean("enable-access-log").unwrap_or(true),
            rewrite_log: reader.boolean("enable-rewrite-log").unwrap_or(false),
            global_auth: reader.boolean("enable-global-auth").unwrap_or(true),
            intercepts_errors: !reader.boolean("disable-proxy-intercept-errors").unwrap_or(false),
            ..Config::default()
        };
        let path = |value: &str| {
            value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/:$".contains(c)) && !value.contains("$$")
        };
        config.rewrite_target =
            reader.checked("rewrite-target", "a path with captures such as $1", path).map(Into::into);
        config.app_root = reader
            .checked("app-root", "a path", |value| value.starts_with('/') && path(value) && !value.contains('$'))
            .map(Into::into);
        config.redirect = redirect(reader);
        config.protocol = protocol(reader);
        config.proxy = proxy(reader, &defaults.proxy);
        config.cors = cors(reader);
        config.canary = canary(reader);
        config.affinity = affinity(reader);
        config.hash_by = reader.text("upstream-hash-by").map(Into::into);
        config.load_balance =
            reader.text("load-balance").map_or_else(|| defaults.load_balance.clone(), |v| Some(v.into()));
        config.satisfy = reader.one_of("satisfy", &["any", "all"]).map(Into::into);
        config.limits = limits(reader, defaults, &mut config.denied);
        let networks = |reader: &Reader<'_>, names: &[&str], denied: &mut Option<String>| {
            let value = names.iter().find_map(|name| reader.text(name).map(|value| (*name, value)))?;
            parse_networks(value.1).map_err(|error| *denied = Some(format!("{}: {error}", value.0))).ok()
        };
        config.allow = networks(reader, &["allowlist-source-range", "whitelist-source-range"], &mut config.denied)
            .unwrap_or_else(|| defaults.allow.clone());
        config.deny =
            networks(reader, &["denylist-source-range"], &mut config.denied).unwrap_or_else(|| defaults.deny.clone());
        config.auth = basic_auth(reader, &mut config.denied);
        config.external_auth = external_auth(reader, &mut config.denied);
        config.auth_tls = auth_tls(reader);
        config.proxy_ssl = proxy_ssl(reader);
        config.custom_errors = custom_errors(reader).unwrap_or_else(|| defaults.custom_errors.clone());
        config.default_backend = reader.text("default-backend").map(Into::into);
        config.aliases = reader.text("server-alias").map_or_else(Vec::new, list);
        config.upstream_vhost = reader.text("upstream-vhost").map(Into::into);
        config.forwarded_prefix = reader.checked("x-forwarded-prefix", "a path", is_url).map(Into::into);
        config.connection_header =
            reader.checked("connection-proxy-header", "keep-alive, close or another word", is_basic).map(Into::into);
        config.custom_headers = reader.text("custom-headers").map(Into::into);
        config.mirror = reader.checked("mirror-target", "an address", is_url_template).map(|target| Mirror {
            target: target.into(),
            host: reader.text("mirror-host").map(Into::into),
            sends_body: reader.text("mirror-request-body") != Some("off"),
        });
        let ciphers = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "+:_-!=@".contains(c));
        config.ssl_ciphers = reader.checked("ssl-ciphers", "a list of ciphers", ciphers).map(Into::into);
        config.prefer_server_ciphers = reader.boolean("ssl-prefer-server-ciphers");
        config.fastcgi_index = reader.checked("fastcgi-index", "the name of a file", is_basic).map(Into::into);
        config.fastcgi_params = reader.text("fastcgi-params-configmap").map(Into::into);
        config
    }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(Into::into).collect()
}

fn redirect(reader: &mut Reader<'_>) -> Option<(u16, String)> {
    let mut find = |name: &str, last: i64, default: u16| {
        let check = |value: &str| is_url(value) && value.starts_with("http") && value.contains("://");
        let url = reader.checked(name, "an address with http or https", check)?;
        let code = reader.integer(&format!("{name}-code")).filter(|code| (300..=last).contains(code));
        Some((code.and_then(|code| u16::try_from(code).ok()).unwrap_or(default), url.to_owned()))
    };
    // A temporal redirect goes before a permanent one.
    find("temporal-redirect", 307, 302).or_else(|| find("permanent-redirect", 308, 301))
}

fn protocol(reader: &mut Reader<'_>) -> BackendProtocol {
    let Some(word) = reader.text("backend-protocol") else { return BackendProtocol::Http };
    match word.to_ascii_uppercase().as_str() {
        "HTTP" => BackendProtocol::Http,
        "HTTPS" => BackendProtocol::Https,
        "AUTO_HTTP" => BackendProtocol::AutoHttp,
        "GRPC" => BackendProtocol::Grpc,
        "GRPCS" => BackendProtocol::Grpcs,
        "FCGI" => BackendProtocol::Fcgi,
        _ => {
            let word = word.escape_debug();
            reader.complaints.push(format!("backend-protocol: \"{word}\" is unknown: HTTP is used"));
            BackendProtocol::Http
        }
    }
}

/// Reads what annotations and the ConfigMap name alike.
pub(crate) fn proxy(reader: &mut Reader<'_>, defaults: &ProxyDirectives) -> ProxyDirectives {
    let size = |reader: &mut Reader<'_>, name: &str, default: &str| reader.size(name).unwrap_or(default).to_owned();
    let text = |value: Option<&str>, default: &str| value.unwrap_or(default).to_owned();
    let seconds = |reader: &mut Reader<'_>, name: &str, default: i64| {
        reader.integer(name).filter(|seconds| *seconds >= 0).unwrap_or(default)
    };
    let words = |value: &str| value.split_whitespace().all(|word| NEXT_UPSTREAM.contains(&word));
    let two =
        |value: &str| value == "off" || (value.split_whitespace().count() == 2 && is_url(&value.replace(' ', "")));
    let one = |value: &str| is_url(value);
    let buffer_size = size(reader, "proxy-buffer-size", &defaults.buffer_size);
    ProxyDirectives {
        body_size: size(reader, "proxy-body-size", &defaults.body_size),
        body_buffer_size: reader.size("client-body-buffer-size").map(Into::into).or(defaults.body_buffer_size.clone()),
        connect_timeout: seconds(reader, "proxy-connect-timeout", defaults.connect_timeout),
        send_timeout: seconds(reader, "proxy-send-timeout", defaults.send_timeout),
        read_timeout: seconds(reader, "proxy-read-timeout", defaults.read_timeout),
        buffering: text(reader.on_off("proxy-buffering"), &defaults.buffering),
        buffer_size,
        buffers_number: reader
            .integer("proxy-buffers-number")
            .filter(|number| (2..=10_000).contains(number))
            .unwrap_or(defaults.buffers_number),
        busy_buffers_size: reader
            .size("proxy-busy-buffers-size")
            .map(Into::into)
            .or(defaults.busy_buffers_size.clone()),
        max_temp_file_size: size(reader, "proxy-max-temp-file-size", &defaults.max_temp_file_size),
        request_buffering: text(reader.on_off("proxy-request-buffering"), &defaults.request_buffering),
        http_version: text(reader.one_of("proxy-http-version", &["1.0", "1.1"]), &defaults.http_version),
        next_upstream: text(
            reader.checked("proxy-next-upstream", "conditions of proxy_next_upstream", words),
            &defaults.next_upstream,
        ),
        next_upstream_timeout: seconds(reader, "proxy-next-upstream-timeout", defaults.next_upstream_timeout),
        next_upstream_tries: seconds(reader, "proxy-next-upstream-tries", defaults.next_upstream_tries),
        redirect_from: text(reader.checked("proxy-redirect-from", "an address", one), &defaults.redirect_from),
        redirect_to: text(reader.checked("proxy-redirect-to", "an address", one), &defaults.redirect_to),
        cookie_domain: text(
            reader.checked("proxy-cookie-domain", "\"off\" or two domains", two),
            &defaults.cookie_domain,
        ),
        cookie_path: text(reader.checked("proxy-cookie-path", "\"off\" or two paths", two), &defaults.cookie_path),
    }
}

fn cors(reader: &mut Reader<'_>) -> Option<Cors> {
    if !reader.boolean("enable-cors").unwrap_or(false) {
        return None;
    }
    let mut origins = Vec::new();
    for origin in list(reader.text("cors-allow-origin").unwrap_or("*")) {
        if origin == "*" {
            origins = vec![origin];
            break;
        }
        let inner = origin.split_once("://").map(|(_, host)| host.replacen("*.", "", 1));
        let is_host = |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-.:".contains(c));
        if origin == "null" || inner.is_some_and(|host| is_host(&host)) {
            origins.push(origin);
        } else {
            reader.complaints.push(format!("cors-allow-origin: \"{}\" is no origin", origin.escape_debug()));
        }
    }
    let methods = |value: &str| value.chars().all(|c| c.is_ascii_alphabetic() || ", ".contains(c));
    let expose = |value: &str| is_header_list(&value.replace('*', ""));
    Some(Cors {
        origins,
        methods: reader.checked("cors-allow-methods", "methods", methods).unwrap_or(CORS_METHODS).into(),
        headers: reader.checked("cors-allow-headers", "names", is_header_list).unwrap_or(CORS_HEADERS).into(),
        expose: reader.checked("cors-expose-headers", "names", expose).map(Into::into),
        credentials: reader.boolean("cors-allow-credentials").unwrap_or(true),
        max_age: reader.integer("cors-max-age").unwrap_or(1_728_000),
    })
}

fn canary(reader: &mut Reader<'_>) -> Option<Canary> {
    let is_enabled = reader.boolean("canary").unwrap_or(false);
    let name = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let value = |value: &str| !value.bytes().any(|byte| byte.is_ascii_control());
    let canary = Canary {
        header: reader.checked("canary-by-header", "the name of a header", name).map(Into::into),
        header_value: reader.checked("canary-by-header-value", "a value", value).map(Into::into),
        header_pattern: reader
            .checked("canary-by-header-pattern", "a regular expression", |value| {
                cluster_model::check_pattern(value).is_ok()
            })
            .map(Into::into),
        cookie: reader.checked("canary-by-cookie", "the name of a cookie", name).map(Into::into),
        weight: reader.integer("canary-weight").unwrap_or(0),
        weight_total: reader.integer("canary-weight-total").unwrap_or(100).max(100),
    };
    is_enabled.then_some(canary)
}

fn affinity(reader: &mut Reader<'_>) -> Option<Affinity> {
    reader.one_of("affinity", &["cookie"])?;
    let seconds = |value: &str| parse_integer(value).is_some();
    let mut age = |name: &str| reader.checked(name, "seconds", seconds).and_then(parse_integer);
    let max_age = age("session-cookie-max-age").or_else(|| age("session-cookie-expires"));
    let name = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    let same_site = reader.text("session-cookie-samesite").map(str::to_ascii_lowercase);
    Some(Affinity {
        name: reader.checked("session-cookie-name", "the name of a cookie", name).unwrap_or("INGRESSCOOKIE").into(),
        max_age,
        path: reader.checked("session-cookie-path", "a path", is_basic).map(Into::into),
        domain: reader.checked("session-cookie-domain", "a domain", is_basic).map(Into::into),
        same_site: same_site.filter(|word| matches!(word.as_str(), "none" | "lax" | "strict")),
        secure: reader.boolean("session-cookie-secure").unwrap_or(false),
        is_sticky_canary: reader.text("affinity-canary-behavior") != Some("legacy"),
    })
}

fn basic_auth(reader: &mut Reader<'_>, denied: &mut Option<String>) -> Option<BasicAuth> {
    let kind = reader.text("auth-type")?;
    if kind != "basic" {
        let words = if kind == "digest" { "digest authentication is not supported" } else { "unknown type" };
        *denied = Some(format!("auth-type: {words}"));
        return None;
    }
    let Some(secret) = reader.text("auth-secret") else {
        *denied = Some("auth-type without auth-secret".into());
        return None;
    };
    let is_map = match reader.text("auth-secret-type") {
        None | Some("auth-file") => false,
        Some("auth-map") => true,
        Some(_) => {
            *denied = Some("auth-secret-type: expected auth-file or auth-map".into());
            return None;
        }
    };
    Some(BasicAuth { secret: secret.into(), is_map, realm: reader.text("auth-realm").unwrap_or("").into() })
}

fn external_auth(reader: &mut Reader<'_>, denied: &mut Option<String>) -> Option<ExternalAuth> {
    let url = reader.text("auth-url")?;
    if !is_url_template(url) || !(url.starts_with("http://") || url.starts_with("https://") || url.starts_with('$')) {
        *denied = Some("auth-url: expected an address with http or https".into());
        return None;
    }
    let method = reader.text("auth-method");
    if method.is_some_and(|method| !method.bytes().all(|byte| byte.is_ascii_uppercase())) {
        *denied = Some("auth-method: expected a method".into());
    }
    let response_headers = list(reader.text("auth-response-headers").unwrap_or(""));
    if !response_headers.iter().all(|name| cluster_model::is_field_name(name) && is_header_list(name)) {
        *denied = Some("auth-response-headers: expected names between commas".into());
    }
    let duration = |entry: &String| {
        let mut words = entry.split_whitespace().peekable();
        while words.next_if(|word| word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit())).is_some() {}
        let is_time = |word: &str| {
            let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = &word[digits.len()..];
            !digits.is_empty()
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && ["ms", "s", "m", "h", "d", "w", "M", "y"].contains(&unit)
        };
        words.peek().is_some() && words.all(is_time)
    };
    let mut cache_durations = list(reader.text("auth-cache-duration").unwrap_or("200 202 401 5m"));
    if !cache_durations.iter().all(duration) {
        *denied = Some("auth-cache-duration: expected statuses and a time".into());
        cache_durations.clear();
    }
    Some(ExternalAuth {
        url: url.into(),
        method: method.map(Into::into),
        signin: reader.checked("auth-signin", "an address", is_url_template).map(Into::into),
        redirect_param: reader.checked("auth-signin-redirect-param", "a name", is_url).map(Into::into),
        response_headers,
        request_redirect: reader.checked("auth-request-redirect", "an address", is_url).map(Into::into),
        always_set_cookie: reader.text("auth-always-set-cookie").and_then(parse_bool).unwrap_or(false),
        cache_key: reader.checked("auth-cache-key", "variables", is_variable).map(Into::into),
        cache_durations,
        proxy_set_headers: reader.text("auth-proxy-set-headers").map(Into::into),
    })
}

fn auth_tls(reader: &mut Reader<'_>) -> Option<AuthTls> {
    let secret = reader.text("auth-tls-secret")?;
    let verify = reader.one_of("auth-tls-verify-client", &["on", "off", "optional", "optional_no_ca"]);
    let pattern = |value: &str| value.starts_with("CN=") && cluster_model::check_pattern(value).is_ok();
    Some(AuthTls {
        secret: secret.into(),
        verify: verify.unwrap_or("on").into(),
        depth: reader.integer("auth-tls-verify-depth").filter(|depth| *depth > 0).unwrap_or(1),
        error_page: reader.checked("auth-tls-error-page", "an address", is_url).map(Into::into),
        passes_certificate: reader.boolean("auth-tls-pass-certificate-to-upstream").unwrap_or(false),
        match_cn: reader.checked("auth-tls-match-cn", "CN= and a regular expression", pattern).map(Into::into),
    })
}

fn proxy_ssl(reader: &mut Reader<'_>) -> Option<ProxySsl> {
    let secret = reader.text("proxy-ssl-secret")?;
    let protocols =
        |value: &str| value.split_whitespace().all(|word| ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"].contains(&word));
    let ciphers = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "+:_-!=@".contains(c));
    Some(ProxySsl {
        secret: secret.into(),
        ciphers: reader.checked("proxy-ssl-ciphers", "a list of ciphers", ciphers).unwrap_or("DEFAULT").into(),
        protocols: reader.checked("proxy-ssl-protocols", "protocols", protocols).unwrap_or("TLSv1.2 TLSv1.3").into(),
        name: reader.checked("proxy-ssl-name", "a name", is_basic).map(Into::into),
        verify: reader.on_off("proxy-ssl-verify").unwrap_or("off").into(),
        depth: reader.integer("proxy-ssl-verify-depth").filter(|depth| *depth > 0).unwrap_or(1),
        server_name: reader.on_off("proxy-ssl-server-name").unwrap_or("off").into(),
    })
}

fn limits(reader: &mut Reader<'_>, defaults: &Defaults, denied: &mut Option<String>) -> LimitDirectives {
    let networks = ["limit-allowlist", "limit-whitelist"].into_iter().find_map(|name| reader.text(name));
    let allow = networks.map(parse_networks).transpose().unwrap_or_else(|error| {
        *denied = Some(format!("limit-allowlist: {error}"));
        None
    });
    let mut count = |name: &str| reader.integer(name).filter(|count| *count >= 0);
    LimitDirectives {
        rps: count("limit-rps").unwrap_or(0),
        rpm: count("limit-rpm").unwrap_or(0),
        connections: count("limit-connections").unwrap_or(0),
        burst_multiplier: count("limit-burst-multiplier").unwrap_or(5),
        rate: count("limit-rate").unwrap_or(defaults.limit_rate),
        rate_after: count("limit-rate-after").unwrap_or(defaults.limit_rate_after),
        allow: allow.unwrap_or_default(),
    }
}

/// Reads statuses that another backend answers.
pub(crate) fn custom_errors(reader: &mut Reader<'_>) -> Option<Vec<u16>> {
    let statuses = |value: &str| -> Option<Vec<u16>> {
        let entries = value.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| entry.parse().ok().filter(|status| (300..=599).contains(status))).collect()
    };
    reader
        .checked("custom-http-errors", "statuses from 300 to 599", |value| statuses(value).is_some())
        .and_then(statuses)
}

/// Tells whether a size is one of a directive that takes no gigabytes.
pub(crate) fn is_buffer_size(value: &str) -> bool {
    is_size(value) && !value.ends_with(['g', 'G'])
}
