//! Stylesheets of `tests/sheets` give the output that xsltproc (libxslt 1.1.35, libxml2 2.9.14) gave. The first line of each
//! stylesheet names its document.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use xslt::xml::{Loader, ParseOptions};
use xslt::{Clock, DocumentSource, Limits, compile_stylesheet, transform_document};

struct Files(PathBuf);

impl Loader for Files {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.0.join(uri)).map_err(|error| error.to_string())
    }
}

fn run(folder: &Path, sheet: &str, document: &str) -> Result<Vec<u8>, String> {
    let mut files = Files(folder.into());
    let sheet = compile_stylesheet(sheet, &mut files).map_err(|error| error.report)?;
    let bytes = files.load(document)?;
    let options = ParseOptions {
        uri: document,
        external_entities: true,
        external_subset: true,
        entities: None,
        keep_cdata: false,
    };
    let source = DocumentSource::parse(&bytes, &options, &mut files).map_err(|error| error.report())?;
    let sheets = [(Arc::new(sheet), Vec::new())];
    transform_document(source, &sheets, &mut files, Limits::default(), Clock::default())
        .map(|outcome| outcome.bytes)
        .map_err(|error| error.message)
}

#[test]
fn stylesheets_give_the_recorded_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sheets");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
        let path = entry.path();
        let Ok(expected) = std::fs::read(path.with_extension("out")) else { continue };
        if path.extension().is_none_or(|extension| extension != "xsl") {
            continue;
        }
        count += 1;
        let text = std::fs::read_to_string(&path).expect("a stylesheet");
        let document = text.strip_prefix("<!-- ").and_then(|rest| rest.split_once(' ')).expect("a document's name").0;
        let name = entry.file_name().to_string_lossy().into_owned();
        match run(&folder, &name, document) {
            Ok(got) if got == expected => {}
            Ok(got) => wrong.push(format!(
                "{name}:\n{}\ninstead of\n{}",
                String::from_utf8_lossy(&got),
                String::from_utf8_lossy(&expected)
            )),
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(count >= 60, "{count} stylesheets");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
