//! No stylesheet and no document holds a thread for long or takes unbounded memory; errors name their position.

use std::cell::Cell;
use std::sync::Arc;
use xslt::xml::{Loader, NoLoader, ParseOptions};
use xslt::{Clock, DocumentSource, Limits, compile_stylesheet, transform_document};

struct Sheets(Vec<(&'static str, String)>);

impl Loader for Sheets {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(name, _)| *name == uri);
        found.map(|(_, text)| text.clone().into_bytes()).ok_or_else(|| "No such file or directory".into())
    }
}

fn sheet(body: &str) -> String {
    format!(
        "<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\" \
         xmlns:f=\"http://exslt.org/functions\" xmlns:m=\"urn:m\" extension-element-prefixes=\"f\">\n{body}\n</xsl:stylesheet>"
    )
}

fn parse(document: &str) -> Result<DocumentSource, xslt::xml::XmlError> {
    let options = ParseOptions {
        uri: "d.xml",
        external_entities: false,
        external_subset: false,
        entities: None,
        keep_cdata: true,
    };
    DocumentSource::parse(document.as_bytes(), &options, &mut NoLoader)
}

fn run(body: &str, document: &str, limits: Limits) -> Result<String, String> {
    let mut sheets = Sheets(vec![("a.xsl", sheet(body))]);
    let compiled = compile_stylesheet("a.xsl", &mut sheets).map_err(|error| error.report)?;
    let source = parse(document).map_err(|error| error.message)?;
    let done = transform_document(source, &[(Arc::new(compiled), Vec::new())], &mut sheets, limits, Clock::default());
    done.map(|outcome| String::from_utf8_lossy(&outcome.bytes).into_owned()).map_err(|error| error.message)
}

#[test]
fn templates_nest_to_a_limit() {
    let body = "<xsl:template match='/' name='t'><xsl:call-template name='t'/></xsl:template>";
    let error = run(body, "<a/>", Limits::default()).expect_err("endless");
    assert!(error.contains("infinite template recursion"), "{error}");
    assert!(error.contains("file a.xsl line 2 element call-template"), "{error}");
    let error =
        run("<xsl:template match='/'><xsl:apply-templates select='.'/></xsl:template>", "<a/>", Limits::default());
    assert!(error.expect_err("endless").contains("infinite template recursion"));
}

#[test]
fn functions_nest_to_a_limit() {
    let body = "<f:function name='m:f'><f:result select='m:f()'/></f:function>\
                <xsl:template match='/'><xsl:value-of select='m:f()'/></xsl:template>";
    let error = run(body, "<a/>", Limits::default()).expect_err("endless");
    assert!(error.contains("too deeply"), "{error}");
}

#[test]
fn steps_memory_and_results_are_bounded() {
    let long = format!("<a>{}</a>", "<b/>".repeat(3000));
    let limits = Limits { steps: 1_000_000, ..Limits::default() };
    let body = "<xsl:template match='/'><xsl:value-of select='count(//b[count(//b[count(//b) &gt; 1]) &gt; 1])'/></xsl:template>";
    assert!(run(body, &long, limits).expect_err("too long").contains("too many steps"));
    let double = "<xsl:template match='/'><xsl:call-template name='d'><xsl:with-param name='t' select=\"'ab'\"/></xsl:call-template>\
                  </xsl:template><xsl:template name='d'><xsl:param name='t'/><xsl:call-template name='d'>\
                  <xsl:with-param name='t' select='concat($t,$t)'/></xsl:call-template></xsl:template>";
    assert!(run(double, "<a/>", Limits::default()).expect_err("too large").contains("too much memory"));
    let wide = "<xsl:template match='/'><r><xsl:for-each select='//b'><xsl:for-each select='//b'><xsl:copy-of select='/'/>\
                </xsl:for-each></xsl:for-each></r></xsl:template>";
    let error = run(wide, &long, Limits::default()).expect_err("too large");
    assert!(error.contains("too much memory"), "{error}");
    let limits = Limits { result: 1000, ..Limits::default() };
    let body = "<xsl:template match='/'><xsl:copy-of select='/'/></xsl:template>";
    assert!(run(body, &long, limits).expect_err("too large").contains("too large"));
}

