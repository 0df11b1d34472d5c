//! Compares `-t` with nginx: both accept and reject the same configurations, and errors suggest a fix.

use crate::support;

use support::{Site, text};

/// Runs `-t --explain` on an http block; returns acceptance and output.
fn explained(http: &str) -> (bool, String) {
    let output = Site::new("", &format!("http {{\n{http}\n}}")).run(&["-t", "--explain"]);
    (output.status.success(), text(&output.stderr))
}

fn caret(words: &str) -> String {
    let lines: Vec<&str> = words.lines().collect();
    let at = lines.iter().position(|line| line.contains(" | ") && line.trim_end().ends_with('^')).unwrap_or_default();
    let start = lines[at].find('^').unwrap_or_default();
    let end = lines[at].rfind('^').unwrap_or_default();
    lines[at - 1].get(start..=end).unwrap_or_default().to_string()
}

#[test]
fn duplicates_and_empty_values_are_taken_as_by_nginx() {
    for http in [
        "server { location / { fastcgi_split_path_info ^(.+\\.php)(.*)$; fastcgi_split_path_info ^(.+)(/.*)$; } }",
        "server { gzip_types text/css; gzip_types text/plain; }",
        "upstream u { ip_hash; ip_hash; zone z 64k; zone z 64k; server 127.0.0.1:1; }",
        "upstream u { hash $uri; hash $uri consistent; server 127.0.0.1:1; }",
        "upstream u { server 127.0.0.1:1; server 127.0.0.1:2 backup; hash $uri; server 127.0.0.1:3; }",
        "upstream u { random; random two; server 127.0.0.1:1; } upstream v { least_conn; least_conn; server 127.0.0.1:1; }",
        "upstream u { zone z; server 127.0.0.1:1; } upstream v { zone z 64k; server 127.0.0.1:1; }",
        "server { location / { flv; flv; } location /m { mp4; mp4; } }",
        "modern_browser_value a; modern_browser_value b; ancient_browser_value a; ancient_browser_value b;",
        "image_filter_jpeg_quality 50; image_filter_jpeg_quality 60; image_filter_webp_quality 50; image_filter_webp_quality 60;",
        "access_log ''; server { error_log '' info; access_log \"\"; }",
        "server { location / { proxy_cookie_flags a bogus httponly ''; } }",
        "server { ssl_certificate_cache off; }",
        "image_filter_sharpen 5; image_filter_sharpen 6; degradation sbrk=1m; degradation sbrk=2m; max_headers 0;",
        "proxy_cache_path c levels= keys_zone=z:1m;",
        "server { server_name a..b *.c.* d*e; }",
        "geo $x { include none/*; } map $uri $y { include none/*; } types { include none/*; }",
        "proxy_temp_path c 1; server { fastcgi_temp_path c/ 1; }",
        "server { listen 127.0.0.1:1234 ipv6only=on; }",
    ] {
        let (accepted, words) = explained(http);
        assert!(accepted, "{http}: {words}");
    }
    for (http, want) in [
        ("gzip_types a/b; gzip_types a/b c/d;", "[warn] duplicate MIME type \"a/b\" in "),
        ("dav_methods PUT; dav_methods PUT DELETE;", "[warn] duplicate value \"PUT\" in "),
        (
            "server { http2_idle_timeout 3s; }",
            "[warn] the \"http2_idle_timeout\" directive is obsolete, use the \"keepalive_timeout\" directive instead in ",
        ),
        ("server { location / { http2_push /x; } }", "[warn] the \"http2_push\" directive is obsolete, ignored in "),
        (
            "server { listen 127.0.0.1:1234 accept_filter=httpready; }",
            "[warn] accept filters \"accept_filter=httpready\" are not supported on this platform, ignored in ",
        ),
        ("server { server_name a/b; }", "[warn] server name \"a/b\" has suspicious symbols in "),
        ("server { server_name a A; } server { server_name b; }", "[warn] conflicting server name \"a\" on 0.0.0.0:"),
    ] {
        let (accepted, words) = explained(http);
        assert!(accepted && words.contains(want) && words.matches("[warn]").count() == 1, "{http}: {words}");
    }
    let output = Site::new("error_log ''; pid '';", "").run(&["-t"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn directives_of_routes_name_their_values() {
    let location = |line: &str| format!("server {{ location ^/ /a {{ {line} }} }}");
    for (line, want, hint) in [
        ("redirect_to code=301;", "\"redirect_to\" redirects to the same URL", "give scheme="),
        ("redirect_to code=300 path=/x;", "invalid parameter \"code=300\"", "one of: 301, 302"),
        ("redirect_to port=0;", "invalid parameter \"port=0\"", "a number from 1 to 65535"),
        ("redirect_to host=a:80;", "invalid parameter \"host=a:80\"", "port="),
        ("redirect_to path=x;", "invalid parameter \"path=x\"", "begins with \"/\""),
        ("redirect_to path=/x prefix=/y;", "has both \"path=\" and \"prefix=\"", ""),
        ("redirect_to host=a host=b;", "duplicate parameter \"host=b\"", ""),
        ("redirect_to url=/x;", "invalid parameter \"url=/x\"", "one of: scheme="),
        ("rewrite_prefix x;", "invalid prefix \"x\"", "begins with \"/\""),
        ("rewrite_prefix /a/../..;", "leads above the root", ""),
        ("request_header_set Connection close;", "\"connection\" cannot be changed", "delimits the message"),
        ("request_header_add TE trailers;", "\"te\" cannot be changed", ""),
        ("request_header_remove Keep-Alive;", "\"keep-alive\" cannot be changed", ""),
        ("response_header_set Upgrade x;", "\"upgrade\" cannot be changed", ""),
        ("response_header_add Location x;", "can not append builtin headers", ""),
        ("request_header_set 'a b' x;", "invalid field name in \"a b\"", ""),
        ("cors { }", "has no \"allow_origin\"", "allow_origin *"),
        ("cors { allow_origin a.example; }", "invalid origin \"a.example\"", "scheme://host"),
        ("cors { allow_origin *; allow_method GET; }", "unknown line \"allow_method\"", "one of: allow_origin"),
        ("cors { allow_origin *; max_age x; }", "\"max_age\" of \"cors\" needs a time", ""),
        ("cors { allow_origin *; allow_headers 'a,b'; }", "invalid name \"a,b\"", "separated by spaces"),
        ("cors on;", "directive \"cors\" has no opening \"{\"", ""),
        ("mirror /x share=110%;", "invalid parameter \"share=110%\"", "share=10%"),
        ("mirror off share=10%;", "invalid parameter \"share=10%\"", ""),
        ("proxy_ssl_verify_names *.a.example;", "invalid name \"*.a.example\"", "spiffe://"),
        ("grpc_ssl_verify_names ://x;", "invalid name \"://x\"", ""),
    ] {
        let (accepted, words) = explained(&location(line));
        assert!(!accepted && words.contains(want) && words.contains(hint), "{line}: {words}");
    }
    for (http, want) in [
        ("server { location ~ x { rewrite_prefix /y; } }", "whose name is a path or a prefix"),
        ("server { location @x { redirect_to prefix=/y; } }", "whose name is a path or a prefix"),
        ("backend_weights $a { b 1000001; }", "invalid weight \"1000001\""),
        ("backend_weights a { b 1; }", "invalid variable name \"a\""),
        ("backend_weights $uri { b 1; }", "the duplicate \"uri\" variable"),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(want), "{http}: {words}");
    }
}

/// nginx reads numbers digit by digit.
#[test]
fn numbers_have_no_sign() {
    for (http, want) in [
        ("upstream u { server 127.0.0.1:+82; }", "invalid port in upstream \"127.0.0.1:+82\""),
        ("upstream u { server [::1]:+82; }", "invalid port in upstream \"[::1]:+82\""),
        ("server { listen 127.0.0.1:+8082; }", "invalid port in \"127.0.0.1:+8082\" of the \"listen\" directive"),
        ("server { listen [::1]:+8083; }", "invalid port in \"[::1]:+8083\" of the \"listen\" directive"),
        ("server { listen 8082 backlog=+5; }", "invalid backlog \"backlog=+5\""),
        ("server { listen 8082 fastopen=+3; }", "invalid fastopen \"fastopen=+3\""),
        ("server { listen 8082 setfib=3; }", "invalid parameter \"setfib=3\""),
        ("server { listen 8082 so_keepalive=::+4; }", "invalid so_keepalive value: \"::+4\""),
        ("upstream u { server 127.0.0.1:82 weight=+2; }", "invalid parameter \"weight=+2\""),
        ("upstream u { server 127.0.0.1:82 max_fails=+2; }", "invalid parameter \"max_fails=+2\""),
        ("upstream u { server 127.0.0.1:82; keepalive +4; }", "invalid value \"+4\" in \"keepalive\" directive"),
        ("server { error_page +404 /x; }", "invalid value \"+404\""),
        ("server { error_page 404 =+200 /x; }", "invalid value \"=+200\""),
        ("limit_req_zone $uri zone=a:64k rate=+1r/s;", "invalid rate \"rate=+1r/s\""),
        ("limit_conn_zone $uri zone=q:64k; limit_conn q +3;", "invalid number of connections \"+3\""),
        ("resolver 127.0.0.1:+53;", "invalid port in resolver \"127.0.0.1:+53\""),
        ("proxy_cache_path c levels=+1:2 keys_zone=z:1m;", "invalid \"levels\" \"levels=+1:2\""),
        ("proxy_cache_valid +200 1m;", "invalid status \"+200\""),
        ("proxy_buffers +4 8k;", "\"proxy_buffers\" directive invalid value"),
        ("output_buffers +1 32k;", "\"output_buffers\" directive invalid value"),
        ("client_body_temp_path x +1 2;", "\"client_body_temp_path\" directive invalid value"),
        ("open_file_cache max=+5;", "invalid \"open_file_cache\" parameter \"max=+5\""),
        ("error_log syslog:server=127.0.0.1:+514;", "invalid port in syslog server \"127.0.0.1:+514\""),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(&format!("[emerg] {want}")), "{http}: {words}");
    }
}

#[test]
fn configurations_that_nginx_refuses_are_refused() {
    for (http, want) in [
        ("resolver 127.0.0.1 valid5s;", "[emerg] host not found in resolver \"valid5s\" in "),
        ("resolver off;", "[emerg] host not found in resolver \"off\" in "),
        ("http2_streams_index_size 0;", "[emerg] \"http2_streams_index_size\" directive must be a power of two in "),
        ("http2_recv_buffer_size 16;", "[emerg] \"http2_recv_buffer_size\" directive value is too small in "),
        ("types_hash_max_size 0;", "[emerg] could not build types_hash, you should increase types_hash_max_size: 0"),
        ("variables_hash_bucket_size 0;", "[emerg] could not build variables_hash, you should increase"),
        ("proxy_headers_hash_max_size 0;", "[emerg] could not build proxy_headers_hash, you should increase"),
        ("quic_host_key /none/such;", "[emerg] open() \"/none/such\" failed (2: No such file or directory) in "),
        ("server { location / { limit_req zone=; } }", "[emerg] zero size shared memory zone \"\" in "),
        ("types { text/html { html; } }", "[emerg] unexpected \"{\" in "),
        ("map $uri $a { /x { y; } }", "[emerg] unexpected \"{\" in "),
        ("geo $b { default 1; 10.0.0.0/8 { } }", "[emerg] unexpected \"{\" in "),
        ("upstream u { zone z; server 127.0.0.1:1; }", "[emerg] zero size shared memory zone \"z\""),
        (
            "upstream u { zone z 64k; server 127.0.0.1:1; } upstream v { zone z 128k; server 127.0.0.1:1; }",
            "[emerg] the size 131072 of shared memory zone \"z\" conflicts with already declared size 65536",
        ),
        (
            "limit_req_zone $uri zone=z:64k rate=1r/s; upstream u { zone z 64k; server 127.0.0.1:1; }",
            "[emerg] the shared memory zone \"z\" is already declared for a different use",
        ),
        ("ssl_certificate_cache off bogus;", "[emerg] invalid parameter \"bogus\""),
        (
            "proxy_cache_path c keys_zone=z:1m; server { location / { scgi_cache z; } }",
            "[emerg] the shared memory zone \"z\" is already declared for a different use in ",
        ),
        (
            "server { location / { limit_except GET { deny all; } limit_except PUT { deny all; } } }",
            "[emerg] \"limit_except\" directive is duplicate in ",
        ),
        ("server { location / { uwsgi_modifier1 256; } }", "[emerg] value must be between 0 and 255 in "),
        (
            "upstream u { server 127.0.0.1:1; } server { location / { proxy_pass http://; } }",
            "no host in upstream \"\"",
        ),
        ("aio maybe;", "[emerg] \"aio\" directive invalid value"),
        ("proxy_http_version 4;", "[emerg] invalid value \"4\""),
        ("client_body_temp_path t 9 2;", "[emerg] \"client_body_temp_path\" directive invalid value"),
        ("disable_symlinks on off;", "[emerg] duplicate parameters \"on off\" in "),
        ("disable_symlinks off from=$uri;", "[emerg] \"from=\" cannot be used with \"off\" parameter in "),
        ("disable_symlinks from=$uri;", "[emerg] \"disable_symlinks\" directive must have \"off\", \"on\" or"),
        ("request_pool_size 64;", "[emerg] the pool size must be no less than 112 in "),
        ("http2_pool_size 1;", "[emerg] the pool size must be no less than 112 in "),
        (
            "connection_pool_size 16k; server { listen 127.0.0.1:1; }",
            "[emerg] the \"large_client_header_buffers\" size must be equal to or greater than \"connection_pool_size\" in ",
        ),
        ("limit_conn_zone $uri zone=z:1m; limit_conn z 65536;", "[emerg] connection limit must be less 65536 in "),
        ("connection_pool_size 113;", "[emerg] the pool size must be a multiple of 16 in "),
        ("gzip_window 3k;", "[emerg] \"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k in "),
        ("server { listen 1 backlog=x; }", "[emerg] invalid backlog \"backlog=x\" in "),
        ("send_timeout 1M;", "[emerg] \"send_timeout\" directive invalid value in "),
        ("error_page 499 /x;", "[emerg] invalid value \"499\" in "),
        ("server { location / { try_files $uri =x; } }", "[emerg] invalid code \"=x\" in "),
        ("server { listen [::1]:1 ipv6only=of; }", "[emerg] invalid ipv6only flags \"of\" in "),
        ("server { listen [::1]:1 ipv6only=x; }", "[emerg] invalid parameter \"ipv6only=x\" in "),
        ("server { listen unix:s reuseport; }", "[emerg] \"reuseport\" is not supported for UNIX-domain sockets in "),
        ("server { listen 1 rcvbuf=x; }", "[emerg] invalid rcvbuf \"rcvbuf=x\" in "),
        ("map $uri $x { a b }", "[emerg] unexpected \"}\" in "),
        ("map $uri $x { volatile; a \"b; }", "[emerg] unexpected end of file, expecting \";\" or \"}\" in "),
        (
            "geo $x { include /none/ranges; 1.2.3.4 0; }",
            "[emerg] open() \"/none/ranges\" failed (2: No such file or directory) in ",
        ),
        ("types { a/b c }", "[emerg] unexpected \"}\" in "),
        (
            "server { location / { proxy_pass http://10.0.0.1:1:2; } }",
            "[emerg] invalid port in upstream \"10.0.0.1:1:2\" in ",
        ),
        ("server { location / { proxy_pass http://[a]:b; } }", "[emerg] invalid port in upstream \"[a]:b\" in "),
        ("resolver http://;", "[emerg] invalid host in resolver \"http://\" in "),
        ("resolver unix:;", "[emerg] no path in the unix domain socket in resolver \"unix:\" in "),
        ("server { listen http://; }", "[emerg] invalid host in \"http://\" of the \"listen\" directive in "),
        ("server { location / { fastcgi_pass /; } }", "[emerg] invalid host in upstream \"/\" in "),
        ("server { location / { memcached_pass $uri; } }", "[emerg] no port in upstream \"$uri\" in "),
        (
            "limit_conn_zone $uri zone=z:1m; limit_conn z 1; limit_conn z 2;",
            "[emerg] \"limit_conn\" directive is duplicate in ",
        ),
        ("proxy_cache_path c keys_zone=z:1m; proxy_cache_path c keys_zone=z:1m;", "[emerg] the same path name "),
        ("proxy_cache_path c keys_zone=z:1m; server { proxy_temp_path c/; }", "/c\" used in "),
        ("proxy_temp_path c 1; server { fastcgi_temp_path c 1 2; }", " has the different levels than in "),
        ("server { server_name .; }", "[emerg] server name \".\" is invalid in "),
        (
            "server { server_name a; } server { server_name *.c.*; }",
            "[emerg] invalid server name or wildcard \"*.c.*\" on 0.0.0.0:",
        ),
        ("server { location / { try_files /x =abc; } }", "[emerg] invalid code \"=abc\" in "),
        ("error_page 499 /x;", "[emerg] invalid value \"499\" in "),
        ("types { include a b; }", "[emerg] invalid number of arguments in \"include\" directive in "),
        ("split_clients $uri $v { include none/*; }", "[emerg] invalid percent value \"include\" in "),
        ("proxy_bind [::1]:0;", "[emerg] invalid address \"[::1]:0\" in "),
        ("upstream u { sticky cookie ''; server 127.0.0.1:1; }", "[emerg] \"sticky\" directive empty cookie name in "),
        ("proxy_cookie_flags secure;", "[emerg] invalid parameter \"secure\" in "),
        (
            "proxy_cookie_flags a secure; proxy_cookie_flags off;",
            "[emerg] \"proxy_cookie_flags\" directive is duplicate in ",
        ),
        ("proxy_cookie_path off; proxy_cookie_path /a /b;", "[emerg] \"proxy_cookie_path\" directive is duplicate in "),
        (
            "proxy_cookie_domain a b; proxy_cookie_domain off;",
            "[emerg] \"proxy_cookie_domain\" directive is duplicate in ",
        ),
        ("error_page 4294967296 /x;", "[emerg] value \"4294967296\" must be between 300 and 599 in "),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(want), "{http}: {words}");
    }
    let (_, words) = explained("resolver 127.0.0.1 valid5s;");
    assert!(words.contains("did you mean \"valid=TIME\"?") && caret(&words) == "valid5s", "{words}");
    // The directive is named once, not each block that inherits it.
    for (http, want) in [
        (
            "proxy_cache none; server { location /a { proxy_pass http://127.0.0.1:1; } location /b { } }",
            "proxy_cache none;",
        ),
        ("limit_req zone=none; server { location /a { } location /b { } }", "limit_req zone=none;"),
        ("limit_conn none 1; server { location /a { } location /b { } }", "limit_conn none 1;"),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && caret(&words) == want && words.matches("[emerg]").count() == 1, "{http}: {words}");
    }
    let (accepted, words) = explained("send_lowat 1k; server { location / { fastcgi_send_lowat 1k; } }");
    assert!(accepted && words.contains("[warn] \"send_lowat\" is not supported, ignored"), "{words}");
    assert!(words.contains("[warn] \"fastcgi_send_lowat\" is not supported, ignored"), "{words}");
    let stream = "stream { upstream u { zone z; server 127.0.0.1:1; } }";
    let words = text(&Site::new("", stream).run(&["-t"]).stderr);
    assert!(words.contains("zero size shared memory zone \"z\""), "{words}");
}

