//! Links, anchors and colours of the book.

use super::*;

fn reference() -> reference::Reference {
    reference::read_reference(
        r#"{"version":"0","nginx":"nginx","directives":[
        {"name":"proxy_pass","area":"http","module":"m","syntax":"proxy_pass URL;","contexts":"location","arguments":"1 argument",
         "support":"differs","remark":"as `root` <x>","doc":"Passes `$uri`.","example":"http {\n    proxy_pass http://a;\n}\n","default":null},
        {"name":"root","area":"http","module":"m","syntax":"root path;","support":"supported","default":"html"},
        {"name":"quic_bpf","area":"main","module":"m","support":"not yet"}],
        "variables":[{"name":"$uri","area":"http","doc":"The path.","settable":false}]}"#,
    )
    .expect("tables")
}

fn site(folder: &Path) -> Site {
    fs::create_dir_all(folder.join("docs")).expect("a folder");
    fs::write(folder.join("LICENSE"), "text").expect("a file");
    let mut site = Site::new(folder, &reference());
    site.add_document("docs/a.md", markdown::list_headings("# A\n\n## One `two`\n\n## One two\n"));
    site.add_document("docs/decisions/0001-b.md", vec![]);
    reference::add_reference(&mut site, &reference());
    site
}

struct BookFolder(PathBuf);

impl Drop for BookFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> BookFolder {
    BookFolder(std::env::temp_dir().join(format!("tidegate-book-{}-{name}", std::process::id())))
}

#[test]
fn links_lead_to_pages_and_files_and_dead_ones_are_faults() {
    let folder = folder("links");
    let mut site = site(&folder.0);
    let from = "docs/decisions/0001-b.md";
    assert_eq!(site.resolve(from, "../a.md#one-two-1").as_deref(), Some("../a.html#one-two-1"));
    assert_eq!(site.resolve(from, "../../LICENSE").as_deref(), Some("../files/LICENSE"));
    assert_eq!(site.resolve(from, "https://example.com/").as_deref(), Some("https://example.com/"));
    assert_eq!(site.resolve(from, "../reference.md").as_deref(), Some("../directives.html"));
    assert_eq!(site.resolve(from, "../../docs"), None, "a folder has no page");
    assert!(site.faults().is_empty(), "{:?}", site.faults());
    site.resolve(from, "../none.md");
    site.resolve(from, "../a.md#none");
    assert_eq!(site.faults().len(), 2, "{:?}", site.faults());
    assert_eq!(site.copies().expect("copied"), [("files/LICENSE".to_string(), b"text".to_vec())]);
}

#[test]
fn a_document_becomes_a_page() {
    let folder = folder("page");
    let mut site = site(&folder.0);
    let text = "# A\n\n## One `two`\n\nSee `proxy_pass http://x`, `root a;`, `root`, `$uri` and [it](a.md).\n\n| a |\n|---|\n| b |\n\n```nginx\nroot \"$uri\"; # c\n```\n\n## One two\n";
    let page = markdown::document_page(&mut site, "docs/a.md", text);
    for part in [
        "<h2 id=\"one-two\">One <code>two</code><a class=\"anchor\"",
        "<a class=\"code\" href=\"directive/proxy_pass.html\"><code class=\"short\">proxy_pass http://x</code></a>",
        "<code class=\"lines\"><a href=\"directive/root.html\">root</a> a;</code>",
        "<code>root</code>,",
        "<a class=\"code\" href=\"variables.html#uri\">",
        "<a href=\"a.html\">it</a>",
        "<div class=\"table\" role=\"region\" aria-label=\"Table\" tabindex=\"0\"><table>",
        "<a href=\"directive/root.html\">root</a> <s>&quot;<u>$uri</u>&quot;</s>; <i># c</i>",
        "<h2 id=\"one-two-1\">",
    ] {
        assert!(page.body.contains(part), "{part} is not in:\n{}", page.body);
    }
    assert!(!page.body.contains("<span"), "{}", page.body);
    assert_eq!(page.parts.iter().map(|part| part.title.as_str()).collect::<Vec<_>>(), ["A", "One two", "One two"]);
    assert!(site.faults().is_empty());
    markdown::document_page(&mut site, "docs/a.md", "a <b>bold</b> word\n\n```mermaid\nx\n```\n");
    assert_eq!(site.faults().len(), 3, "{:?}", site.faults());
}

