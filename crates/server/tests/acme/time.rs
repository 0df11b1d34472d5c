//! Orders and renewals in virtual time: the background tasks of a configuration run in the thread of the test, whose clock moves to the
//! next timer whenever no request, no job and no task is under way. The authority is a script; openssl signs.

use crate::support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use runtime::task::{any_ready, spawn_local, yield_now};
use serde_json::{Value, json};
use server::conf;
use std::collections::VecDeque;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use support::Site;
use support::origin::Origin;

const DAY: i64 = 86_400;
/// Rounds without anything under way, after which the clock may move: the end of a job begins the next one.
const QUIET_ROUNDS: usize = 3;

/// The behaviour of the authority, and the requests that it has received.
#[derive(Default)]
struct Script {
    /// Authorizations become valid.
    validates: bool,
    /// `Retry-After` of pending authorizations.
    retry_after: Option<u32>,
    /// Answers to new orders after the first one; then they are accepted.
    refusals: VecDeque<Vec<u8>>,
    /// Responses about renewal windows; the last one stays.
    windows: VecDeque<Vec<u8>>,
    /// Looks at authorizations, payloads of new orders, certificates whose windows were requested.
    looks: usize,
    orders: Vec<Value>,
    asked: Vec<String>,
    /// Number of the last certificate, and its name.
    number: usize,
    name: String,
}

struct Authority {
    script: Arc<Mutex<Script>>,
    origin: Origin,
}

