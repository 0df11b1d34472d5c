//! auth_oidc against a provider of the tests: logins, sessions, refresh, logout, and everything that a provider can do wrong.

use crate::support;

use std::collections::HashMap;
use std::process::Command;
use support::client::Client;
use support::origin::ok;
use support::provider::{Provider, argument, base64url};
use support::{Site, free_port, http2, text, wait};

/// A browser: its cookies, and one connection for each request, so that the system chooses the thread.
#[derive(Clone, Default)]
struct Browser {
    port: u16,
    cookies: HashMap<String, String>,
    fields: String,
    body: String,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn location(&self) -> String {
        let line = self.head.lines().find_map(|line| line.strip_prefix("Location: "));
        line.unwrap_or_else(|| panic!("{} without Location: {} {}", self.status, self.head, self.body)).to_string()
    }
    /// Returns what the page says about its user.
    fn user(&self) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix("X-User: "));
        line.unwrap_or_else(|| panic!("{} {} {}", self.status, self.head, self.body))
    }
}

impl Browser {
    fn new(port: u16) -> Browser {
        Browser { port, ..Browser::default() }
    }
    fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path)
    }
    /// Sends a form, as a provider does in the back channel.
    fn post(&mut self, path: &str, form: &str) -> Answer {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let length = form.len();
        let fields = std::mem::replace(&mut self.fields, format!("{kind}\r\nContent-Length: {length}\r\n"));
        self.body = form.to_string();
        let answer = self.ask("POST", path);
        (self.fields, self.body) = (fields, String::new());
        answer
    }
    fn ask(&mut self, method: &str, path: &str) -> Answer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        let (port, fields, body) = (self.port, &self.fields, &self.body);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{cookies}{fields}");
        let request = format!("{head}Connection: close\r\n\r\n{body}");
        let answered = Client::connect(port).and_then(|mut client| client.ask_for_all(&request));
        let (status, head, body) = answered.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
        for line in head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")) {
            assert!(line.contains("; Path=/; HttpOnly; SameSite=Lax"), "{line}");
            let (name, value) = line.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            match line.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_string(), value.to_string())),
            }
        }
        Answer { status, head, body }
    }
    /// Logs in for a path. Returns the answer to the way back.
    fn log_in(&mut self, provider: &Provider, path: &str) -> Answer {
        let sent = self.get(path);
        assert_eq!(sent.status, 302, "{}", sent.body);
        let back = provider.agree(&sent.location());
        self.get(&back)
    }
    fn logged_in(port: u16, provider: &Provider) -> Browser {
        let mut browser = Browser::new(port);
        let answer = browser.log_in(provider, "/");
        assert_eq!((answer.status, answer.location()), (302, format!("http://127.0.0.1:{port}/")), "{}", answer.body);
        browser
    }
}

const MAIN: &str = "daemon off; worker_processes 2;";

