//! Both processes are killed at each step of a change of the configuration by the API.

use crate::support;

use serde_json::json;
use support::config_api::{API, CONFIG, files, get, page, post, site_of, try_ask, wait_for_page};
use support::{Running, Site, alive, free_port, signal, wait};

/// Starts the program so that its master stops at a step of a change (debug builds).
pub fn start_with<'a>(site: &'a Site, step: &str) -> Running<'a> {
    let mut command = site.command(&[]);
    let child = command
        .env("TIDEGATE_CONFIG_STOP", step)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let running = Running { site, child };
    wait("the pid file", || if site.pid() == Some(running.pid()) { Ok(()) } else { Err(site.log()) });
    running
}

pub fn wait_for_stop(running: &Running<'_>, step: &str) {
    let stat = format!("/proc/{}/stat", running.pid());
    wait(step, || {
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        if text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')) {
            Ok(())
        } else {
            Err(running.site.log())
        }
    });
}

pub const STEPS: [(&str, bool); 6] =
    [("checked", false), ("kept", false), ("written", false), ("placed", true), ("sent", true), ("in-force", true)];

/// A configuration of two files, of which one is sent with other words.
fn two_files(port: u16) -> (String, impl Fn(&str) -> String) {
    let main = format!(
        "error_log logs/error.log info; daemon off;\nevents {{ }}\nhttp {{ server {{ listen 127.0.0.1:{port}; {API}\n\
         location / {{ include page; }} }} }}\n"
    );
    let sent = main.clone();
    (main, move |words: &str| files(&[("nginx.conf", &sent), ("page", &format!("return 200 \"{words}\";"))]))
}

/// Both processes are killed at each step of a change: the files are the old ones or the new ones, and the next start
/// serves them.
#[test]
fn a_kill_at_any_step_leaves_the_old_or_the_new_files() {
    for (step, is_new) in STEPS {
        let port = free_port();
        let (main, sent) = two_files(port);
        let site = site_of(&main);
        site.write("conf/page", "return 200 \"old\";");
        let mut running = start_with(&site, step);
        wait_for_page(port, "old");
        let worker = running.worker();
        let client = std::thread::spawn({
            let body = sent("new");
            move || try_ask(port, "POST", CONFIG, "", &body)
        });
        wait_for_stop(&running, step);
        signal(running.pid(), "KILL");
        running.child.wait().expect("ended");
        // A worker without a master reports so to its client, and continues to serve.
        let said = client.join().expect("the client").expect("an answer");
        assert_eq!(said.code(), (503, "ConfigUnavailable"), "{step}");
        assert!(matches!(page(port).as_deref(), Ok("old" | "new")), "{step}");
        signal(worker, "KILL");
        wait("the worker's end", || if alive(worker) { Err("it lives") } else { Ok(()) });
        drop(running);
        let moved = site.read("conf/nginx.conf").contains(".tidegate/2/conf/page");
        assert_eq!(moved, is_new, "{step}");
        assert!(moved || site.read("conf/nginx.conf") == main, "{step}");
        assert!(site.run(&["-t"]).status.success(), "{step}");
        let _ = std::fs::remove_file(site.path("logs/nginx.pid"));
        let running = site.start();
        let want = if is_new { "new" } else { "old" };
        wait_for_page(port, want);
        assert_eq!(get(port, CONFIG)["generation"], json!(if is_new { 2 } else { 1 }), "{step}");
        let left: Vec<_> = std::fs::read_dir(site.path("conf")).expect("entries").flatten().collect();
        assert_eq!(left.len(), 3, "{step}: nothing else is left: {left:?}");
        let kept = get(port, "/1/config/generations");
        assert_eq!(kept.as_array().map(Vec::len), Some(if is_new { 2 } else { 1 }), "{step}: {kept}");
        assert!(post(port, CONFIG, &sent("next")).status == 200, "{step}");
        assert_eq!(page(port).as_deref(), Ok("next"));
        running.quit();
    }
}

/// Kills the worker process at each step: the master continues, and a new worker process agrees with the files.
#[test]
fn a_kill_of_the_worker_process_leaves_files_and_service_equal() {
    for (step, _) in STEPS {
        let port = free_port();
        let (main, sent) = two_files(port);
        let site = site_of(&main);
        site.write("conf/page", "return 200 \"old\";");
        let running = start_with(&site, step);
        wait_for_page(port, "old");
        let worker = running.worker();
        let client = std::thread::spawn({
            let body = sent("new");
            move || try_ask(port, "POST", CONFIG, "", &body)
        });
        wait_for_stop(&running, step);
        signal(worker, "KILL");
        assert!(client.join().expect("the client").is_err(), "{step}: the connection is gone");
        signal(running.pid(), "CONT");
        wait("another worker process", || match running.worker() {
            other if other != worker => Ok(()),
            _ => Err(site.log()),
        });
        let served = wait("an answer", || page(port));
        let moved = site.read("conf/nginx.conf").contains(".tidegate/2/conf/page");
        assert_eq!(served, if moved { "new" } else { "old" }, "{step}");
        assert_eq!(get(port, CONFIG)["generation"], json!(if moved { 2 } else { 1 }), "{step}");
        running.signal("HUP");
        site.wait_for_log("reconfiguring", 1);
        assert_eq!(page(port), Ok(served), "{step}");
        running.quit();
    }
}
