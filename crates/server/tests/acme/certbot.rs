//! certbot and its nginx plugin (Debian's certbot and python3-certbot-nginx) edit a configuration, test and reload it by the program
//! that they know as `nginx`, against pebble. Skipped with words where one of them is not installed.

use crate::support;

use std::process::Command;
use support::pebble::{Authority, Names};
use support::{Site, free_port, text, wait};

/// Tells whether certbot has the plugin.
fn has_certbot(site: &Site) -> bool {
    let folder = |name: &str| site.path(name).display().to_string();
    let asked = Command::new("certbot")
        .args([
            "plugins",
            "--config-dir",
            &folder("certbot"),
            "--work-dir",
            &folder("work"),
            "--logs-dir",
            &folder("logs"),
        ])
        .output();
    let is_there = asked.is_ok_and(|output| text(&output.stdout).contains("* nginx"));
    if !is_there {
        testkit::missing_peer("certbot with its nginx plugin is not installed: no configuration is edited by it");
    }
    is_there
}

#[test]
fn certbot_installs_and_renews_a_certificate() {
    let site = Site::new("daemon off;", "");
    if !has_certbot(&site) {
        return;
    }
    let (http, tls, dns) = (free_port(), free_port(), free_port());
    let Some(_names) = Names::start(dns) else { return };
    // certbot tries a refused nonce once more only.
    let faults = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0")];
    let Some(authority) = Authority::start_on(&site, free_port(), http, tls, Some(dns), &faults) else { return };
    authority.root(&site);
    let path = |name: &str| site.path(name).display().to_string();
    std::os::unix::fs::symlink(support::BINARY, site.path("nginx")).expect("a link");
    // As distributions have it: absolute paths, and a file for each site. The certificate of the first start is replaced.
    site.write("html/index.html", "a page");
    std::fs::create_dir_all(site.path("conf/sites")).expect("a folder");
    site.write(
        "conf/nginx.conf",
        &format!(
            "daemon off;\npid {};\nerror_log {} info;\nevents {{ }}\nhttp {{\n    access_log off;\n    include sites/*.conf;\n}}\n",
            path("logs/nginx.pid"),
            path("logs/error.log")
        ),
    );
    site.write(
        "conf/sites/www.conf",
        &format!(
            "# A comment that stays.\nserver {{\n    listen 127.0.0.1:{http};\n    listen 127.0.0.1:{tls} ssl;\n    server_name www.certbot.test;\n    \
             ssl_certificate {};\n    ssl_certificate_key {};\n    root {};\n}}\n",
            path("conf/pebble.crt"),
            path("conf/pebble.key"),
            path("html")
        ),
    );
    let running = site.start();
    let certbot = |arguments: &[&str]| {
        let output = Command::new("certbot")
            .args(arguments)
            .args(["--config-dir", &path("certbot"), "--work-dir", &path("work"), "--logs-dir", &path("logs")])
            .args(["--nginx-ctl", &path("nginx"), "--nginx-server-root", &path("conf")])
            .args(["--server", &format!("https://127.0.0.1:{}/dir", authority.port), "--no-verify-ssl"])
            .args(["--http-01-port", &http.to_string(), "--https-port", &tls.to_string()])
            .args(["--non-interactive", "--no-random-sleep-on-renew"])
            .env("PYTHONWARNINGS", "ignore")
            .output()
            .expect("certbot");
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}\n{}", site.read("logs/letsencrypt.log"));
        said
    };
    let served = || {
        let name = format!("www.certbot.test:{tls}");
        let output = Command::new("curl")
            .args(["-s", "--cacert", &path("conf/root.crt"), "--resolve", &format!("{name}:127.0.0.1")])
            .arg(format!("https://{name}/"))
            .output()
            .expect("curl");
        text(&output.stdout)
    };
    assert_eq!(served(), "", "not yet by the authority");
    certbot(&[
        "--nginx",
        "-d",
        "www.certbot.test",
        "--agree-tos",
        "--register-unsafely-without-email",
        "--no-redirect",
    ]);
    wait("the certificate", || if served() == "a page" { Ok(()) } else { Err(site.log()) });
    let edited = site.read("conf/sites/www.conf");
    assert!(edited.contains("# A comment that stays.") && edited.contains("managed by Certbot"), "{edited}");
    let serial = || site.read("certbot/live/www.certbot.test/cert.pem");
    let before = serial();
    certbot(&["renew", "--force-renewal"]);
    assert_ne!(serial(), before);
    wait("the renewed certificate", || if served() == "a page" { Ok(()) } else { Err(site.log()) });
    // Nothing of the challenge stays behind.
    assert_eq!(site.read("conf/sites/www.conf"), edited);
    assert!(!site.path("conf/le_http_01_cert_challenge.conf").exists());
    running.quit();
    site.assert_no_alerts();
}