fn response(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nReplay-Nonce: n\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Returns the payload of a signed request.
fn payload(body: &str) -> Value {
    let signed: Value = serde_json::from_str(body).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD.decode(signed["payload"].as_str().unwrap_or_default()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Signs a request for a day, as the authority in the folder.
fn sign(folder: &std::path::Path, number: usize, request: &[u8]) -> String {
    let path = |name: &str| folder.join(name);
    std::fs::write(path("request"), request).expect("written");
    std::fs::write(path("extensions"), "authorityKeyIdentifier=keyid:always\n").expect("written");
    let output = Command::new("openssl")
        .args(["x509", "-req", "-inform", "DER", "-days", "1", "-copy_extensions", "copyall", "-extfile"])
        .arg(path("extensions"))
        .arg("-in")
        .arg(path("request"))
        .arg("-CA")
        .arg(path("authority.crt"))
        .arg("-CAkey")
        .arg(path("authority.key"))
        .args(["-set_serial", &(4096 + number).to_string()])
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{}", support::text(&output.stderr));
    support::text(&output.stdout)
}

/// Returns the length of a complete request.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    Some(head + length.unwrap_or(0)).filter(|length| bytes.len() >= *length)
}

fn respond(script: &mut Script, folder: &std::path::Path, url: &str, path: &str, body: &str) -> Vec<u8> {
    let own = format!("{url}/order/{}", script.number);
    let order = |status: &str| {
        let name = &script.name;
        json!({"status": status, "identifiers": [{"type": "dns", "value": name}], "authorizations": [format!("{url}/authorization")],
            "finalize": format!("{url}/finalize"), "certificate": format!("{url}/certificate")})
        .to_string()
    };
    match path {
        "/directory" => response(
            "200 OK",
            "",
            &json!({"newNonce": format!("{url}/nonce"), "newAccount": format!("{url}/account"), "newOrder": format!("{url}/order"),
                "renewalInfo": format!("{url}/renewal")})
            .to_string(),
        ),
        "/nonce" => response("204 No Content", "", ""),
        "/account" => response("201 Created", &format!("Location: {url}/account/1\r\n"), r#"{"status":"valid"}"#),
        "/order" => {
            if script.number > 0
                && let Some(refusal) = script.refusals.pop_front()
            {
                return refusal;
            }
            let asked = payload(body);
            script.number += 1;
            script.name = asked["identifiers"][0]["value"].as_str().unwrap_or_default().to_string();
            script.orders.push(asked);
            let order = json!({"status": if script.validates { "ready" } else { "pending" },
                "authorizations": [format!("{url}/authorization")], "finalize": format!("{url}/finalize")});
            response("201 Created", &format!("Location: {url}/order/{}\r\n", script.number), &order.to_string())
        }
        "/authorization" => {
            script.looks += 1;
            let status = if script.validates { "valid" } else { "pending" };
            let after = script.retry_after.map(|after| format!("Retry-After: {after}\r\n")).unwrap_or_default();
            let found = json!({"status": status, "identifier": {"type": "dns", "value": script.name},
                "challenges": [{"type": "http-01", "url": format!("{url}/challenge"), "token": "token"}]});
            response("200 OK", &after, &found.to_string())
        }
        "/challenge" => response("200 OK", "", "{}"),
        "/finalize" => {
            let request = payload(body)["csr"].as_str().and_then(|csr| URL_SAFE_NO_PAD.decode(csr).ok());
            let signed = sign(folder, script.number, &request.unwrap_or_default());
            std::fs::write(folder.join("issued.crt"), signed).expect("written");
            response("200 OK", "", &order("valid"))
        }
        "/certificate" => {
            response("200 OK", "", &std::fs::read_to_string(folder.join("issued.crt")).expect("an issued certificate"))
        }
        path if path.starts_with("/renewal/") => {
            script.asked.push(path["/renewal/".len()..].to_string());
            let next = if script.windows.len() > 1 { script.windows.pop_front() } else { script.windows.front().cloned() };
            next.unwrap_or_else(|| response("404 Not Found", "", ""))
        }
        path if format!("{url}{path}") == own => response("200 OK", "", &order("valid")),
        other => panic!("a request for {other}"),
    }
}

impl Authority {
    fn start(site: &Site, script: Script) -> Authority {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        site.write("authority.crt", &params.self_signed(&key).expect("a certificate").pem());
        site.write("authority.key", &key.serialize_pem());
        let script = Arc::new(Mutex::new(script));
        let (its, folder) = (script.clone(), site.dir.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let origin = Origin::on(listener, move |mut talk| {
            if let Some(request) = talk.until(whole) {
                let text = String::from_utf8_lossy(&request).into_owned();
                let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer = respond(&mut its.lock().expect("not poisoned"), &folder, &url, path, body);
                talk.send(&answer);
            }
        });
        Authority { script, origin }
    }
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("not poisoned")
    }
}

/// The state of a certificate's orders.
#[derive(Clone, Debug, Default)]
struct Look {
    /// Since the start, and since 1970.
    seconds: i64,
    now: i64,
    status: Value,
}

impl Look {
    fn failures(&self) -> i64 {
        self.status["failures"].as_i64().unwrap_or(0)
    }
    /// Seconds until the next order.
    fn next(&self) -> i64 {
        self.status["next_order"].as_i64().unwrap_or(0) - self.now
    }
    fn is(&self, state: &str) -> bool {
        self.status["state"] == state
    }
}

/// Lets everything that needs no time happen: tasks, jobs of the pool, requests.
async fn settle(idle: usize) {
    let pool = net::pool::find_pool(net::pool::DEFAULT).expect("the pool");
    let mut quiet = 0;
    while quiet < QUIET_ROUNDS {
        // The only thread of the pool takes this job after all earlier ones.
        pool.run(|| ()).expect("room").await.expect("done");
        yield_now().await;
        yield_now().await;
        quiet = if net::outbound::count() == idle && !any_ready() { quiet + 1 } else { 0 };
    }
}

/// Runs the configuration until `done`, for a virtual `limit` in seconds. `name`: of the certificate.
fn live(site: &Site, authority: &Authority, name: &str, limit: i64, mut done: impl FnMut(&Look) -> bool) {
    let state = site.path("state").display().to_string();
    std::fs::create_dir_all(&state).expect("a folder");
    let port = authority.origin.port;
    site.configure(
        "",
        &format!(
            "http {{ resolver 127.0.0.1:1;
                acme_issuer {issuer} {{ uri http://127.0.0.1:{port}/directory; state_path {state}; accept_terms_of_service; }}
                server {{ listen 127.0.0.1:1 ssl; server_name {name}; acme_certificate {issuer};
                    ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }} }}",
            issuer = name.replace('.', "_"),
        ),
    );
    let options = server::options::parse_options(&["-p".into(), site.dir.clone().into()]).expect("options");
    let reading = conf::read_config(
        &conf_syntax::Disk,
        conf_schema::TextStore::default(),
        &options.invocation(),
        observe::LogFiles::default(),
    );
    let config = reading.config.unwrap_or_else(|failure| panic!("{:?}", failure.complaints));
    config.logs.all().for_each(|file| file.open().expect("a log"));
    net::pool::configure(&[net::pool::PoolSpec { threads: 1, ..Default::default() }]);
    let plan = config.http.clone().expect("an http block");
    base::clock::freeze();
    let began = base::clock::now();
    runtime::block_on(async {
        let idle = net::outbound::count();
        let work: Vec<_> = config.areas().into_iter().flat_map(|area| area.work()).collect();
        for one in &work {
            one.prepare().await;
        }
        let tasks: Vec<_> = work.iter().map(|one| spawn_local(one.run(&config.error_log))).collect();
        loop {
            settle(idle).await;
            let seconds = i64::try_from(base::clock::now().millis_since(began) / 1000).expect("a number");
            let status = http_acme::list_certificates(&plan).first().and_then(|one| one.status());
            let look = Look { seconds, now: base::clock::unix_seconds(), status: status.unwrap_or_default() };
            if done(&look) {
                break;
            }
            assert!(seconds < limit, "{look:?}\n{}", site.log());
            base::clock::set_frozen(runtime::time::next().expect("a timer"));
        }
        tasks.into_iter().for_each(|task| task.abort());
    });
    base::clock::thaw();
}

/// The authority reports `pending` for ever. The order ends, its reason is in the state, and each try follows later than the last.
#[test]
fn an_order_that_is_never_validated_ends_and_is_repeated_later() {
    for (name, retry_after, least, most) in [("never.test", None, 60, 180), ("slow.test", Some(40), 400, 900)] {
        let site = Site::new("", "");
        let authority = Authority::start(&site, Script { retry_after, ..Script::default() });
        let (mut failed, mut last): (Vec<(i64, i64)>, i64) = (Vec::new(), 0);
        live(&site, &authority, name, 4000, |look| {
            if look.failures() > last {
                last = look.failures();
                assert!(look.is("failed"), "{look:?}");
                assert_eq!(look.status["error"], "the authorization timed out");
                failed.push((look.seconds, look.next()));
            }
            last == 3
        });
        // Fifteen looks after the first one, for each try.
        assert_eq!(authority.script().looks, 3 * 16, "{name}");
        assert!((least..=most).contains(&failed[0].0), "{name}: {failed:?}");
        for ((_, pause), seconds) in failed.iter().zip([5, 15, 45]) {
            assert!((seconds * 4 / 5 - 2..=seconds * 6 / 5).contains(pause), "{name}: {failed:?}");
        }
        // The second try began no earlier than announced.
        assert!(failed[1].0 - failed[0].0 >= failed[0].1 + least, "{failed:?}");
    }
}

/// An authority that refuses renewals and asks for a year's patience: the certificate is renewed before its end all the same.
#[test]
fn no_pause_that_an_authority_asks_for_lets_a_certificate_end() {
    let limited = r#"{"type":"urn:ietf:params:acme:error:rateLimited"}"#;
    for (name, status, body) in
        [("busy.test", "503 Service Unavailable", ""), ("limited.test", "429 Too Many Requests", limited)]
    {
        let site = Site::new("", "");
        let refusals = (0..3).map(|_| response(status, "Retry-After: 31536000\r\n", body)).collect();
        let authority = Authority::start(&site, Script { validates: true, refusals, ..Script::default() });
        let mut renewed = 0;
        live(&site, &authority, name, DAY, |look| {
            renewed = look.seconds;
            authority.script().number == 2 && look.is("issued")
        });
        assert!((DAY / 2..DAY).contains(&renewed), "{name}: {renewed}\n{}", site.log());
    }
}

fn window(start: i64, end: i64, fields: &str) -> Vec<u8> {
    let time = |at: i64| {
        let output = Command::new("date").args(["-u", "-d", &format!("@{at}"), "+%FT%TZ"]).output().expect("date");
        support::text(&output.stdout).trim().to_string()
    };
    let info =
        json!({"suggestedWindow": {"start": time(start), "end": time(end)}, "explanationURL": "https://a.test/why"});
    response("200 OK", fields, &info.to_string())
}

fn seconds_now() -> i64 {
    i64::try_from(support::provider::now()).expect("a number")
}

/// A window moves the renewal; the next question follows after `Retry-After`; a window that has moved into the past renews at once,
/// with the replaced certificate in the order.
#[test]
fn renewals_follow_the_window_of_the_authority() {
    let site = Site::new("", "");
    let now = seconds_now();
    let windows = [
        window(now + 5 * 3600, now + 5 * 3600 + 60, "Retry-After: 5000\r\n"),
        window(now - 7200, now - 3600, "Retry-After: 5000\r\n"),
        window(now + 20 * 3600, now + 20 * 3600 + 60, ""),
    ];
    let authority = Authority::start(&site, Script { validates: true, windows: windows.into(), ..Script::default() });
    let (mut questions, mut planned, mut issued) = (Vec::new(), Vec::new(), Vec::new());
    live(&site, &authority, "window.test", 2 * DAY, |look| {
        let script = authority.script();
        if script.asked.len() > questions.len() {
            questions.push(look.seconds);
            planned.push(look.now + look.next() - now);
        }
        if script.number > issued.len() && look.is("issued") {
            issued.push(look.seconds);
        }
        script.asked.len() == 3 && look.is("issued")
    });
    let script = authority.script();
    assert_eq!((script.orders.len(), script.asked.len()), (2, 3), "{}", site.log());
    assert!((5 * 3600..=5 * 3600 + 60).contains(&planned[0]), "{planned:?}");
    assert!((5000..5200).contains(&(questions[1] - questions[0])), "{questions:?}");
    assert!(issued[1] - questions[1] < 60, "{questions:?} {issued:?}");
    assert_eq!(script.orders[0].get("replaces"), None);
    assert_eq!(script.orders[1]["replaces"], script.asked[0].as_str());
    assert_eq!(script.asked[0], script.asked[1]);
    assert_ne!(script.asked[1], script.asked[2]);
    assert!((20 * 3600..=20 * 3600 + 60).contains(&planned[2]), "{planned:?}");
    assert_eq!(
        site.log().matches("the renewal window of \"window.test\" is explained at https://a.test/why").count(),
        1
    );
}

/// After a window late in the life, answers that cannot be used bring the renewal back to half of the life, which is a day.
#[test]
fn without_a_usable_window_the_life_of_the_certificate_counts() {
    let now = seconds_now();
    let text = |body: &str| response("200 OK", "", body);
    let lies: [(&str, Vec<u8>); 7] = [
        ("absent", response("404 Not Found", "", "")),
        ("garbage", text("<html>")),
        ("words", text(r#"{"suggestedWindow":{"start":"soon","end":"later"}}"#)),
        ("nothing", text("{}")),
        ("reversed", window(now + 3600, now, "")),
        ("empty", window(now + 3600, now + 3600, "")),
        ("remote", window(now + 10 * 365 * DAY, now + 11 * 365 * DAY, "")),
    ];
    for (name, lie) in lies {
        let site = Site::new("", "");
        let windows = [window(now + 20 * 3600, now + 21 * 3600, "Retry-After: 100\r\n"), lie];
        let authority =
            Authority::start(&site, Script { validates: true, windows: windows.into(), ..Script::default() });
        let mut planned = Vec::new();
        live(&site, &authority, &format!("{name}.test"), DAY, |look| {
            if authority.script().asked.len() > planned.len() {
                planned.push(look.now + look.next() - now);
            }
            planned.len() == 2
        });
        assert!((20 * 3600..=21 * 3600).contains(&planned[0]), "{name}: {planned:?}");
        // Two hundredths of the life spread renewals.
        assert!((41_400..=43_300).contains(&planned[1]), "{name}: {planned:?}");
        assert!(
            site.log().contains(&format!("renewal information of \"{name}.test\" failed: ")),
            "{name}: {}",
            site.log()
        );
    }
}

/// A server that is out of order is asked again soon, in growing steps; the planned renewal stays until the tries are used up.
#[test]
fn questions_are_repeated_while_the_authority_is_out_of_order() {
    let site = Site::new("", "");
    let now = seconds_now();
    let windows =
        [window(now + 20 * 3600, now + 21 * 3600, "Retry-After: 100\r\n"), response("503 Service Unavailable", "", "")];
    let authority = Authority::start(&site, Script { validates: true, windows: windows.into(), ..Script::default() });
    let (mut questions, mut planned) = (Vec::new(), Vec::new());
    live(&site, &authority, "busy.test", DAY, |look| {
        if authority.script().asked.len() > questions.len() {
            questions.push(look.seconds);
            planned.push(look.now + look.next() - now);
        }
        questions.len() == 6
    });
    let steps: Vec<i64> = questions.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (step, want) in steps.iter().zip([100, 60, 180, 540, 1620]) {
        assert!((want..=want + 70).contains(step), "{steps:?}");
    }
    assert!(planned[..5].iter().all(|at| (20 * 3600..=21 * 3600).contains(at)), "{planned:?}");
    assert!((41_400..=43_300).contains(&planned[5]), "{planned:?}");
}
