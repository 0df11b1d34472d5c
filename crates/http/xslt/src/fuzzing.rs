//! Bodies of the fuzz targets.

use crate::transform::{Clock, DocumentSource, transform_document};
use crate::xml::{Loader, NoLoader, ParseOptions, parse_dtd};
use crate::{Limits, compile_stylesheet};
use std::sync::Arc;

/// Options of documents that responses have.
fn options() -> ParseOptions<'static> {
    ParseOptions { uri: "doc.xml", external_entities: false, external_subset: false, entities: None, keep_cdata: true }
}

/// The parser of documents, and that of DTDs.
pub fn xml(bytes: &[u8]) {
    let _ = DocumentSource::parse(bytes, &options(), &mut NoLoader);
    let _ = parse_dtd(bytes, "a.dtd", &mut NoLoader);
}

struct OneSheet<'b>(&'b [u8]);

impl Loader for OneSheet<'_> {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        match uri {
            "sheet.xsl" => Ok(self.0.to_vec()),
            _ => Err("not found".into()),
        }
    }
}

/// A stylesheet and a document behind a line `----`; without one, a document of the target's own.
pub fn xslt(bytes: &[u8]) {
    let cut = bytes.windows(6).position(|window| window == b"\n----\n");
    let (sheet, document) = match cut {
        Some(at) => (bytes.get(..at).unwrap_or(&[]), bytes.get(at + 6..).unwrap_or(&[])),
        None => (bytes, &b"<a x='1'><b>1</b><b>2</b><!--c--><?p i?>t</a>"[..]),
    };
    let mut loader = OneSheet(sheet);
    let Ok(sheet) = compile_stylesheet("sheet.xsl", &mut loader) else { return };
    let Ok(source) = DocumentSource::parse(document, &options(), &mut NoLoader) else { return };
    let limits = Limits { steps: 200_000, bytes: 4 << 20, result: 1 << 20, depth: 300 };
    let _ = transform_document(source, &[(Arc::new(sheet), Vec::new())], &mut loader, limits, Clock::default());
}
