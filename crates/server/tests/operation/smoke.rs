//! A seeded run of the fuzz targets that need a whole configuration.

const RULES: &[&str] = &[
    "RewriteBase /s\n",
    "RewriteCond %{QUERY_STRING} ^f=(.+)$\nRewriteRule ^get$ files/%1 [L]\n",
    "RewriteCond %{QUERY_STRING} ^f=(.+)$\nRewriteRule ^(.*)$ /%1 [END]\n",
    "RewriteCond %{HTTP:X-F} (.+)\nRewriteRule ^(.*)$ files/%1 [L]\n",
    "RewriteCond %{QUERY_STRING} ^f=(.+)$\nRewriteCond %1 -f\nRewriteRule ^get$ files/b.txt [L]\n",
    "RewriteRule ^(.*)$ ../$1 [PT]\n",
    "RewriteRule ^x %{DOCUMENT_ROOT}/../secret.txt [L]\n",
    "RewriteRule ^k kept/in.txt [END]\n",
    "DirectoryIndex ../secret.txt .htaccess /kept/in.txt a.txt\n",
    "DirectoryIndex kept/in.txt\n",
    "ErrorDocument 404 /../secret.txt\n",
    "ErrorDocument 404 /kept/in.txt\n",
    "ErrorDocument 403 /.htaccess\n",
    "ErrorDocument 400 /a.txt\n",
];

const TARGETS: &[&str] = &["", "x", "k", "get?f=", "s", "s/", "try?f=/", "made?f=", "reg/", "files/", "none"];

const WORDS: &[&str] = &[
    "..",
    "/",
    "../",
    ".",
    "%2e",
    "%2f",
    "secret.txt",
    ".htaccess",
    "files/.htpasswd",
    "files/b.txt",
    "b.txt",
    "kept/in.txt",
    "-old/secret.txt",
    "/etc/passwd",
    "\nX-F: ",
    "a.txt",
];

#[test]
fn htaccess_requests() {
    let mut state = testkit::Random::new(0x9e37_79b9_7f4a_7c15);
    let mut next = move |below: usize| (state.number() >> 33) as usize % below;
    let (mut answered, all) = (0, 1_500);
    for round in 0..all {
        let mut input = b"RewriteEngine On\n".to_vec();
        for _ in 0..next(5) {
            input.extend_from_slice(RULES[next(RULES.len())].as_bytes());
        }
        input.push(0);
        input.extend_from_slice(TARGETS[next(TARGETS.len())].as_bytes());
        for _ in 0..next(3) {
            input.extend_from_slice(WORDS[next(WORDS.len())].as_bytes());
        }
        let result = std::panic::catch_unwind(|| server::fuzzing::htaccess_request(&input));
        answered += usize::from(result.unwrap_or_else(|_| panic!("round {round}: {}", input.escape_ascii())));
    }
    assert!(answered > 20, "only {answered} requests met a file");
}

/// The fuzz target lists contents that must not be found: each was reachable once.
#[test]
fn ways_that_were_open() {
    for input in [
        "RewriteEngine On\nRewriteCond %{QUERY_STRING} ^f=(.+)$\nRewriteRule ^x$ files/%1 [L]\n\0x?f=../../secret.txt",
        "RewriteEngine On\nRewriteRule ^k kept/in.txt [END]\n\0k",
        "DirectoryIndex ../secret.txt\n\0",
        "DirectoryIndex kept/in.txt\n\0",
        "ErrorDocument 404 /../secret.txt\n\0none",
        "ErrorDocument 404 /kept/in.txt\n\0none",
        "\0try?f=/../secret.txt",
        "\0try?f=/.htaccess",
        "\0made?f=../../secret.txt",
        "\0s../../secret.txt",
        "\0reg/.htpasswd",
    ] {
        server::fuzzing::htaccess_request(input.as_bytes());
    }
}

const PATHS: &[&str] = &[
    "/9/http/upstreams/app/servers/",
    "/9/http/upstreams/app/servers/0",
    "/9/http/upstreams/app/servers/3/",
    "/9/http/upstreams/hashed/servers",
    "/9/http/upstreams/fixed/servers",
    "/9/stream/upstreams/tcp/servers/",
    "/9/http/keyvals/pairs",
    "/9/http/keyvals/mortal",
    "/9/http/upstreams/app",
    "/9/slabs/pairs",
    "/9/workers/0",
    "/3/nginx",
    "/",
    "/tidegate/1/config/generations/7",
];

const BODIES: &[&str] = &[
    r#"{"server": "127.0.0.1:3", "weight": 2, "down": true}"#,
    r#"{"server": "unix:/x", "max_conns": 9, "fail_timeout": "3s", "slow_start": "1s"}"#,
    r#"{"drain": true, "route": "a"}"#,
    r#"{"weight": -1}"#,
    r#"{"a": "1"}"#,
    r#"{"a": {"value": "1", "expire": 5}}"#,
    r#"{"a": null}"#,
    r#"[{"server": "127.0.0.1:4"}, {"id": 1, "server": "127.0.0.1:5"}]"#,
    r#"{"files": {"a": "b"}}"#,
    r#"{"level": "debug"}"#,
    "events {}",
    "[[[[[[[[",
];

const MARKS: &[u8] = b"{}[]\",:0e-\\/";

#[test]
fn requests_of_the_api() {
    let mut state = testkit::Random::new(0x1f83_d9ab_fb41_bd6b);
    let mut next = move |below: usize| (state.number() >> 33) as usize % below;
    let (mut changed, all) = (0, 20_000);
    for round in 0..all {
        let mut input = vec![next(256) as u8];
        input.extend_from_slice(PATHS[next(PATHS.len())].as_bytes());
        input.push(b'\n');
        input.extend_from_slice(BODIES[next(BODIES.len())].as_bytes());
        for _ in 0..next(3) {
            let at = next(input.len());
            match next(3) {
                0 => input[at] = next(256) as u8,
                1 => _ = input.remove(at),
                _ => input.insert(at, MARKS[next(MARKS.len())]),
            }
        }
        let result = std::panic::catch_unwind(|| server::fuzzing::api(&input));
        match result {
            Ok(status) => changed += u32::from((200..300).contains(&status)),
            Err(_) => panic!("round {round}: {}", input.escape_ascii()),
        }
    }
    assert!(changed > all / 20, "{changed} of {all} requests succeeded");
}

/// Steps that an input may have; see `server::fuzzing::run_reloads`.
const STEPS: &[&[u8]] = &[
    &[0],
    &[128],
    &[2, 0],
    &[2, 1],
    &[10, 4],
    &[18, 140],
    &[3],
    &[11],
    &[4, 1],
    &[4, 2],
    &[4, 3],
    &[4, 4],
    &[4, 0],
    &[7],
    &[255, 9],
];

#[test]
fn reloads_under_requests() {
    let mut state = testkit::Random::new(0x2545_f491_4f6c_dd1d);
    let mut next = move |below: usize| (state.number() >> 33) as usize % below;
    let mut answered = 0;
    for round in 0..3_000 {
        let mut input = vec![0];
        for _ in 0..next(30) {
            match next(12) {
                0 => input.extend([next(256) as u8, next(256) as u8]),
                1 => input.extend([5, next(256) as u8]),
                _ => input.extend_from_slice(STEPS[next(STEPS.len())]),
            }
        }
        let result = std::panic::catch_unwind(|| server::fuzzing::run_reloads(&input));
        answered += result.unwrap_or_else(|_| panic!("round {round}: {}", input.escape_ascii()));
    }
    assert!(answered > 1_000, "only {answered} responses");
}
