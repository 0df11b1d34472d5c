//! Values of the directives: stylesheets and entities are read with the configuration.

use super::files::ConfigFiles;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::HttpTemplate;
use http_engine::media_types::MediaTypes;
use std::collections::HashMap;
use std::sync::Arc;
use xslt::Stylesheet;
use xslt::xml::{Dtd, parse_dtd};

#[derive(Clone)]
pub struct XsltTypes(pub(super) MediaTypes);

impl ValueKind for XsltTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse_beside("text/xml", cx, d).map(XsltTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.warn_of_duplicates(&later.0, cx, d);
        Ok(())
    }
}

#[derive(Clone)]
pub struct Entities(pub(super) Arc<Dtd>);

impl ValueKind for Entities {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let failed = |report: String| Problem::says("xmlParseDTD() failed").at(0).hint(report);
        let path = cx.full_name(&path).to_string_lossy().into_owned();
        let bytes = match cx.store.read(std::path::Path::new(&path)) {
            Ok(bytes) => bytes,
            Err(error) => return Err(failed(format!("failed to load external entity \"{path}\": {error}"))),
        };
        let dtd = parse_dtd(&bytes, &path, &mut ConfigFiles(&mut cx.store)).map_err(|error| failed(error.report()))?;
        Ok(Entities(Arc::new(dtd)))
    }
}

#[derive(Clone)]
pub struct Sheets(pub(super) Vec<Sheet>);

#[derive(Clone)]
pub(super) struct Sheet {
    pub stylesheet: Arc<Stylesheet>,
    pub params: Vec<HttpTemplate>,
}

/// Stylesheets of a configuration by path: several lines share one.
#[derive(Default)]
struct CompiledSheets(HashMap<String, Arc<Stylesheet>>);

impl ValueKind for Sheets {
    const SYNTAX: &'static str = "stylesheet [parameter=value ...]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let path = cx.full_name(&path).to_string_lossy().into_owned();
        let known = cx.get::<CompiledSheets>().0.get(&path).cloned();
        let stylesheet = match known {
            Some(stylesheet) => stylesheet,
            None => {
                let compiled = match xslt::compile_stylesheet(&path, &mut ConfigFiles(&mut cx.store)) {
                    Ok(compiled) => compiled,
                    Err(error) => {
                        let problem = Problem::says(format!("xsltParseStylesheetFile(\"{path}\") failed"));
                        return Err(problem.at(0).hint(error.report));
                    }
                };
                let compiled = Arc::new(compiled);
                cx.get::<CompiledSheets>().0.insert(path, compiled.clone());
                compiled
            }
        };
        let mut params = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(1) {
            params.push(HttpTemplate::compile(cx, d, &word.bytes).map_err(|problem| problem.at(index))?);
        }
        Ok(Sheets(vec![Sheet { stylesheet, params }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Lines of `xslt_param` or `xslt_string_param`.
#[derive(Clone)]
pub struct NamedParams(pub(super) Vec<(String, HttpTemplate)>);

impl ValueKind for NamedParams {
    const SYNTAX: &'static str = "parameter value";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let (name, value) = (name.text().into_owned(), value.bytes.clone());
        let value = HttpTemplate::compile(cx, d, &value).map_err(|problem| problem.at(1))?;
        Ok(NamedParams(vec![(name, value)]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}
