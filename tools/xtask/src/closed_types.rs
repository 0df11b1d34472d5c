//! Types whose parts only their own crate writes, for `cargo xtask tidy`.

/// A type with its parts: files below `crates/` and the structs in them, and the most fields that may be public.
const CLOSED: &[(&str, &[(&str, &[&str])], usize)] = &[
    (
        "Request",
        &[
            ("http/http-engine/src/request/mod.rs", &["Request", "ScriptState"]),
            ("http/http-engine/src/request/scope.rs", &["Scope"]),
            ("http/http-engine/src/request/target.rs", &["Target"]),
            ("http/http-engine/src/request/incoming.rs", &["IncomingHead"]),
            ("http/http-engine/src/request/reply.rs", &["Reply"]),
            ("http/http-engine/src/request/accounting.rs", &["RequestAccount", "CacheCount"]),
            ("http/http-engine/src/request/progress.rs", &["RequestProgress"]),
            ("http/http-engine/src/family.rs", &["Family", "Sub"]),
            ("http/http-engine/src/response/head.rs", &["OutHead"]),
        ],
        15,
    ),
    ("Worker", &[("worker/src/worker.rs", &["Worker"])], 5),
    ("AdmissionState", &[("worker/src/admission.rs", &["AdmissionState"])], 0),
    ("TurnState", &[("worker/src/turn_state.rs", &["TurnState"])], 0),
    ("MemoryPools", &[("worker/src/pools.rs", &["MemoryPools"])], 0),
];

/// Returns a complaint for each closed type that has too many public fields, or that is no longer where it was.
pub fn open_field_complaints(sources: &[(String, String)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, files, most) in CLOSED {
        let mut count = 0;
        for (file, structs) in *files {
            let path = format!("crates/{file}");
            let text = sources.iter().find(|(known, _)| *known == path).map(|(_, text)| text.as_str());
            for wanted in *structs {
                match text.and_then(|text| public_fields(text, wanted)) {
                    Some(fields) => count += fields,
                    None => complaints.push(format!("{path}: \"struct {wanted}\", a part of {name}, is not there")),
                }
            }
        }
        if count > *most {
            complaints.push(format!(
                "{name} and its parts have {count} public fields, at most {most}: give the crate's users a method"
            ));
        }
    }
    complaints
}

/// Counts the public fields of a struct; `None`: the file has no such struct.
fn public_fields(text: &str, name: &str) -> Option<usize> {
    let starts = [format!("pub struct {name} {{"), format!("pub struct {name}<")];
    let start = starts.iter().find_map(|start| text.find(start))?;
    let body = text.get(start..)?.split("\n}").next()?;
    Some(body.lines().skip(1).filter(|line| line.trim_start().starts_with("pub ")).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_crate_are_not_public() {
        let text = "pub struct Sent {\n    /// Bytes.\n    pub bytes: u64,\n    pub(crate) count: u32,\n    own: u8,\n}\npub struct Other {\n    pub x: u8,\n}\n";
        assert_eq!(public_fields(text, "Sent"), Some(1));
        assert_eq!(public_fields(text, "Missing"), None);
    }

    #[test]
    fn a_missing_part_is_a_complaint() {
        let complaints = open_field_complaints(&[]);
        assert!(complaints.iter().any(|text| text.contains("\"struct Worker\"")), "{complaints:?}");
    }
}
