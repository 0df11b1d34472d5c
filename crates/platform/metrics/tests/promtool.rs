//! All names of the table follow Prometheus' conventions, as its own checker sees them.

use metrics::{MetricZone, SETS, gather_families, prometheus_text};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn promtool_has_no_complaint_about_any_set() {
    macro_rules! zones {
        ($($set:ident: $labels:expr),+ $(,)?) => { ($(MetricZone::<metrics::$set::Of>::named(&$labels)),+) };
    }
    let _zones = zones!(
        worker: ["0"],
        worker_process: [],
        reload: [],
        certificate: ["example.pem"],
        server_zone: ["a"],
        location_zone: ["b"],
        peer: ["c", "127.0.0.1:80"],
        cache: ["d"],
        limit_req: ["e"],
        limit_conn: ["f"],
        resolver: ["g"],
        stream_zone: ["h"],
        firewall_rule: ["1"],
        store: ["i"],
    );
    let families = gather_families();
    let rows: usize = SETS.iter().map(|set| set.rows.len()).sum();
    assert_eq!(families.len(), rows, "a set is missing in this test");
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = started else {
        testkit::missing_peer("promtool is not installed");
        return;
    };
    promtool.stdin.take().expect("piped").write_all(prometheus_text(&families).as_bytes()).expect("written");
    let output = promtool.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
