//! Tests of the directives' words, of the connection of variables with zones, and of kept state.

use super::{Addition, Keyval, KeyvalFailure, KeyvalLookups, KeyvalZones, StateKeeper, connect_variables};
use crate::background::Background;
use conf_schema::complaint::ProblemWords;
use conf_schema::table::synthetic_directive;
use conf_schema::{Cx, ValueKind};
use keyval::{KeyMatch, KeyvalPair, KeyvalZone, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use variables::testing::{TestArea, TestSession};
use variables::variable::{VariableSource, VariableTable};

fn words(problem: conf_schema::Problem) -> String {
    match problem.words {
        ProblemWords::Says(words) => words,
        ProblemWords::Directive(words) => words.into_owned(),
    }
}

fn zone(cx: &mut Cx, text: &str) -> Result<(), String> {
    KeyvalZones::<TestArea>::parse(cx, &synthetic_directive("keyval_zone", text)).map(|_| ()).map_err(words)
}

fn keyval(cx: &mut Cx, text: &str) -> Result<(), String> {
    KeyvalLookups::<TestArea>::parse(cx, &synthetic_directive("keyval", text)).map(|_| ()).map_err(words)
}

/// A folder of the test, and a name for its zone that no other test has.
fn place(test: &str) -> (std::path::PathBuf, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-keyval-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    (folder, format!("{test}-{number}"))
}

#[test]
fn wrong_words_are_named() {
    let mut cx = Cx::default();
    for (text, complaint) in [
        ("zone=a:32k zone=b:32k", "invalid parameter \"zone=b:32k\""),
        ("zone=a", "invalid zone size \"zone=a\""),
        ("zone=:32k", "\"keyval_zone\" must have \"zone\" parameter"),
        ("timeout=1s", "\"keyval_zone\" must have \"zone\" parameter"),
        ("zone=a:1k", "zone \"zone=a:1k\" is too small"),
        ("zone=a:32k timeout=x", "invalid timeout value \"x\""),
        ("zone=a:32k timeout=0", "invalid timeout value \"0\""),
        ("zone=a:32k type=cidr", "invalid parameter \"type=cidr\""),
        ("zone=a:32k state=", "invalid parameter \"state=\""),
        ("zone=a:32k sync", "\"sync\" requires the \"timeout\" parameter"),
        ("zone=a:32k synch", "invalid parameter \"synch\""),
    ] {
        assert_eq!(zone(&mut cx, text), Err(complaint.to_string()), "{text}");
    }
    assert_eq!(zone(&mut cx, "zone=words:32k timeout=1h type=ip sync"), Ok(()));
    assert!(cx.warnings.is_empty(), "the store may be declared later: {:?}", cx.warnings);
    assert_eq!(zone(&mut cx, "zone=words:32k"), Err("keyval_zone \"words\" is already declared".to_string()));
    for (text, complaint) in [
        ("a b zone=words", "invalid variable name \"b\""),
        ("a $ zone=words", "invalid variable name \"$\""),
        ("a $b words", "invalid parameter \"words\""),
        ("a $b zone=", "invalid parameter \"zone=\""),
    ] {
        assert_eq!(keyval(&mut cx, text), Err(complaint.to_string()), "{text}");
    }
}

#[test]
fn a_variable_finds_a_zone_declared_after_it() {
    let mut cx = Cx::default();
    keyval(&mut cx, "key $found zone=later").expect("in order");
    zone(&mut cx, "zone=later:32k").expect("in order");
    let zones = connect_variables::<TestArea>(&mut cx).unwrap_or_else(|_| panic!("both are there"));
    zones[0].add(&Addition { key: "key", value: "value", lifetime: None }).expect("new");
    let (variables, ..) = cx.take::<VariableTable<TestArea>>().finish();
    let VariableSource::Computed { by, slot: None, .. } = &variables[0].source else { panic!("looked up each time") };
    let mut out = Vec::new();
    assert!(by.get(&mut TestSession::default(), &mut out));
    assert_eq!(out, b"value");
    zones[0].remove("key").expect("is there");
    assert!(!by.get(&mut TestSession::default(), &mut out));

    keyval(&mut cx, "key $other zone=nowhere").expect("in order");
    let problem = connect_variables::<TestArea>(&mut cx).err().expect("no such zone");
    assert!(problem.inner.is_some());
    assert_eq!(words(problem), "zero size shared memory zone \"nowhere\"");
}

#[test]
fn lifetimes_need_a_timeout() {
    let keyval = |timeout| Keyval {
        name: "a".into(),
        zone: Arc::new(KeyvalZone::new(32_768, KeyMatch::String)),
        timeout,
        state: None,
        sharing: None,
    };
    let (plain, timed) = (keyval(None), keyval(Some(60_000)));
    let addition = |key, lifetime| Addition { key, value: "1", lifetime };
    assert_eq!(plain.add(&addition("a", Some(5))), Err(KeyvalFailure::NoTimeout));
    assert_eq!(plain.add(&addition("a", None)), Ok(()));
    assert_eq!(plain.add(&addition("a", None)), Err(KeyvalFailure::Refused(Refusal::Exists)));
    assert_eq!(plain.change("a", None, Some(5)), Err(KeyvalFailure::NoTimeout));
    assert_eq!(plain.get("a"), Some(KeyvalPair::new("a", "1", None)));
    let now = base::clock::unix_millis();
    assert_eq!(timed.fill(&[addition("a", None), addition("b", Some(5_000))]), Ok(()));
    let expiry: Vec<_> = timed.list().iter().map(|pair| pair.expires.expect("a time") - now).collect();
    assert_eq!(expiry, [60_000, 5_000]);
    assert_eq!(timed.change("b", Some("2"), None), Ok(()));
    assert_eq!(timed.get("b"), Some(KeyvalPair::new("b", "2", Some(now + 60_000))));
}

#[test]
fn state_is_read_at_the_start_and_written_after_changes() {
    let (folder, name) = place("state");
    std::fs::write(folder.join("one"), "{\"a\":\"1\"}").expect("written");
    let declare = || {
        let mut cx = Cx::default();
        cx.prefix.clone_from(&folder);
        zone(&mut cx, &format!("zone={name}:32k state=one")).expect("in order");
        Arc::new(StateKeeper(connect_variables::<TestArea>(&mut cx).unwrap_or_else(|_| panic!("in order"))))
    };
    let log = Arc::new(observe::ErrorLog::new(Vec::new()));
    let keeping = declare();
    let file = || std::fs::read_to_string(folder.join("one")).expect("read");
    runtime::run_future(async {
        Background::<()>::prepare(keeping.clone(), Arc::new(())).await;
        assert_eq!(keeping.find(&name).expect("declared").get("a").map(|p| p.value), Some("1".into()));
        let plan = Arc::new(());
        let run = Background::<()>::run(keeping.clone(), Arc::downgrade(&plan), log.clone());
        let task = runtime::task::spawn_local(run);
        keeping.0[0].add(&Addition { key: "b", value: "2", lifetime: None }).expect("new");
        while !file().contains("\"b\":\"2\"") {
            runtime::time::sleep_for(std::time::Duration::from_millis(1)).await;
        }
        // Another configuration has the same zone, whose pairs count, not the file's.
        std::fs::write(folder.join("one"), "{\"c\":\"3\"}").expect("written");
        let reloaded = declare();
        Background::<()>::prepare(reloaded.clone(), Arc::new(())).await;
        assert_eq!(reloaded.0[0].list().len(), 2);
        keeping.0[0].remove("a").expect("is there");
        task.abort();
    })
    .expect("a control thread");
    // The task's end wrote the last change.
    assert_eq!(file(), "{\n\"b\":\"2\"\n}\n");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_broken_state_file_prevents_the_start_and_is_left_alone() {
    let (folder, name) = place("broken");
    let path = folder.join("one");
    let mut cx = Cx::default();
    cx.prefix.clone_from(&folder);
    std::fs::write(&path, "{\"a\":").expect("written");
    let complaint = zone(&mut cx, &format!("zone={name}:32k state=one")).expect_err("no JSON");
    assert!(complaint.starts_with(&format!("invalid state file \"{}\": ", path.display())), "{complaint}");
    std::fs::write(&path, format!("{{\"a\":\"{}\"}}", "x".repeat(40_000))).expect("written");
    let complaint = zone(&mut cx, &format!("zone={name}:32k state=one")).expect_err("too large");
    assert!(complaint.ends_with("do not fit the zone: key or value is too large"), "{complaint}");
    std::fs::write(&path, "{\"x\":\"1\"}").expect("written");
    let complaint = zone(&mut cx, &format!("zone={name}:32k type=ip state=one")).expect_err("no address");
    assert!(complaint.ends_with("do not fit the zone: invalid key format"), "{complaint}");

    // A worker that cannot read what the master could: nothing is written over it.
    let keyval = Keyval {
        name,
        zone: Arc::new(KeyvalZone::new(32_768, KeyMatch::Ip)),
        timeout: None,
        state: Some(path.clone()),
        sharing: None,
    };
    let keeping = Arc::new(StateKeeper(vec![Arc::new(keyval)]));
    assert_eq!(Background::<()>::unsettled(&*keeping, &()).len(), 1);
    runtime::run_future(async {
        let plan = Arc::new(());
        let run =
            Background::<()>::run(keeping.clone(), Arc::downgrade(&plan), Arc::new(observe::ErrorLog::new(Vec::new())));
        let task = runtime::task::spawn_local(run);
        runtime::task::yield_now().await;
        keeping.0[0].add(&Addition { key: "::1", value: "2", lifetime: None }).expect("new");
        runtime::task::yield_now().await;
        task.abort();
    })
    .expect("a control thread");
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "{\"x\":\"1\"}");
    std::fs::remove_dir_all(&folder).expect("removed");
}