fn conf(port: u16, provider: &Provider, more: &str, locations: &str) -> String {
    let issuer = provider.inner().issuer.clone();
    format!(
        "http {{ access_log off; auth_jwt_claim_set $postal_code address postal_code;
            oidc_provider idp {{ issuer {issuer}; client_id client; client_secret \"se cret+\"; {more} }}
            server {{ listen 127.0.0.1:{port};
                location / {{ auth_oidc idp; try_files /page =404;
                    add_header X-User \"$oidc_claim_sub|$oidc_claim_groups|$oidc_claim_email|$oidc_access_token\"; }}
                location = /open {{ return 200 open; }}
                {locations}
            }} }}"
    )
}

fn site(port: u16, provider: &Provider, more: &str, locations: &str) -> Site {
    let site = Site::new(MAIN, &conf(port, provider, more, locations));
    site.write("html/page", "page");
    site
}

#[test]
fn users_log_in_and_out() {
    let (provider, port) = (Provider::start(), free_port());
    let more = "userinfo on; logout_uri /logout; post_logout_uri /open; logout_token_hint on; scope email; extra_auth_args a=b&c;";
    let locations = "location = /claim { auth_oidc idp; auth_jwt off token=$oidc_id_token;
            add_header X-User $postal_code; try_files /page =404; }
        location /off { auth_oidc off; add_header X-User [$oidc_claim_sub]; try_files /page =404; }
        location = /named { set $which $arg_idp; auth_oidc $which; add_header X-User [$oidc_claim_sub]; try_files /page =404; }";
    let site = site(port, &provider, more, locations);
    let running = site.start();
    let mut browser = Browser::new(port);
    assert_eq!(browser.get("/open").body, "open");
    assert_eq!(provider.asked("/.well-known/openid-configuration"), 0, "a start asks for nothing");
    let sent = browser.get("/a/b?c=d&e=%20");
    let location = sent.location();
    assert_eq!(sent.status, 302);
    assert!(location.ends_with("&a=b&c") && sent.head.contains("Cache-Control: no-store"), "{location}");
    assert_eq!(argument(&location, "scope").as_deref(), Some("openid email"));
    assert_eq!(argument(&location, "redirect_uri"), Some(format!("http://127.0.0.1:{port}/oidc_callback")));
    // A second window of the browser begins another login before the first one is completed.
    let second = browser.get("/second").location();
    let back = browser.get(&provider.agree(&location));
    assert_eq!(
        (back.status, back.location()),
        (302, format!("http://127.0.0.1:{port}/a/b?c=d&e=%20")),
        "{}",
        back.body
    );
    let page = browser.get("/a/b?c=d&e=%20");
    assert_eq!((page.body.as_str(), page.user()), ("page", "joe|a,b|joe@example.com|access-2"));
    let back = browser.get(&provider.agree(&second));
    assert_eq!(back.location(), format!("http://127.0.0.1:{port}/second"));
    assert!(browser.get("/").user().starts_with("joe|"));
    // The session is that of the cookie alone.
    assert_eq!(Browser::new(port).get("/").status, 302);
    assert_eq!(Browser::new(port).ask("POST", "/").status, 302);
    let mut forged = browser.clone();
    forged.cookies.insert("NGX_OIDC_SESSION".into(), "A".repeat(43));
    assert_eq!(forged.get("/").status, 302);
    assert_eq!(browser.get("/claim").user(), "12345");
    assert_eq!(browser.get("/off").user(), "[]");
    assert_eq!(browser.get("/named?idp=idp").user(), "[joe]");
    assert_eq!(browser.get("/named?idp=off").user(), "[]");
    assert_eq!(browser.get("/named?idp=other").status, 500);
    let before = browser.clone();
    let left = browser.get("/logout");
    let location = left.location();
    assert!(location.starts_with(&format!("{}/end?client_id=client&id_token_hint=ey", provider.inner().issuer)));
    assert_eq!(argument(&location, "post_logout_redirect_uri"), Some(format!("http://127.0.0.1:{port}/open")));
    assert!(!browser.cookies.contains_key("NGX_OIDC_SESSION"));
    assert_eq!(before.clone().get("/").status, 302, "the session has ended, not only the cookie");
    assert_eq!(provider.asked("/.well-known/openid-configuration"), 1);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_user_with_many_sessions_loses_the_oldest() {
    const SESSIONS_MAX: usize = 64;
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "", "");
    let running = site.start();
    provider.inner().claims = |claims| claims["sub"] = "ann".into();
    let mut other = Browser::logged_in(port, &provider);
    provider.inner().claims = |_| {};
    let mut first = Browser::logged_in(port, &provider);
    let mut all: Vec<Browser> = (1..SESSIONS_MAX).map(|_| Browser::logged_in(port, &provider)).collect();
    assert!(first.get("/").user().starts_with("joe|"));
    all.push(Browser::logged_in(port, &provider));
    assert_eq!(first.get("/").status, 302, "the oldest has ended");
    assert!(all.iter_mut().all(|browser| browser.get("/").status == 200));
    assert!(other.get("/").user().starts_with("ann|"), "other users keep theirs");
    running.quit();
}

#[test]
fn answers_that_belong_to_no_login_are_refused() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "", "");
    let running = site.start();
    let mut browser = Browser::new(port);
    let back = provider.agree(&browser.get("/").location());
    assert_eq!(Browser::new(port).get(&back).status, 400, "another browser");
    let state = argument(&back, "state").expect("a state");
    assert_eq!(browser.get(&format!("/oidc_callback?code=a&state={state}x")).status, 400);
    assert_eq!(browser.get("/oidc_callback?code=a").status, 400);
    assert_eq!(browser.get("/oidc_callback").status, 400);
    assert_eq!(browser.ask("POST", &back).status, 405);
    assert_eq!(browser.get(&format!("{back}&code=b")).status, 403, "two codes");
    assert_eq!(browser.get(&format!("/oidc_callback?state={state}")).status, 403, "no code");
    assert_eq!(browser.get(&format!("{back}&iss=https://other")).status, 403, "a response of another provider");
    assert_eq!(browser.get(&format!("/oidc_callback?error=access_denied&state={state}")).status, 403);
    assert_eq!(browser.get(&format!("/oidc_callback?error=server_error&state={state}")).status, 503);
    assert_eq!(browser.get(&format!("/oidc_callback?code=unknown&state={state}")).status, 403);
    assert_eq!(provider.asked("/token"), 1, "only the last one had to be asked about");
    assert_eq!(browser.get(&back).status, 302);
    assert_eq!(browser.get(&back).status, 403, "a code serves once");
    assert_eq!(browser.get("/").status, 200);
    let log = site.log();
    assert!(log.contains("/oidc_callback?... HTTP/1.1") && !log.contains("code=unknown"), "codes are secrets:\n{log}");
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn logins_return_to_this_server_with_a_session_of_their_own() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "", "");
    let running = site.start();
    // The URI of the request begins with the name of another host, as a URL without a scheme would.
    for path in ["//evil.test/a", "/\\evil.test/", "/@evil.test/", "//evil.test:80@x/"] {
        let mut browser = Browser::new(port);
        let back = browser.get(&provider.agree(&browser.clone().get(path).location()));
        assert_eq!(back.status, 400, "the state is bound to the browser that began");
        let sent = browser.get(path);
        assert_eq!(sent.status, 302, "{path}");
        let back = browser.get(&provider.agree(&sent.location()));
        assert_eq!((back.status, back.location()), (302, format!("http://127.0.0.1:{port}{path}")));
    }
    // A cookie that another one has planted does not become that of the session; a session of another user in its place ends.
    let planted = "A".repeat(43);
    let mut browser = Browser::new(port);
    browser.cookies.insert("NGX_OIDC_SESSION".into(), planted.clone());
    assert_eq!(browser.log_in(&provider, "/").status, 302);
    assert_ne!(browser.cookies.get("NGX_OIDC_SESSION"), Some(&planted));
    assert_eq!(browser.get("/").status, 200);
    let mut other = Browser::new(port);
    other.cookies.insert("NGX_OIDC_SESSION".into(), planted);
    assert_eq!(other.get("/").status, 302);
    // Cookies and states that are cut, exchanged, repeated or too long.
    let mut browser = Browser::new(port);
    let back = provider.agree(&browser.get("/").location());
    let own = browser.cookies.get("NGX_OIDC_SESSION_LOGIN").cloned().expect("the cookie of the login");
    for cookie in [String::new(), own[1..].to_string(), format!("{own}{own}"), "A".repeat(32), "A".repeat(4000)] {
        let mut changed = browser.clone();
        changed.cookies.insert("NGX_OIDC_SESSION_LOGIN".into(), cookie.clone());
        assert_eq!(changed.get(&back).status, 400, "{cookie}");
    }
    let state = argument(&back, "state").expect("a state");
    for changed in [state[1..].to_string(), format!("{state}{state}"), "A".repeat(7000), state.to_ascii_lowercase()] {
        assert_eq!(browser.get(&format!("/oidc_callback?code=a&state={changed}")).status, 400);
    }
    assert_eq!(browser.get(&format!("/oidc_callback?code=a&state={state}&state={state}")).status, 400, "two states");
    assert_eq!(browser.get(&back).status, 302);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn misbehaving_providers_log_no_user_in() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "userinfo on;", "");
    let running = site.start();
    drop(Browser::logged_in(port, &provider));
    type Fault = fn(&mut support::provider::Inner);
    let faults: &[(&str, Fault)] = &[
        ("wrong audience", |p| p.claims = |c| c["aud"] = "other".into()),
        ("several audiences", |p| p.claims = |c| c["aud"] = serde_json::json!(["client", "other"])),
        ("other party", |p| p.claims = |c| c["azp"] = "other".into()),
        ("wrong nonce", |p| p.claims = |c| c["nonce"] = "other".into()),
        ("no nonce", |p| p.claims = |c| c["nonce"] = serde_json::Value::Null),
        ("expired", |p| p.claims = |c| c["exp"] = 1_000_000_000.into()),
        ("no end", |p| p.claims = |c| c["exp"] = serde_json::Value::Null),
        ("wrong issuer", |p| p.claims = |c| c["iss"] = "http://127.0.0.1:1".into()),
        ("no subject", |p| p.claims = |c| c["sub"] = "".into()),
        ("another access token", |p| p.claims = |c| c["sub"] = "ann".into()),
        ("no algorithm", |p| {
            p.id_token = Some(|token| {
                let payload = token.split('.').nth(1).unwrap_or_default();
                format!("{}.{payload}.", base64url(r#"{"alg":"none"}"#))
            });
        }),
        ("secret algorithm", |p| {
            p.id_token = Some(|token| {
                let rest = token.split_once('.').map_or("", |(_, rest)| rest);
                format!("{}.{rest}", base64url(r#"{"alg":"HS256"}"#))
            });
        }),
        ("changed", |p| p.id_token = Some(|token| token.replace("ey", "eY"))),
        ("no token", |p| p.answer = |a| a["id_token"] = serde_json::Value::Null),
        ("a number", |p| p.answer = |a| a["access_token"] = 7.into()),
        ("no JSON", |p| drop(p.instead.insert("/token".into(), ok("<html>")))),
        ("huge", |p| drop(p.instead.insert("/token".into(), ok(&" ".repeat(1 << 20))))),
        ("cut", |p| {
            let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n{".to_vec();
            drop(p.instead.insert("/token".into(), cut));
        }),
        ("out of order", |p| {
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
            drop(p.instead.insert("/token".into(), answer));
        }),
        ("another user", |p| drop(p.instead.insert("/userinfo".into(), ok(r#"{"sub":"ann"}"#)))),
        ("no user", |p| drop(p.instead.insert("/userinfo".into(), ok("[]")))),
        ("signed for another client", |p| p.userinfo = Some(|info| info["aud"] = "other".into())),
        ("signed by another issuer", |p| p.userinfo = Some(|info| info["iss"] = "http://127.0.0.1:1".into())),
        ("signed about another user", |p| p.userinfo = Some(|info| info["sub"] = "ann".into())),
        ("signed and expired", |p| p.userinfo = Some(|info| info["exp"] = 1_000_000_000.into())),
        ("unsigned token", |p| {
            let token = format!("{}.{}.", base64url(r#"{"alg":"none"}"#), base64url(r#"{"sub":"joe"}"#));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/jwt\r\nContent-Length";
            drop(p.instead.insert("/userinfo".into(), format!("{head}: {}\r\n\r\n{token}", token.len()).into_bytes()));
        }),
    ];
    for (name, fault) in faults {
        fault(&mut provider.inner());
        let mut browser = Browser::new(port);
        let status = browser.log_in(&provider, "/").status;
        assert!([500, 503].contains(&status), "{name}: {status}");
        assert!(!browser.cookies.contains_key("NGX_OIDC_SESSION"), "{name}");
        assert_eq!(browser.get("/").status, 302, "{name}");
        let mut inner = provider.inner();
        inner.claims = |_| {};
        inner.id_token = None;
        inner.answer = |_| {};
        inner.userinfo = None;
        inner.instead.clear();
    }
    // User information that is signed.
    provider.inner().userinfo = Some(|info| info["email"] = "signed@example.com".into());
    assert_eq!(Browser::logged_in(port, &provider).get("/").user().split('|').nth(2), Some("signed@example.com"));
    // A new key is fetched when a token needs it.
    provider.inner().rotate();
    drop(Browser::logged_in(port, &provider));
    assert_eq!(provider.asked("/jwks"), 2);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn tokens_are_refreshed_once_for_all_requests() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "", "");
    let running = site.start();
    // The access token has ended when it is issued: the first request after the login refreshes it.
    provider.inner().expires_in = 0;
    let browser = Browser::logged_in(port, &provider);
    provider.inner().expires_in = 3600;
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let mut browser = browser.clone();
            std::thread::spawn(move || browser.get("/").user().to_string())
        })
        .collect();
    let users: Vec<String> = asked.into_iter().map(|thread| thread.join().expect("answered")).collect();
    assert!(users.iter().all(|user| user == "joe|a,b||access-3"), "{users:?}");
    assert_eq!(provider.asked("/token"), 2, "one code, one refresh");
    // The provider is out of order: the session goes on. It refuses: the session ends.
    for (status, error, expected) in [("503 Service Unavailable", "x", 200), ("400 Bad Request", "invalid_grant", 302)]
    {
        provider.inner().expires_in = 0;
        let mut browser = Browser::logged_in(port, &provider);
        let body = format!("{{\"error\":\"{error}\"}}");
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
        provider.inner().instead.insert("/token".into(), answer);
        assert_eq!(browser.get("/").status, expected, "{status}");
        assert_eq!(browser.get("/").status, expected, "{status}");
        provider.inner().instead.clear();
    }
    // New tokens are those of the session's user.
    provider.inner().expires_in = 0;
    let mut browser = Browser::logged_in(port, &provider);
    provider.inner().claims = |claims| claims["sub"] = "ann".into();
    assert_eq!(browser.get("/").status, 302);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn providers_end_sessions_in_the_front_channel() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "frontchannel_logout_uri /front;", "");
    let running = site.start();
    let issuer = provider.inner().issuer.clone();
    let (mut one, mut two) = (Browser::logged_in(port, &provider), Browser::logged_in(port, &provider));
    provider.inner().claims = |claims| claims["sid"] = "sid-2".into();
    let mut other = Browser::logged_in(port, &provider);
    let mut frame = Browser::new(port);
    assert_eq!(frame.get("/front").status, 400);
    assert_eq!(frame.get(&format!("/front?iss={issuer}")).status, 400);
    assert_eq!(frame.get("/front?iss=https://other&sid=sid-1").status, 400);
    assert_eq!([one.get("/").status, two.get("/").status], [200, 200]);
    assert_eq!(frame.get(&format!("/front?iss={issuer}&sid=sid-1")).status, 200);
    assert_eq!([one.get("/").status, two.get("/").status, other.get("/").status], [302, 302, 200]);
    assert_eq!(other.get("/front").status, 200, "by the cookie");
    assert_eq!(other.get("/").status, 302);
    running.quit();
    site.assert_no_alerts();
}

/// Claims of a logout token.
fn logout(issuer: &str, more: serde_json::Value) -> serde_json::Value {
    let now = support::provider::now();
    let mut claims = serde_json::json!({"iss": issuer, "aud": "client", "iat": now, "exp": now + 120, "jti": "one",
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}}});
    more.as_object().expect("an object").iter().for_each(|(name, value)| claims[name] = value.clone());
    claims
}

#[test]
fn providers_end_sessions_in_the_back_channel() {
    let (provider, port) = (Provider::start(), free_port());
    let conf = conf(port, &provider, "backchannel_logout_uri /back; session_store sessions;", "").replacen(
        "http {",
        "http { keyval_zone zone=sessions:1m;",
        1,
    );
    let site = Site::new(MAIN, &conf.replace("location = /open", "location /api { api; } location = /open"));
    site.write("html/page", "page");
    let running = site.start();
    let issuer = provider.inner().issuer.clone();
    let send = |kind: &str, claims: &serde_json::Value| {
        let token = provider.inner().sign_as(kind, claims);
        let answer = Browser::new(port).post("/back", &format!("logout_token={token}"));
        assert!(!answer.head.contains("Set-Cookie"), "{}", answer.head);
        answer
    };
    let keys = || {
        let body = Browser::new(port).get("/api/9/http/keyvals/sessions").body;
        serde_json::from_str::<serde_json::Value>(&body).expect("JSON").as_object().expect("an object").len()
    };
    let (mut one, mut two) = (Browser::logged_in(port, &provider), Browser::logged_in(port, &provider));
    provider.inner().claims = |claims| claims["sid"] = "sid-2".into();
    let mut other = Browser::logged_in(port, &provider);
    // Two lists of sessions of a `sid`, and that of the user.
    assert_eq!(keys(), 3 + 3);
    // Refused: nothing ends.
    let refused = [
        ("JWT", serde_json::json!({"aud": "other", "sid": "sid-1"})),
        ("JWT", serde_json::json!({"iss": "http://127.0.0.1:1", "sid": "sid-1"})),
        ("JWT", serde_json::json!({"nonce": "n", "sid": "sid-1"})),
        ("JWT", serde_json::json!({"events": {}, "sid": "sid-1"})),
        ("JWT", serde_json::json!({"exp": 1_000_000_000, "sid": "sid-1"})),
        ("at+jwt", serde_json::json!({"sid": "sid-1"})),
        ("JWT", serde_json::json!({})),
    ];
    for (kind, more) in refused {
        let answer = send(kind, &logout(&issuer, more.clone()));
        assert_eq!(answer.status, 400, "{more}");
        assert!(answer.head.contains("Cache-Control: no-store"), "{}", answer.head);
        assert_eq!(answer.body, "{\"error\":\"invalid_request\"}\n");
    }
    let good = provider.inner().sign_as("logout+jwt", &logout(&issuer, serde_json::json!({"sid": "sid-1"})));
    let unsigned = good.rsplit_once('.').map(|(head, _)| format!("{head}.")).expect("three parts");
    for form in [
        String::new(),
        "logout_token=".into(),
        "logout_token=x".into(),
        format!("token={good}"),
        format!("logout_token={good}&logout_token={good}"),
        format!("logout_token={unsigned}"),
    ] {
        assert_eq!(Browser::new(port).post("/back", &form).status, 400, "{form}");
    }
    assert_eq!(Browser::new(port).get(&format!("/back?logout_token={good}")).status, 405);
    assert_eq!([one.get("/").status, two.get("/").status, other.get("/").status], [200, 200, 200]);
    // One session of the provider.
    let done = Browser::new(port).post("/back", &format!("logout_token={good}"));
    assert_eq!((done.status, done.body.as_str()), (200, ""));
    assert!(done.head.contains("Cache-Control: no-store"), "{}", done.head);
    assert_eq!([one.get("/").status, two.get("/").status, other.get("/").status], [302, 302, 200]);
    // The session and the list of the other one; the list of the user; the time of the logout.
    assert_eq!(keys(), 4);
    // All sessions of the user, which were begun before.
    let issued = |at: u64| serde_json::json!({"sub": "joe", "iat": at});
    let now = support::provider::now();
    assert_eq!(send("logout+jwt", &logout(&issuer, issued(now - 1000))).status, 200);
    assert_eq!(other.get("/").status, 200, "a login after the logout");
    assert_eq!(send("logout+jwt", &logout(&issuer, issued(now + 30))).status, 200);
    assert_eq!(other.get("/").status, 302);
    assert_eq!(send("logout+jwt", &logout(&issuer, issued(now - 1000))).status, 200, "repeated");
    provider.inner().claims = |claims| claims["iat"] = (support::provider::now() + 20).into();
    let mut early = Browser::logged_in(port, &provider);
    assert_eq!(early.get("/").status, 302, "the first logout token is not forgotten");
    provider.inner().claims = |claims| claims["iat"] = (support::provider::now() + 50).into();
    let mut late = Browser::logged_in(port, &provider);
    assert_eq!(late.get("/").status, 200);
    // The provider is out of order, and its keys are known.
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
    provider.inner().instead.insert("/jwks".into(), answer);
    assert_eq!(send("logout+jwt", &logout(&issuer, issued(now + 55))).status, 200);
    assert_eq!(late.get("/").status, 302);
    running.quit();
    site.assert_no_alerts();
}

/// A provider that hangs: requests whose client leaves end with it, and leave no task behind.
#[test]
fn requests_that_end_while_the_provider_hangs_leave_nothing() {
    const REQUESTS: usize = 50;
    let (provider, port) = (Provider::start(), free_port());
    let locations = "http2 on; location = /metrics { auth_oidc off; metrics; } location /x { auth_oidc idp; access_log logs/x; try_files /page =404; }";
    let site = site(port, &provider, "", locations);
    let running = site.start();
    let discovery = "/.well-known/openid-configuration";
    provider.inner().held = Some(discovery.into());
    let mut client = http2::Client::connect(port);
    (0..REQUESTS).for_each(|n| client.ask(2 * n as u32 + 1, "/x"));
    wait("the fetch", || if provider.asked(discovery) == 1 { Ok(()) } else { Err("not yet") });
    drop(client);
    wait("the ends of all", || match site.read("logs/x").lines().count() {
        REQUESTS => Ok(()),
        other => Err(format!("{other} of {REQUESTS}")),
    });
    let page = Browser::new(port).get("/metrics").body;
    let tasks: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("tidegate_tasks_active")).collect();
    let sum: f64 = tasks.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(!tasks.is_empty() && sum < REQUESTS as f64 / 2.0, "{tasks:?}");
    provider.inner().held = None;
    assert_eq!(Browser::new(port).get("/x").status, 302);
    assert_eq!(provider.asked(discovery), 1);
    running.quit();
    site.assert_no_alerts();
}

/// The provider replaces its keys while users log in: all of them wait for the one fetch.
#[test]
fn logins_wait_for_keys_that_are_being_fetched() {
    let (provider, port) = (Provider::start(), free_port());
    let site = site(port, &provider, "", "");
    let running = site.start();
    drop(Browser::logged_in(port, &provider));
    provider.inner().rotate();
    provider.inner().held = Some("/jwks".into());
    let log_in = || {
        let mut browser = Browser::new(port);
        let back = provider.agree(&browser.get("/").location());
        std::thread::spawn(move || browser.get(&back).status)
    };
    let first = log_in();
    wait("the fetch", || if provider.asked("/jwks") == 2 { Ok(()) } else { Err("not yet") });
    let others: Vec<_> = (0..3).map(|_| log_in()).collect();
    wait("the tokens", || if provider.asked("/token") == 5 { Ok(()) } else { Err("not yet") });
    provider.inner().held = None;
    assert_eq!(first.join().expect("no panic"), 302, "{}", site.log());
    for other in others {
        assert_eq!(other.join().expect("no panic"), 302, "{}", site.log());
    }
    assert_eq!(provider.asked("/jwks"), 2);
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn a_provider_that_is_not_there_stops_new_logins_only() {
    let port = free_port();
    let listener = std::net::TcpListener::bind(("127.0.0.1", free_port())).expect("a port");
    let address = listener.local_addr().expect("an address");
    let provider = Provider::on(listener);
    let store = "session_store sessions; logout_uri /logout;";
    let conf = conf(port, &provider, store, "").replacen(
        "http {",
        "http { keyval_zone zone=sessions:1m state=sessions.json timeout=8h;",
        1,
    );
    // The worker's account must be able to make files beside the state file.
    let site = Site::new(&format!("{MAIN} user root;"), &conf);
    site.write("html/page", "page");
    let running = site.start();
    let mut known = Browser::logged_in(port, &provider);
    drop(provider);
    running.quit();
    // Sessions outlive a restart in their file, and need no provider.
    let running = site.start();
    assert_eq!(known.get("/").user(), "joe|a,b||access-2");
    let mut browser = Browser::new(port);
    assert_eq!((browser.get("/open").status, browser.get("/").status), (200, 503));
    running.signal("HUP");
    site.wait_for_log("reconfiguring", 1);
    assert_eq!((known.get("/").status, browser.get("/open").status), (200, 200));
    let left = known.get("/logout");
    assert_eq!((left.status, left.body.contains("logged out")), (200, true));
    assert_eq!(known.get("/").status, 503);
    let listener = wait("the port", || std::net::TcpListener::bind(address));
    let provider = Provider::on(listener);
    wait("a login", || {
        let mut browser = Browser::new(port);
        match browser.get("/").status {
            302 => Ok(()),
            status => Err(status),
        }
    });
    drop(Browser::logged_in(port, &provider));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn metadata_of_another_issuer_are_not_used() {
    let (provider, port) = (Provider::start(), free_port());
    provider.inner().metadata = |metadata| metadata["issuer"] = "http://127.0.0.1:1".into();
    let site = site(port, &provider, "", "");
    let running = site.start();
    assert_eq!(Browser::new(port).get("/").status, 500);
    site.wait_for_log("metadata of issuer \"http://127.0.0.1:1\" instead of", 1);
    running.quit();
}

#[test]
fn cookies_over_tls_are_secure() {
    let (provider, port) = (Provider::start(), free_port());
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()]).expect("a certificate");
    let conf =
        conf(port, &provider, "pkce off; redirect_uri /back;", "ssl_certificate a.crt; ssl_certificate_key a.key;");
    let site = Site::new(MAIN, &conf.replace(&format!("127.0.0.1:{port};"), &format!("127.0.0.1:{port} ssl;")));
    site.write("html/page", "page");
    site.write("conf/a.crt", &made.cert.pem());
    site.write("conf/a.key", &made.signing_key.serialize_pem());
    let running = site.start();
    let jar = site.path("jar").display().to_string();
    let get = |path: &str| {
        let url = format!("https://127.0.0.1:{port}{path}");
        let output = Command::new("curl").args(["-sk", "-D-", "-b", &jar, "-c", &jar, &url]).output().expect("curl");
        text(&output.stdout)
    };
    let location =
        |head: &str| head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default().to_string();
    let sent = get("/");
    assert!(sent.contains("Set-Cookie: __Host-NGX_OIDC_SESSION_LOGIN="), "{sent}");
    assert!(sent.contains("; Path=/; HttpOnly; SameSite=Lax; Secure"), "{sent}");
    let to = location(&sent);
    assert_eq!(argument(&to, "code_challenge"), None, "pkce off");
    assert_eq!(argument(&to, "redirect_uri"), Some(format!("https://127.0.0.1:{port}/back")));
    let back = get(&provider.agree(&to));
    assert!(back.contains("Set-Cookie: NGX_OIDC_SESSION=") && back.contains("; Secure"), "{back}");
    assert!(get("/").contains("X-User: joe|"));
    running.quit();
    site.assert_no_alerts();
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let site = Site::new("", "");
    let full = "issuer https://a; client_id c;";
    for (block, more, says) in [
        ("client_id c;", "", "\"issuer\" is missing in oidc_provider \"p\""),
        ("issuer https://a;", "", "\"client_id\" is missing in oidc_provider \"p\""),
        ("issuer http://a; client_id c;", "", "\"http://a\" is no \"https\" URL"),
        ("issuer https://a?b; client_id c;", "", "has a query or a fragment"),
        ("issuer https://a; issuer https://a;", "", "\"issuer\" directive is duplicate"),
        ("issuer https://a; client_id c; pkce maybe;", "", "invalid value \"maybe\", it must be \"on\" or \"off\""),
        ("issuer https://a; client_id c; redirect_uri back;", "", "invalid URL prefix in \"back\""),
        ("issuer https://a; client_id c; logout_uri /a?b;", "", "invalid URI \"/a?b\""),
        ("issuer https://a; client_id c; session_timeout 0;", "", "\"session_timeout\" directive invalid value"),
        ("issuer https://a; client_id c; cookie_name a=b;", "", "invalid value \"a=b\""),
        ("issuer https://a; client_id c; session_store none;", "", "zone \"none\""),
        (
            "issuer https://a; client_id c; session_store n;",
            "keyval_zone zone=n:1m type=ip;",
            "of another type than \"string\"",
        ),
        ("issuer https://a; client_id c; colour red;", "", "unknown directive \"colour\""),
        ("issuer https://a; client_id c; ssl_trusted_certificate none.crt;", "", "cannot load certificate"),
        (full, "auth_oidc q;", "oidc_provider \"q\" is not defined"),
        (full, "oidc_provider p { issuer https://b; client_id d; }", "duplicate provider name \"p\""),
    ] {
        site.configure(
            "",
            &format!("http {{ oidc_provider p {{ {block} }} {more} server {{ listen 127.0.0.1:1; }} }}"),
        );
        let output = site.run(&["-t"]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{block} {more}: {said}");
    }
}

/// A token, and the keys that it was signed with.
const JWT: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.eyJzdWIiOiJqb2UiLCJuIjo3LCJhZG1pbiI6ZmFsc2UsImdyb3VwcyI6WyJhIiwiYiJdLCJpbmZvIjp7ImUtbWFpbCI6ImpvZUBleGFtcGxlLmNvbSIsImpvYiB0aXRsZSI6IngifSwidXNlcklkIjoiVTEifQ.lmJNxIZzD2QCFjnigjt9mLYaT3rKjqmbl86uO4VM6VE";
const JWT_KEYS: &str = r#"{"keys":[{"k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY","kid":"one","kty":"oct"}]}"#;

/// Every combination of passed and failed checks: with `satisfy any` one is enough, with `satisfy all` none may fail.
#[test]
fn satisfy_counts_all_checks_alike() {
    let (provider, port) = (Provider::start(), free_port());
    let mut locations =
        String::from("location = /yes { internal; return 204; } location = /no { internal; return 403; }\n");
    for satisfy in ["any", "all"] {
        for (access, rule) in [("in", "allow all"), ("out", "deny all")] {
            for (request, answer) in [("in", "/yes"), ("out", "/no")] {
                locations.push_str(&format!(
                    "location /{satisfy}/{access}/{request}/ {{ satisfy {satisfy}; {rule}; auth_request {answer};
                        auth_basic b; auth_basic_user_file passwords; auth_jwt j token=$arg_token; auth_jwt_key_file keys;
                        auth_oidc idp; try_files /page =404; }}\n"
                ));
            }
        }
    }
    let site = site(port, &provider, "", &locations);
    site.write("conf/passwords", "joe:{PLAIN}secret\n");
    site.write("keys", JWT_KEYS);
    let running = site.start();
    let user = Browser::logged_in(port, &provider);
    for passed in 0..32_u32 {
        let is = |check: u32| passed & (1 << check) != 0;
        let word = |check| if is(check) { "in" } else { "out" };
        let mut browser = if is(2) { user.clone() } else { Browser::new(port) };
        let password = if is(3) { "am9lOnNlY3JldA==" } else { "am9lOndyb25n" };
        browser.fields = format!("Authorization: Basic {password}\r\n");
        let token = if is(4) { JWT.to_string() } else { JWT.replace(".lmJ", ".lmK") };
        for (satisfy, wanted) in [("any", passed != 0), ("all", passed == 31)] {
            let path = format!("/{satisfy}/{}/{}/?token={token}", word(0), word(1));
            let status = browser.get(&path).status;
            assert_eq!(status == 200, wanted, "{satisfy} {passed:05b}: {status}");
            assert!([200, 302, 401, 403].contains(&status), "{satisfy} {passed:05b}: {status}");
        }
    }
    running.quit();
    site.assert_no_alerts();
}

/// The checks, each with its directives and with the options of curl that pass it.
const CHECKS: [(&str, &str, &[&str]); 6] = [
    ("address", "allow 127.0.0.2; deny all;", &["--interface", "127.0.0.2"]),
    ("basic", "auth_basic b; auth_basic_user_file passwords;", &["-u", "joe:secret"]),
    ("token", "auth_jwt j token=$http_token; auth_jwt_key_file keys;", &["-H", "Token: TOKEN"]),
    ("session", "auth_oidc idp;", &["-b", "JAR"]),
    ("request", "auth_request /yes;", &["-H", "Yes: 1"]),
    ("certificate", "auth_request /certificate;", &["--cert", "CERTIFICATE", "--key", "KEY"]),
];

/// Each pair of checks: with `satisfy any` either is enough, with `satisfy all` both are needed.
#[test]
fn satisfy_combines_each_pair_of_checks() {
    let (provider, port) = (Provider::start(), free_port());
    let pairs = || {
        let all = (0..CHECKS.len()).flat_map(|one| (one + 1..CHECKS.len()).map(move |other| (one, other)));
        // A location has one `auth_request`.
        all.filter(|pair| *pair != (4, 5))
    };
    let mut locations = String::from(
        "location = /yes { internal; if ($http_yes) { return 204; } return 403; }
        location = /certificate { internal; if ($ssl_client_verify = SUCCESS) { return 204; } return 403; }\n",
    );
    for (one, other) in pairs() {
        for satisfy in ["any", "all"] {
            let ((a, first, _), (b, second, _)) = (CHECKS[one], CHECKS[other]);
            locations.push_str(&format!(
                "location = /{satisfy}/{a}/{b} {{ satisfy {satisfy}; {first} {second} try_files /page =404; }}\n"
            ));
        }
    }
    let tls = "ssl_verify_client optional; ssl_client_certificate own.crt; ssl_certificate own.crt; ssl_certificate_key own.key;";
    let conf = conf(port, &provider, "", &format!("{tls} {locations}"));
    let site = Site::new(MAIN, &conf.replace(&format!("127.0.0.1:{port};"), &format!("127.0.0.1:{port} ssl;")));
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    site.write("conf/own.crt", &params.self_signed(&key).expect("a certificate").pem());
    site.write("conf/own.key", &key.serialize_pem());
    site.write("html/page", "page");
    site.write("conf/passwords", "joe:{PLAIN}secret\n");
    site.write("keys", JWT_KEYS);
    let running = site.start();
    let file = |name: &str| site.path(name).display().to_string();
    let curl = |path: &str, options: &[String]| {
        let url = format!("https://127.0.0.1:{port}{path}");
        let output = Command::new("curl").args(["-sk", "-D-", "-o", "/dev/null"]).args(options).arg(&url).output();
        text(&output.expect("curl").stdout)
    };
    let jar: Vec<String> = ["-b", &file("jar"), "-c", &file("jar")].map(String::from).to_vec();
    let sent = curl("/", &jar);
    let location = sent.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a redirect");
    assert!(curl(&provider.agree(location), &jar).contains("Set-Cookie: NGX_OIDC_SESSION="));
    let options = |check: usize| {
        let place = |word: &&str| match *word {
            "JAR" => file("jar"),
            "CERTIFICATE" => file("conf/own.crt"),
            "KEY" => file("conf/own.key"),
            other => other.replace("TOKEN", JWT),
        };
        CHECKS[check].2.iter().map(place).collect::<Vec<String>>()
    };
    for (one, other) in pairs() {
        for satisfy in ["any", "all"] {
            for passed in [[false, false], [true, false], [false, true], [true, true]] {
                let given =
                    [one, other].into_iter().zip(passed).filter(|(_, is)| *is).flat_map(|(check, _)| options(check));
                let given: Vec<String> = given.collect();
                let path = format!("/{satisfy}/{}/{}", CHECKS[one].0, CHECKS[other].0);
                let head = curl(&path, &given);
                let status = head.split(' ').nth(1).unwrap_or_default().to_string();
                let wanted = if satisfy == "any" { passed.contains(&true) } else { passed == [true, true] };
                assert_eq!(status == "200", wanted, "{path} {passed:?}: {head}");
                assert!(["200", "302", "401", "403"].contains(&status.as_str()), "{path} {passed:?}: {head}");
            }
        }
    }
    running.quit();
    site.assert_no_alerts();
}
