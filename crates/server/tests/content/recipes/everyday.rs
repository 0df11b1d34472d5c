//! Recipes of everyday sites: each is started with simulated applications, and its responses are compared.

use super::*;

/// Returns status, fields and body of a response as one text.
fn reply(port: u16, path: &str, fields: &str) -> String {
    let (status, head, body) = get(port, "example.com", path, fields);
    format!("{status}\n{head}\n{body}")
}

fn assert_has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Asks by HTTPS for `example.com`. None without curl.
fn secure_reply(port: u16, path: &str, arguments: &[&str]) -> Option<String> {
    let to = format!("example.com:{port}:127.0.0.1");
    let url = format!("https://example.com:{port}{path}");
    curl(&[&["-i", "--http1.1", "--resolve", &to, &url], arguments].concat())
}

/// Starts a recipe with an echoing application in place of port 3000 and asks. Fails if a text is missing in its response.
fn check(recipe: Recipe, asked: &[(&str, &str, &[&str])]) {
    let app = echoing();
    let (mut recipe, port) = recipe.listen(80);
    if recipe.text.contains("127.0.0.1:3000") {
        recipe = recipe.with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port));
    }
    let site = recipe.site();
    let running = site.start();
    for (path, fields, parts) in asked {
        assert_has(&reply(port, path, fields), parts);
    }
    end(running);
}

fn with_folder(name: &str) -> Recipe {
    Recipe::new(name).folder("/var/www/example.com").file("index.html", "home")
}

#[test]
fn clear_text_is_redirected_to_https() {
    let (recipe, clear) = with_folder("http-to-https").with("listen      80 default_server", "listen 80").listen(80);
    let (recipe, port) = recipe.listen(443);
    let recipe = recipe.folder("/var/www/acme").file(".well-known/acme-challenge/token", "proof");
    let site = recipe.certificate("example.com").site();
    let running = site.start();
    assert_has(&reply(clear, "/a?b", ""), &["301\n", "Location: https://example.com/a?b\n"]);
    assert_has(&reply(clear, "/.well-known/acme-challenge/token", ""), &["200\n", "proof"]);
    if let Some(said) = secure_reply(port, "/", &[]) {
        assert_has(&said, &["200 OK", "Strict-Transport-Security: max-age=31536000", "home"]);
    }
    end(running);
}

#[test]
fn recipe_spa() {
    check(
        with_folder("spa").file("assets/app.js", "code"),
        &[
            ("/orders/7", "", &["200\n", "home", "Cache-Control: no-cache"]),
            ("/assets/app.js", "", &["200\n", "immutable"]),
            ("/assets/none.js", "", &["404\n"]),
            ("/api/orders", "", &["GET /api/orders HTTP/1.1"]),
        ],
    );
}

#[test]
fn recipe_cors() {
    let recipe = Recipe::new("cors");
    let own = "Origin: https://app.example.com\r\n";
    check(
        recipe,
        &[("/", own, &["Access-Control-Allow-Origin: https://app.example.com\n", "Credentials: true", "Vary: Origin"])],
    );
    let (recipe, port) = Recipe::new("cors").listen(80);
    let site = recipe.site();
    let running = site.start();
    let said = reply(port, "/", "Origin: https://other.example\r\n");
    assert!(!said.contains("Access-Control"), "{said}");
    let mut client = Client::connect(port).expect("connected");
    let request = format!("OPTIONS / HTTP/1.1\r\nHost: api.example.com\r\n{own}Connection: close\r\n\r\n");
    let (status, head) = client.ask_for_head(&request).expect("answered");
    assert_eq!(status, 204);
    assert_has(
        &head,
        &["Access-Control-Allow-Origin: https://app.example.com\n", "Allow-Methods: GET, POST", "Max-Age: 7200"],
    );
    end(running);
}

#[test]
fn basic_auth() {
    let recipe = with_folder("basic-auth").file("private/a", "secret").file("htpasswd", "joe:{PLAIN}word\n");
    check(
        recipe.folder("/etc/nginx"),
        &[
            ("/", "", &["200\n"]),
            ("/private/a", "", &["401\n", "WWW-Authenticate: Basic realm=\"Members\""]),
            ("/private/a", "Authorization: Basic am9lOndvcmQ=\r\n", &["200\n", "secret"]),
        ],
    );
}