/// nginx has had these directives since 1.31.5, or in its commercial edition.
#[test]
fn values_of_newer_directives_are_checked() {
    for (http, want) in [
        ("json_set $v $arg_json 'a[\"x\\\\q\"]';", "[emerg] invalid json_set path \"a[\"x\\q\"]\" in "),
        ("json_set $v $arg_json '';", "[emerg] empty json_set path in "),
        ("json_set v $arg_json a;", "[emerg] invalid variable name \"v\" in "),
        ("json_set $v arg_json a;", "[emerg] invalid variable name \"arg_json\" in "),
        ("json_set $v $arg_json a; json_set $V $arg_x b;", "[emerg] json_set variable \"V\" is already defined in "),
        ("json_set $host $arg_json a;", "[emerg] the duplicate \"host\" variable in "),
        ("json_max_depth 0;", "[emerg] value must be between 1 and 256 in "),
        ("json_max_depth 257;", "[emerg] value must be between 1 and 256 in "),
        ("server { json_set $v $arg_json a; }", "[emerg] \"json_set\" directive is not allowed here in "),
        ("server { location $nothing { } }", "[emerg] unknown \"nothing\" variable"),
        ("server { location $ { } }", "[emerg] invalid variable name in "),
        ("server { location ${uri { } }", "[emerg] the closing bracket in \"uri\" variable is missing in "),
        ("server { location ~ b { location /a { } } }", "[emerg] location \"/a\" is outside location \"b\" in "),
        (
            "server { location = /x { location $uri { } } }",
            "[emerg] location \"$uri\" cannot be inside the exact location \"/x\" in ",
        ),
        (
            "server { location $uri { proxy_pass http://127.0.0.1/x; } }",
            "[emerg] \"proxy_pass\" cannot have URI part in location given by regular expression, or inside predicate location, or ",
        ),
        ("auth_require admin;", "[emerg] invalid parameter \"admin\" in "),
        ("auth_require $a error=200;", "[emerg] invalid parameter \"error=200\" in "),
        ("auth_require $a error=403 error=404;", "[emerg] invalid parameter \"error=404\" in "),
        ("auth_require error=403;", "[emerg] \"auth_require\" directive needs a value in "),
        ("internal_redirect /x;", "[emerg] \"internal_redirect\" directive is not allowed here in "),
        ("hls;", "[emerg] \"hls\" directive is not allowed here in "),
        ("server { location / { hls on; } }", "[emerg] invalid number of arguments in \"hls\" directive in "),
        ("hls_buffers 8;", "[emerg] invalid number of arguments in \"hls_buffers\" directive in "),
        (
            "hls_forward_args yes;",
            "[emerg] invalid value \"yes\" in \"hls_forward_args\" directive, it must be \"on\" or \"off\"",
        ),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(want), "{http}: {words}");
    }
}

