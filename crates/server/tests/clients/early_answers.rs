//! Responses before the request's body was read, with installed clients: curl, PHP's curl and git, over HTTP/1, HTTP/2
//! in cleartext and over TLS. Missing clients are skipped with a notice.

use crate::support;

use std::io::Read;
use std::process::{Command, Output};
use support::origin::Origin;
use support::{Site, free_port, text};

/// Repetitions, because failures are not deterministic.
const TIMES: usize = 8;

struct Servers {
    site: Site,
    plain: u16,
    secure: u16,
    _early: Origin,
    /// Reads bodies, and knows an empty repository that may be pushed to.
    _git: Origin,
}

fn servers() -> Servers {
    let (plain, secure) = (free_port(), free_port());
    let early = Origin::new(|mut talk| {
        // The head alone is waited for.
        let whole = |bytes: &[u8]| bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        if talk.until(whole).is_some() {
            talk.send(b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 6\r\nConnection: close\r\n\r\nearly\n");
            while talk.some().is_some() {}
        }
    });
    let git = Origin::new(|mut talk| {
        let line = |text: &str| format!("{:04x}{text}", text.len() + 4);
        let none = "0".repeat(40);
        let refs = format!(
            "{}0000{}0000",
            line("# service=git-receive-pack\n"),
            line(&format!("{none} capabilities^{{}}\0report-status delete-refs\n"))
        );
        while let Some(head) = talk.request() {
            if head.starts_with("POST /200") {
                talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken");
                continue;
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-receive-pack-advertisement";
            talk.send(format!("{head}\r\nContent-Length: {}\r\n\r\n{refs}", refs.len()).as_bytes());
        }
    });
    let conf = format!(
        "http {{ ssl_certificate cert.pem; ssl_certificate_key key.pem; client_max_body_size 100m;
         server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{secure} ssl; http2 on;
           location /403 {{ return 403 no; }} location /405 {{ }} location /413 {{ client_max_body_size 1k; proxy_pass http://127.0.0.1:{0}; }}
           location /401 {{ auth_basic r; auth_basic_user_file users; }}
           location /200 {{ proxy_pass http://127.0.0.1:{1}; }}
           location /422 {{ proxy_pass http://127.0.0.1:{0}; proxy_request_buffering off; }}
           location /r {{ client_max_body_size 10k; proxy_pass http://127.0.0.1:{1}; }} }} }}",
        early.port, git.port
    );
    let site = Site::new("daemon off;", &conf);
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    site.write("conf/users", "a:{PLAIN}b\n");
    site.write("html/405", "a file");
    site.write("large", &"x".repeat(3_000_000));
    Servers { site, plain, secure, _early: early, _git: git }
}

/// `None`, with a notice, if the program is not installed.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(_) => {
            testkit::missing_peer(&format!("no {} here", command.get_program().to_string_lossy()));
            None
        }
    }
}

#[test]
fn curl_sees_every_early_answer() {
    let servers = servers();
    let running = servers.site.start();
    let large = format!("@{}", servers.site.path("large").display());
    for (flag, base) in [
        ("--http1.1", format!("http://127.0.0.1:{}", servers.plain)),
        ("--http1.1", format!("https://127.0.0.1:{}", servers.secure)),
        ("--http2-prior-knowledge", format!("http://127.0.0.1:{}", servers.plain)),
        ("--http2", format!("https://127.0.0.1:{}", servers.secure)),
    ] {
        // libcurl 7.88 in cleartext reads the reset together with the response and loses both, with nginx, too.
        let early = ["401", "403", "405", "413", "422"].iter().filter(|_| flag != "--http2-prior-knowledge");
        for status in early.chain(&["200"]) {
            for _ in 0..TIMES {
                let url = format!("{base}/{status}");
                let arguments = ["-sSk", flag, "-H", "Expect:", "--data-binary", &large, "-w", " %{http_code}", &url];
                let Some(output) = run(Command::new("curl").args(arguments)) else { return };
                let said = text(&output.stdout) + &text(&output.stderr);
                assert!(output.status.success() && said.ends_with(*status), "{flag} {url}: {said}");
            }
        }
    }
    running.quit();
    servers.site.assert_no_alerts();
}

#[test]
fn php_sees_every_early_answer() {
    let servers = servers();
    let running = servers.site.start();
    let code = "if (!function_exists('curl_init')) { echo 'none'; exit; }
        $c = curl_init($argv[1]);
        curl_setopt_array($c, [CURLOPT_RETURNTRANSFER => true, CURLOPT_SSL_VERIFYPEER => false, CURLOPT_SSL_VERIFYHOST => 0,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_2TLS, CURLOPT_POSTFIELDS => file_get_contents($argv[2]), CURLOPT_HTTPHEADER => ['Expect:']]);
        curl_exec($c); echo curl_getinfo($c, CURLINFO_RESPONSE_CODE), curl_error($c);";
    let large = servers.site.path("large").display().to_string();
    for status in ["401", "403", "413"] {
        for _ in 0..TIMES {
            let url = format!("https://127.0.0.1:{}/{status}", servers.secure);
            let Some(output) = run(Command::new("php").args(["-r", code, "--", &url, &large])) else { return };
            let said = text(&output.stdout);
            if said == "none" {
                testkit::missing_means("no curl in php here");
                return;
            }
            assert_eq!(said, status, "{url}");
        }
    }
    running.quit();
}

#[test]
fn git_is_told_that_a_push_is_too_large() {
    let servers = servers();
    let running = servers.site.start();
    let git = |arguments: &[&str]| {
        run(Command::new("git").arg("-C").arg(&servers.site.dir).args(arguments).env("GIT_TERMINAL_PROMPT", "0"))
    };
    if git(&["init", "-q", "."]).is_none() {
        return;
    }
    // Random octets, which git cannot make smaller.
    let mut random = vec![0; 2_000_000];
    std::fs::File::open("/dev/urandom").expect("a device").read_exact(&mut random).expect("octets");
    std::fs::write(servers.site.path("noise"), random).expect("a file");
    let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
    git(&["add", "noise"]);
    git(&[&who[..], &["commit", "-q", "-m", "large"]].concat());
    for (scheme, port) in [("http", servers.plain), ("https", servers.secure)] {
        for _ in 0..TIMES {
            let url = format!("{scheme}://127.0.0.1:{port}/r");
            let push =
                ["-c", "http.sslVerify=false", "-c", "http.postBuffer=5000000", "push", &url, "HEAD:refs/heads/a"];
            let said = text(&git(&push).expect("it was there").stderr);
            assert!(said.contains("413"), "{said}");
        }
    }
    running.quit();
}
