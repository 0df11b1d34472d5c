//! Files in a change of the configuration: stored with it, shared between generations, and nothing left of refused ones.

use crate::configuration_kills::{STEPS, start_with, wait_for_stop};
use crate::support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use support::config_api::{API, CONFIG, get, page, post, site_of, try_ask, wait_for_page};
use support::{Running, Site, alive, free_port, signal, wait};

const DRY: &str = "/1/config?dry_run";
const FOLDER: &str = "conf/.tidegate-files";

/// Certificate and key for a name, as PEM.
fn pair(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn attached(pair: &(String, String)) -> Value {
    json!({"tls/a.crt": pair.0, "tls/a.key": pair.1})
}

struct Ports {
    plain: u16,
    tls: u16,
}

impl Ports {
    fn new() -> Ports {
        Ports { plain: free_port(), tls: free_port() }
    }

    /// A configuration with the API, a page, and more directives of a server.
    fn text(&self, words: &str, more: &str) -> String {
        let Ports { plain, .. } = self;
        format!(
            "error_log logs/error.log info; daemon off;\nevents {{ }}\nhttp {{\n    server {{ listen 127.0.0.1:{plain}; {API}\n    \
             location / {{ return 200 \"{words}\"; }} }}\n    {more}\n}}\n"
        )
    }

    fn with_tls(&self, words: &str) -> String {
        let tls = self.tls;
        self.text(
            words,
            &format!(
                "server {{ listen 127.0.0.1:{tls} ssl; ssl_certificate tls/a.crt; ssl_certificate_key \"tls/a.key\"; \
                 return 200 tls; }}"
            ),
        )
    }
}

fn body(text: &str, attachments: Value) -> String {
    json!({"files": {"nginx.conf": text}, "attachments": attachments}).to_string()
}

/// Names of the certificates that are served.
fn served(port: u16) -> Value {
    get(port, "/1/certificates").as_array().expect("a list").iter().map(|one| one["names"].clone()).collect()
}

/// Digests of the stored attachments.
fn stored(site: &Site) -> BTreeSet<String> {
    let entries = std::fs::read_dir(site.path(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
}

fn digests(files: &Value) -> BTreeSet<String> {
    let all = files["attachments"].as_object().into_iter().flatten();
    all.map(|(_, value)| value["sha256"].as_str().expect("a digest").to_string()).collect()
}

#[test]
fn certificates_travel_with_their_configuration() {
    let ports = Ports::new();
    let port = ports.plain;
    let site = site_of(&ports.text("one", ""));
    let running = site.start();
    wait_for_page(port, "one");
    let (first, second) = (pair("first.test"), pair("second.test"));
    let said = post(port, DRY, &body(&ports.with_tls("two"), attached(&first)));
    assert_eq!((said.status, &said.value["dry_run"]), (200, &json!(true)), "{}", said.value);
    assert!(!site.path(FOLDER).exists(), "a rehearsal leaves nothing");
    assert_eq!(post(port, CONFIG, &body(&ports.with_tls("two"), attached(&first))).generation(), 2);
    assert_eq!((page(port).as_deref(), served(port)), (Ok("two"), json!([["first.test"]])));
    let files = get(port, "/1/config/files");
    assert_eq!(files["files"], json!({"nginx.conf": ports.with_tls("two")}), "names are those of the request");
    assert!(!files.to_string().contains("PRIVATE KEY"), "{files}");
    assert_eq!(get(port, "/1/config/generations/2")["attachments"], files["attachments"]);
    let key =
        site.path(FOLDER).join(files["attachments"]["tls/a.key"]["sha256"].as_str().expect("it")).join("tls/a.key");
    assert_eq!(std::fs::read_to_string(&key).expect("the key"), first.1);
    assert_eq!(std::fs::metadata(&key).expect("the key").permissions().mode() & 0o777, 0o600);
    assert_eq!(stored(&site), digests(&files));
    assert!(site.run(&["-t"]).status.success());
    // The response is a request; a main file alone keeps them, as do files without attachments.
    assert_eq!(post(port, CONFIG, &files.to_string()).generation(), 3);
    assert_eq!(post(port, CONFIG, &ports.with_tls("four")).generation(), 4);
    let plain = json!({"files": {"nginx.conf": ports.with_tls("five")}}).to_string();
    assert_eq!(post(port, CONFIG, &plain).generation(), 5);
    assert_eq!((page(port).as_deref(), served(port)), (Ok("five"), json!([["first.test"]])));
    // Another certificate under the same name, beside a key whose form is another one.
    let key = json!({"base64": base64(second.1.as_bytes())});
    let said = post(port, CONFIG, &body(&ports.with_tls("six"), json!({"tls/a.crt": second.0, "tls/a.key": key})));
    assert_eq!(said.generation(), 6);
    assert_eq!(served(port), json!([["second.test"]]));
    assert_eq!(stored(&site).len(), 4, "kept generations have the first ones");
    assert_eq!(post(port, "/1/config/generations/5", "").generation(), 7);
    assert_eq!((page(port).as_deref(), served(port)), (Ok("five"), json!([["first.test"]])));
    // A restart finds them, and an equal text with another certificate is another generation.
    running.quit();
    let running = site.start();
    wait_for_page(port, "five");
    assert_eq!((served(port), &get(port, CONFIG)["generation"]), (json!([["first.test"]]), &json!(7)));
    // Four generations are kept, none of them with the second pair.
    for n in 8..=11 {
        assert_eq!(post(port, CONFIG, &ports.with_tls("more")).generation(), n);
    }
    assert_eq!(stored(&site), digests(&get(port, "/1/config/files")));
    for n in 12..=16 {
        assert_eq!(post(port, CONFIG, &ports.text("none", "")).generation(), n);
    }
    assert!(!site.path(FOLDER).exists(), "the last attachments go with the last generation that has them");
    running.quit();
    site.assert_no_alerts();
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes)
}

#[test]
fn refused_changes_leave_nothing_behind() {
    let ports = Ports::new();
    let port = ports.plain;
    let site = site_of(&ports.text("one", ""));
    let running = site.start();
    wait_for_page(port, "one");
    let (good, other) = (pair("good.test"), pair("other.test"));
    let text = ports.with_tls("two");
    let mismatch = json!({"tls/a.crt": good.0, "tls/a.key": other.1});
    for path in [DRY, CONFIG] {
        let said = post(port, path, &body(&text, mismatch.clone()));
        assert_eq!(said.code(), (400, "ConfigInvalid"), "{}", said.value);
        let complaints = said.value["complaints"].as_array().expect("a list");
        let error = complaints.iter().find(|one| one["level"] == json!("emerg")).expect("an error");
        let reason = error["reason"].as_str().expect("a reason");
        assert!(reason.contains("key values mismatch") && !reason.contains(".tidegate-files"), "{reason}");
        for (attachments, code) in [
            (json!({"../a.crt": "x"}), (400, "ConfigFormatError")),
            (json!({"/etc/a.crt": "x"}), (400, "ConfigFormatError")),
            (json!({"tls/a.crt": 7}), (400, "ConfigFormatError")),
            (json!({"tls/a.crt": {"sha256": "../../../etc"}}), (400, "ConfigFormatError")),
            (json!({"tls/a.crt": {"sha256": "0".repeat(64)}, "tls/a.key": "x"}), (409, "AttachmentNotFound")),
            (json!([]), (400, "ConfigFormatError")),
        ] {
            let said = post(port, path, &body(&text, attachments.clone()));
            assert_eq!(said.code(), code, "{attachments}: {}", said.value);
        }
        let named = text.replace("tls/a.crt", &format!(".tidegate-files/{}/tls/a.crt", "0".repeat(64)));
        assert_eq!(post(port, path, &body(&named, attached(&good))).code(), (400, "ConfigFormatError"));
        assert!(!site.path(FOLDER).exists());
    }
    // A file that no directive reads is not stored, and the answer says so.
    let said = post(port, CONFIG, &body(&ports.text("two", ""), json!({"tls/unused.crt": "x"})));
    assert_eq!(said.generation(), 2);
    let warning = said.value["warnings"]
        .as_array()
        .expect("a list")
        .iter()
        .any(|one| one["reason"].as_str().is_some_and(|words| words.contains("\"tls/unused.crt\" is not stored")));
    assert!(warning && !site.path(FOLDER).exists(), "{}", said.value);
    // Links are not followed.
    std::fs::create_dir_all(site.path("elsewhere/kept")).expect("a folder");
    std::os::unix::fs::symlink(site.path("elsewhere"), site.path(FOLDER)).expect("a link");
    let said = post(port, CONFIG, &body(&text, attached(&good)));
    assert_eq!(said.code(), (500, "InternalError"), "{}", said.value);
    assert_eq!(page(port).as_deref(), Ok("two"));
    assert!(site.path("elsewhere/kept").exists(), "nothing behind a link is removed");
    running.quit();
}

/// Both processes are killed at each step: the next start serves the old or the new configuration, and has the files of
/// that one.
#[test]
fn a_kill_at_any_step_leaves_the_files_of_one_configuration() {
    let (old, new) = (pair("old.test"), pair("new.test"));
    for (step, is_new) in STEPS {
        let ports = Ports::new();
        let port = ports.plain;
        let site = site_of(&ports.text("first", ""));
        let running = site.start();
        wait_for_page(port, "first");
        assert_eq!(post(port, CONFIG, &body(&ports.with_tls("old"), attached(&old))).generation(), 2);
        running.quit();
        let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
        let mut running = start_with(&site, step);
        wait_for_page(port, "old");
        let worker = running.worker();
        let sent = body(&ports.with_tls("new"), attached(&new));
        let client = std::thread::spawn(move || try_ask(port, "POST", CONFIG, "", &sent));
        wait_for_stop(&running, step);
        signal(running.pid(), "KILL");
        running.child.wait().expect("ended");
        let _ = client.join().expect("the client");
        signal(worker, "KILL");
        wait("the worker's end", || if alive(worker) { Err("it lives") } else { Ok(()) });
        drop(running);
        assert!(site.run(&["-t"]).status.success(), "{step}");
        let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
        let running = site.start();
        wait_for_page(port, if is_new { "new" } else { "old" });
        assert_eq!(served(port), json!([[if is_new { "new.test" } else { "old.test" }]]), "{step}");
        assert_eq!(stored(&site).len(), if is_new { 4 } else { 2 }, "{step}");
        running.quit();
    }
}

#[test]
fn keys_in_a_process_of_their_own_are_read_from_attachments() {
    let ports = Ports::new();
    let port = ports.plain;
    let isolated = |text: String| format!("ssl_key_isolation on; {text}");
    let site = site_of(&isolated(ports.text("one", "")));
    let running = site.start();
    wait_for_page(port, "one");
    let first = pair("first.test");
    let text = isolated(ports.with_tls("two"));
    assert_eq!(post(port, DRY, &body(&text, attached(&first))).status, 200);
    assert!(!site.path(FOLDER).exists());
    assert_eq!(post(port, CONFIG, &body(&text, attached(&first))).generation(), 2);
    assert_eq!(served(port), json!([["first.test"]]));
    site.write("conf/a.crt", &first.0);
    let url = format!("https://first.test:{}/", ports.tls);
    let resolve = format!("first.test:{}:127.0.0.1", ports.tls);
    let mut curl = Command::new("curl");
    curl.args(["-s", "--cacert"]).arg(site.path("conf/a.crt")).args(["--resolve", &resolve, &url]);
    let output = curl_output(&mut curl);
    assert!(output.is_none_or(|text| text == "tls"));
    running.quit();
    site.assert_no_alerts();
}

fn curl_output(curl: &mut Command) -> Option<String> {
    match curl.output() {
        Ok(output) => Some(support::text(&output.stdout)),
        Err(_) => {
            testkit::missing_means("curl is not installed");
            None
        }
    }
}

#[test]
fn a_worker_without_rights_reads_the_passwords_of_a_change() {
    if !rustix::process::geteuid().is_root() {
        return testkit::missing_means("only root can give privileges up");
    }
    let group = Command::new("id").args(["-gn", "nobody"]).output().expect("id runs");
    let ports = Ports::new();
    let port = ports.plain;
    let site = site_of(&ports.text("one", ""));
    std::fs::set_permissions(&site.dir, std::fs::Permissions::from_mode(0o755)).expect("open");
    let running = site.start();
    wait_for_page(port, "one");
    let text = format!("user nobody {};", support::text(&group.stdout).trim()) + &ports.text("two", "");
    let closed = "location = /closed { auth_basic a; auth_basic_user_file auth/users; root html; } location / {";
    let text = text.replace("location / {", closed);
    site.write("html/closed", "inside");
    let users = |password: &str| json!({"auth/users": format!("u:{{PLAIN}}{password}\n")});
    let ask = |password: &str| {
        let credentials = base64(format!("u:{password}").as_bytes());
        let request = format!(
            "GET /closed HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic {credentials}\r\n\r\n"
        );
        support::client::Client::connect(port)
            .and_then(|mut client| client.ask_for_head(&request))
            .map(|(status, _)| status)
    };
    for (generation, password) in [(2, "first"), (3, "second")] {
        assert_eq!(post(port, CONFIG, &body(&text, users(password))).generation(), generation);
        assert_eq!((ask(password), ask("other")), (Ok(200), Ok(401)), "{}", site.log());
    }
    let file =
        get(port, "/1/config/files")["attachments"]["auth/users"]["sha256"].as_str().expect("a digest").to_string();
    let found = std::fs::metadata(site.path(FOLDER).join(file).join("auth/users")).expect("the file");
    assert_ne!(found.uid(), 0);
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    running.quit();
}

/// Starts the program where the folder of the configuration is a small file system in memory. `None` without the right to
/// mount.
fn start_in_memory(site: &Site) -> Option<Running<'_>> {
    let conf = site.path("conf");
    let script = format!(
        "cp {0}/nginx.conf {0}.text && mount -t tmpfs -o size=192k none {0} && cp {0}.text {0}/nginx.conf",
        conf.display()
    );
    let prepared = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    if !prepared.is_ok_and(|output| output.status.success()) {
        testkit::missing_means("no mount namespace can be made");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{script} && exec \"$0\" \"$@\""), support::BINARY, "-p"]);
    let child = command.arg(&site.dir).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    Some(Running { site, child })
}