#[test]
fn fragments_of_ended_templates_are_free() {
    let body = "<xsl:template match='b'><xsl:variable name='v'><x>0123456789</x></xsl:variable><xsl:value-of select='$v'/></xsl:template>";
    let long = format!("<a>{}</a>", "<b/>".repeat(20_000));
    let limits = Limits { bytes: 10 << 20, ..Limits::default() };
    let result = run(body, &long, limits).expect("room");
    assert!(result.len() > 200_000);
}

#[test]
fn documents_nest_to_a_limit() {
    let deep = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
    assert!(parse(&deep(256)).is_ok());
    let error = parse(&deep(257)).map(|_| ()).expect_err("too deep");
    assert!(error.message.contains("Excessive depth"), "{}", error.message);
}

#[test]
fn entities_multiply_to_a_limit() {
    let mut dtd = String::from("<!ENTITY a0 \"aaaaaaaaaa\">");
    for n in 1..12 {
        let reference = format!("&a{};", n - 1).repeat(10);
        dtd.push_str(&format!("<!ENTITY a{n} \"{reference}\">"));
    }
    for content in ["<r>&a11;</r>", "<r x='&a11;'/>"] {
        let error = parse(&format!("<!DOCTYPE r [{dtd}]>{content}")).map(|_| ()).expect_err("too much");
        assert_eq!(error.code, 89, "{}", error.message);
    }
    let cycle = "<!DOCTYPE r [<!ENTITY a '&b;'><!ENTITY b '&a;'>]><r>&a;</r>";
    assert_eq!(parse(cycle).map(|_| ()).expect_err("a cycle").code, 89);
    let cycle = "<!DOCTYPE r [<!ENTITY % a '&#37;a;'> %a;]><r/>";
    assert_eq!(parse(cycle).map(|_| ()).expect_err("a cycle").code, 89);
}

#[test]
fn errors_of_documents_have_libxml2s_codes() {
    for (document, code, message) in [
        ("<r><b></r>", 76, "Opening and ending tag mismatch: b line 1 and r"),
        ("<r>", 77, "Premature end of data in tag r line 1"),
        ("<r/><s/>", 5, "Extra content at the end of the document"),
        ("x", 4, "Start tag expected, '<' not found"),
        ("<r>&x;</r>", 26, "Entity 'x' not defined"),
        ("<r a='1' a='2'/>", 42, "Attribute a redefined"),
        ("<r a=1/>", 39, "AttValue: \" or ' expected"),
        ("<r a='<'/>", 38, "Unescaped '<' not allowed in attributes values"),
        ("<r>]]></r>", 62, "Sequence ']]>' not allowed in content"),
        ("<r>&#0;</r>", 9, "xmlParseCharRef: invalid xmlChar value 0"),
        ("<r>\u{1}</r>", 9, "PCDATA invalid Char value 1"),
    ] {
        let error = parse(document).map(|_| ()).expect_err(document);
        assert_eq!((error.code, error.message.as_str()), (code, message), "{document}");
    }
    let source = parse("<r><p:q/></r>").expect("usable");
    assert_eq!(source.errors.first().map(|error| error.code), Some(201));
}

#[test]
fn stylesheets_that_cannot_work_are_refused_with_their_line() {
    for (body, words) in [
        (
            "<xsl:template match='/'><xsl:value-of select='1+'/></xsl:template>",
            "could not compile select expression '1+'",
        ),
        ("<xsl:template match='a['/>", "failed to compile 'a['"),
        ("<xsl:template match='/'><xsl:bar/></xsl:template>", "unknown xsl:bar"),
        ("<xsl:foo/>", "unknown foo element"),
        ("<xsl:output encoding='nonsense'/>", "unsupported encoding nonsense"),
        ("<xsl:template/>", "match or name attribute expected"),
        ("<xsl:template name='a'/><xsl:template name='a'/>", "duplicate name 'a'"),
        ("<xsl:import href='a.xsl'/>", "recursion detected"),
        ("<xsl:include href='none.xsl'/>", "unable to load none.xsl"),
        ("<xsl:attribute-set name='a' use-attribute-sets='a'/>", "recursion"),
        ("<xsl:template match='/'><r x='{1'/></xsl:template>", "unmatched '{'"),
        ("<xsl:template match='/'><xsl:choose/></xsl:template>", "xsl:choose"),
    ] {
        let error = run(body, "<a/>", Limits::default()).expect_err(body);
        assert!(error.contains(words), "{body}: {error}");
        assert!(error.contains("file a.xsl line"), "{body}: {error}");
    }
    let error = compile_stylesheet("b.xsl", &mut Sheets(vec![("b.xsl", "<a>\n<b></a>".into())]))
        .map(|_| ())
        .expect_err("not XML");
    assert_eq!(error.line, 2);
    assert_eq!(
        error.report,
        "b.xsl:2: parser error : Opening and ending tag mismatch: b line 2 and a\n<b></a>\n       ^"
    );
    assert!(compile_stylesheet("none.xsl", &mut Sheets(Vec::new())).is_err());
}

