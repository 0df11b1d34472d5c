//! The index of the search: one entry a section, as a script that the page loads when its search field is used.

use super::frame::BookPage;

pub struct SearchPart {
    pub title: String,
    pub anchor: String,
    pub text: String,
}

/// Returns the script. An entry is the page's title, the section's title, the address and the text.
pub fn search_index(pages: &[BookPage]) -> String {
    let mut entries = Vec::new();
    for page in pages {
        for (at, part) in page.parts.iter().enumerate() {
            let words: Vec<&str> = part.text.split_whitespace().collect();
            let text = words.join(" ");
            let section = if at == 0 { "" } else { part.title.as_str() };
            let url = if at == 0 { page.url.clone() } else { format!("{}#{}", page.url, part.anchor) };
            entries.push(serde_json::json!([page.title, section, url, text]));
        }
    }
    // U+2028 and U+2029 end a line in older scripts; `<` could end the element that holds it.
    let json = serde_json::Value::Array(entries).to_string();
    format!("window.searchIndex={};\n", json.replace(['\u{2028}', '\u{2029}'], " ").replace('<', "\\u003c"))
}