#[test]
fn unknown_directives_have_a_suggestion_or_a_replacement() {
    for (http, hint) in [
        ("server { proxy_pas http://127.0.0.1; }", "did you mean \"proxy_pass\"? It is allowed in: location"),
        ("server { location / { proxy_pas http://127.0.0.1; } }", "did you mean \"proxy_pass\"?"),
        ("server { ssl on; }", "write \"listen 443 ssl;\" instead"),
        ("server { location / { content_by_lua_block { ngx.say(\"a\") } } }", "a directive of lua-nginx-module"),
        ("server { fancyindex_ignore a; }", "ngx-fancyindex"),
        ("js_import main.js;", "a directive of njs"),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(hint), "{http}: {words}");
    }
}

/// One error for one fault, with the caret under the word that is at fault.
#[test]
fn carets_stand_under_the_fault() {
    const CERTIFICATE: &str =
        "server { listen 127.0.0.1:1 ssl;\n ssl_certificate none.crt;\n ssl_certificate_key none.key; }";
    for (http, want, word) in [
        (CERTIFICATE, "[emerg] cannot load certificate \"", "none.crt"),
        (
            "server { listen 127.0.0.1:1 ssl;\n ssl_certificate none.crt; }",
            "[emerg] no \"ssl_certificate_key\" is defined",
            "none.crt",
        ),
        ("server { location / {\n fastcgi_pass php73; } }", "[emerg] no port in upstream \"php73\" in ", "php73"),
        ("server { location / {\n grpc_pass app; } }", "[emerg] no port in upstream \"app\" in ", "app"),
        (
            "upstream u { server 127.0.0.1:1; } server { location / {\n proxy_pass http://u:8080; } }",
            "[emerg] upstream \"u\" may not have port 8080 in ",
            "http://u:8080",
        ),
    ] {
        let (accepted, words) = explained(http);
        assert!(!accepted && words.contains(want), "{http}: {words}");
        assert_eq!((caret(&words).as_str(), words.matches("[emerg]").count()), (word, 1), "{words}");
    }
    let stream = format!("stream {{ {} }}", CERTIFICATE.replace("ssl;\n", "ssl; proxy_pass 127.0.0.1:2;\n"));
    let words = text(&Site::new("", &stream).run(&["-t", "--explain"]).stderr);
    assert_eq!((caret(&words).as_str(), words.matches("[emerg]").count()), ("none.crt", 1), "{words}");
    let (_, words) = explained("server {\n location /a { }\n location /a { } }");
    assert!(words.contains("duplicate location \"/a\"") && words.contains("the first one is in "), "{words}");
    assert!(words.contains("nginx.conf:7") && words.contains("nginx.conf:6\n"), "{words}");
}

