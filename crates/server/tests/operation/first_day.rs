//! The first start in a container, and files as other systems write them.

use crate::support;

use support::client::Client;
use support::{Site, free_port, text, wait};

/// A site without a folder for logs.
fn without_logs(conf: &str) -> Site {
    let site = Site::new("", "");
    std::fs::remove_dir_all(site.path("logs")).expect("removed");
    site.write("conf/nginx.conf", conf);
    site
}

#[test]
fn a_default_log_that_no_server_uses_is_not_opened() {
    let main = "error_log stderr; pid nginx.pid; daemon off; events { }";
    let port = free_port();
    for (http, starts) in [
        (format!("server {{ listen {port}; access_log off; }}"), true),
        (format!("server {{ listen {port}; access_log /dev/stdout; location /a {{ return 200; }} }}"), true),
        (format!("access_log off; server {{ listen {port}; }}"), true),
        (format!("access_log one.log; server {{ listen {port}; access_log off; }} server {{ listen {port}; }}"), true),
        (format!("access_log syslog:server=127.0.0.1; server {{ listen {port}; }}"), true),
        (String::new(), true),
        // As in nginx, the server itself has the default, and a line of the file is opened, used or not.
        (format!("server {{ listen {port}; location / {{ access_log off; }} }}"), false),
        (format!("access_log logs/access.log; server {{ listen {port}; access_log off; }}"), false),
        (format!("server {{ listen {port}; access_log off; }} server {{ listen {port}; }}"), false),
    ] {
        let site = without_logs(&format!("{main} http {{ {http} }}"));
        let said = site.run(&["-t"]);
        assert_eq!(said.status.success(), starts, "{http}: {}", text(&said.stderr));
        assert_eq!(text(&said.stderr).contains("logs/access.log\" failed"), !starts, "{http}");
    }
}

#[test]
fn a_server_starts_reloads_and_reopens_without_a_folder_for_logs() {
    let port = free_port();
    let conf = |log: &str| {
        format!(
            "error_log /dev/null; pid nginx.pid; daemon off; events {{ }}
             http {{ server {{ listen 127.0.0.1:{port}; {log} location / {{ return 200 x; }} }} }}"
        )
    };
    let site = without_logs(&conf("access_log off;"));
    let mut child = site.command(&[]).spawn().expect("the program starts");
    let ask =
        || Client::connect(port).and_then(|mut c| c.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    wait("an answer", ask);
    support::signal(child.id(), "USR1");
    // A reload that uses the default log opens it, and a later one does not need it any more.
    std::fs::create_dir_all(site.path("logs")).expect("a folder");
    site.write("conf/nginx.conf", &conf(""));
    support::signal(child.id(), "HUP");
    wait("a line", || {
        ask()?;
        if site.read("logs/access.log").is_empty() { Err("no line".to_string()) } else { Ok(()) }
    });
    support::signal(child.id(), "QUIT");
    assert!(child.wait().expect("the end").success());
}

/// Marks the start of a file as editors of other systems do.
const BYTE_ORDER_MARK: &str = "\u{feff}";

#[test]
fn certificates_and_keys_may_begin_with_a_byte_order_mark() {
    let port = free_port();
    for isolation in ["", "ssl_key_isolation on;"] {
        let site = Site::new(
            isolation,
            &format!(
                "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                 ssl_client_certificate a.crt; ssl_verify_client optional; ssl_trusted_certificate a.crt; }} }}"
            ),
        );
        site.certify();
        for name in ["conf/a.crt", "conf/a.key"] {
            let text = site.read(name);
            site.write(name, &format!("{BYTE_ORDER_MARK}{text}"));
        }
        let said = site.run(&["-t"]);
        assert!(said.status.success(), "{isolation} {}", text(&said.stderr));
    }
}

#[test]
fn edits_behind_a_change_by_the_api_are_told() {
    use support::config_api::{API, CONFIG, files, post};
    let port = free_port();
    let main = "error_log logs/error.log info;\ndaemon off;\nevents { }\nhttp { include conf.d/*.conf; }\n";
    let server =
        |more: &str| format!("server {{ listen 127.0.0.1:{port}; {API} {more} location / {{ return 200 x; }} }}");
    let site = Site::new("", "");
    std::fs::create_dir_all(site.path("conf/conf.d")).expect("a folder");
    site.write("conf/nginx.conf", main);
    site.write("conf/conf.d/a.conf", &server(""));
    let running = site.start();
    let changed = server("location /b { return 201; }");
    let said = post(port, CONFIG, &files(&[("nginx.conf", main), ("conf.d/a.conf", &changed)]));
    assert_eq!(said.status, 200, "{}", said.value);
    let told = |words: &str| {
        for arguments in [&["-t"][..], &["lint"]] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
            let said = match arguments {
                ["lint"] => command.args(["lint", "-p"]).arg(&site.dir).output().expect("the program runs"),
                arguments => site.run(arguments),
            };
            let stderr = text(&said.stderr);
            assert!(stderr.contains(words), "{arguments:?}: {stderr}");
            assert_eq!(stderr.contains("of the API"), !words.is_empty(), "{arguments:?}: {stderr}");
        }
    };
    // The file of before differs, which is what the change was for.
    told("");
    site.write("conf/conf.d/a.conf", &server("location /c { return 202; }"));
    told("conf.d/a.conf\" was edited, which has no effect");
    running.signal("HUP");
    site.wait_for_log("conf.d/a.conf\" was edited, which has no effect", 1);
    site.write("conf/conf.d/a.conf", &changed);
    told("");
    site.write("conf/conf.d/b.conf", "# another site");
    told("conf.d/b.conf\" is not read");
    running.quit();
}