#[test]
fn errors_at_run_time_end_the_transformation() {
    for (body, words) in [
        (
            "<xsl:template match='/'><xsl:value-of select='$nope'/></xsl:template>",
            "Variable 'nope' has not been declared",
        ),
        (
            "<xsl:template match='/'><xsl:value-of select='m:nope()'/></xsl:template>",
            "function nope bound to urn:m not found",
        ),
        ("<xsl:template match='/'><xsl:call-template name='nope'/></xsl:template>", "'nope' was not found"),
        (
            "<xsl:template match='/'><r>t<xsl:attribute name='x'/></r></xsl:template>",
            "children have been already added",
        ),
        ("<xsl:template match='/'><xsl:comment>--</xsl:comment></xsl:template>", "not allowed in comment"),
        (
            "<xsl:variable name='a' select='$b'/><xsl:variable name='b' select='$a'/><xsl:template match='/'/>",
            "Recursive definition",
        ),
        (
            "<xsl:template match='/'><xsl:variable name='a'/><xsl:variable name='a'/></xsl:template>",
            "Redefinition of variable 'a'",
        ),
        ("<xsl:template match='/'><f:nope/></xsl:template>", "failed to find extension nope"),
    ] {
        let error = run(body, "<a/>", Limits::default()).expect_err(body);
        assert!(error.contains(words), "{body}: {error}");
    }
    let stop = "<xsl:template match='/'><xsl:message terminate='yes'>stop</xsl:message></xsl:template>";
    assert_eq!(run(stop, "<a/>", Limits::default()), Err(String::new()));
}

/// Receiver that leaves after this many questions.
struct Leaves(Cell<u32>);

impl Loader for Leaves {
    fn load(&mut self, uri: &str) -> Result<Vec<u8>, String> {
        NoLoader.load(uri)
    }
    fn is_wanted(&self) -> bool {
        self.0.replace(self.0.get().saturating_sub(1)) > 0
    }
}

#[test]
fn work_ends_within_one_question_when_its_receiver_has_left() {
    let options = ParseOptions {
        uri: "d.xml",
        external_entities: false,
        external_subset: false,
        entities: None,
        keep_cdata: true,
    };
    let long = format!("<a>{}</a>", "<b/>".repeat(300_000));
    let parsed = DocumentSource::parse(long.as_bytes(), &options, &mut Leaves(Cell::new(0)));
    assert!(parsed.is_err_and(|error| error.message.contains("not wanted")));
    let document = format!("<a>{}</a>", "<b/>".repeat(3000));
    let body = "<xsl:template match='/'><xsl:value-of select='count(//b[count(//b[count(//b) &gt; 1]) &gt; 1])'/></xsl:template>";
    for asked in [0, 9] {
        let mut leaves = Leaves(Cell::new(asked));
        let sheet = compile_stylesheet("a.xsl", &mut Sheets(vec![("a.xsl", sheet(body))])).expect("a sheet");
        let source = parse(&document).expect("a document");
        let done = transform_document(
            source,
            &[(Arc::new(sheet), Vec::new())],
            &mut leaves,
            Limits::default(),
            Clock::default(),
        );
        assert!(done.expect_err("not wanted").message.contains("not wanted"));
        assert_eq!(leaves.0.get(), 0);
    }
    // The result's bytes.
    let body = "<xsl:template match='/'><xsl:copy-of select='/'/></xsl:template>";
    let sheet = compile_stylesheet("a.xsl", &mut Sheets(vec![("a.xsl", sheet(body))])).expect("a sheet");
    let source = parse(&format!("<a>{}</a>", format!("<b>{}</b>", "x".repeat(100_000)).repeat(6))).expect("a document");
    let done = transform_document(
        source,
        &[(Arc::new(sheet), Vec::new())],
        &mut Leaves(Cell::new(0)),
        Limits::default(),
        Clock::default(),
    );
    assert!(done.expect_err("not wanted").message.contains("not wanted"));
}
