//! Recorded watch streams (`tests/streams/*.jsonl`), and any order of their events.
//!
//! A line is one step: `{"apply": OBJECT}`, `{"delete": [KIND, NAMESPACE, NAME]}`, `{"disconnect": KIND}`, `{"forget": KIND}`
//! (410 Gone), `{"bookmark": KIND}`, `{"down": BOOL}`, or `{"settle": true}`, which compares the server's configuration with
//! a translation of all objects.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ClusterWorld;

fn streams() -> Vec<(PathBuf, Vec<Value>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/streams");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 3, "{paths:?}");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let steps =
            text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect();
        (path, steps)
    };
    paths.into_iter().map(read).collect()
}

async fn step(world: &ClusterWorld, step: &Value) {
    let (name, value) = step.as_object().unwrap().iter().next().unwrap();
    let word = |at: usize| value[at].as_str().unwrap();
    let kind = || value.as_str().unwrap();
    match name.as_str() {
        "apply" => world.cluster.apply(value.clone()),
        "delete" => world.cluster.delete(word(0), word(1), word(2)),
        "disconnect" => world.cluster.disconnect(kind()),
        "forget" => world.cluster.forget(kind()),
        "bookmark" => world.cluster.bookmark(kind()),
        "down" => world.cluster.set_down(value.as_bool().unwrap()),
        "settle" => world.settle().await,
        other => panic!("unknown step {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn recorded_streams_end_in_the_translation_of_their_objects() {
    for (path, steps) in streams() {
        eprintln!("{}", path.display());
        let world = ClusterWorld::start().await;
        let _controller = world.controller(&[]);
        for one in &steps {
            step(&world, one).await;
            tokio::task::yield_now().await;
        }
        world.settle().await;
    }
}

/// Objects of different names in any order, with disconnects between them: the text is the same.
#[tokio::test(start_paused = true)]
async fn any_order_of_events_ends_in_the_same_text() {
    for (path, steps) in streams() {
        let mut texts = Vec::new();
        for seed in 0..6_u64 {
            let world = ClusterWorld::start().await;
            let _controller = world.controller(&[]);
            let mut objects: Vec<&Value> = steps.iter().filter_map(|step| step.get("apply")).collect();
            // The last state of each object.
            let name = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
            let last = |object: &&Value| objects.iter().rev().find(|other| name(other) == name(object)) == Some(object);
            let kept: Vec<&Value> = objects.iter().copied().filter(|object| last(object)).collect();
            objects = kept;
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = |below: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                usize::try_from(random % below as u64).unwrap()
            };
            while !objects.is_empty() {
                let object = objects.swap_remove(next(objects.len()));
                world.cluster.apply(object.clone());
                match next(6) {
                    0 => world.cluster.disconnect("*"),
                    1 => world.cluster.forget(object["kind"].as_str().unwrap()),
                    2 => world.settle().await,
                    3 => tokio::task::yield_now().await,
                    _ => {}
                }
            }
            world.settle().await;
            let state = world.server.state();
            let mut groups = state.groups.clone();
            groups.values_mut().for_each(|servers| servers.sort());
            texts.push((world.expected().text.remove_servers(&state.main), groups));
        }
        texts.iter().for_each(|text| assert_eq!(text.1, texts[0].1, "{}", path.display()));
        // The folder of the socket differs between servers.
        let plain =
            |text: &str| text.lines().filter(|line| !line.contains("/tidegate-run-")).collect::<Vec<_>>().join("\n");
        texts.iter().for_each(|text| assert_eq!(plain(&text.0), plain(&texts[0].0), "{}", path.display()));
    }
}