#[test]
fn recipe_cdn() {
    let fields = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    // Fields of a client outside of the CDN's networks are not believed.
    check(Recipe::new("cdn"), &[("/", fields, &["X-Real-IP: 127.0.0.1", "X-Forwarded-Proto: http\r\n"])]);
    check(
        Recipe::new("cdn").with("192.0.2.0/24", "127.0.0.0/8"),
        &[(
            "/",
            fields,
            &["X-Real-IP: 203.0.113.9", "X-Forwarded-For: 203.0.113.9\r\n", "X-Forwarded-Proto: https\r\n"],
        )],
    );
}

#[test]
fn recipe_compression() {
    let recipe = with_folder("compression").file("page.html", &"word ".repeat(1000)).file("assets/a.css.gz", "packed");
    let gzip = "Accept-Encoding: gzip\r\n";
    let (recipe, port) = recipe.file("assets/a.css", "a { }").listen(80);
    let site = recipe.site();
    let running = site.start();
    assert_has(&reply(port, "/page.html", gzip), &["Content-Encoding: gzip", "Vary: Accept-Encoding"]);
    assert_has(&reply(port, "/assets/a.css", gzip), &["Content-Encoding: gzip", "packed"]);
    assert_has(&reply(port, "/assets/a.css", ""), &["a { }"]);
    end(running);
}

#[test]
fn error_page() {
    let recipe = with_folder("error-page").file("errors/50x.html", "sorry").file("errors/404.html", "not here");
    let app = Origin::answering(|_| b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\napp".to_vec());
    let (recipe, port) = recipe.with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port)).listen(80);
    let site = recipe.site();
    let running = site.start();
    assert_has(&reply(port, "/none", ""), &["404\n", "not here"]);
    assert_has(&reply(port, "/api/none", ""), &["404\n", "app"]);
    drop(app);
    assert_has(&reply(port, "/", ""), &["502\n", "sorry"]);
    end(running);
}

#[test]
fn recipe_maintenance() {
    check(with_folder("maintenance"), &[("/", "", &["200\n", "GET / HTTP/1.1"])]);
    let closed = || with_folder("maintenance").file("maintenance.html", "back soon");
    check(closed(), &[("/a", "", &["503\n", "Retry-After: 600", "back soon"])]);
    check(closed().with("10.0.0.0/8", "127.0.0.0/8"), &[("/a", "", &["200\n", "GET /a HTTP/1.1"])]);
}

#[test]
fn recipe_canary() {
    let (stable, canary) = (Origin::answering(|_| ok("old")), Origin::answering(|_| ok("new")));
    let recipe = Recipe::new("canary").with("127.0.0.1:3001", &format!("127.0.0.1:{}", stable.port));
    check(
        recipe.with("127.0.0.1:3002", &format!("127.0.0.1:{}", canary.port)),
        &[
            ("/", "Cookie: version=canary\r\n", &["new", "Set-Cookie: version=canary;"]),
            ("/", "Cookie: version=stable\r\n", &["old", "Set-Cookie: version=stable;"]),
            ("/", "Cookie: version=forged\r\n", &["200\n"]),
        ],
    );
}

#[test]
fn recipe_bots() {
    check(
        with_folder("bots").file("images/a", "image"),
        &[
            ("/", "", &["403\n"]),
            ("/", "User-Agent: AhrefsBot/7\r\n", &["403\n"]),
            ("/", "User-Agent: Firefox\r\n", &["200\n"]),
            ("/images/a", "User-Agent: Firefox\r\nReferer: https://thief.example/\r\n", &["403\n"]),
            ("/images/a", "User-Agent: Firefox\r\nReferer: https://example.com/\r\n", &["200\n", "image"]),
            ("/robots.txt", "User-Agent: Googlebot\r\n", &["Disallow: /search"]),
        ],
    );
}

#[test]
fn json_log() {
    let (recipe, port) = with_folder("json-log").folder("/var/log/nginx").listen(80);
    let site = recipe.site();
    let running = site.start();
    reply(port, "/health", "");
    reply(port, "/", "User-Agent: a\"b\r\n");
    let line = wait("a line", || site.read("access.json").lines().next().map(String::from).ok_or("none"));
    let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((object["uri"].as_str(), object["status"].as_u64()), (Some("/"), Some(200)));
    assert_eq!(object["agent"], "a\"b");
    end(running);
}

#[test]
fn unix_socket() {
    let app = echoing();
    let recipe = with_folder("unix-socket").file("static/a.css", "a { }");
    check(
        recipe.with("unix:/run/app/app.sock", &format!("127.0.0.1:{}", app.port)),
        &[
            ("/static/a.css", "", &["a { }", "Expires: "]),
            ("/a", "", &["GET /a HTTP/1.1", "X-Forwarded-Proto: http\r\n"]),
        ],
    );
}

