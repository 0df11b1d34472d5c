//! auth_oidc with a provider that others have written: oidc-provider of npm, with curl and with Chromium as browsers. Skipped, with a
//! message, where Node.js or the packages are missing.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use support::{Site, free_port, text, wait};

/// Versions that the test was written with.
const PACKAGES: [&str; 2] = ["oidc-provider@9.13.3", "playwright-core@1.65.1"];
const CLIENTS: [&str; 6] = ["rs256", "ps256", "es256", "eddsa", "public", "userinfo"];

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a folder with the packages, which is kept for later runs.
fn packages() -> Option<PathBuf> {
    static ONCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    ONCE.get_or_init(install).clone()
}

/// Lets npm install the packages, without running their scripts.
fn install() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oidc-provider");
    std::fs::create_dir_all(&folder).expect("a folder");
    let has = |name: &str| folder.join("node_modules").join(name).join("package.json").exists();
    if !(has("oidc-provider") && has("playwright-core")) {
        let _ = std::fs::write(folder.join("package.json"), "{\"private\": true}");
        let npm = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .args(PACKAGES)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output();
        if !npm.is_ok_and(|output| output.status.success()) || !has("oidc-provider") || !has("playwright-core") {
            testkit::missing_means(&format!(
                "npm cannot install {PACKAGES:?}; no login at a provider of others is tried"
            ));
            return None;
        }
    }
    for name in ["oidc_provider.mjs", "oidc_browser.mjs"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name);
        std::fs::copy(from, folder.join(name)).expect("copied");
    }
    Some(folder)
}

struct Setting {
    folder: PathBuf,
    site: Site,
    /// Ports of the provider and of the site.
    provider: u16,
    port: u16,
    _node: Killed,
}

impl Setting {
    fn new() -> Option<Setting> {
        let folder = packages()?;
        let (provider, port) = (free_port(), free_port());
        let node = Command::new("node")
            .arg("oidc_provider.mjs")
            .args([provider.to_string(), port.to_string()])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(node) = node else {
            testkit::missing_means("node does not run");
            return None;
        };
        let node = Killed(node);
        wait("the provider", || std::net::TcpStream::connect(("127.0.0.1", provider)).map(drop));
        let (mut blocks, mut locations) = (String::new(), String::new());
        for name in CLIENTS {
            let secret = if name == "public" { "" } else { "client_secret \"secret of a client\";" };
            blocks.push_str(&format!(
                "oidc_provider {name} {{ issuer http://127.0.0.1:{provider}; client_id {name}; {secret}
                    redirect_uri /back/{name}; cookie_name S_{name}; scope openid email; userinfo on;
                    logout_uri /logout/{name}; post_logout_uri /left; logout_token_hint on;
                    backchannel_logout_uri /by-provider/{name}; }}\n"
            ));
            locations.push_str(&format!(
                "location /{name} {{ auth_oidc {name}; try_files /page =404;
                    add_header X-User \"$oidc_claim_sub|$oidc_claim_email\"; }}\n"
            ));
        }
        let conf = format!(
            "http {{ access_log off; {blocks}
                server {{ listen 127.0.0.1:{port}; {locations} location = /left {{ return 200 left; }} }} }}"
        );
        let site = Site::new("daemon off; worker_processes 2;", &conf);
        site.write("html/page", "page");
        Some(Setting { folder, site, provider, port, _node: node })
    }
    fn misbehave(&self, how: &str) {
        let url = format!("http://127.0.0.1:{}/misbehave?how={how}", self.provider);
        assert!(Command::new("curl").args(["-sf", "-o", "/dev/null", &url]).status().expect("curl").success());
    }
    /// Follows redirects with the cookies of a browser. Returns the last URL, its status and its user.
    fn browse(&self, jar: &str, url: &str, form: Option<&str>) -> [String; 3] {
        let jar = self.site.path(jar);
        let mut curl = Command::new("curl");
        curl.args(["-sSL", "-o", "/dev/null", "-w", "%{url_effective}\\n%{http_code}\\n%header{x-user}\\n"]);
        curl.arg("-b").arg(&jar).arg("-c").arg(&jar);
        curl.args(form.iter().flat_map(|form| ["--data", form]));
        let output = curl.arg(url).output().expect("curl");
        let said = text(&output.stdout);
        let mut lines = said.lines().map(str::to_string);
        [(); 3].map(|()| lines.next().unwrap_or_else(|| panic!("{url}: {}", text(&output.stderr))))
    }
    /// Returns the page that a browser sees.
    fn page(&self, jar: &str, url: &str) -> String {
        let jar = self.site.path(jar);
        let output = Command::new("curl").arg("-sSL").arg("-b").arg(&jar).arg("-c").arg(&jar).arg(url).output();
        text(&output.expect("curl").stdout)
    }
    /// Logs in. Returns the result of the last redirect.
    fn log_in(&self, jar: &str, name: &str) -> [String; 3] {
        let [at, status, _] = self.browse(jar, &format!("http://127.0.0.1:{}/{name}", self.port), None);
        assert!(at.contains("/interaction/") && status == "200", "{name}: {at} {status}");
        let [at, status, _] = self.browse(jar, &at, Some("prompt=login&login=joe&password=any"));
        assert!(at.contains("/interaction/") && status == "200", "{name}: {at} {status}");
        self.browse(jar, &at, Some("prompt=consent"))
    }
}