/// `server_name $hostname` is the machine's name.
#[test]
fn the_name_of_the_machine() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_ascii_lowercase();
    let conf = "http { server { listen 127.0.0.1:1; server_name $HostName; } server { listen 127.0.0.1:1; server_name NAME; } }";
    let words = text(&Site::new("", &conf.replace("NAME", &name)).run(&["-t"]).stderr);
    assert!(words.contains(&format!("[warn] conflicting server name \"{name}\" on 127.0.0.1:1, ignored")), "{words}");
}

/// One warning for all cipher strings: unknown words, and the clients that can no longer connect.
#[test]
fn ciphers_that_are_not_there() {
    let pair = rcgen::generate_simple_self_signed(vec!["a.test".into()]).expect("a certificate");
    let tls = |ciphers: &str| {
        let site = Site::new("", "");
        site.write("conf/a.crt", &pair.cert.pem());
        site.write("conf/a.key", &pair.signing_key.serialize_pem());
        let server = |port: u16, ciphers: &str| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; {ciphers} ssl_certificate a.crt; ssl_certificate_key a.key; }}\n"
            )
        };
        let servers = format!("http {{\n{}{}}}", server(1, ciphers), server(2, ciphers));
        site.configure("", &servers);
        let output = site.run(&["-t"]);
        assert!(output.status.success());
        text(&output.stderr)
    };
    let listed =
        "ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA256:DHE-RSA-AES128-GCM-SHA256:AES128-SHA;";
    let words = tls(listed);
    assert!(
        words.contains(
            "[warn] \"ssl_ciphers\": not available here and ignored: ECDHE-RSA-AES128-SHA256, \
             DHE-RSA-AES128-GCM-SHA256, AES128-SHA; clients that have only ECDHE with CBC, only RSA key exchange, \
             only DHE cannot connect in "
        ),
        "{words}"
    );
    assert_eq!(words.matches("ssl_ciphers").count(), 1, "{words}");
    for quiet in ["", "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;", "ssl_protocols TLSv1.3; ssl_ciphers HIGH;"] {
        assert!(!tls(quiet).contains("ssl_ciphers"), "{quiet}");
    }
}

#[test]
fn stream_servers_without_a_name_conflict() {
    let stream = "stream { server { listen 127.0.0.1:1; return a; } server { listen 127.0.0.1:1; return b; } }";
    let output = Site::new("", stream).run(&["-t"]);
    let words = text(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("[warn] conflicting server name \"\" on 127.0.0.1:1, ignored"), "{words}");
}

#[test]
fn options_of_tcp_are_ignored_on_other_sockets() {
    let site = Site::new("", "");
    let socket = site.path("socket").display().to_string();
    let options = "ipv6only=off deferred fastopen=5 so_keepalive=on";
    site.configure("", &format!("http {{ server {{ listen unix:{socket} {options}; }} }}"));
    let output = site.run(&["-t"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
