//! Tests of the table, of sums over threads, and of zones over reloads.

use super::*;
use std::collections::HashSet;

#[test]
fn names_follow_the_conventions() {
    let mut names = HashSet::new();
    for set in SETS {
        for row in set.rows {
            let name = row.name;
            assert!(names.insert(name), "{name} is repeated");
            assert!(
                name.starts_with("tidegate_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(!name.ends_with("_total") && !name.ends_with("_count") && !name.ends_with("_bucket"), "{name}");
            assert!(name.ends_with(row.unit.word()), "{name} is in {}", row.unit.word());
            assert!(row.kind != MetricKind::Histogram || row.unit == Unit::Seconds, "{name}");
            assert!(row.doc.trim().ends_with('.') && !row.doc.contains('\n'), "{name}: {}", row.doc);
            assert_eq!(row.label.is_empty(), row.values.is_empty(), "{name}");
            assert!(!set.labels.contains(&row.label) && row.label != "le", "{name}");
        }
    }
    assert_eq!(SETS.iter().map(|set| set.name).collect::<HashSet<_>>().len(), SETS.len());
}

#[test]
fn every_cell_has_one_owner() {
    for set in SETS {
        let mut next = 0;
        for (index, row) in set.rows.iter().enumerate() {
            assert_eq!(table::offset(set.rows, index), next, "{}", row.name);
            next += row.width();
        }
        assert_eq!(set.width(), next);
    }
}

/// Other tests of this process count other things, or in their own zones.
#[test]
fn threads_add_up_and_leave_their_sums_behind() {
    const THREADS: u64 = 8;
    const EACH: u64 = 10_000;
    let (before, level) = (process::LIMIT_CONN.sum_at(1), process::TASKS.sum());
    let work = || {
        for _ in 0..EACH {
            process::LIMIT_CONN.up_at(1);
            process::TASKS.up();
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(work)).collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    assert_eq!(process::LIMIT_CONN.sum_at(1) - before, THREADS * EACH);
    assert_eq!(process::TASKS.sum() - level, THREADS * EACH);
    // One thread may decrement a gauge that another thread incremented.
    for _ in 0..THREADS * EACH {
        process::TASKS.down();
    }
    assert_eq!(process::TASKS.sum(), level);
    // Later threads reuse the blocks of ended ones.
    let numbers: HashSet<usize> = (0..100).map(|_| number_of_a_new_thread()).collect();
    assert!(numbers.len() < 40, "{numbers:?}");
}

fn number_of_a_new_thread() -> usize {
    std::thread::spawn(|| cells::own().number).join().expect("a thread")
}

#[test]
fn a_zone_lives_as_long_as_a_configuration_has_it() {
    let first = MetricZone::<server_zone::Of>::named(&["lives"]);
    first.up(server_zone::REQUESTS);
    first.up_at(server_zone::RESPONSES, status_class(404));
    let next = MetricZone::<server_zone::Of>::named(&["lives"]);
    drop(first);
    next.up(server_zone::REQUESTS);
    assert_eq!((next.sum(server_zone::REQUESTS), next.sum(server_zone::RESPONSES)), (2, 1));
    assert_eq!(MetricZone::<server_zone::Of>::named(&["other"]).sum(server_zone::REQUESTS), 0);
    assert_eq!(MetricZone::<location_zone::Of>::named(&["lives"]).sum(location_zone::REQUESTS), 0, "of another kind");
    drop(next);
    assert!(!zone::all().iter().any(|zone| zone.set.name == "server_zone" && *zone.labels == ["lives"]));
    assert_eq!(MetricZone::<server_zone::Of>::named(&["lives"]).sum(server_zone::REQUESTS), 0);
}

#[test]
fn zones_of_many_threads() {
    let zone = MetricZone::<server_zone::Of>::named(&["threads"]);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let zone = zone.clone();
            std::thread::spawn(move || {
                prepare_thread();
                for _ in 0..1000 {
                    let lease = zone.lease(server_zone::PROCESSING);
                    zone.add(server_zone::SENT, 3);
                    drop(lease);
                }
                zone.lease(server_zone::PROCESSING)
            })
        })
        .collect();
    let leases: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a thread")).collect();
    assert_eq!((zone.sum(server_zone::SENT), zone.level(server_zone::PROCESSING)), (24_000, 8));
    drop(leases);
    assert_eq!(zone.level(server_zone::PROCESSING), 0);
}

#[test]
fn times_fall_into_buckets() {
    let zone = MetricZone::<peer::Of>::named(&["group", "times"]);
    for micros in [0, 5_000, 5_001, 10_000_000, 10_000_001] {
        zone.note(peer::HEADER, micros);
    }
    let all = gather_families();
    let family = all.iter().find(|family| family.row.name == "tidegate_upstream_peer_header_seconds").expect("there");
    let mine =
        family.samples.iter().find(|sample| sample.labels.iter().any(|(_, value)| value == "times")).expect("it");
    let mut expected = vec![0; 15];
    (expected[0], expected[1], expected[13], expected[14]) = (2, 1, 1, 1);
    assert_eq!(mine.value, SampleValue::Times { buckets: expected, sum: 20_010_002, exemplars: Vec::new() });
    let text = prometheus_text(&all);
    let line = |line: &str| text.lines().any(|found| found == line);
    let of = "{upstream=\"group\",peer=\"times\"";
    assert!(line(&format!("tidegate_upstream_peer_header_seconds_bucket{of},le=\"0.005\"}} 2")), "{text}");
    assert!(line(&format!("tidegate_upstream_peer_header_seconds_bucket{of},le=\"+Inf\"}} 5")), "{text}");
    assert!(line(&format!("tidegate_upstream_peer_header_seconds_sum{of}}} 20.010002")), "{text}");
    assert!(line(&format!("tidegate_upstream_peer_header_seconds_count{of}}} 5")), "{text}");
}

#[test]
fn zones_without_configuration_are_not_shown() {
    let families = gather_families();
    assert!(!families.iter().any(|family| family.row.name.starts_with("tidegate_stream_zone_")));
    assert!(families.iter().any(|family| family.row.name == "tidegate_http_requests"));
}

#[test]
fn names_of_zones_are_escaped() {
    let _zone = MetricZone::<limit_req::Of>::named(&["a\"b\\c\nd"]);
    let families = gather_families();
    let text = prometheus_text(&families);
    assert!(text.contains("{zone=\"a\\\"b\\\\c\\nd\",verdict=\"passed\"} 0\n"), "{text}");
    let text = metrics_json(&families);
    assert!(text.contains("{\"zone\":\"a\\\"b\\\\c\\u000ad\",\"verdict\":\"passed\"}"), "{text}");
}

#[test]
fn openmetrics_says_units_and_the_end() {
    let text = openmetrics_text(&gather_families());
    assert!(text.ends_with("\n# EOF\n"));
    assert!(text.contains("# TYPE tidegate_http_sent_bytes counter\n# UNIT tidegate_http_sent_bytes bytes\n# HELP "));
    assert!(text.contains("\ntidegate_http_sent_bytes_total "));
    assert!(text.contains("\ntidegate_loop_busy_seconds_total "));
}

#[test]
fn sources_are_asked_when_metrics_are_told() {
    let zone = MetricZone::<cache::Of>::named(&["asked"]);
    zone.ask(|values| values.set(cache::SIZE, 42));
    assert!(prometheus_text(&gather_families()).contains("tidegate_cache_zone_size_bytes{cache=\"asked\"} 42\n"));
}
