//! ModSecurity's own tests of operators and transformations: JSON files of a checkout.

use super::files_below;
use ::waf::{RuleFiles, RuleText, Transformation, evaluate_operator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Data files beside the tests.
struct TestFiles(PathBuf);

impl RuleFiles for TestFiles {
    fn include(&self, _: &str, _: &str) -> Result<Vec<RuleText>, String> {
        Err("tests include nothing".into())
    }
    fn data(&self, name: &str, _: &str) -> Result<Vec<u8>, String> {
        let name = Path::new(name).file_name().unwrap_or_default();
        std::fs::read(self.0.join("op").join(name)).map_err(|error| error.to_string())
    }
}

/// Decodes `\xHH` and `\u00HH`, by which the tests write bytes.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let escape = rest.strip_prefix("\\x").map(|tail| (tail, 2)).or(rest.strip_prefix("\\u").map(|tail| (tail, 4)));
        let decoded = escape.and_then(|(tail, digits)| {
            let value = u32::from_str_radix(tail.get(..digits)?, 16).ok()?;
            Some((u8::try_from(value).ok()?, tail.get(digits..)?))
        });
        match decoded {
            Some((byte, tail)) => {
                out.push(byte);
                rest = tail;
            }
            None => {
                let (head, tail) = rest.split_at(first.len_utf8());
                out.extend_from_slice(head.as_bytes());
                rest = tail;
            }
        }
    }
    out
}

pub fn run(folder: &Path, only: &str) -> Result<(), String> {
    let mut paths = Vec::new();
    files_below(folder, ".json", &mut paths)?;
    let mut files: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut fails = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(only) {
            continue;
        }
        let data = TestFiles(path.parent().unwrap_or(folder).to_path_buf());
        let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let tests: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for test in tests.as_array().into_iter().flatten() {
            let result = check(test, &data);
            let file = files.entry(name.clone()).or_default();
            file.0 += u32::from(result.is_ok());
            file.1 += 1;
            if let Err(reason) = result {
                fails.push(format!("{name}: {reason}"));
            }
        }
    }
    for (name, (passed, all)) in &files {
        print!("{name} {passed}/{all}  ");
    }
    let (passed, all) = files.values().fold((0, 0), |(passed, all), file| (passed + file.0, all + file.1));
    println!("\n{passed} of {all} tests pass");
    fails.iter().for_each(|fail| println!("{fail}"));
    Ok(())
}

fn check(test: &Value, data: &TestFiles) -> Result<(), String> {
    let text = |name: &str| test[name].as_str().unwrap_or_default();
    // One file has the name of the source file instead.
    let name = text("name").replace("cmd_line", "cmdLine");
    let name = name.as_str();
    let input = bytes_of(text("input"));
    if text("type") == "op" {
        let expected = test["ret"].as_i64() == Some(1);
        let parameter = String::from_utf8_lossy(&bytes_of(text("param"))).into_owned();
        let matches = evaluate_operator(name, &parameter, &input, data)?;
        return match matches == expected {
            true => Ok(()),
            false => Err(format!("@{name} {parameter:?} on {:?} is {matches}", text("input"))),
        };
    }
    let transformation = Transformation::named(name).ok_or_else(|| format!("t:{name} does not exist"))?;
    let output = transformation.apply(&input, None).unwrap_or_else(|| input.clone());
    let expected = bytes_of(text("output"));
    match output == expected {
        true => Ok(()),
        false => {
            let shown = String::from_utf8_lossy(&output).into_owned();
            Err(format!("t:{name} of {:?} is {shown:?}, not {:?}", text("input"), text("output")))
        }
    }
}