#[test]
fn files_of_other_servers_and_forgotten_ends_have_hints() {
    let site = Site::new("", "");
    let hint = |conf: &str| {
        site.write("conf/nginx.conf", conf);
        let said = site.run(&["-t", "--explain"]);
        assert_eq!(said.status.code(), Some(1), "{conf}");
        text(&said.stderr)
    };
    let server = |lines: &str| format!("events {{ }}\nhttp {{\n    server {{\n{lines}\n    }}\n}}\n");
    for (conf, words) in [
        (server("        listen 80\n        root /x;"), "is a \";\" missing before \"root\"?"),
        (server("        root /x\n        index index.html;"), "is a \";\" missing before \"index\"?"),
        (server("        server_name a\n        location / { }"), "is a \";\" missing before \"location\"?"),
        (server("location / { api /status/; }"), "write \"api;\" without one"),
        (server("ssl on;"), "write \"listen 443 ssl;\" instead"),
        ("example.com {\n    root * /srv\n}\n".into(), "this is a Caddyfile"),
        ("<VirtualHost *:80>\nDocumentRoot /x\n</VirtualHost>\n".into(), "tidegate convert apache FILE"),
        ("ServerRoot /etc/apache2\nListen 80\n".into(), "tidegate convert apache FILE"),
    ] {
        let said = hint(&conf);
        assert!(said.contains(words), "{conf}: {said}");
    }
}

#[test]
fn directives_of_other_modules_that_change_only_looks_and_speed_are_taken() {
    let site = Site::new("", "");
    let port = free_port();
    site.configure(
        "daemon off;",
        &format!(
            "http {{ pagespeed on; pagespeed FileCachePath /x; server {{ listen 127.0.0.1:{port}; root html;
             location / {{ fancyindex on; fancyindex_exact_size off; fancyindex_header /h.html; }} }} }}"
        ),
    );
    site.write("html/a-file", "x");
    let said = site.run(&["-t"]);
    let stderr = text(&said.stderr);
    assert!(said.status.success(), "{stderr}");
    assert_eq!(stderr.matches("\"pagespeed\" has no effect").count(), 1, "{stderr}");
    assert_eq!(stderr.matches("\"fancyindex_header\" has no effect").count(), 1, "{stderr}");
    let running = site.start();
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (status, body) = Client::connect(port).and_then(|mut client| client.ask(request)).expect("an answer");
    assert!(status == 200 && body.contains("a-file"), "{status} {body}");
    running.quit();
    site.configure("", "http { fancyindex_ignore secret; }");
    assert!(!site.run(&["-t"]).status.success(), "it hides files");
}

#[test]
fn a_quiet_test_prints_errors_alone() {
    let site = Site::new("worker_processes 4;", "http { }");
    let conf = site.read("conf/nginx.conf").replace("events { }", "events { worker_connections 100000000; }");
    site.write("conf/nginx.conf", &conf);
    let loud = site.run(&["-t"]);
    let loud = (loud.status.success(), text(&loud.stderr));
    assert!(loud.0 && loud.1.contains("open files: ") && !loud.1.contains("   (in the main context)"), "{loud:?}");
    let quiet = site.run(&["-t", "-q"]);
    assert_eq!((quiet.status.success(), text(&quiet.stderr).as_str()), (true, ""));
}

#[test]
fn the_first_process_ends_when_the_pid_file_is_whole() {
    let port = free_port();
    let site = Site::new("", &format!("http {{ server {{ listen 127.0.0.1:{port}; return 200 x; }} }}"));
    for _ in 0..20 {
        assert!(site.run(&[]).status.success());
        let pid = site.pid().expect("a whole pid file when the first process has ended");
        assert!(support::alive(pid));
        support::signal(pid, "QUIT");
        wait("the end", || if support::alive(pid) { Err("it runs") } else { Ok(()) });
    }
    // A start that fails in the background is told by the exit status.
    std::fs::create_dir_all(site.path("logs/nginx.pid")).expect("a folder");
    assert!(!site.run(&[]).status.success());
}

#[test]
fn worker_connections_count_as_in_nginx() {
    let (one, other) = (free_port(), free_port());
    let site = Site::new(
        "daemon off; worker_processes 1;",
        &format!("http {{ server {{ listen 127.0.0.1:{one}; listen 127.0.0.1:{other}; return 200 x; }} }}"),
    );
    let conf = site.read("conf/nginx.conf").replace("events { }", "events { worker_connections 4; }");
    site.write("conf/nginx.conf", &conf);
    let running = site.start();
    // Two listeners, and nginx's channel to its master, for which the thread's wake-up stands: one client is served.
    for port in [one, other] {
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert_eq!(Client::connect(port).and_then(|mut client| client.ask(request)), Ok((200, "x".into())));
    }
    running.quit();
}