#[test]
fn a_full_disk_keeps_the_old_configuration() {
    let ports = Ports::new();
    let port = ports.plain;
    let site = site_of(&ports.text("one", ""));
    let Some(running) = start_in_memory(&site) else { return };
    wait_for_page(port, "one");
    // As the process sees it.
    let conf = Path::new("/proc")
        .join(running.pid().to_string())
        .join("root")
        .join(site.path("conf").strip_prefix("/").unwrap());
    let entries =
        || std::fs::read_dir(&conf).expect("entries").flatten().map(|entry| entry.file_name()).collect::<BTreeSet<_>>();
    let before = entries();
    let good = pair("good.test");
    for path in [DRY, CONFIG] {
        let large = json!({"tls/a.crt": "x".repeat(300_000), "tls/a.key": good.1});
        let said = post(port, path, &body(&ports.with_tls("two"), large));
        assert_eq!(said.code(), (500, "InternalError"), "{}", said.value);
        assert!(
            said.value["error"]["text"].as_str().is_some_and(|words| words.contains("No space left")),
            "{}",
            said.value
        );
        assert_eq!(entries(), before);
    }
    assert_eq!(page(port).as_deref(), Ok("one"));
    assert_eq!(post(port, CONFIG, &body(&ports.with_tls("two"), attached(&good))).generation(), 2);
    assert_eq!(page(port).as_deref(), Ok("two"));
    running.quit();
}
