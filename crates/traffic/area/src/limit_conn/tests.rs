//! Tests of counting and errors.

use super::*;
use conf_schema::table::synthetic_directive;

#[test]
fn places_are_given_back() {
    let counts = Arc::new(ZoneCounts::new("test", zones::BYTES_MIN));
    let first = counts.take(b"a", 2, None);
    let second = counts.take(b"a", 2, None);
    assert!(matches!((&first, &second), (CountOutcome::Taken(_), CountOutcome::Taken(_))));
    assert!(matches!(counts.take(b"a", 2, None), CountOutcome::Many));
    assert!(matches!(counts.take(b"b", 2, None), CountOutcome::Taken(_)));
    drop(first);
    assert!(matches!(counts.take(b"a", 2, None), CountOutcome::Taken(_)));
    drop(second);
    assert!(counts.by_key.lock().expect("a lock").is_empty());
}

#[test]
fn memory_is_bounded() {
    let counts = Arc::new(ZoneCounts::new("test", zones::BYTES_MIN));
    let taken: Vec<CountOutcome> = (0..600u32).map(|n| counts.take(&n.to_le_bytes(), 1, None)).collect();
    assert_eq!(taken.iter().filter(|o| matches!(o, CountOutcome::Taken(_))).count(), 512);
    assert_eq!(taken.iter().filter(|o| matches!(o, CountOutcome::Full)).count(), 88);
}

#[test]
fn complaints_in_nginx_words() {
    let mut cx = Cx::default();
    for (text, want) in [
        ("one 0", "invalid number of connections \\\"0\\\""),
        ("one x", "invalid number of connections \\\"x\\\""),
        ("one 65536", "connection limit must be less 65536"),
    ] {
        let got =
            format!("{:?}", ConnLimit::parse(&mut cx, &synthetic_directive("limit_conn", text)).expect_err(text).words);
        assert!(got.contains(want), "{got}");
    }
    let mut zone = |text: &str| {
        ConnZone::<variables::testing::TestArea>::parse(&mut cx, &synthetic_directive("limit_conn_zone", text))
            .map_err(|p| format!("{:?}", p.words))
    };
    assert!(zone("$a zone=one:1m").is_ok());
    let twice = zone("$b zone=one:1m").err().expect("twice");
    assert!(twice.contains("limit_conn_zone \\\"one\\\" is already bound to key \\\"$a\\\""), "{twice}");
    assert!(zone("$a zone=two:1m sync").is_ok());
    assert!(zone("$a zone=three:1m synch").err().expect("wrong").contains("invalid parameter \\\"synch\\\""));
    assert!(zone("$b rate=one:1m").err().expect("wrong").contains("invalid parameter \\\"rate=one:1m\\\""));
}
