//! Zones: named state that all threads share and that outlives a reload.

use conf_schema::value::parse_size;
use conf_schema::{At, Cx, Directive, Problem};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use variables::Template;

/// Minimum size of a zone (nginx: 8 pages).
pub const BYTES_MIN: u64 = 8 * 4096;

/// State by kind, name, size and key. [`drop_unused`] removes what no configuration uses.
type ZoneState = Arc<dyn Any + Send + Sync>;
type States = HashMap<(&'static str, String, u64, Vec<u8>), ZoneState>;
static STATES: LazyLock<Mutex<States>> = LazyLock::new(Mutex::default);

/// Drops the state of zones that no configuration has any more. To be called once before a configuration is read, not for each zone:
/// a configuration may have thousands of them.
pub fn drop_unused() {
    STATES.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, state| Arc::strong_count(state) > 1);
}

/// Returns the state of a zone: an earlier configuration's if name, size and key are equal, else a new one.
pub fn zone_state<T: Send + Sync + 'static>(
    kind: &'static str,
    name: &str,
    size: u64,
    key: &[u8],
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let id = (kind, name.to_string(), size, key.to_vec());
    let known = |states: &States| states.get(&id).and_then(|state| state.clone().downcast::<T>().ok());
    if let Some(state) = known(&STATES.lock().unwrap_or_else(PoisonError::into_inner)) {
        return state;
    }
    // Without the lock: state may take time, and zones of its own.
    let made = Arc::new(make());
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    known(&states).unwrap_or_else(|| {
        states.insert(id.clone(), made.clone());
        made
    })
}

/// Parses `zone=name:size`; fails with nginx's message.
pub fn name_and_size(d: &Directive, index: usize) -> Result<(String, u64), Problem> {
    let word = d.args.get(index).map(|w| w.text().into_owned()).unwrap_or_default();
    let invalid = || Problem::says(format!("invalid zone size \"{word}\"")).at(index);
    let (name, size) = word.strip_prefix("zone=").and_then(|z| z.split_once(':')).ok_or_else(invalid)?;
    let size = parse_size(size.as_bytes()).ok_or_else(invalid)?;
    if size < BYTES_MIN {
        return Err(Problem::says(format!("zone \"{word}\" is too small")).at(index).hint("at least 32k"));
    }
    Ok((name.to_string(), size))
}

pub struct DeclaredZone<A, T> {
    pub name: String,
    pub key: Template<A>,
    pub key_text: Vec<u8>,
    pub state: Arc<T>,
}

