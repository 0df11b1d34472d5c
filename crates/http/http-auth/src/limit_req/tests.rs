//! Tests of buckets over time, and of errors.

use super::*;
use conf_schema::table::synthetic_directive;

fn request(buckets: &Buckets, key: &[u8], rate: Rate, burst: u64, now: u64) -> Option<u64> {
    let counted = buckets.ask(key, rate, burst, now, true).ok();
    // Asking and accounting separately gives equal results.
    let twin = [key, b"'"].concat();
    let asked = buckets.ask(&twin, rate, burst, now, false).ok().map(|_| buckets.account(&twin, rate, now));
    assert!(asked == counted || key.len() < 2 && asked.is_none());
    counted
}

#[test]
fn rates_are_per_second_or_minute() {
    assert_eq!(Rate::parse("10r/s"), Some(Rate(10_000)));
    assert_eq!(Rate::parse("30r/m"), Some(Rate(500)));
    for wrong in ["0r/s", "r/s", "x", "-1r/s", ""] {
        assert_eq!(Rate::parse(wrong), None, "{wrong}");
    }
    assert_eq!(Rate(2000).millis(1000), 500);
}

#[test]
fn a_burst_and_its_draining() {
    let (buckets, rate) = (Buckets::new(32 * 1024), Rate(1000));
    assert_eq!(request(&buckets, b"a", rate, 2000, 1000), Some(0));
    assert_eq!(request(&buckets, b"a", rate, 2000, 1000), Some(1000));
    assert_eq!(request(&buckets, b"a", rate, 2000, 1000), Some(2000));
    assert_eq!(request(&buckets, b"a", rate, 2000, 1000), None);
    assert_eq!(request(&buckets, b"b", rate, 2000, 1000), Some(0));
    assert_eq!(request(&buckets, b"a", rate, 2000, 2000), Some(2000));
    assert_eq!(request(&buckets, b"a", rate, 2000, 100_000), Some(0));
}

#[test]
fn memory_is_bounded_and_the_oldest_go() {
    let (buckets, rate) = (Buckets::new(32 * 1024), Rate(1000));
    for n in 0..10_000u32 {
        assert_eq!(request(&buckets, &n.to_le_bytes(), rate, 0, 1000), Some(0));
    }
    assert_eq!(request(&buckets, &9_999u32.to_le_bytes(), rate, 0, 1000), None);
    assert_eq!(request(&buckets, &0u32.to_le_bytes(), rate, 0, 1000), Some(0));
    let large = vec![b'x'; 60_000];
    assert_eq!(buckets.ask(&large, rate, 0, 1000, true), Err(BucketVerdict::Full));
}

#[test]
fn large_zones_are_split() {
    let (buckets, rate) = (Buckets::new(1 << 20), Rate(1000));
    for n in 0..100_000u32 {
        assert_eq!(request(&buckets, &n.to_le_bytes(), rate, 0, u64::from(n)), Some(0));
    }
}

#[test]
fn complaints_in_nginx_words() {
    let mut cx = Cx::default();
    for (text, want) in [
        ("burst=1", "\\\"limit_req\\\" must have \\\"zone\\\" parameter"),
        ("zone=a burst=0", "invalid burst value \\\"burst=0\\\""),
        ("zone=a delay=x", "invalid delay value \\\"delay=x\\\""),
        ("zone=a soon", "invalid parameter \\\"soon\\\""),
    ] {
        let got =
            format!("{:?}", RateLimit::parse(&mut cx, &synthetic_directive("limit_req", text)).expect_err(text).words);
        assert!(got.contains(want), "{got}");
    }
    for (text, want) in [
        ("$a zone=z:1m rate=0r/s", "invalid rate \\\"rate=0r/s\\\""),
        ("$a rate=1r/s rate=1r/s", "\\\"limit_req_zone\\\" must have \\\"zone\\\" parameter"),
    ] {
        let got =
            Zone::parse(&mut cx, &synthetic_directive("limit_req_zone", text)).err().map(|p| format!("{:?}", p.words));
        assert!(got.as_ref().is_some_and(|got| got.contains(want)), "{got:?}");
    }
}
