//! The configuration with all kinds of blocks, and the files it serves.

use crate::backend::Backend;
use crate::place::BlockPlace;
use crate::server::{Binary, Dirs};
use crate::{Mode, PlacedFragment, Plan, documents, gateways, peers, pool};
use cases::Over;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

/// Files below the root, and one of another root.
const FILES: &[(&str, &str)] = &[
    ("html/a/x.html", "hello, world"),
    ("html/a/x.css", "p { color: red; color: red; color: red; color: red }"),
    ("html/a/x.css.gz", "as if it were compressed"),
    ("html/a/folder/x.html", "in a folder"),
    ("html/n/x.html", "hello, n"),
    ("html/n/in/x.html", "hello, inner n"),
    ("html/n/re.html", "hello, re"),
    ("html/i/x.html", "hello, i"),
    ("html/l/x.html", "hello, l"),
    ("html/m/x.html", "hello, m"),
    ("html/e/x.html", "hello, e"),
    ("html/404.html", "page of 404"),
    ("html/index.html", "index"),
    ("other/a/x.html", "other a"),
    ("other/x.html", "other"),
    ("other/404.html", "other page of 404"),
    // joe:secret
    ("users", "joe:{PLAIN}secret\n"),
];

/// Makes the files, all of one age.
///
/// # Errors
/// As the file system gives them.
pub fn make_files(dirs: &Dirs) -> std::io::Result<()> {
    const AGE: Duration = Duration::from_secs(1_700_000_000);
    for (name, content) in FILES {
        let path = dirs.folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
        fs::File::options().write(true).open(&path)?.set_modified(UNIX_EPOCH + AGE)?;
    }
    for (name, _) in FILES {
        for folder in dirs.folder.join(name).ancestors().skip(1).take_while(|folder| *folder != dirs.folder) {
            fs::File::open(folder)?.set_modified(UNIX_EPOCH + AGE)?;
        }
    }
    Ok(())
}

/// The configuration with the directives in their places.
pub fn site_config(
    puts: &[PlacedFragment],
    dirs: &Dirs,
    port: u16,
    backend: &Backend,
    binary: &Binary,
    plan: &Plan,
) -> String {
    let put = |place: BlockPlace| -> String {
        let lines: Vec<&str> = puts.iter().filter(|put| put.place == place).map(|put| put.text).collect();
        lines.join("\n        ")
    };
    let (http, server, location, nested) =
        (put(BlockPlace::Http), put(BlockPlace::Server), put(BlockPlace::Location), put(BlockPlace::Nested));
    let (if_, server_if, limit, named) =
        (put(BlockPlace::If), put(BlockPlace::IfInServer), put(BlockPlace::LimitExcept), put(BlockPlace::Named));
    let (params, others) = match plan.mode {
        Mode::Gateways => (gateways::gateway_params(), gateways::gateway_locations(&location, &nested, &if_)),
        Mode::Peers => (peers::peer_groups(), peers::peer_locations(&location, &nested, &if_)),
        Mode::Documents => (documents::document_maps().into(), documents::document_locations(&location, &nested, &if_)),
        _ => Default::default(),
    };
    let proxied = if plan.own_lines().is_some() {
        String::new()
    } else if pool::version_requests(binary.version).iter().any(|ask| ask.target.starts_with("/p")) {
        format!(
            "location /p/ {{
        {location}
        proxy_pass http://127.0.0.1:@backend/;
        location /p/in/ {{ {nested} proxy_pass http://127.0.0.1:@backend; }}
        if ($arg_i) {{ {if_} }}
        limit_except GET POST {{ {limit} }}
    }}"
        )
    } else {
        String::new()
    };
    format!(
        "{head}
http {{
    {own}
    root @dir/html;
    types {{ text/html html; text/css css; }}
    log_format compare '$status|$request|$request_uri|$uri|$args|$server_protocol|$request_length|$request_method|\
         $sent_http_content_type|$sent_http_location|$content_length|$remote_user|$own';
    access_log @dir/access.log compare;
    proxy_cache_path @dir/cache keys_zone=one:1m;
    limit_req_zone $uri zone=slow:1m rate=1r/m;
    limit_conn_zone $binary_remote_addr zone=conns:1m;
    upstream group {{ server 127.0.0.1:@backend; }}
    {params}
    {http}
    server {{
        listen 127.0.0.1:@port;
        {quic}
        server_name localhost;
        set $own '';
        {server}
        if ($arg_s) {{ {server_if} }}
        location /a/ {{ {location} }}
        location /n/ {{ {location} location /n/in/ {{ {nested} }} location ~ ^/n/re {{ {nested} }} }}
        location /i/ {{ {location} if ($arg_i) {{ {if_} }} }}
        location /l/ {{ {location} limit_except GET {{ {limit} }} }}
        location /m/ {{ try_files $uri @named; {location} }}
        location /t/ {{ {location} return 200 'text of $uri'; }}
        location /r/ {{ {location} return 302 /a/x.html; }}
        location = /e/x.html {{ {location} }}
        location @named {{ {named} }}
        location /auth/yes {{ return 204; }}
        location /auth/no {{ return 403; }}
        {proxied}
        {others}
    }}
}}
",
        head = main_lines(),
        quic = if plan.over == Over::H3 {
            "listen 127.0.0.1:@port quic; ssl_certificate @dir/one.crt; ssl_certificate_key @dir/one.key;"
        } else {
            ""
        },
        own = [
            if binary.nginx { "" } else { "server_identity nginx;" },
            if plan.over == Over::H2c { "http2 on;" } else { "" }
        ]
        .concat(),
    )
    .replace("@dir", &dirs.folder.display().to_string())
    .replace("@backend", &backend.port.to_string())
    .replace("@plain", &backend.peer.as_ref().map_or(0, |peer| peer.plain).to_string())
    .replace("@secure", &backend.peer.as_ref().map_or(0, |peer| peer.secure).to_string())
    .replace("@port", &port.to_string())
}

/// Returns the lines before the http block.
pub fn main_lines() -> &'static str {
    "daemon off;\nmaster_process off;\npid @dir/pid;\nerror_log @dir/error.log info;\nevents { }"
}