#[derive(Default)]
struct ZoneStates(HashMap<String, (&'static str, ZoneState)>);

/// Fails if the name is taken.
pub fn declare_zone<A: 'static, T: Send + Sync + 'static>(
    cx: &mut Cx,
    d: &Directive,
    kind: &'static str,
    zone: DeclaredZone<A, T>,
) -> Result<(), Problem> {
    let name = zone.name.clone();
    if let Some((other, earlier)) = cx.get::<ZoneStates>().0.get(&name) {
        return Err(match earlier.downcast_ref::<DeclaredZone<A, T>>() {
            Some(earlier) if *other == kind => {
                let key = String::from_utf8_lossy(&earlier.key_text);
                Problem::says(format!("{} \"{name}\" is already bound to key \"{key}\"", d.name.text()))
            }
            _ => name_taken(&name),
        });
    }
    cx.get::<ZoneStates>().0.insert(name, (kind, Arc::new(zone)));
    Ok(())
}

/// A zone without a key, of the area `A`.
struct NamedState<A, T>(Arc<T>, std::marker::PhantomData<fn(A)>);

/// Declares a zone without a key.
///
/// # Errors
/// The name is taken.
pub fn declare_named<A: 'static, T: Send + Sync + 'static>(
    cx: &mut Cx,
    d: &Directive,
    kind: &'static str,
    name: &str,
    zone: Arc<T>,
) -> Result<(), Problem> {
    if let Some((other, earlier)) = cx.get::<ZoneStates>().0.get(name) {
        return Err(match earlier.is::<NamedState<A, T>>() && *other == kind {
            true => Problem::says(format!("{} \"{name}\" is already declared", d.name.text())),
            false => name_taken(name),
        });
    }
    cx.get::<ZoneStates>()
        .0
        .insert(name.to_string(), (kind, Arc::new(NamedState::<A, T>(zone, std::marker::PhantomData))));
    Ok(())
}

/// Finds a zone without a key, after the whole configuration was read.
///
/// # Errors
/// As [`find_zone`].
pub fn find_named<A: 'static, T: Send + Sync + 'static>(
    cx: &mut Cx,
    kind: &str,
    name: &str,
) -> Result<Arc<T>, Problem> {
    match cx.get::<ZoneStates>().0.get(name) {
        None => Err(Problem::says(format!("{UNDECLARED} \"{name}\""))),
        Some((known, zone)) => match zone.downcast_ref::<NamedState<A, T>>() {
            Some(NamedState(zone, _)) if *known == kind => Ok(zone.clone()),
            _ => Err(name_taken(name)),
        },
    }
}

/// The problem of a zone whose name has another use.
pub fn name_taken(name: &str) -> Problem {
    Problem::says(format!("the shared memory zone \"{name}\" is already declared for a different use"))
}

/// A zone named by several blocks, one of which sets its size.
struct SharedZone {
    bytes: u64,
    at: At,
}

/// Registers a zone shared by several blocks; `bytes` 0: without a size. Fails on two sizes, or another kind's name.
pub fn share_zone(cx: &mut Cx, kind: &'static str, name: &str, bytes: u64) -> Result<(), Problem> {
    let earlier = match cx.get::<ZoneStates>().0.get(name) {
        None => 0,
        Some((known, zone)) => match zone.downcast_ref::<SharedZone>() {
            Some(shared) if *known == kind => shared.bytes,
            _ => return Err(name_taken(name)),
        },
    };
    if bytes > 0 && earlier > 0 && bytes != earlier {
        return Err(Problem::says(format!(
            "the size {bytes} of shared memory zone \"{name}\" conflicts with already declared size {earlier}"
        )));
    }
    let shared = SharedZone { bytes: bytes.max(earlier), at: cx.at };
    cx.get::<ZoneStates>().0.insert(name.to_string(), (kind, Arc::new(shared)));
    Ok(())
}

/// Fails with nginx's message if a shared zone has no size, after the whole configuration.
pub fn check_shares(cx: &mut Cx, kind: &str) -> Result<(), Problem> {
    let zones = cx.get::<ZoneStates>().0.iter().filter(|(_, (known, _))| *known == kind);
    let mut blank = zones.filter_map(|(name, (_, zone))| Some((name, zone.downcast_ref::<SharedZone>()?)));
    let first = blank.by_ref().filter(|(_, shared)| shared.bytes == 0).min_by_key(|(_, shared)| shared.at.span.start);
    let Some((name, shared)) = first else { return Ok(()) };
    let mut problem = Problem::says(format!("{UNDECLARED} \"{name}\"")).hint("write a size once: zone NAME 64k;");
    problem.inner = Some(shared.at);
    Err(problem)
}

/// Start of nginx's message for an undeclared zone, which it prints after all other checks.
pub const UNDECLARED: &str = "zero size shared memory zone";

/// Call after the whole configuration was read. Fails if undeclared or of another kind.
pub fn find_zone<A: 'static, T: Send + Sync + 'static>(
    cx: &mut Cx,
    kind: &str,
    name: &str,
) -> Result<Arc<DeclaredZone<A, T>>, Problem> {
    let Some((known, zone)) = cx.get::<ZoneStates>().0.get(name) else {
        return Err(Problem::says(format!("{UNDECLARED} \"{name}\"")).hint("no directive declares a zone of this name"));
    };
    match zone.clone().downcast() {
        Ok(zone) if *known == kind => Ok(zone),
        _ => Err(name_taken(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn a_zone_is_made_without_the_lock_of_all_zones() {
        let make = || *zone_state("inner", "a", 1, b"", || 7_u64) + 1;
        assert_eq!(*zone_state("outer", "a", 1, b"", make), 8_u64);
    }

    #[test]
    fn state_outlives_its_configuration() {
        let first = zone_state("test", "one", 1, b"$key", || 7u32);
        let second = zone_state("test", "one", 1, b"$key", || 8u32);
        let other = zone_state("test", "one", 2, b"$key", || 9u32);
        assert_eq!((*first, *second, *other), (7, 7, 9));
        drop((first, second));
        assert_eq!(*zone_state("test", "two", 1, b"", || 1u32), 1);
        drop_unused();
        assert_eq!(*other, 9);
        assert_eq!(*zone_state("test", "one", 1, b"$key", || 10u32), 10);
    }

    #[test]
    fn names_and_sizes() {
        let read = |text: &str| {
            name_and_size(&synthetic_directive("limit_req_zone", text), 0).map_err(|p| format!("{:?}", p.words))
        };
        assert_eq!(read("zone=one:1m"), Ok(("one".into(), 1 << 20)));
        assert!(read("zone=one").expect_err("no size").contains("invalid zone size \\\"zone=one\\\""));
        assert!(read("zone=one:x").expect_err("no number").contains("invalid zone size"));
        assert!(read("zone=one:1k").expect_err("small").contains("zone \\\"zone=one:1k\\\" is too small"));
    }
}