/// All algorithms of ID tokens, a client without a secret, signed user information; and everything that the provider can be made to do.
#[test]
fn users_log_in_at_a_provider_of_others() {
    let Some(setting) = Setting::new() else { return };
    let running = setting.site.start();
    for name in CLIENTS {
        let [at, status, user] = setting.log_in(&format!("jar-{name}"), name);
        let wanted = format!("http://127.0.0.1:{}/{name}", setting.port);
        assert_eq!([at, status, user], [wanted, "200".into(), "joe|joe@example.com".into()], "{}", setting.site.log());
    }
    let faults = [
        ("none", "500"),
        ("hmac", "500"),
        ("claims", "500"),
        ("cut", "500"),
        ("missing", "500"),
        ("number", "500"),
        ("access", "503"),
        ("html", "500"),
        ("busy", "503"),
        ("user", "500"),
        ("info", "503"),
    ];
    for (how, wanted) in faults {
        setting.misbehave(how);
        let jar = format!("jar-{how}");
        let [at, status, _] = setting.log_in(&jar, "rs256");
        assert!(at.contains("/back/rs256?"), "{how}: {at}");
        assert_eq!(status, wanted, "{how}: {}", setting.site.log());
        let cookies = setting.site.read(&jar);
        assert!(!cookies.lines().any(|line| line.split('\t').nth(5) == Some("S_rs256")), "{how}: {cookies}");
    }
    setting.misbehave("");
    // Sessions of before go on, and a new login is one again.
    let page = format!("http://127.0.0.1:{}/rs256", setting.port);
    assert_eq!(setting.browse("jar-rs256", &page, None)[1..], ["200", "joe|joe@example.com"]);
    assert_eq!(setting.log_in("jar-again", "rs256")[1], "200");
    running.quit();
    setting.site.assert_no_alerts();
}

/// The user logs out at the provider, which ends the sessions here: by their `sid`, and by the user for a client without one.
#[test]
fn a_provider_of_others_ends_sessions_in_the_back_channel() {
    let Some(setting) = Setting::new() else { return };
    let running = setting.site.start();
    for name in ["rs256", "es256"] {
        let page = format!("http://127.0.0.1:{}/{name}", setting.port);
        let (own, other) = (format!("own-{name}"), format!("other-{name}"));
        assert_eq!(setting.log_in(&own, name)[1..], ["200", "joe|joe@example.com"]);
        assert_eq!(setting.log_in(&other, name)[1..], ["200", "joe|joe@example.com"]);
        let confirm = setting.page(&own, &format!("http://127.0.0.1:{}/session/end", setting.provider));
        let xsrf = confirm.split("name=\"xsrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let form = format!("xsrf={}&logout=yes", xsrf.unwrap_or_else(|| panic!("{confirm}")));
        let end = format!("http://127.0.0.1:{}/session/end/confirm", setting.provider);
        let [_, status, _] = setting.browse(&own, &end, Some(&form));
        assert_eq!(status, "200");
        setting.site.wait_for_log(&format!("oidc_provider \"{name}\": logged out"), 1);
        assert!(setting.browse(&own, &page, None)[0].contains("/interaction/"), "{}", setting.site.log());
        let [at, ..] = setting.browse(&other, &page, None);
        // The session of the other browser has a `sid` of its own; without one, all sessions of the user end, and the provider,
        // where this browser is still logged in, admits it again.
        assert_eq!(at, page, "{}", setting.site.log());
        let again = setting.site.log().matches(&format!("logged in by oidc_provider \"{name}\"")).count();
        assert_eq!(again, if name == "rs256" { 2 } else { 3 }, "{}", setting.site.log());
    }
    running.quit();
    setting.site.assert_no_alerts();
}

#[test]
fn a_browser_logs_in_and_out() {
    let runs = |name: &&str| {
        let status = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let Some(browser) = ["/usr/bin/chromium", "chromium-browser", "google-chrome"].into_iter().find(runs) else {
        return testkit::missing_peer("no Chromium is installed (Debian's package chromium)");
    };
    let Some(setting) = Setting::new() else { return };
    let running = setting.site.start();
    let own = format!("http://127.0.0.1:{}", setting.port);
    let done = Command::new("node")
        .args(["oidc_browser.mjs", browser, &own])
        .current_dir(&setting.folder)
        .stdin(Stdio::null())
        .output()
        .expect("node runs");
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}{}", text(&done.stderr), setting.site.log());
    let steps: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let provider = format!("http://127.0.0.1:{}", setting.provider);
    let is = |at: usize, step: &str, url: String, status: u64, user: &str| {
        assert_eq!(steps[at], serde_json::json!({"step": step, "at": url, "status": status, "user": user}), "{said}");
    };
    is(0, "before", format!("{provider}/interaction"), 200, "");
    is(1, "consent", format!("{provider}/interaction"), 0, "");
    is(2, "inside", format!("{own}/rs256?a=b%20c"), 200, "joe|joe@example.com");
    is(3, "elsewhere", format!("{own}/rs256/page"), 200, "joe|joe@example.com");
    assert!(steps[4]["at"].as_str().is_some_and(|at| at.starts_with(&format!("{provider}/session/end?"))), "{said}");
    is(5, "left", format!("{own}/left"), 0, "");
    is(6, "after", format!("{provider}/interaction"), 200, "");
    running.quit();
    setting.site.assert_no_alerts();
}
