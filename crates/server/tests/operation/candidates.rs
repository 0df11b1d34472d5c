//! Configurations that cannot be read: `-t` and the API answer, and the master goes on.

use crate::support;

use rustix::process::{Pid, Signal, kill_process};
use support::config_api::{API, conf, files, page, post, site_of, wait_for_page};
use support::{Site, free_port, text, wait};

/// Arguments of `include` that no configuration can have, with the first error.
fn special_files(site: &Site) -> Vec<(String, &'static str)> {
    let pipe = site.path("conf/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    std::fs::create_dir_all(site.path("conf/folder")).expect("a folder");
    let large = std::fs::File::create(site.path("conf/large")).expect("a file");
    large.set_len(1 << 40).expect("a length");
    site.write("conf/circle", "include again;");
    site.write("conf/again", "include circle; include circle;");
    vec![
        ("pipe".into(), "cannot be included: it is not a regular file"),
        ("/dev/zero".into(), "cannot be included: it is not a regular file"),
        ("/dev/tty".into(), "/dev/tty\""),
        ("folder".into(), "(21: Is a directory)"),
        ("large".into(), "cannot be included: it has more than 256 MB"),
        ("circle".into(), "includes itself"),
    ]
}

#[test]
fn a_test_of_files_that_cannot_be_read_ends_with_an_error() {
    let site = Site::new("", "");
    for (argument, words) in special_files(&site) {
        site.configure("", &format!("http {{ }}\ninclude {argument};"));
        let said = site.run(&["-t"]);
        let said = (said.status.code(), text(&said.stderr));
        assert!(said.0 == Some(1) && said.1.contains(words) && said.1.contains("/conf/"), "{argument}: {said:?}");
    }
    // Files of other directives: certificates, users' data, databases, and logs that are pipes without a reader.
    let pipe = site.path("conf/pipe").display().to_string();
    site.certify();
    let server = |text: &str| {
        let port = free_port();
        format!(
            "http {{ server {{ listen 127.0.0.1:{port} ssl; ssl_certificate_key a.key; ssl_certificate {text} }} }}"
        )
    };
    for rest in [
        server(&format!("{pipe};")),
        server(&format!("a.crt; ssl_password_file {pipe};")),
        server(&format!("a.crt; ssl_client_certificate {pipe}; ssl_verify_client on;")),
        server(&format!("a.crt; ssl_client_certificate a.crt; ssl_crl {pipe};")),
        server(&format!("a.crt; ssl_trusted_certificate {pipe};")),
        server(&format!("a.crt; ssl_session_ticket_key {pipe};")),
        server(&format!("a.crt; ssl_dhparam {pipe};")),
        server(&format!("a.crt; quic_host_key {pipe};")),
        server(&format!("a.crt; location / {{ xslt_stylesheet {pipe}; }}")),
        server(&format!(
            "a.crt; location / {{ proxy_pass https://127.0.0.1; proxy_ssl_trusted_certificate {pipe};
             proxy_ssl_verify on; }}"
        )),
        format!("http {{ geoip_country {pipe}; }}"),
        format!("http {{ geoip2 {pipe} {{ $a b; }} }}"),
        format!("http {{ keyval_zone zone=a:64k state={pipe}; }}"),
        format!("http {{ upstream u {{ zone u 64k; state {pipe}; }} }}"),
        format!("http {{ access_log {pipe}; server {{ }} }}"),
        format!("http {{ map $uri $a {{ include {pipe}; }} }}"),
        format!("http {{ geo $a {{ include {pipe}; }} }}"),
        format!("http {{ types {{ include {pipe}; }} }}"),
        format!("error_log {pipe};"),
        format!("pid {pipe};"),
    ] {
        site.configure("", &rest);
        let said = site.run(&["-t"]);
        assert_eq!(said.status.code(), Some(1), "{rest}: {}", text(&said.stderr));
    }
    // Files that are read when a request needs them.
    for text in [
        format!("a.crt; location / {{ auth_jwt a; auth_jwt_key_file {pipe}; }}"),
        format!("a.crt; location / {{ auth_basic a; auth_basic_user_file {pipe}; }}"),
    ] {
        site.configure("", &server(&text));
        assert_eq!(site.run(&["-t"]).status.code(), Some(0), "{text}");
    }
    site.configure("", "include /dev/null;\nhttp { }");
    assert_eq!(site.run(&["-t"]).status.code(), Some(0));
}

#[test]
fn a_candidate_that_cannot_be_read_is_refused_and_the_master_goes_on() {
    let port = free_port();
    let site = site_of(&conf(port, "one"));
    let refused = special_files(&site);
    let running = site.start();
    let main = |argument: &str| conf(port, "two") + &format!("include {argument};\n");
    for (argument, words) in &refused {
        for query in ["?dry_run", ""] {
            let said = post(port, &format!("/1/config{query}"), &main(argument));
            assert_eq!(said.code(), (400, "ConfigInvalid"), "{argument}: {}", said.value);
            assert!(said.value.to_string().contains(&words.replace('"', "\\\"")), "{argument}: {}", said.value);
        }
    }
    // 2^60 includes of files that are sent.
    let mut sent: Vec<(String, String)> =
        (0..60).map(|n| (format!("n{n}"), format!("include n{0}; include n{0};", n + 1))).collect();
    sent.extend([("n60".into(), String::new()), ("nginx.conf".into(), main("n0"))]);
    let sent: Vec<(&str, &str)> = sent.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let said = post(port, "/1/config?dry_run", &files(&sent));
    assert_eq!(said.code(), (400, "ConfigInvalid"), "{}", said.value);
    assert!(said.value.to_string().contains("files are included"), "{}", said.value);
    // The master restarts a killed worker and makes a change.
    let worker = running.worker();
    kill_process(Pid::from_raw(worker as i32).expect("a process"), Signal::KILL).expect("killed");
    wait("the next worker", || (running.worker() != worker).then_some(()).ok_or("the killed one"));
    wait("a page", || page(port));
    assert_eq!(post(port, "/1/config", &conf(port, "two")).status, 200);
    wait_for_page(port, "two");
    assert!(conf(port, "two").contains(API));
    running.quit();
}