#[test]
fn a_directive_has_a_page_and_one_that_is_missing_has_none() {
    let folder = folder("directive");
    let mut site = site(&folder.0);
    let pages = reference::reference_pages(&mut site, &reference());
    let urls: Vec<&str> = pages.iter().map(|page| page.url.as_str()).collect();
    assert_eq!(urls, ["directives.html", "variables.html", "directive/proxy_pass.html", "directive/root.html"]);
    let body = &pages[2].body;
    assert!(
        body.contains("Differs from nginx:</strong> as <a class=\"code\" href=\"../directive/root.html\">"),
        "{body}"
    );
    assert!(body.contains("&lt;x&gt;") && body.contains("<b>proxy_pass</b>"), "{body}");
    let index = search::search_index(&pages);
    assert!(index.starts_with("window.searchIndex=[[") && !index.contains('<'), "{index}");
}

fn addresses(html: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|mark| html.split(mark).skip(1).filter_map(|rest| rest.split('"').next()))
}

#[test]
fn the_whole_book_has_no_dead_link_and_no_foreign_resource() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository");
    // The tables come from another binary; links to directives are tested above.
    let files = build(&root, &reference()).expect("a book");
    let names: HashSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".html") && !name.starts_with("files/")) {
        let html = String::from_utf8_lossy(bytes);
        for address in addresses(&html).filter(|address| !address.starts_with('#') && *address != "data:,") {
            if address.contains("://") || address.starts_with("mailto:") {
                continue;
            }
            let up = address.matches("../").count();
            let mut path: Vec<&str> = name.split('/').collect();
            path.truncate(path.len() - 1 - up);
            path.push(address.split('#').next().unwrap_or_default().trim_start_matches("../"));
            assert!(names.contains(path.join("/").as_str()), "{name}: {address}");
        }
        for mark in ["src=\"http", "<link rel=\"stylesheet\" href=\"http", "@import", "url(http"] {
            assert!(!html.contains(mark), "{name} loads a resource of another host");
        }
    }
}

#[test]
fn everyday_questions_find_their_recipes_among_the_first_three() {
    const QUESTIONS: &[(&str, &str)] = &[
        ("http to https", "http-to-https"),
        ("SPA", "spa"),
        ("CORS", "cors"),
        ("WebSocket", "websocket"),
        ("basic auth", "basic-auth"),
        ("behind a CDN", "cdn"),
        ("caching", "cache"),
        ("compression", "compression"),
        ("error page", "error-page"),
        ("maintenance", "maintenance"),
        ("A/B", "canary"),
        ("bots", "bots"),
        ("JSON log", "json-log"),
        ("unix socket", "unix-socket"),
        ("mtls", "mtls"),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository");
    let files = build(&root, &reference()).expect("a book");
    let folder = folder("questions");
    fs::create_dir_all(&folder.0).expect("a folder");
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".js")) {
        fs::write(folder.0.join(name), bytes).expect("a file");
    }
    let mut command = Command::new("node");
    command.arg(root.join("tools/xtask/src/book/questions.js"));
    command.arg(folder.0.join("script.js")).arg(folder.0.join("search-index.js"));
    let Ok(output) = command.args(QUESTIONS.iter().map(|(question, _)| question)).output() else {
        testkit::missing_peer("no node here, which runs the book's script");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let results: Vec<&str> = text.lines().collect();
    assert_eq!(results.len(), QUESTIONS.len());
    let missed: Vec<_> = QUESTIONS
        .iter()
        .zip(results)
        .filter(|((_, recipe), found)| !found.split(' ').any(|url| url.starts_with(&format!("recipes/{recipe}.html"))))
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}