#[test]
fn recipe_mtls() {
    let app = echoing();
    let (recipe, port) = Recipe::new("mtls").listen(443);
    let recipe = recipe.certificate("example.com").with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port));
    let folder = recipe.site.dir.display().to_string();
    crate::satisfy::authority(&recipe.site, "authority", "joe");
    let site = recipe.with("/etc/nginx/clients-ca.pem", &format!("{folder}/conf/authority.crt")).site();
    let running = site.start();
    let (certificate, key) = (format!("{folder}/conf/joe.crt"), format!("{folder}/conf/joe.key"));
    if let Some(said) = secure_reply(port, "/", &[]) {
        assert_has(&said, &["HTTP/1.1 403"]);
        assert_has(&secure_reply(port, "/health", &[]).expect("answered"), &["HTTP/1.1 200", "ok"]);
        let said = secure_reply(port, "/", &["--cert", &certificate, "--key", &key]).expect("answered");
        assert_has(&said, &["HTTP/1.1 200", "X-Client: ", "CN=joe"]);
    }
    end(running);
}

#[test]
fn recipe_subfolder() {
    check(
        Recipe::new("subfolder").folder("/var/www/example.com"),
        &[
            ("/shop", "", &["301\n", "/shop/\n"]),
            ("/shop/cart?x", "", &["GET /cart?x HTTP/1.1", "X-Forwarded-Prefix: /shop\r\n"]),
        ],
    );
}

#[test]
fn recipe_wordpress() {
    // Answers each FastCGI request with its end, whatever it asks.
    let php = Origin::new(|mut talk: Talk<'_>| {
        if talk.some().is_some() {
            let text = b"Status: 200\r\n\r\nWP";
            let mut out = vec![1, 6, 0, 1, 0, text.len() as u8, 0, 0];
            out.extend_from_slice(text);
            out.extend_from_slice(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            talk.send(&out);
        }
    });
    let recipe = with_folder("wordpress").file("index.php", "").file("wp-content/uploads/a.php", "");
    check(
        recipe.with("unix:/run/php/php-fpm.sock", &format!("127.0.0.1:{}", php.port)),
        &[
            ("/2026/post/", "", &["200\n", "WP"]),
            ("/wp-login.php", "", &["200\n", "WP"]),
            ("/xmlrpc.php", "", &["403\n"]),
            ("/wp-content/uploads/a.php", "", &["403\n"]),
            ("/wp-config.php", "", &["403\n"]),
            ("/.git/config", "", &["403\n"]),
        ],
    );
}

#[test]
fn security_headers() {
    let (recipe, port) = with_folder("security-headers").listen(443);
    let site = recipe.certificate("example.com").site();
    let running = site.start();
    if let Some(said) = secure_reply(port, "/none", &[]) {
        let parts =
            ["404", "Strict-Transport-Security: ", "Content-Security-Policy: default-src 'self'", "nosniff", "DENY"];
        assert_has(&said, &parts);
    }
    end(running);
}

#[test]
fn recipe_uploads() {
    let app = echoing();
    let (recipe, port) = Recipe::new("uploads").listen(80);
    let site = recipe.with("127.0.0.1:3000", &format!("127.0.0.1:{}", app.port)).site();
    let running = site.start();
    let post = |path: &str, length: usize| {
        let mut client = wait("a connection", || Client::connect(port));
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nContent-Length: {length}\r\nConnection: close\r\n");
        client.ask(&format!("{head}\r\n{}", "x".repeat(length.min(1000)))).expect("answered").0
    };
    assert_eq!((post("/", 1000), post("/", 2_000_000), post("/upload", 1000)), (200, 413, 200));
    end(running);
}

#[test]
fn several_sites() {
    let (recipe, port) = Recipe::new("several-sites")
        .with("listen 80 default_server", "listen 8000 default_server")
        .with("/var/www/example.com", "/var/www/main")
        .folder("/var/www")
        .file("main/index.html", "home")
        .file("blog/index.html", "blog")
        .listen(80);
    // One free port for all servers; `listen` replaces each line.
    let site = recipe.with("listen 8000 default_server", &format!("listen 127.0.0.1:{port} default_server")).site();
    let running = site.start();
    assert_eq!(get(port, "www.example.com", "/", "").2, "home");
    assert_eq!(get(port, "blog.example.com", "/", "").2, "blog");
    let mut client = Client::connect(port).expect("connected");
    assert!(client.ask("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").is_err(), "no response for other names");
    end(running);
}
